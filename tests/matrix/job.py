"""What users do with a window, step by step: the job that each Spark of the matrix runs, with the job side from the shipped zip.

It notes what came of each step, and goes on. In the end it forgets a check, so that its exit code has to be 1. Like the job side, it
takes Python 3.8.
"""

from __future__ import annotations

import json
import platform
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlparse

import pyspark
from pyspark.sql import DataFrame, SparkSession

import airflow_kafka_offsets
from airflow_kafka_offsets.spark import KafkaWindow, current_window, islands, options
from airflow_kafka_offsets.spark.errors import (
    BadRecordError,
    IncompleteReadError,
    KafkaWindowError,
    LostRecordsError,
    OtherWindowError,
    TargetError,
    WriteOptionError,
)
from airflow_kafka_offsets.spark.handoff import CONF_WINDOW, REPORTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    Take = Callable[["Job"], None]
    Write = Callable[[KafkaWindow, DataFrame], Any]

PASSED = "passed"
LAUNCH, READ, VALUES, EXCHANGE, FILES, JDBC, STAGED, DELTA, ICEBERG = (
    *("launch", "read", "values", "exchange", "files", "jdbc", "staged"),
    *("delta", "iceberg"),
)
"""What a step is about."""
SUBMIT, CONNECT = "spark-submit", "Spark Connect"
"""How the job gets its Spark."""
REPORTED = "a window from an exchange: what the job read is reported there, and a commit task accepts it"
"""A step that passes only if the commit task after the job commits that window, too."""


class Step(NamedTuple):
    """One thing that is done.

    Attributes:
        about: What it is about; a step about Delta or Iceberg is for a Spark that has it.
        ways: How the job may get its Spark.
        take: Does it.
    """

    about: str
    ways: tuple[str, ...]
    take: Take


STEPS: dict[str, Step] = {}
"""What is done, in this order."""


def step(name: str, about: str, *ways: str) -> Callable[[Take], Take]:
    """Add a step; without `ways`, it is taken in each."""

    def add(function: Take) -> Take:
        STEPS[name] = Step(about, ways or (SUBMIT, CONNECT), function)
        return function

    return add


def steps_of(way: str, tables: Collection[str]) -> list[str]:
    """Return the names of the steps that a Spark has to take.

    Args:
        way: How the job gets it.
        tables: The table formats that there are for it.
    """
    lacking = {DELTA, ICEBERG}.difference(tables)
    return [name for name, one in STEPS.items() if way in one.ways and one.about not in lacking]


class Job:
    """What the steps have in common.

    Args:
        spark: The session.
        told: What `tests.matrix.runs` tells.
    """

    def __init__(self, spark: SparkSession, told: dict[str, Any]) -> None:
        self.spark = spark
        self.told = told
        self.folder: str = told["folder"]
        self.topics: dict[str, dict[str, Any]] = told["topics"]
        self.database: dict[str, Any] = told["database"]
        self.handoff = current_window(spark)._handoff
        self.is_3 = spark.version.startswith("3.")
        self._seq = self.handoff.seq

    def name(self, topic: str) -> str:
        """Return the real name of a topic."""
        return str(self.topics[topic]["name"])

    def ranges(self, *topics: str) -> dict[str, Any]:
        """Return all offsets of some topics."""
        return {self.name(topic): self.topics[topic]["ranges"] for topic in topics}

    def window(self, topic: str = "plain", **values: Any) -> KafkaWindow:
        """Return a window with an id of its own, of all offsets of a topic; `values` replace what it has."""
        self._seq += 1
        mine = {"window_id": f"{self.handoff.group}-{self._seq:06}", "seq": self._seq, "report": None}
        return KafkaWindow(self.spark, replace(self.handoff, **{**mine, "topics": self.ranges(topic), **values}))

    def again(self, window: KafkaWindow, **values: Any) -> KafkaWindow:
        """Return the same window, as its rerun gets it."""
        return KafkaWindow(self.spark, replace(window._handoff, **values))

    def rows(self, table: str) -> DataFrame:
        """Return what a table of the database has."""
        reader = self.spark.read.format("jdbc").options(url=self.database["url"], dbtable=table)
        return reader.options(driver="org.postgresql.Driver", **self.database["properties"]).load()


def numbers(frame: DataFrame) -> DataFrame:
    """Return the numbers that the values of the records are."""
    return frame.selectExpr("cast(cast(value as string) as int) as n")


def found(frame: DataFrame) -> list[int]:
    """Return the numbers in a frame, sorted."""
    return sorted(row.n for row in frame.select("n").collect())


def refused(error: type[Exception], call: Callable[[], object]) -> str:
    """Return the message of an error of this type; there has to be one."""
    try:
        call()
    except error as exc:
        return str(exc)
    raise AssertionError(f"no {error.__name__}")


def same(actual: object, expected: object) -> None:
    """Compare, and say both when they differ."""
    assert actual == expected, f"{actual!r} is not {expected!r}"


def replaced(job: Job, write: Write, rows: Callable[[str], list[int]]) -> None:
    """Let two windows write, and one of them again: fewer, and nothing. Another ledger's window of its id is refused."""
    other, window = job.window(), job.window()
    write(other, numbers(other.read()))
    for condition, expected in (("n < 7", 7), ("n < 3", 3), ("n < 0", 0)):
        run = job.again(window)
        write(run, numbers(run.read()).filter(condition))
        same(run.records, 10)
        same(rows(window.id), list(range(expected)))
    same(rows(other.id), list(range(10)))
    foreign = job.again(other, planned_until="2027-01-01T00:00:00+00:00")
    said = refused(OtherWindowError, lambda: write(foreign, numbers(foreign.read())))
    assert f"another window {other.id}" in said, said
    same(rows(other.id), list(range(10)))


@step("the Python files of the Spark, and those that were shipped", READ)
def _(job: Job) -> None:
    same(pyspark.__version__, job.spark.version)
    assert ".zip/" in airflow_kafka_offsets.__file__, airflow_kafka_offsets.__file__


@step("connector, Avro and start archive of this Spark and its Scala", LAUNCH, SUBMIT)
def _(job: Job) -> None:
    jvm: Any = job.spark.sparkContext._jvm
    scala = job.told["scala"]
    assert jvm.scala.util.Properties.versionNumberString().startswith(f"{scala}."), scala
    jars = job.spark.sparkContext.getConf().get("spark.jars") or ""
    for artifact in ("spark-sql-kafka-0-10", "spark-avro"):
        assert f"{artifact}_{scala}-{job.spark.version}.jar" in jars, jars
    mapped = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps").read_text()
    assert Path(job.told["archive"]).name in mapped, "the driver was started without its archive"


@step("current_window(), read(), check(), report", READ)
def _(job: Job) -> None:
    window = current_window(job.spark)
    assert window is current_window(job.spark)
    window.read().select("offset").collect()
    window.check()
    report = json.loads(Path(str(job.handoff.report)).read_text())
    same(report["counts"], {job.name("plain"): {"0": 6, "1": 4}, job.name("avro"): {"0": 5}})


@step("read(), check()", READ)
def _(job: Job) -> None:
    window = job.window()
    same(found(numbers(window.read())), list(range(10)))
    window.check()
    same((window.records, window.gaps), (10, 0))


@step("limit(5) is refused; check(recount=True)", READ)
def _(job: Job) -> None:
    window = job.window()
    window.read().limit(5).collect()
    said = refused(IncompleteReadError, window.check)
    assert " of 10 planned offsets were read" in said, said
    window.check(recount=True)
    same(window.records, 10)


@step("a frame that was never run is refused", READ)
def _(job: Job) -> None:
    window = job.window()
    window.read()
    said = refused(IncompleteReadError, lambda: window.check(timeout=2))
    assert "Spark reported no action" in said, said


@step("persisted()", READ)
def _(job: Job) -> None:
    window = job.window()
    with window.persisted() as frame:
        same(window.records, 10)
        same(frame.limit(3).count(), 3)
        same(found(numbers(frame)), list(range(10)))


@step("both versions of Spark's Kafka source; headers", READ)
def _(job: Job) -> None:
    for version in (1, 2):
        window = job.window()
        same(len(window.read(sourceVersion=version, includeHeaders=True).select("headers", "offset").collect()), 10)
        window.check()


@step("several topics, counted by partition", READ)
def _(job: Job) -> None:
    report = f"{job.folder}/several.json"
    window = job.window(topics=job.ranges("plain", "large"), report=report)
    window.read().select("offset").collect()
    window.check()
    counts = {job.name("plain"): {"0": 6, "1": 4}, job.name("large"): {"0": 900}}
    same(json.loads(Path(report).read_text())["counts"], counts)


@step("transactions: gaps are counted, or refused", READ)
def _(job: Job) -> None:
    window = job.window("gaps", expect_gaps=True)
    same(found(numbers(window.read())), [0, 1, 2])
    window.check()
    same((window.records, window.gaps), (3, 4))
    window = job.window("gaps")
    window.read().collect()
    said = refused(IncompleteReadError, window.check)
    assert "3 of 7 planned offsets were read" in said, said


@step("offsets that Kafka no longer has are named", READ)
def _(job: Job) -> None:
    window = job.window("lost")
    said = refused(LostRecordsError, lambda: window.write(window.read(), lambda rows, _: rows.collect()))
    assert f"{job.name('lost')}-0" in said, said
    # Spark 3 names the first of them only.
    assert ("Cannot fetch offset 0 (" if job.is_3 else "Could not read records in offset [0, ") in said, said


@step("a large range is cut; options that cut", READ, SUBMIT)
def _(job: Job) -> None:
    before = options.MIN_SLICE, options.RANGE_COST
    options.MIN_SLICE, options.RANGE_COST = 100, 1
    try:
        window = job.window("large")
        frame = window.read()
    finally:
        options.MIN_SLICE, options.RANGE_COST = before
    same(frame.rdd.getNumPartitions(), 8)
    same(found(numbers(frame)), list(range(900)))
    window.check()
    # Spark 3 has the first of these options only.
    same(job.window("large").read(minPartitions=5).rdd.getNumPartitions(), 5)
    by_records = job.window("large").read(maxRecordsPerPartition=100).rdd.getNumPartitions()
    same(by_records, 1 if job.is_3 else 9)


@step("an empty window", READ)
def _(job: Job) -> None:
    window = job.window(topics={job.name("plain"): {"0": (4, 4)}})
    same(window.read().collect(), [])
    window.check()
    same(window.records, 0)


@step("islands()", READ)
def _(job: Job) -> None:
    window = job.window()
    with window.persisted() as frame:
        rows = sorted(tuple(row)[1:] for row in islands(frame).collect())
    same(rows, [(0, 0, 5, 1), (1, 0, 3, 1)])


@step("write(): a function", READ)
def _(job: Job) -> None:
    window = job.window()
    same(window.write(numbers(window.read()), lambda rows, of: (of.id, found(rows))), (window.id, list(range(10))))


NO_SCHEMA = "its value can't be decoded: no schema with id 999 "


@step("value='avro', key='avro': two versions of a schema, a tombstone", VALUES)
def _(job: Job) -> None:
    window = job.window(topics={job.name("avro"): {"0": (0, 4)}})
    rows = window.read(value="avro", key="avro").select("offset", "key", "value.id", "value.city").collect()
    expected = [(0, 42, 0, "?"), (1, 42, 1, "?"), (2, 42, 2, "Köln"), (3, 42, None, None)]
    same(sorted((tuple(row) for row in rows), key=lambda row: row[0]), expected)
    window.check()


@step("a bad record ends the job, and is named", VALUES)
def _(job: Job) -> None:
    window = job.window("avro")
    said = refused(BadRecordError, lambda: window.write(window.read(value="avro"), lambda rows, _: rows.collect()))
    assert f"Kafka record {job.name('avro')}-0 offset 4: {NO_SCHEMA}" in said, said


@step("bad records become NULL, and are counted", VALUES)
def _(job: Job) -> None:
    window = job.window("avro")
    rows = window.read(value="avro", on_bad="null").selectExpr("value.id as n").filter("n is not null")
    same(window.write(rows, lambda rows, _: found(rows)), [0, 1, 2])
    same((window.records, window.bad), (5, 1))


@step("bad records go aside", VALUES)
def _(job: Job) -> None:
    window = job.window("avro")
    aside: list[Any] = []
    with window.persisted(value="avro", on_bad="side", side=lambda bad, _: aside.extend(bad.collect())) as frame:
        same(sorted(row.offset for row in frame.select("offset").collect()), [0, 1, 2, 3])
    same([(row.offset, row.reason.startswith(NO_SCHEMA)) for row in aside], [(4, True)])


@step("bad records go aside from read(), and the others stay until release()", VALUES)
def _(job: Job) -> None:
    window = job.window("avro")
    aside: list[Any] = []
    rows = window.read(value="avro", on_bad="side", side=lambda bad, _: aside.extend(bad.collect())).select("offset")
    same(window.write(rows, lambda rows, _: sorted(row.offset for row in rows.collect())), [0, 1, 2, 3])
    same((window.records, window.bad), (5, 1))
    same([(row.offset, row.reason.startswith(NO_SCHEMA)) for row in aside], [(4, True)])
    window.release()


@step("value='json', with and without a registry's header; value='string'", VALUES)
def _(job: Job) -> None:
    window = job.window("json")
    same(found(window.read(value="json", schema="id bigint").selectExpr("value.id as n")), [7, 8])
    window.check()
    window = job.window()
    same(found(window.read(value="string").selectExpr("cast(value as int) as n")), list(range(10)))
    window.check()


@step(REPORTED, EXCHANGE)
def _(job: Job) -> None:
    window = current_window(job.spark, job.told["exchange"])
    window.read().select("offset").collect()
    window.check()
    retry = job.again(window)
    retry._report()  # as in the driver of a retry, which takes the window
    retry.write(numbers(retry.read()), lambda rows, _: same(found(rows), list(range(10))))
    reports = sorted(Path(urlparse(job.told["exchange"]).path, REPORTS).iterdir())
    same([int(report.name.split("-")[0]) for report in reports], [1, 1, 2, 2])
    told = [json.loads(next(report.glob("part-*")).read_text()) for report in reports]
    same([report["records"] for report in told], [None, 10, None, 10])
    same(told[-1]["counts"], {job.name("plain"): {"0": 6, "1": 4}})


def _files(job: Job, kind: str) -> None:
    path = f"{job.folder}/{kind}"

    def rows(window_id: str) -> list[int]:
        return found(job.spark.read.format(kind).schema("n int").load(f"{path}/window_id={window_id}"))

    replaced(job, lambda window, frame: getattr(window, f"write_{kind}")(frame, path), rows)


for _kind in ("parquet", "orc", "json"):
    step(f"write_{_kind}(), reruns", FILES, SUBMIT)(lambda job, kind=_kind: _files(job, kind))


@step("files over Spark Connect are refused", FILES, CONNECT)
def _(job: Job) -> None:
    def refuse(kind: str) -> str:
        window = job.window()
        return refused(
            KafkaWindowError, lambda: getattr(window, f"write_{kind}")(window.read(), f"{job.folder}/{kind}")
        )

    for said in map(refuse, ("parquet", "orc", "json")):
        assert "Spark Connect can't rename" in said, said


@step("write_jdbc(), reruns", JDBC, SUBMIT)
def _(job: Job) -> None:
    url, properties, table = job.database["url"], job.database["properties"], "replaced"

    def rows(window_id: str) -> list[int]:
        return found(job.rows(table).filter(f"window_id = '{window_id}'"))

    replaced(job, lambda window, frame: window.write_jdbc(frame, url, table, properties, create=True), rows)


@step("write_jdbc() over Spark Connect is refused", JDBC, CONNECT)
def _(job: Job) -> None:
    window, url, properties = job.window(), job.database["url"], job.database["properties"]
    said = refused(TargetError, lambda: window.write_jdbc(numbers(window.read()), url, "replaced", properties))
    assert "stage_jdbc()" in said, said


@step("stage_jdbc(), a rerun; another table, and less than all, are refused", STAGED)
def _(job: Job) -> None:
    window, url, properties, table = job.window(), job.database["url"], job.database["properties"], "staged"

    def stage(run: KafkaWindow, frame: DataFrame, where: str = table) -> int:
        return run.stage_jdbc(frame, url, where, properties)

    for condition, expected in (("n < 7", 7), ("n < 0", 0)):
        run = job.again(window)
        same(stage(run, numbers(run.read()).filter(condition)), expected)
        same(run.records, 10)
    entries = job.rows("kafka_offsets_staged").filter(f"window_id = '{window.id}'").collect()
    same(sorted((row.target, row.row_count) for row in entries), [(table, 0), (table, 7)])
    same(sorted(len(found(job.rows(row.staging))) for row in entries), [0, 7])
    run = job.window()
    said = refused(TargetError, lambda: stage(run, numbers(run.read()), "elsewhere"))
    assert "Nothing would publish the rows staged for elsewhere" in said, said
    short = job.window()
    refused(IncompleteReadError, lambda: stage(short, numbers(short.read()).limit(3)))


@step("write_delta(), reruns", DELTA)
def _(job: Job) -> None:
    path = f"{job.folder}/delta"

    def rows(window_id: str) -> list[int]:
        return found(job.spark.read.format("delta").load(path).filter(f"window_id = '{window_id}'"))

    replaced(job, lambda window, frame: window.write_delta(frame, path), rows)


@step("write_delta(mode='append'), reruns", DELTA)
def _(job: Job) -> None:
    path = f"{job.folder}/appended"
    window = job.window()
    for run, is_written in ((window, True), (job.again(window), False)):
        same(run.write_delta(numbers(run.read()), path, mode="append"), is_written)
        same(found(job.spark.read.format("delta").load(path)), list(range(10)))


@step("write_iceberg(), reruns", ICEBERG)
def _(job: Job) -> None:
    def rows(window_id: str) -> list[int]:
        return found(job.spark.table("lab.db.replaced").filter(f"window_id = '{window_id}'"))

    replaced(job, lambda window, frame: window.write_iceberg(frame, "lab.db.replaced"), rows)


@step("write_iceberg(merge_on=...), reruns", ICEBERG)
def _(job: Job) -> None:
    first, second = job.window(), job.window()

    def merge(window: KafkaWindow, condition: str) -> list[tuple[int, int]]:
        rows = numbers(window.read()).filter(condition).selectExpr("n % 4 as k", "n")
        window.write_iceberg(rows, "lab.db.merged", merge_on="k", order_by="n")
        return sorted((row.k, row.n) for row in job.spark.table("lab.db.merged").collect())

    same(merge(first, "n < 5"), [(0, 4), (1, 1), (2, 2), (3, 3)])
    same(merge(second, "n in (0, 9)"), [(0, 4), (1, 9), (2, 2), (3, 3)])
    same(merge(job.again(first), "n < 3"), [(0, 0), (1, 9), (2, 2)])
    window = job.window()
    said = refused(
        WriteOptionError, lambda: window.write_iceberg(numbers(window.read()), "lab.db.merged", order_by="n")
    )
    assert "order_by requires merge_on" in said, said


def outcome(take: Take, job: Job) -> str:
    """Take a step, and return what came of it."""
    try:
        take(job)
    except Exception as exc:
        traceback.print_exc()
        return f"{type(exc).__name__}: {exc}"[:1000]
    return PASSED


def java_version(spark: SparkSession) -> str:
    """Return the version of the driver's Java."""
    jvm: Any = spark.sparkContext._jvm
    return str(jvm.java.lang.System.getProperty("java.version"))


def main(told: dict[str, Any]) -> None:
    """Take the steps that this Spark can take, note what came of them, and forget a check."""
    way, remote = told["way"], told.get("remote")
    builder = SparkSession.builder.remote(remote) if remote else SparkSession.builder
    spark = builder.getOrCreate()
    if remote:
        spark.conf.set(CONF_WINDOW, told["window"])
    job = Job(spark, told)
    outcomes = {name: outcome(STEPS[name].take, job) for name in steps_of(way, told["tables"])}
    noted = {"python": platform.python_version(), "java": None if remote else java_version(spark), "outcomes": outcomes}
    Path(told["outcomes"]).write_text(json.dumps(noted))
    current_window(spark).read().limit(5).collect()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
