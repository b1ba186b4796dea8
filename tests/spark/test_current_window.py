"""How a job finds its window: in Spark's conf, in a shipped file, or with a clear error."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from airflow_kafka_offsets.spark import KafkaWindow, current_window, exit_code
from airflow_kafka_offsets.spark.errors import HandoffError, NoWindowError, PublishError, WriteOptionError
from airflow_kafka_offsets.spark.handoff import CONF_WINDOW, CONF_WINDOW_FILE
from tests.lab.waiting import run_to_end
from tests.spark.conftest import handoff

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

GIVEN = handoff(
    {"orders": {10: (7, 9), 2: (5, 6), 3: (4, 4)}, "quiet": {0: (1, 1)}},
    is_rerun=True,
    options={
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.sasl.jaas.config": "${file:/etc/kafka/jaas:jaas}${env:HOME}",
    },
)


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[SparkSession]:
    """Return Spark, and remove its settings of the window afterwards."""
    yield spark
    spark.conf.unset(CONF_WINDOW)
    spark.conf.unset(CONF_WINDOW_FILE)
    exit_code.disarm()


def test_a_window_in_the_conf(conf: SparkSession) -> None:
    conf.conf.set(CONF_WINDOW, GIVEN.to_json())
    window = current_window(conf)
    assert window.id == "lake.orders-000012"
    assert (window.group, window.seq, window.lane, window.is_rerun) == ("lake.orders", 12, "live", True)
    assert window.planned_until == datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert window.ranges == {"orders": {2: (5, 6), 10: (7, 9)}}
    assert window.span == 3
    assert window.starting_offsets == '{"orders":{"2":5,"10":7}}'
    assert window.ending_offsets == '{"orders":{"2":6,"10":9}}'
    assert window.records is None
    assert window._handoff == GIVEN, "Spark does not touch ${...}"


def test_a_window_in_a_shipped_file(conf: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "lake.orders-000012.json").write_text(GIVEN.to_json())
    conf.sparkContext.addFile(str(tmp_path / "lake.orders-000012.json"))
    conf.conf.set(CONF_WINDOW_FILE, "lake.orders-000012.json")
    assert current_window(conf)._handoff == GIVEN


def test_a_window_in_a_file_of_the_working_directory(
    conf: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here.json").write_text(GIVEN.to_json())
    monkeypatch.chdir(tmp_path)
    conf.conf.set(CONF_WINDOW_FILE, "here.json")
    assert current_window(conf)._handoff == GIVEN


def test_a_file_that_was_not_shipped_is_an_error(conf: SparkSession) -> None:
    conf.conf.set(CONF_WINDOW_FILE, "absent.json")
    with pytest.raises(HandoffError, match=r"there is no .*absent\.json.*--files"):
        current_window(conf)


def test_a_job_without_a_window_is_told_what_to_do(conf: SparkSession) -> None:
    with pytest.raises(NoWindowError, match=r"is not set.*KafkaSparkSubmitOperator.*\n    current_window\("):
        current_window(conf)


def test_only_a_window_of_the_job_itself_is_guarded(conf: SparkSession) -> None:
    KafkaWindow(conf, GIVEN).read()
    assert exit_code._guarded == []
    conf.conf.set(CONF_WINDOW, replace(GIVEN, window_id="lake.orders-000079").to_json())
    window = current_window(conf)
    assert (exit_code._guarded, window.is_unread, window.is_unfinished) == ([window], True, False)
    window.read()
    assert (exit_code._guarded, window.is_unread, window.is_unfinished) == ([window], False, True)


def test_of_a_window_without_records_no_read_is_missed(conf: SparkSession) -> None:
    conf.conf.set(CONF_WINDOW, handoff({"orders": {0: (4, 4)}}, window_id="lake.orders-000078").to_json())
    assert not current_window(conf).is_unread


def test_who_takes_both_bounds_is_expected_to_read_no_more(conf: SparkSession) -> None:
    window = KafkaWindow(conf, GIVEN)
    assert (window.starting_offsets != "", window.is_unread) == (True, True)
    assert (window.ending_offsets != "", window.is_unread) == (True, False)


def test_each_call_in_a_job_gives_the_same_object_so_a_second_function_can_not_replace_what_the_first_wrote(
    conf: SparkSession, tmp_path: Path
) -> None:
    empty = handoff({"orders": {0: (4, 4)}}, window_id="lake.orders-000077")
    conf.conf.set(CONF_WINDOW, empty.to_json())
    first, second = current_window(conf), current_window(conf.range(1).sparkSession)
    assert first is second
    first.write_parquet(first.read().select("topic"), f"{tmp_path}/lake")
    with pytest.raises(WriteOptionError, match="a second write would replace the first"):
        second.write_parquet(second.read().select("topic"), f"{tmp_path}/lake/")


def test_a_job_that_asks_for_its_window_says_so_before_it_reads_anything(conf: SparkSession, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    conf.conf.set(CONF_WINDOW, replace(GIVEN, report=str(report)).to_json())
    current_window(conf)
    assert json.loads(report.read_text()) == {
        "window_id": GIVEN.window_id,
        "records": None,
        "counts": {},
        "written": None,
        "bad": None,
    }


def test_what_is_handed_over_later_has_a_window_of_its_own(conf: SparkSession) -> None:
    conf.conf.set(CONF_WINDOW, GIVEN.to_json())
    mine = current_window(conf)
    conf.conf.set(CONF_WINDOW, replace(GIVEN, is_rerun=False).to_json())
    assert current_window(conf) is not mine


def test_another_session_of_the_job_has_the_same_window_and_replaces_nothing(
    conf: SparkSession, tmp_path: Path
) -> None:
    empty = handoff({"orders": {0: (4, 4)}}, window_id="lake.orders-000076").to_json()
    other = conf.newSession()
    conf.conf.set(CONF_WINDOW, empty)
    other.conf.set(CONF_WINDOW, empty)
    current_window(conf).write_parquet(conf.range(3), f"{tmp_path}/lake")
    with pytest.raises(WriteOptionError, match="a second write would replace the first"):
        current_window(other).write_parquet(other.range(1), f"{tmp_path}/lake")
    assert conf.read.parquet(f"{tmp_path}/lake").count() == 3
    with pytest.raises(PublishError, match="a second write would replace the first"):
        current_window(conf).finish()


STOPS = """
import sys
from pyspark.sql import SparkSession
from airflow_kafka_offsets.spark import current_window

settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.kafka_offsets.window": sys.argv[1]}
for rows in (3, 1):
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    try:
        current_window(spark).write_parquet(spark.range(rows), sys.argv[2])
    except Exception as exc:
        print(type(exc).__name__)
    else:
        print(spark.read.parquet(sys.argv[2]).count())
    spark.stop()
"""


def test_a_session_that_the_job_started_after_it_stopped_the_first_replaces_nothing(tmp_path: Path) -> None:
    empty = handoff({"orders": {0: (4, 4)}}).to_json()
    job = run_to_end([sys.executable, "-c", STOPS, empty, f"{tmp_path}/lake"])
    assert job.stdout.split() == ["3", "WriteOptionError"]
    assert job.returncode == 1
    assert "a second write would replace the first" in job.stderr
