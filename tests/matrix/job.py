"""What users do with a window, step by step: the job that each Spark of the matrix runs, with the job side from the shipped zip.

It notes what came of each step, and goes on. In the end it forgets a check, so that its exit code has to be 1. Like the job side, it
takes Python 3.8.
"""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

import airflow_kafka_offsets
from airflow_kafka_offsets.spark import KafkaWindow, current_window, islands, options
from airflow_kafka_offsets.spark.errors import (
    DataLossError,
    IncompleteReadError,
    KafkaWindowError,
    OtherWindowError,
    WriteOptionError,
)
from airflow_kafka_offsets.spark.handoff import CONF_WINDOW, Handoff

if TYPE_CHECKING:
    from collections.abc import Callable

    Step = Callable[["Job"], None]
    Write = Callable[[KafkaWindow, DataFrame], Any]

PASSED = "passed"
FILES, JDBC, DELTA, ICEBERG, CONNECT = "files", "jdbc", "delta", "iceberg", "connect"
STEPS: dict[str, tuple[str, Step]] = {}
"""What is done, in this order: name -> what it is about, and the function. What is about nothing in particular, each Spark must do."""


def step(name: str, about: str = "") -> Callable[[Step], Step]:
    """Add a step."""

    def add(function: Step) -> Step:
        STEPS[name] = (about, function)
        return function

    return add


class Job:
    """What the steps have in common.

    Args:
        spark: The session.
        told: What `tests.matrix.runs` tells.
    """

    def __init__(self, spark: SparkSession, told: dict[str, Any]) -> None:
        self.spark = spark
        self.folder: str = told["folder"]
        self.topics: dict[str, dict[str, Any]] = told["topics"]
        self.database: dict[str, Any] = told["database"]
        self.handoff = Handoff.from_json(told["window"])
        self._seq = self.handoff.seq

    def ranges(self, *topics: str) -> dict[str, Any]:
        """Return all offsets of some topics."""
        return {self.topics[topic]["name"]: self.topics[topic]["ranges"] for topic in topics}

    def window(self, topic: str = "plain", **values: Any) -> KafkaWindow:
        """Return a window with an id of its own, of all offsets of a topic; `values` replace what it has."""
        self._seq += 1
        mine = {"window_id": f"{self.handoff.group}-{self._seq:06}", "seq": self._seq, "report": None}
        return KafkaWindow(self.spark, replace(self.handoff, **{**mine, "topics": self.ranges(topic), **values}))

    def again(self, window: KafkaWindow, **values: Any) -> KafkaWindow:
        """Return the same window, as its rerun gets it."""
        return KafkaWindow(self.spark, replace(window._handoff, **values))


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
    foreign = job.again(other, until="2027-01-01T00:00:00+00:00")
    said = refused(OtherWindowError, lambda: write(foreign, numbers(foreign.read())))
    assert f"another window {other.id}" in said, said
    same(rows(other.id), list(range(10)))


@step("the Python files of the Spark, and those that were shipped")
def _(job: Job) -> None:
    same(pyspark.__version__, job.spark.version)
    assert ".zip/" in airflow_kafka_offsets.__file__, airflow_kafka_offsets.__file__


@step("current_window(), read(), write_parquet(), report", FILES)
def _(job: Job) -> None:
    window = current_window(job.spark)
    assert window is current_window(job.spark)
    path = window.write_parquet(numbers(window.read()), f"{job.folder}/current")
    same(path, f"{job.folder}/current/window_id={window.id}")
    same(found(job.spark.read.parquet(path)), list(range(10)))
    report = json.loads(Path(str(job.handoff.report)).read_text())
    same(report["counts"], {job.topics["plain"]["name"]: {"0": 6, "1": 4}})


@step("read(), check()")
def _(job: Job) -> None:
    window = job.window()
    same(found(numbers(window.read())), list(range(10)))
    window.check()
    same((window.records, window.gaps), (10, 0))


@step("limit(5) is refused; check(recount=True)")
def _(job: Job) -> None:
    window = job.window()
    window.read().limit(5).collect()
    said = refused(IncompleteReadError, window.check)
    assert " of 10 planned offsets were read" in said, said
    window.check(recount=True)
    same(window.records, 10)


@step("a frame that was never run is refused")
def _(job: Job) -> None:
    window = job.window()
    window.read()
    said = refused(IncompleteReadError, lambda: window.check(timeout=2))
    assert "was not run" in said, said


@step("persisted()")
def _(job: Job) -> None:
    window = job.window()
    with window.persisted() as frame:
        same(window.records, 10)
        same(frame.limit(3).count(), 3)
        same(found(numbers(frame)), list(range(10)))


@step("both versions of Spark's Kafka source; headers")
def _(job: Job) -> None:
    for version in (1, 2):
        window = job.window()
        same(len(window.read(sourceVersion=version, includeHeaders=True).select("headers", "offset").collect()), 10)
        window.check()


@step("several topics, counted by partition")
def _(job: Job) -> None:
    report = f"{job.folder}/several.json"
    window = job.window(topics=job.ranges("plain", "large"), report=report)
    window.read().select("offset").collect()
    window.check()
    counts = {job.topics["plain"]["name"]: {"0": 6, "1": 4}, job.topics["large"]["name"]: {"0": 900}}
    same(json.loads(Path(report).read_text())["counts"], counts)


@step("transactions: gaps are counted, or refused")
def _(job: Job) -> None:
    window = job.window("gaps", expect_gaps=True)
    same(found(numbers(window.read())), [0, 1, 2])
    window.check()
    same((window.records, window.gaps), (3, 4))
    window = job.window("gaps")
    window.read().collect()
    said = refused(IncompleteReadError, window.check)
    assert "3 of 7 planned offsets were read" in said, said


@step("offsets that Kafka no longer has are named")
def _(job: Job) -> None:
    window = job.window("lost")
    said = refused(DataLossError, lambda: window.write(window.read(), lambda rows, _: rows.collect()))
    assert f"{job.topics['lost']['name']}-0" in said, said


@step("a large range is cut", FILES)
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


@step("an empty window")
def _(job: Job) -> None:
    window = job.window(topics={job.topics["plain"]["name"]: {"0": (4, 4)}})
    same(window.read().collect(), [])
    window.check()
    same(window.records, 0)


@step("islands()")
def _(job: Job) -> None:
    window = job.window()
    with window.persisted() as frame:
        rows = sorted(tuple(row)[1:] for row in islands(frame).collect())
    same(rows, [(0, 0, 5, 1), (1, 0, 3, 1)])


@step("write(): a function")
def _(job: Job) -> None:
    window = job.window()
    same(window.write(numbers(window.read()), lambda rows, of: (of.id, found(rows))), (window.id, list(range(10))))


def _files(job: Job, kind: str) -> None:
    path = f"{job.folder}/{kind}"

    def rows(window_id: str) -> list[int]:
        return found(job.spark.read.format(kind).schema("n int").load(f"{path}/window_id={window_id}"))

    replaced(job, lambda window, frame: getattr(window, f"write_{kind}")(frame, path), rows)


for _kind in ("parquet", "orc", "json"):
    step(f"write_{_kind}(), reruns", FILES)(lambda job, kind=_kind: _files(job, kind))


@step("files over Spark Connect are refused", CONNECT)
def _(job: Job) -> None:
    window = job.window()
    said = refused(KafkaWindowError, lambda: window.write_parquet(window.read(), f"{job.folder}/parquet"))
    assert "not possible over Spark Connect" in said, said


@step("write_jdbc(), reruns", JDBC)
def _(job: Job) -> None:
    url, properties, table = job.database["url"], job.database["properties"], job.database["table"]

    def rows(window_id: str) -> list[int]:
        reader = job.spark.read.format("jdbc").options(url=url, dbtable=table, driver="org.postgresql.Driver")
        return found(reader.options(**properties).load().filter(f"window_id = '{window_id}'"))

    replaced(job, lambda window, frame: window.write_jdbc(frame, url, table, properties, create=True), rows)


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
    assert "order_by: it orders rows with one key" in said, said


def outcome(take: Step, job: Job) -> str:
    """Take a step, and return what came of it."""
    try:
        take(job)
    except Exception as exc:
        traceback.print_exc()
        return f"{type(exc).__name__}: {exc}"[:1000]
    return PASSED


def main(told: dict[str, Any]) -> None:
    """Take the steps that this Spark can take, and forget a check."""
    remote = told.get("remote")
    builder = SparkSession.builder.remote(remote) if remote else SparkSession.builder
    spark = builder.getOrCreate()
    if remote:
        spark.conf.set(CONF_WINDOW, told["window"])
    job = Job(spark, told)
    outcomes = {name: outcome(take, job) for name, (about, take) in STEPS.items() if not about or about in told["has"]}
    Path(told["outcomes"]).write_text(json.dumps(outcomes))
    current_window(spark).read().limit(5).collect()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
