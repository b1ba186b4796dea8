"""Windows read over Spark Connect, by a client in a process of its own: the reads that are counted, and those that need a recount."""

from __future__ import annotations

import json
import sys
import textwrap
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.topics import create_topic, delete_records, produce, produce_bytes
from tests.lab.waiting import run_to_end
from tests.spark.avro import encoded, framed

if TYPE_CHECKING:
    from tests.lab.kafka import KafkaBroker
    from tests.lab.spark_connect import SparkConnect

ROOT = Path(__file__).parents[2]

PRELUDE = """
import sys
from pyspark.sql import SparkSession, functions as F
from airflow_kafka_offsets.spark import KafkaWindow
from airflow_kafka_offsets.spark.errors import (IncompleteReadError)
from tests.lab.tables import SHORT_PLANS
from tests.spark.conftest import handoff

url, servers, topic, lake = sys.argv[1:]
spark = SparkSession.builder.remote(url).config(map=SHORT_PLANS).getOrCreate()

def window(end=50, **values):
    options = {"kafka.bootstrap.servers": servers, "kafkaConsumer.pollTimeoutMs": "20000"}
    return KafkaWindow(spark, handoff({topic: {0: (0, end), 1: (0, end)}}, options=options, **values))

def run(frame):
    frame.write.format("noop").mode("overwrite").save()

def counted(step):
    # At times a busy server reports no action, and then a retry runs the window again.
    for is_last in (False, False, False, False, True):
        w = window()
        step(w)
        try:
            w.check()
        except IncompleteReadError as exc:
            if is_last or "Spark reported no action" not in str(exc):
                raise
        else:
            return w

def refused(check, says):
    try:
        check()
    except IncompleteReadError as exc:
        assert says in str(exc), exc
    else:
        raise AssertionError(f"not refused: {says}")
"""


@pytest.fixture(scope="module")
def read_topic(kafka: KafkaBroker) -> str:
    # Tests in random order leave the module and come back: then it is set up again.
    topic = f"read-over-connect-{uuid.uuid4().hex[:12]}"
    create_topic(kafka, topic, 2)
    for partition in range(2):
        produce(kafka, topic, 50, partition=partition)
    return topic


def client(spark_connect: SparkConnect, kafka: KafkaBroker, topic: str, lake: Path, code: str) -> None:
    """Run the code in a process that is a client of the server."""
    script = lake / "client.py"
    script.write_text(PRELUDE + textwrap.dedent(code))
    command = [sys.executable, str(script), spark_connect.url, kafka.bootstrap_servers, topic, str(lake)]
    done = run_to_end(command, env={**_environment(), "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr[-3000:]


def _environment() -> dict[str, str]:
    import os

    return {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}


def test_what_the_first_action_reads_is_counted_whatever_is_looked_at_before_and_done_after(
    spark_connect: SparkConnect, kafka: KafkaBroker, read_topic: str, tmp_path: Path
) -> None:
    code = """
    # A server with a plan cache reports nothing for a frame that was analysed before its first action.
    for look in (lambda f: f.columns, lambda f: f.schema, lambda f: f.select(f["offset"]).columns, lambda f: f.explain()):
        def looked_at(w):
            frame = w.read()
            look(frame)
            run(frame)
            frame.limit(3).collect()

        assert counted(looked_at).records == 100

    w = window()
    frame = w.read()
    frame.limit(3).collect()
    run(frame)
    refused(w.check, "of 100 planned")
    w.check(recount=True)

    counted(lambda w: run(w.read().mapInPandas(lambda frames: (f[["offset"]] for f in frames), "offset long")))

    w = window(end=0)
    run(w.read())
    w.check()
    """
    client(spark_connect, kafka, read_topic, tmp_path, code)


def test_a_read_asks_for_no_setting_that_the_server_lacks(
    spark_connect: SparkConnect, kafka: KafkaBroker, read_topic: str, tmp_path: Path
) -> None:
    code = """
    import logging
    from pyspark.sql.connect.logging import logger

    said = []
    noting = logging.Handler(logging.ERROR)
    noting.emit = lambda record: said.append(record.getMessage())
    logger.disabled = False  # as in a task of Airflow, which switches all loggers on
    logger.addHandler(noting)
    counted(lambda w: run(w.read()))
    assert not said, said
    """
    client(spark_connect, kafka, read_topic, tmp_path, code)


def test_a_view_in_sql_is_not_reported_so_it_is_counted_again_or_read_from_the_persisted_frame(
    spark_connect: SparkConnect, kafka: KafkaBroker, read_topic: str, tmp_path: Path
) -> None:
    code = """
    w = window(report=lake + "/report.json")
    w.read().createOrReplaceTempView("mine")
    spark.sql(f"INSERT OVERWRITE DIRECTORY '{lake}/lost' USING parquet SELECT * FROM mine")
    refused(w.check, "persisted()")
    w.check(recount=True)

    w = window(report=lake + "/report.json")
    with w.persisted() as frame:
        assert w.records == 100
        frame.createOrReplaceTempView("mine")
        spark.sql(f"INSERT OVERWRITE DIRECTORY '{lake}/view' USING parquet SELECT * FROM mine")
        # With a frame that is counted, the client of Spark Connect 4.0 can't do this.
        assert frame.join(frame.groupBy("partition").count(), "partition").count() == 100
        assert frame.union(frame).count() == 200
    assert spark.read.parquet(lake + "/view").count() == 100
    """
    client(spark_connect, kafka, read_topic, tmp_path, code)
    assert json.loads((tmp_path / "report.json").read_text())["counts"] == {read_topic: {"0": 50, "1": 50}}


def test_the_version_is_bound_to_the_frame_and_a_write_to_kafka_in_the_same_session_is_as_before(
    spark_connect: SparkConnect, kafka: KafkaBroker, read_topic: str, tmp_path: Path
) -> None:
    create_topic(kafka, f"{read_topic}-written")
    code = """
    from contextlib import redirect_stdout
    from io import StringIO

    from airflow_kafka_offsets.spark import source

    def plan(frame):
        with redirect_stdout(StringIO()) as text:
            frame.explain()
        return text.getvalue()

    before = spark.conf.get("spark.sql.sources.useV1SourceList")
    assert "BatchScan" in plan(window().read())
    assert "KafkaRelation" in plan(window().read(sourceVersion=1))
    assert spark.conf.get("spark.sql.sources.useV1SourceList") == before
    rows = spark.range(2).select(F.lit("x").alias("value"))
    rows.write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic + "-written").save()
    assert source.parallelism(spark) == 2
    """
    client(spark_connect, kafka, read_topic, tmp_path, code)


def test_offsets_that_are_gone_fail_the_action(spark_connect: SparkConnect, kafka: KafkaBroker, tmp_path: Path) -> None:
    create_topic(kafka, "gone-over-connect", 2)
    produce(kafka, "gone-over-connect", 50)
    produce(kafka, "gone-over-connect", 50, partition=1)
    delete_records(kafka, "gone-over-connect", before=20)
    code = """
    w = window()
    try:
        run(w.read())
    except Exception as exc:
        assert "Some data may have been lost" in str(exc)
    else:
        raise AssertionError("not refused")
    refused(w.check, "Spark reported no action")
    """
    client(spark_connect, kafka, "gone-over-connect", tmp_path, code)


def test_avro_is_decoded_over_connect_and_bad_records_are_named_counted_and_put_aside(
    spark_connect: SparkConnect, kafka: KafkaBroker, read_topic: str, tmp_path: Path
) -> None:
    topic = f"{read_topic}-avro"
    create_topic(kafka, topic)
    produce_bytes(kafka, topic, [framed(9 if n == 4 else 1, encoded(n)) for n in range(10)])
    code = """
    # As Spark does by itself: it compiles its plans.
    spark.conf.set("spark.sql.codegen.wholeStage", "true")
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")

    from airflow_kafka_offsets.spark.errors import BadRecordError, KafkaWindowError
    from airflow_kafka_offsets.spark.handoff import Subject
    from tests.spark.avro import record

    import json
    subject = Subject("s", "value", [topic], 1, {1: json.dumps(record("Order", ("id", "long")))})

    def avro_window():
        options = {"kafka.bootstrap.servers": servers, "kafkaConsumer.pollTimeoutMs": "20000"}
        return KafkaWindow(spark, handoff({topic: {0: (0, 10)}}, options=options, schemas=[subject]))

    w = avro_window()
    rows = w.read(value="avro", on_bad="null").select("offset", "value.id")
    w.write(rows, lambda frame, window: frame.write.mode("overwrite").parquet(lake + "/ids"))
    assert (w.records, w.bad) == (10, 1), (w.records, w.bad)
    found = sorted(tuple(row) for row in spark.read.parquet(lake + "/ids").collect())
    assert found == [(n, None if n == 4 else n) for n in range(10)], found

    w = avro_window()
    try:
        w.write(w.read(value="avro"), lambda frame, window: frame.count())
    except BadRecordError as exc:
        assert f"Kafka record {topic}-0 offset 4: its value can't be decoded: no schema with id 9 " in str(exc), exc
    else:
        raise AssertionError("not refused")

    w, aside = avro_window(), []
    with w.persisted(value="avro", on_bad="side", side=lambda bad, window: aside.extend(bad.collect())) as frame:
        assert frame.count() == 9
    assert [(row.offset, w.bad) for row in aside] == [(4, 1)]

    w, aside = avro_window(), []
    rows = w.read(value="avro", on_bad="side", side=lambda bad, window: aside.extend(bad.collect()))
    assert [(row.offset, w.bad, w.records) for row in aside] == [(4, 1, 10)]
    w.write(rows, lambda frame, window: frame.write.mode("overwrite").parquet(lake + "/good"))
    assert (rows.count(), spark.read.parquet(lake + "/good").count()) == (9, 9)
    w.finish()
    [kept] = [kept.frame for kept in w._kept]
    assert kept.storageLevel.useMemory
    w.release()
    assert not kept.storageLevel.useMemory

    # No files are written over Connect. Spark keeps nothing of a call that failed.
    w = avro_window()
    try:
        w.read(value="avro", on_bad="side", side=lake + "/side")
    except KafkaWindowError as exc:
        assert "Spark Connect can't rename" in str(exc), exc
    else:
        raise AssertionError("not refused")
    assert w._kept == []
    """
    client(spark_connect, kafka, topic, tmp_path, code)


def test_several_subjects_are_decoded_over_connect_and_ids_that_are_elsewhere_are_refused_with_a_sentence(
    spark_connect: SparkConnect, kafka: KafkaBroker, read_topic: str, tmp_path: Path
) -> None:
    topic = f"{read_topic}-subjects"
    create_topic(kafka, topic)
    produce_bytes(kafka, topic, [framed(1, encoded(7)), framed(2, encoded(8, "late")), None])
    produce_bytes(kafka, topic, [b"\1" + bytes(16) + encoded(9)])
    # Its body begins like a registry's header.
    produce_bytes(kafka, topic, [framed(1, encoded(9))], headers=[("__value_schema_id", b"\1" + bytes(16))])
    code = """
    import json

    from airflow_kafka_offsets.spark.errors import BadRecordError
    from airflow_kafka_offsets.spark.handoff import Subject
    from tests.spark.avro import record

    orders = Subject("orders", "value", [topic], 1, {1: json.dumps(record("Order", ("id", "long")))})
    refunds = Subject("refunds", "value", [topic], 2, {2: json.dumps(record("Refund", ("id", "long"), ("why", "string")))})

    def of_both(end):
        options = {"kafka.bootstrap.servers": servers, "kafkaConsumer.pollTimeoutMs": "20000"}
        return KafkaWindow(spark, handoff({topic: {0: (0, end)}}, options=options, schemas=[orders, refunds]))

    w, aside = of_both(5), []
    with w.persisted(value="avro", on_bad="side", side=lambda bad, window: aside.extend(bad.collect())) as frame:
        found = {row.offset: row.value and row.value.asDict(recursive=True) for row in frame.collect()}
    assert found == {0: {"Order": {"id": 7}, "Refund": None}, 1: {"Order": None, "Refund": {"id": 8, "why": "late"}}, 2: None}, found
    why = {row.offset: row.reason for row in aside}
    assert sorted(why) == [3, 4] and w.bad == 2, why
    assert "its header has a GUID" in why[3], why
    assert "its schema id is in header __value_schema_id" in why[4], why

    w = of_both(4)
    try:
        w.write(w.read(value="avro"), lambda frame, window: frame.collect())
    except BadRecordError as exc:
        assert f"Kafka record {topic}-0 offset 3: its value can't be decoded: its header has a GUID" in str(exc), exc
    else:
        raise AssertionError("not refused")
    """
    client(spark_connect, kafka, topic, tmp_path, code)


def test_a_job_over_connect_takes_its_window_from_the_exchange_and_reports_there(
    spark_connect: SparkConnect, kafka: KafkaBroker, read_topic: str, tmp_path: Path
) -> None:
    code = """
    from pathlib import Path

    from airflow_kafka_offsets.spark import current_window, exit_code

    folder = Path(lake, "handed")
    folder.mkdir()
    handed = window(report=f"file://{folder}/reports")._handoff
    (folder / "window.json").write_text(handed.to_json())
    mine = current_window(spark, f"file://{folder}")
    with mine.persisted() as frame:
        assert frame.count() == 100
    exit_code.disarm()
    """
    client(spark_connect, kafka, read_topic, tmp_path, code)
    _, report = sorted(tmp_path.glob("handed/reports/*/part-*"))
    assert json.loads(report.read_text())["counts"] == {read_topic: {"0": 50, "1": 50}}
