"""The end of a job that runs in its launcher's process, where no exit guard looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_kafka_offsets.spark.errors import IncompleteReadError
from tests.lab.topics import create_topic, produce

if TYPE_CHECKING:
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
