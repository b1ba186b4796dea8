"""Which schemas are frozen with a window, and what they are for."""

from __future__ import annotations

import doctest
import json
from typing import Any

import pytest

from airflow_kafka_offsets.core import schemas
from airflow_kafka_offsets.core.errors import BadInputError, NotYetError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.schemas import (
    Part,
    Registry,
    Subject,
    completed,
    described,
    lacking,
    self_contained,
    topics_then,
    wanted,
)
from tests.core.examples import group

ONE = Subject("AVRO", 1, {1: '"long"'})
BOTH = ["orders", "clicks"]


def test_a_topic_has_a_subject_for_its_values_and_maybe_one_for_its_keys() -> None:
    found = wanted(Registry("r"), BOTH, ["orders"])
    assert found == {"clicks-key": "", "clicks-value": "", "orders-key": "", "orders-value": "the values of orders"}


def test_subjects_are_as_they_are_named() -> None:
    registry = Registry("r", subjects={"orders": ["a", "b"], "clicks": []}, key_subjects={"orders": ["k", "a"]})
    found = wanted(registry, BOTH, BOTH)
    assert found == {
        "a": "the keys of orders",
        "b": "the values of orders",
        "clicks-key": "",
        "k": "the keys of orders",
    }


def test_a_topic_that_the_group_no_longer_reads_is_described_if_the_window_has_its_records() -> None:
    assert "old-value" in wanted(Registry("r"), ["orders"], ["old"])


def test_only_what_is_not_frozen_is_asked_for() -> None:
    names = {"a": "the values of orders", "b": "", "c": "the keys of orders"}
    assert lacking({}, names) == ["a", "b", "c"]
    assert lacking({"a": ONE, "b": None, "c": None}, names) == ["c"]
    assert lacking({"a": ONE, "b": None, "c": ONE}, names) == []


def test_what_is_frozen_stays_and_what_lacked_is_added() -> None:
    frozen = {"a": ONE, "z": None}
    assert completed(frozen, {"a": "x", "b": ""}, {"b": None}, "r") == {"a": ONE, "b": None, "z": None}


def test_a_subject_that_is_needed_and_not_there_is_named_with_what_to_write() -> None:
    names = {"orders-value": "the values of orders", "orders-key": ""}
    with pytest.raises(
        NotYetError,
        match=r"registry of 'r' has no subject orders-value for the values of orders\. .*Registry\('r', subjects=",
    ):
        completed({}, names, {"orders-value": None, "orders-key": None}, "r")


def test_the_topics_of_a_window_are_not_those_that_joined_later_or_left() -> None:
    assert topics_then(["orders", "clicks"], ["left", "orders"]) == ["orders"]


def test_a_job_gets_the_avro_subjects_with_their_topics() -> None:
    registry = Registry("r", subjects={"orders": ["s"], "clicks": ["s", "json"]}, key_subjects={"orders": ["s"]})
    frozen = {"s": ONE, "json": Subject("JSON", 3, {3: "{}"}), "clicks-key": None, "other": ONE}
    found = [(one.name, one.part, one.topics) for one in described(registry, BOTH, frozen)]
    assert found == [("s", Part.KEY, ("orders",)), ("s", Part.VALUE, ("clicks", "orders"))]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (5, "registry must be a connection id or a Registry; got 5"),
        ("", "conn_id must be a connection id"),
        (lambda: Registry("r", subjects=["a"]), "subjects must map topics to lists of subjects; got"),  # type: ignore[arg-type]
        (lambda: Registry("r", subjects={"orders": "a"}), "subjects must map topics to lists"),
        (lambda: Registry("r", key_subjects={"orders": [1]}), "key_subjects must map topics to lists"),  # type: ignore[list-item]
    ],
)
def test_what_is_no_registry_is_refused(given: Any, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        group(registry=given() if callable(given) else given)


@pytest.mark.parametrize(
    "registry", [None, "r", Registry("r", subjects={"orders": ["a", "b"]}, key_subjects={"orders": []})]
)
def test_a_group_with_a_registry_is_read_back(registry: Any) -> None:
    one = group(registry=registry)
    assert KafkaGroup.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert one.registry is None or one.schema_registry == one.registry


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "name": name, **more}


def test_what_a_schema_refers_to_is_put_in_where_it_is_named_first() -> None:
    city = named("record", "geo.City", fields=[{"name": "kind", "type": "geo.Kind"}])
    kind = named("enum", "Kind", namespace="geo", symbols=["A"])
    fields = [
        {"name": "cities", "type": {"type": "array", "items": "geo.City"}},
        {"name": "kinds", "type": {"type": "map", "values": ["null", "geo.Kind"]}},
        {"name": "again", "type": {"type": "geo.City"}},
    ]
    order = named("record", "Order", namespace="shop", fields=fields)
    whole = json.loads(self_contained(json.dumps(order), {"geo.City": json.dumps(city), "geo.Kind": json.dumps(kind)}))
    first, second, third = (field["type"] for field in whole["fields"])
    assert first["items"]["fields"][0]["type"] == kind
    assert (second["values"], third["type"]) == (["null", "geo.Kind"], "geo.City")


def test_a_name_without_a_namespace_stays_without_one_inside_of_another() -> None:
    plain = named("fixed", "Id", size=8)
    order = named("record", "Order", namespace="shop", fields=[{"name": "id", "type": ["null", "Id"]}])
    # Within a namespace, a name without one means that of the namespace.
    assert json.loads(self_contained(json.dumps(order), {"Id": json.dumps(plain)}))["fields"][0]["type"] == [
        "null",
        "Id",
    ]
    order["fields"] = [{"name": "id", "type": {**plain, "namespace": ""}}, {"name": "more", "type": "shop.Id"}]
    other = named("fixed", "Id", namespace="shop", size=4)
    whole = json.loads(self_contained(json.dumps(order), {"shop.Id": json.dumps(other), "Id": json.dumps(plain)}))
    assert [(field["type"]["size"], field["type"]["namespace"]) for field in whole["fields"]] == [(8, ""), (4, "shop")]


def test_the_examples_are_true() -> None:
    assert doctest.testmod(schemas).failed == 0
