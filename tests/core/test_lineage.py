"""What lineage learns of windows: names, ranges, records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.lineage import (
    MAX_RANGES,
    MAX_WINDOWS,
    ReadWindow,
    facet_content,
    namespace_of,
    read_topics,
)
from tests.core.examples import tp, window

NOW = ("orders",)
"""The topics that the group reads now."""


@pytest.mark.parametrize(
    ("servers", "name"),
    [
        ("kafka-1:9093,kafka-2:9092", "kafka://kafka-1:9093"),
        (" kafka-1 , kafka-2:9093", "kafka://kafka-1:9092"),
        ("SASL_SSL://kafka-1:9093,SASL_SSL://kafka-2:9093", "kafka://kafka-1:9093"),
        ("[fd00::7]:9094", "kafka://[fd00::7]:9094"),
        ("[fd00::7]", "kafka://[fd00::7]:9092"),
    ],
)
def test_a_kafka_is_named_after_its_first_server(servers: str, name: str) -> None:
    assert namespace_of(servers) == name


@pytest.mark.parametrize("servers", ["", " ,kafka:9092", "PLAINTEXT://"])
def test_a_kafka_without_a_server_has_no_name(servers: str) -> None:
    with pytest.raises(BadInputError, match="names no server"):
        namespace_of(servers)


def test_the_ranges_of_each_topic_are_there_with_the_window_that_owns_them() -> None:
    first = window({tp(0): (0, 5), tp(1): (3, 3), tp(0, "bills"): (7, 9)}, seq=1)
    second = window({tp(0): (5, 6), tp(1): (3, 8), tp(0, "bills"): (9, 9)}, seq=2)
    bills, orders = read_topics([ReadWindow(first, False, True), ReadWindow(second, False, True)], NOW)
    assert (bills.topic, orders.topic) == ("bills", "orders")
    found = [(p.partition, p.range.start, p.range.end, p.window_id) for p in orders.parts or ()]
    assert found == [(0, 0, 5, "lake-000001"), (0, 5, 6, "lake-000002"), (1, 3, 8, "lake-000002")]
    assert [(p.range.start, p.range.end) for p in bills.parts or ()] == [(7, 9)]
    # Partition 0 has a range in both windows.
    assert [(t.partitions, t.ranges, t.span) for t in (bills, orders)] == [(1, 1, 2), (2, 3, 11)]


@pytest.mark.parametrize(("partitions", "is_listed"), [(MAX_RANGES, True), (MAX_RANGES + 1, False)])
def test_of_very_many_ranges_only_the_totals_are_there(partitions: int, is_listed: bool) -> None:
    many = window({tp(number): (0, 2) for number in range(partitions)})
    read = [ReadWindow(many, False, True, records=7)]
    (topic,) = read_topics(read, NOW)
    assert (topic.parts is not None) == is_listed
    assert topic.records == 7
    assert (topic.partitions, topic.ranges, topic.span) == (partitions, partitions, 2 * partitions)
    content = facet_content(read, NOW)["windows"][0]
    assert (content["partitions"], content["span"], content["records"]) == (partitions, 2 * partitions, 7)


def test_beyond_the_limit_each_topic_has_its_own_totals() -> None:
    of_bills = {tp(number, "bills"): (number, number + 3) for number in range(MAX_RANGES)}
    first = ReadWindow(window({**of_bills, tp(0): (4, 9)}, seq=1), False, True)
    counts = {"bills": {"0": 2}, "orders": {"0": 7}}
    second = ReadWindow(window({tp(0): (9, 19), tp(0, "bills"): (3, 5)}, seq=2), False, True, counts=counts)
    bills, orders = read_topics([first, second], NOW)
    assert (bills.parts, orders.parts) == (None, None)
    assert (bills.partitions, bills.ranges, bills.span) == (MAX_RANGES, MAX_RANGES + 1, 3 * MAX_RANGES + 2)
    assert (orders.partitions, orders.ranges, orders.span) == (1, 2, 15)
    assert (bills.records, orders.records) == (None, None)  # the first window does not tell
    assert [t.records for t in read_topics([second], NOW)] == [2, 7]


def test_an_empty_window_still_names_its_topics() -> None:
    (topic,) = read_topics([ReadWindow(window({tp(0): (4, 4)}), False, True, records=0)], NOW)
    assert (topic.topic, topic.parts, topic.records) == ("orders", (), 0)
    assert (topic.partitions, topic.ranges, topic.span) == (0, 0, 0)


def test_a_topic_that_left_the_group_is_an_input_of_no_later_window() -> None:
    before = window({tp(0): (0, 5), tp(0, "bills"): (0, 2)}, seq=1)
    after = window({tp(0): (5, 6), tp(0, "bills"): (2, 2)}, seq=2)

    def named(*read: ReadWindow) -> list[object]:
        ids = [one["topicIds"].keys() for one in facet_content(read, NOW)["windows"]]
        return [{topic.topic for topic in read_topics(read, NOW)}, *ids]

    first, second = ReadWindow(before, True, True), ReadWindow(after, False, True)
    assert named(second) == [{"orders"}, {"orders"}]
    both = {"bills", "orders"}
    assert named(first) == [both, both]
    assert named(first, second) == [both, both, both]


def test_records_of_two_topics_are_known_only_if_the_job_counted_them() -> None:
    both = window({tp(0): (0, 5), tp(0, "bills"): (0, 2)})
    counted = ReadWindow(both, False, True, records=6, counts={"orders": {"0": 5}, "bills": {"0": 1}})
    assert [t.records for t in read_topics([counted], NOW)] == [1, 5]
    assert [t.records for t in read_topics([ReadWindow(both, False, True, records=6)], NOW)] == [None, None]


def test_records_are_not_told_if_one_window_does_not_tell_them() -> None:
    told = ReadWindow(window({tp(0): (0, 5)}, seq=1), False, True, records=5)
    silent = ReadWindow(window({tp(0): (5, 6)}, seq=2), False, False)
    assert [t.records for t in read_topics([told, silent], NOW)] == [None]


def test_a_facet_describes_the_first_windows_and_counts_all() -> None:
    read = [ReadWindow(window({tp(0): (n, n + 1)}, seq=n + 1), True, True) for n in range(MAX_WINDOWS + 1)]
    content = facet_content(read, NOW)
    assert (content["windowCount"], len(content["windows"])) == (MAX_WINDOWS + 1, MAX_WINDOWS)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20), st.integers(0, 5)), min_size=1, max_size=30))
def test_the_ranges_of_an_event_are_those_of_the_windows(given_ranges: list[tuple[int, int, int]]) -> None:
    read = [
        ReadWindow(window({tp(partition): (start, start + span)}, seq=number), False, True)
        for number, (partition, start, span) in enumerate(given_ranges, 1)
    ]
    (topic,) = read_topics(read, NOW)
    assert topic.parts is not None
    assert sum(part.range.span for part in topic.parts) == topic.span == sum(one.window.span for one in read)
    assert topic.ranges == len(topic.parts)
    assert topic.partitions == len({part.partition for part in topic.parts})
    assert all(part.range.span for part in topic.parts)
