"""What launcher and job agree on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

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
        "until": "2026-01-01T01:00:00+00:00",
        "is_rerun": True,
        "isolation_level": "read_committed",
        "expect_gaps": False,
        "topics": {"orders": {"2": [100, 200], "10": [5, 5]}, "a": {"0": [0, 1]}},
        "options": {"kafka.bootstrap.servers": "h:9092"},
        "report": None,
        "output_tables": None,
        "topic_ids": None,
        "at_least": None,
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
    with pytest.raises(HandoffError, match=r"version 2, this job reads version 1: .*ship=True"):
        Handoff.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version":1}', "nonsense", '"text"'])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(HandoffError):
        Handoff.from_json(text)


def test_a_value_of_another_kind_is_refused() -> None:
    for key, value in {"until": "today", "topics": {"orders": {"x": [1, 2]}}, "seq": None}.items():
        document = json.loads(handoff(RANGES).to_json()) | {key: value}
        if key == "seq":
            del document["seq"]
        with pytest.raises(HandoffError, match="Not a window"):
            Handoff.from_json(json.dumps(document))


@pytest.mark.parametrize("ends", [(5, 4), (-1, 4), (-2, -1)])
def test_what_is_no_offset_range_is_refused(ends: tuple[int, int]) -> None:
    with pytest.raises(HandoffError, match="orders-3: no offset range"):
        handoff({"orders": {3: ends}})


def test_a_cut_time_without_a_zone_is_refused() -> None:
    with pytest.raises(HandoffError, match="zone"):
        replace(handoff(RANGES), until="2026-01-01T01:00:00")
