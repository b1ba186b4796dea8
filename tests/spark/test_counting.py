"""The verdict on counts."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from airflow_kafka_offsets.spark.counting import CountedRead, Counts, check_counts
from airflow_kafka_offsets.spark.errors import IncompleteReadError
from airflow_kafka_offsets.spark.observing import Observed


def counts(*units: tuple[str, int, int, int]) -> Counts:
    read = {(topic, partition): n for topic, partition, n, _ in units}
    return Counts(read, {(topic, partition): n for topic, partition, _, n in units})


def test_all_that_was_planned_is_complete() -> None:
    check_counts(counts(("orders", 0, 5, 5), ("orders", 1, 1, 1)))


def test_the_error_names_partitions_and_numbers() -> None:
    with pytest.raises(
        IncompleteReadError, match=r"^9 of 11 planned .*\n    orders-1: 3 of 4; pay-0: 1 of 2$"
    ) as caught:
        check_counts(counts(("orders", 0, 5, 5), ("orders", 1, 3, 4), ("pay", 0, 1, 2)))
    assert caught.value.missing == {"orders-1": (3, 4), "pay-0": (1, 2)}


def test_the_error_stays_short_with_many_partitions() -> None:
    with pytest.raises(IncompleteReadError, match=r"orders-9: 0 of 1 and 290 more$") as caught:
        check_counts(counts(*(("orders", number, 0, 1) for number in range(300))))
    assert len(caught.value.missing) == 300


def test_tasks_that_ran_twice_are_no_error_and_hide_no_gap_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    twice = counts(("orders", 0, 10, 5))
    with caplog.at_level(logging.WARNING):
        check_counts(twice)
    assert twice.records == 5
    assert "orders-0: 10 records of 5 counted" in caplog.text
    with pytest.raises(IncompleteReadError, match="orders-1: 4 of 5"):
        check_counts(counts(("orders", 0, 10, 5), ("orders", 1, 4, 5)))


class Reported:
    """The report of an action by Spark; over Spark Connect, Spark reports without waiting."""

    def __init__(self, get: dict[str, object]) -> None:
        self.get = get


def counted(planned: dict[tuple[str, int], int], reported: Any) -> Counts:
    read = CountedRead({tp: (0, span) for tp, span in planned.items()})
    read._observed = Observed(reported)
    return read.counts(timeout=0)


def test_the_histogram_is_read_by_topic_and_partition() -> None:
    bars = "[{0.0, 3.0}, {15.999999999999998, 2.0E0}, {1.6E1, 1.0}]"
    counts = counted({("b", 7): 3, ("a", 0): 3, ("a", 1): 1}, Reported({"records": 6, "histogram": bars}))
    assert counts.read == {("a", 0): 3, ("a", 1): 0, ("b", 7): 3}


@pytest.mark.parametrize(
    "bars",
    [
        *("[{1.0, 4.0}]", "[{2.0, 5.0}]", "[{5.0, 5.0}]", None, "[]"),
        *("[{0.0, 3.0}, {1.0, 2\0\0\0\0", "[{0.0, 3.0}, {1.0, 2.0E\0\0"),  # as of who asks while another does
    ],
)
def test_a_histogram_that_can_not_be_right_leaves_the_total(bars: str | None) -> None:
    reported = Reported({"records": 5, "histogram": bars})
    counts = counted({("a", 0): 3, ("a", 1): 3}, reported)
    assert counts.read == {(None, None): 5}
    with pytest.raises(
        IncompleteReadError, match=r"5 of 6 planned offsets were read\. Read .*\n    all partitions: 5 of 6$"
    ):
        check_counts(counts)


@pytest.mark.parametrize("metrics", [{}, {"records": None, "histogram": None}])
def test_no_report_is_no_count(metrics: dict[str, object]) -> None:
    with pytest.raises(IncompleteReadError, match=r"Spark reported no action .* or use:\n    with window\.persisted"):
        counted({("a", 0): 3}, Reported(metrics))


def test_an_action_that_failed_is_no_count() -> None:
    class Failed:
        @property
        def get(self) -> dict[str, object]:
            raise RuntimeError("the action failed")

    with pytest.raises(IncompleteReadError, match="Spark reported no action"):
        counted({("a", 0): 3}, Failed())


@pytest.mark.parametrize("strays", [1, 20])
def test_records_outside_of_the_window_are_refused_with_and_without_gaps(strays: int) -> None:
    odd = Counts({("a", 0): 3}, {("a", 0): 3}, strays)
    for expect_gaps in (False, True):
        with pytest.raises(IncompleteReadError, match=f"{strays} records outside"):
            check_counts(odd, expect_gaps=expect_gaps)


def test_gaps_are_no_error_where_they_are_expected() -> None:
    hollow = counts(("a", 0, 3, 5), ("a", 1, 0, 4))
    check_counts(hollow, expect_gaps=True)
    assert hollow.gaps == 6
