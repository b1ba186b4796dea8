"""The verdict on what was counted."""

from __future__ import annotations

import logging

import pytest

from airflow_kafka_offsets.spark.counting import Counts, check_complete
from airflow_kafka_offsets.spark.errors import IncompleteReadError


def counts(*units: tuple[str, int, int, int]) -> Counts:
    read = {(topic, partition): n for topic, partition, n, _ in units}
    return Counts(read, {(topic, partition): n for topic, partition, _, n in units})


def test_all_that_was_planned_is_complete() -> None:
    check_complete(counts(("orders", 0, 5, 5), ("orders", 1, 1, 1)))


def test_the_error_names_partitions_and_numbers() -> None:
    with pytest.raises(IncompleteReadError, match=r"^9 of 11 planned .*\(orders-1: 3 of 4; pay-0: 1 of 2\)") as caught:
        check_complete(counts(("orders", 0, 5, 5), ("orders", 1, 3, 4), ("pay", 0, 1, 2)))
    assert caught.value.missing == {"orders-1": (3, 4), "pay-0": (1, 2)}


def test_the_error_stays_short_with_many_partitions() -> None:
    with pytest.raises(IncompleteReadError, match=r"orders-9: 0 of 1 and 290 more\)") as caught:
        check_complete(counts(*(("orders", number, 0, 1) for number in range(300))))
    assert len(caught.value.missing) == 300


def test_tasks_that_ran_twice_are_no_error_and_hide_no_gap_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    twice = counts(("orders", 0, 10, 5))
    with caplog.at_level(logging.WARNING):
        check_complete(twice)
    assert twice.records == 5
    assert "orders-0: 10 records counted where 5 were planned" in caplog.text
    with pytest.raises(IncompleteReadError, match="orders-1: 4 of 5"):
        check_complete(counts(("orders", 0, 10, 5), ("orders", 1, 4, 5)))
