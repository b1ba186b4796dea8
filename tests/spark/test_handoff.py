"""What launcher and job agree on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_kafka_offsets.spark.errors import HandoffError
from airflow_kafka_offsets.spark.handoff import Handoff
from tests.spark.conftest import handoff

RANGES = {"orders": {10: (5, 5), 2: (100, 200)}, "a": {0: (0, 1)}}


def test_what_is_written_is_what_is_read() -> None:
    given = handoff(RANGES, options={"kafka.bootstrap.servers": "h:9092", "x": "${file:/etc/kafka:jaas}"}, report="/r")
    given = replace(given, output_tables=("orders", "sales.orders"), topic_ids={"orders": "o", "a": "a"}, at_least=7)
    assert Handoff.from_json(given.to_json()) == given


def test_the_form_is_the_agreed_one() -> None:
    assert json.loads(handoff(RANGES, is_rerun=True, options={"kafka.bootstrap.servers": "h:9092"}).to_json()) == {
        "version": 1,
        "window_id": "lake.orders-000012",
        "group": "lake.orders",
        "seq": 12,
        "lane": "live",
        "planned_until": "2026-01-01T01:00:00+00:00",
        "is_rerun": True,
        "isolation_level": "read_committed",
        "expect_gaps": False,
        "topics": {"orders": {"2": [100, 200], "10": [5, 5]}, "a": {"0": [0, 1]}},
        "options": {"kafka.bootstrap.servers": "h:9092"},
        "report": None,
        "output_tables": None,
        "topic_ids": None,
        "at_least": None,
        "schemas": None,
        "ledgers": None,
    }


def test_equal_windows_give_equal_bytes_in_numeric_order() -> None:
    shuffled = {"a": RANGES["a"], "orders": {2: (100, 200), 10: (5, 5)}}
    assert handoff(shuffled).to_json() == handoff(RANGES).to_json()
    assert '"topics":{"a":{"0":[0,1]},"orders":{"2":[100,200],"10":[5,5]}}' in handoff(RANGES).to_json()


def test_keys_of_a_newer_launcher_are_ignored() -> None:
    document = json.loads(handoff(RANGES).to_json()) | {"something": "new"}
    assert Handoff.from_json(json.dumps(document)) == handoff(RANGES)


def test_what_an_older_launcher_does_not_hand_over_is_as_by_default() -> None:
    document = json.loads(handoff(RANGES, output_tables=["orders"], topic_ids={"orders": "o"}, at_least=7).to_json())
    del document["output_tables"], document["topic_ids"], document["at_least"]
    assert Handoff.from_json(json.dumps(document)) == handoff(RANGES)


def test_another_version_is_refused_with_what_to_do() -> None:
    document = json.loads(handoff(RANGES).to_json()) | {"version": 2}
    with pytest.raises(HandoffError, match=r"version 2, not 1\. .*ship=True"):
        Handoff.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version":1}', "nonsense", '"text"'])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(HandoffError):
        Handoff.from_json(text)


def test_a_value_of_another_kind_is_refused() -> None:
    for key, value in {"planned_until": "today", "topics": {"orders": {"x": [1, 2]}}, "seq": None}.items():
        document = json.loads(handoff(RANGES).to_json()) | {key: value}
        if key == "seq":
            del document["seq"]
        with pytest.raises(HandoffError, match="Not a window"):
            Handoff.from_json(json.dumps(document))


@pytest.mark.parametrize(
    "ends", [(5, 4), (-1, 4), (-2, -1), (0.5, 1.5), (True, 2), "12", (1,), (1, 2, 3), ("1", "2"), None]
)
def test_what_is_no_offset_range_is_refused(ends: Any) -> None:
    with pytest.raises(HandoffError, match=r"orders-3 is "):
        handoff({"orders": {3: ends}})


def test_a_cut_time_without_a_zone_is_refused() -> None:
    with pytest.raises(HandoffError, match="planned_until is "):
        replace(handoff(RANGES), planned_until="2026-01-01T01:00:00")


@pytest.mark.parametrize("partition", ["-1", "01", "x", "", "1.0", " 1", "\u0663", "9" * 5000])
def test_what_is_no_partition_is_refused(partition: str) -> None:
    with pytest.raises(HandoffError, match="a partition of ") as refused:
        handoff({"orders": {partition: (0, 1)}})  # type: ignore[dict-item]
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    "twins", ['"topics":{"a":{"0":[0,1],"0":[5,9]}}', '"topics":{"a":{},"a":{}}', '"seq":1,"seq":2']
)
def test_a_key_that_is_there_twice_is_refused(twins: str) -> None:
    with pytest.raises(HandoffError, match=r" twice$"):
        Handoff.from_json('{"version":1,' + twins + "}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("expect_gaps", "false"),
        ("is_rerun", 1),
        ("seq", "12"),
        ("seq", True),
        ("options", {"a": 5}),
        ("output_tables", "orders"),
        ("at_least", -1),
    ],
)
def test_a_refusal_names_field_and_value(name: str, value: Any) -> None:
    document = json.loads(handoff(RANGES).to_json()) | {name: value}
    with pytest.raises(HandoffError, match=rf"Not a window's handoff: {name} is ") as refused:
        Handoff.from_json(json.dumps(document))
    assert repr(value) in str(refused.value)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["12", "-1", "x" * 10_000, 10**400]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["orders", "0", "-1", "\u0663", ""]), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(list(json.loads(handoff(RANGES).to_json()))), values, min_size=1, max_size=2))
@example({"topics": {"orders": {"0": [0, float("inf")]}}})
@example({"topics": {"orders": {"0": [float("nan"), 1]}}})
@example({"topics": {"orders": {"-1": [0, 1]}}})
@example({"topics": {"orders": {"0": [0.5, 1.5]}}})
@example({"topics": {"orders": {"0": "12"}}})
@example({"version": "x" * 10_000_000})
@example({"planned_until": "x" * 10_000_000})
@example({"lane": []})
@example({"planned_until": "2026-01-01\x0001:00:00+00:00"})
def test_every_document_is_read_as_it_stands_or_refused_in_short(changed: dict[str, Any]) -> None:
    document = {**json.loads(handoff(RANGES).to_json()), **changed}
    try:
        read = Handoff.from_json(json.dumps(document))
    except HandoffError as exc:
        said = str(exc)
        assert len(said) < 1000
        return
    assert read.planned_until.isprintable()
    for topic, ranges in read.topics.items():
        assert {p: list(ends) for p, ends in ranges.items()} == document["topics"][topic]
    assert type(read.expect_gaps) is type(read.is_rerun) is bool


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, "x" * 10_000_000])
def test_what_is_too_much_for_json_is_refused_in_short(text: str) -> None:
    with pytest.raises(HandoffError, match="Not a window") as refused:
        Handoff.from_json(text)
    assert len(str(refused.value)) < 1000
