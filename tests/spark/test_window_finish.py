"""The end of a job that runs in its launcher's process, where no exit guard looks."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from airflow_kafka_offsets.spark.errors import IncompleteReadError, PublishError, TargetError
from tests.lab.topics import create_topic, produce

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from airflow_kafka_offsets.spark import KafkaWindow
    from tests.lab.kafka import KafkaBroker
    from tests.spark.conftest import MakeWindow


def test_what_the_job_did_not_check_is_checked(kafka: KafkaBroker, topic: str, make_window: MakeWindow) -> None:
    create_topic(kafka, topic, 1)
    produce(kafka, topic, 10)
    window = make_window({topic: {0: (0, 10)}})
    window.read().write.format("noop").mode("overwrite").save()
    window.finish()
    assert window.records == 10
    window.read().limit(3).collect()
    with pytest.raises(IncompleteReadError, match="3 of 10"):
        window.finish()


def test_a_window_that_nobody_read_is_an_error(make_window: MakeWindow) -> None:
    with pytest.raises(IncompleteReadError, match=r"Window lake.orders-000012: nothing was read.*starting_offsets"):
        make_window({"orders": {0: (0, 10)}}).finish()


def test_who_takes_the_offsets_reads_by_means_of_its_own(make_window: MakeWindow) -> None:
    window = make_window({"orders": {0: (0, 10)}})
    assert window.starting_offsets == '{"orders":{"0":0}}'
    with pytest.raises(IncompleteReadError, match="nothing was read"):  # one bound is looked at for a log
        window.finish()
    assert window.ending_offsets == '{"orders":{"0":10}}'
    window.finish()
    assert window.records is None


def test_an_empty_window_needs_no_read(make_window: MakeWindow) -> None:
    make_window({"orders": {0: (5, 5)}}).finish()


def test_a_write_that_failed_and_was_passed_over_is_no_end(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow
) -> None:
    create_topic(kafka, topic, 1)
    produce(kafka, topic, 10)
    window = make_window({topic: {0: (0, 10)}})

    def to_a_table(rows: DataFrame, _: KafkaWindow) -> int:
        if not tried:
            tried.append(True)
            raise ValueError("no table")
        return rows.count()

    def to_another(rows: DataFrame, _: KafkaWindow) -> int:
        return rows.count()

    tried: list[bool] = []
    with window.persisted() as frame:
        with suppress(ValueError):
            window.write(frame, to_a_table, check_first=True)
        assert window.write(frame, to_another, check_first=True) == 10
        with pytest.raises(PublishError, match=r"write to to_a_table failed, and .* \(ValueError: no table\)"):
            window.finish()
        assert window.write(frame, to_a_table, check_first=True) == 10
        window.finish()
        with suppress(TargetError):
            window.write_jdbc(frame.selectExpr("offset"), "jdbc:postgresql://127.0.0.1:1/none", "orders")
    with pytest.raises(PublishError, match="write_jdbc to orders failed"):
        window.finish()


def test_who_has_written_by_other_means_after_a_failure_says_so(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, tmp_path: Path
) -> None:
    create_topic(kafka, topic, 1)
    produce(kafka, topic, 10)
    window = make_window({topic: {0: (0, 10)}})
    (tmp_path / "a-file").touch()
    frame = window.read()
    with pytest.raises(Exception, match="a-file"):
        window.write_parquet(frame, f"{tmp_path}/a-file")
    with pytest.raises(PublishError, match=r"write_parquet to .*/a-file failed, .*ParentNotDirectory.*#publisherror"):
        window.finish()
    frame.write.format("noop").mode("overwrite").save()
    with window.persisted() as again:
        assert again.count() == 10, "after a failure the window may be read again"
    window.check(recount=True)  # Spark reports 0 for the first action, which failed
    window.finish()
