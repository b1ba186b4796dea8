"""Windows of 20,000 partitions: all the way from the plan to the commit, and nothing that people see grows with them."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.core.errors import DataLossError
from airflow_kafka_offsets.core.evidence import Report
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.plan import ownership
from airflow_kafka_offsets.core.run import Run, Try
from airflow_kafka_offsets.core.window import Claim, Outcome, State
from airflow_kafka_offsets.launch import job_files
from airflow_kafka_offsets.launch.job_files import handoff_of, placeholders, window_conf
from airflow_kafka_offsets.operators.spark_submit import KafkaSparkSubmitOperator
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.spark.handoff import CONF_WINDOW_FILE, Handoff
from airflow_kafka_offsets.spark.options import layout, reader_options
from airflow_kafka_offsets.spark.window import KafkaWindow
from airflow_kafka_offsets.task.airflow import event_extra
from airflow_kafka_offsets.task.work import small_together, task_result, window_result
from tests.core.examples import claim, tp
from tests.lab.kafka import KafkaBroker
from tests.lab.memory import IN_MEMORY
from tests.lab.topics import create_topic, produce_one_each
from tests.service.world import World
from tests.task.airflow import context_of, work_on

TOPICS = [f"topic-{n:02d}" for n in range(40)]
PER_TOPIC = 500
SMALL = 2_000
"""Bytes that are small: in a log line, a message, a result."""

ONE, TWO = claim(), claim("run-2")


@pytest.fixture
def world() -> Iterator[World]:
    """Return a group of 20,000 partitions, with ten records in each."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        world = World(Path(folder), topics=TOPICS, max_offsets=100_000)
        for topic in TOPICS:
            world.kafka.create(topic, PER_TOPIC)
            for partition in range(PER_TOPIC):
                world.kafka.produce(tp(partition, topic), 10)
        yield world


@pytest.mark.slow
def test_a_window_of_20_000_partitions_goes_all_the_way(world: World, tmp_path: Path) -> None:
    planned = world.plan(ONE)
    conf, [shipped] = window_conf(handoff_of(planned, {}, world.group, None), tmp_path)
    assert len(json.dumps(conf)) < SMALL
    assert list(conf) == [CONF_WINDOW_FILE]

    read = KafkaWindow(None, Handoff.from_json(Path(shipped).read_text()))  # type: ignore[arg-type]
    options = reader_options(read.ranges, "read_committed", {}, {})
    assert sum(map(len, json.loads(options["assign"]).values())) == 20_000
    starts, ends = json.loads(options["startingOffsets"]), json.loads(options["endingOffsets"])
    assert {end - starts[topic][p] for topic, found in ends.items() for p, end in found.items()} == {5}
    assert read.span == planned.window.span == 100_000

    assert world.do(planned.window, ONE)
    watermark = ownership.watermark(world.ledger.load("lake"))
    assert watermark is not None
    assert set(watermark.offsets.values()) == {5}
    assert len(watermark.offsets) == 20_000
    world.die(ONE)
    assert world.plan(TWO).window.ranges.starts == watermark.offsets


@pytest.mark.slow
def test_what_a_task_returns_tells_and_logs_stays_small(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="airflow_kafka_offsets")
    report = Report(100_000, {topic: {str(p): 5 for p in range(PER_TOPIC)} for topic in TOPICS})
    planned = [world.plan(ONE)]
    results = work_on(world.service, world.group, Run(ONE), planned, lambda _: report)
    assert (results[0]["partitions"], results[0]["records"], results[0]["ranges"]) == (20_000, 100_000, None)
    assert len(json.dumps(task_result(world.group, results))) < SMALL
    assert len(json.dumps(event_extra(results))) < SMALL
    assert caplog.records
    assert max(len(record.getMessage()) for record in caplog.records) < SMALL


def test_the_results_of_many_windows_leave_their_ranges_to_the_ledger_when_they_are_large_together(
    world: World,
) -> None:
    def results(*windows: Planned) -> list[dict[str, Any]]:
        return small_together([{**window_result(world.group, p), **placeholders(p.window)} for p in windows])

    world.configure(topics=TOPICS[:1])
    planned = world.plan(ONE)
    [alone] = results(planned)
    assert len(alone["ranges"]["topic-00"]) == len(json.loads(alone["starting_offsets"])["topic-00"]) == PER_TOPIC
    many = results(*[planned] * 50)
    assert {window["window_id"] for window in many} == {planned.window.id}
    assert all(window["ranges"] is None and "starting_offsets" not in window for window in many)
    assert len(json.dumps(many)) < 50 * SMALL


@pytest.mark.slow
def test_an_error_about_20_000_partitions_names_some(world: World) -> None:
    world.run(ONE)
    for topic in TOPICS:
        for partition in range(PER_TOPIC):
            world.kafka.expire(tp(partition, topic), 8)
    with pytest.raises(DataLossError, match="and 19990 more") as caught:
        world.plan(TWO)
    assert len(str(caught.value)) < SMALL
    assert len(caught.value.partitions) == 20_000


@pytest.mark.usefixtures("launch_jars")
def test_the_operator_runs_spark_on_a_large_window(
    kafka: KafkaBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each partition costs Spark a consumer: see docs/performance.
    topics, per_topic = [f"{topic}-{n}" for n in range(3)], 30
    for name in topics:
        create_topic(kafka, name, per_topic)
    produce_one_each(kafka, topics, per_topic)
    monkeypatch.setattr(job_files, "MAX_ARGUMENT", 1)  # so that these few travel as 20,000 do
    results = run_operator(kafka, topics, tmp_path, monkeypatch)

    assert (results["partitions"], results["span"], results["records"]) == (90, 90, 90)
    files = list((tmp_path / "lake").glob("window_id=large-000001/*.parquet"))
    assert len(files) == layout([1] * 90, parallelism=2).tasks == 9
    [attempt] = (ledger := wiring.open_ledger()).attempts("large-000001")
    assert (attempt.outcome, attempt.records) == (Outcome.SUCCEEDED, 90)
    assert ledger.window("large-000001").window.state is State.COMMITTED


def run_operator(
    kafka: KafkaBroker,
    topics: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    read: str = "",
    columns: str = "offset",
    registry: str | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Run the task of a scheduled run in this process, and return its result; the job is ``job.py`` in the folder.

    Args:
        kafka: the broker.
        topics: of the group.
        folder: for the job, its output and the ledger.
        monkeypatch: of the test.
        read: arguments of the job's `read`.
        columns: a SQL expression, whose result the job writes beside topic and partition.
        registry: of the group.
        arguments: of the operator.
    """
    extra = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.log.level": "ERROR"}
    monkeypatch.setenv("AIRFLOW_HOME", str(folder))
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": kafka.client_config()}))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (folder / "job.py").write_text(
        "from pyspark.sql import SparkSession\nfrom airflow_kafka_offsets.spark import current_window\n"
        "window = current_window(SparkSession.builder.getOrCreate())\n"
        f"records = window.read({read}).selectExpr('topic', 'partition', '{columns}')\n"
        f"window.write_parquet(records, '{folder}/lake')\n"
    )
    arguments = {"application": str(folder / "job.py"), **arguments}
    group = KafkaGroup("large", topics=topics, registry=registry)
    operator = KafkaSparkSubmitOperator(task_id="load", group=group, conf=extra, **arguments)
    return operator.execute(context_of(Claim("d", "r", "load"), Try(1, 0)))
