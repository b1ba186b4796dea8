"""Fields of two schemas with two units."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_kafka_offsets.spark.units import unlike
from tests.spark.avro import record


def timestamp(unit: str) -> dict[str, str]:
    return {"type": "long", "logicalType": f"timestamp-{unit}"}


def money(scale: int | None) -> dict[str, Any]:
    of_scale = {} if scale is None else {"scale": scale}
    return {"type": "bytes", "logicalType": "decimal", "precision": 9, **of_scale}


MILLIS, MICROS = timestamp("millis"), timestamp("micros")
DAY = {"type": "int", "logicalType": "date"}
TIME = {"type": "long", "logicalType": "time-micros"}
IN_MILLIS, IN_MICROS = (("null", record("com.B", ("at", unit))) for unit in (MILLIS, MICROS))
OTHERS = record("com.A", ("at", MILLIS))


def renamed(union: tuple[Any, ...], **values: Any) -> list[Any]:
    """Return a union of null and a record that has another name."""
    return ["null", {**union[1], **values}]


TREE = record("Tree", ("at", MILLIS), ("below", {"type": "array", "items": "Tree"}))


@pytest.mark.parametrize(
    ("written", "read", "says"),
    [
        (MILLIS, MICROS, "it is timestamp-millis for the writer, and timestamp-micros for the reader"),
        (money(2), money(4), "it is decimal of scale 2 for the writer, and decimal of scale 4"),
        (money(None), money(1), "it is decimal of scale 0 "),
        (DAY, MILLIS, "it is date "),  # Avro promotes an int to a long
        (["null", MILLIS], ["null", MICROS], "it is timestamp-millis "),
        (MILLIS, ["null", MICROS], "it is timestamp-millis "),
        (record("A", ("a", MILLIS)), record("B", ("b", "long", 0), ("a", MICROS)), "its field a is timestamp-millis "),
        (
            record("A", ("a", record("Inner", ("at", {"type": "array", "items": MILLIS}))), ("b", "Inner")),
            record("A", ("b", record("Inner", ("at", {"type": "array", "items": MICROS})))),
            "its field b.at is timestamp-millis ",
        ),
        (
            {**record("A", ("a", record("I", ("at", {"type": "map", "values": MILLIS})))), "namespace": "com"},
            {**record("A", ("a", {**record("I", ("at", {"type": "map", "values": MICROS})), "namespace": "com"}))},
            "its field a.at is timestamp-millis ",
        ),
        (
            {**TREE, "fields": list(reversed(TREE["fields"]))},
            record("Tree", ("below", {"type": "array", "items": "Tree"}), ("at", MICROS)),
            "its field at is timestamp-millis ",
        ),
        # The same record, the name of which is written in another way.
        (IN_MILLIS, renamed(IN_MICROS, name="B", namespace="com"), "its field at is timestamp-millis "),
        # Avro looks for the last part of a name if a union has no other, and then for a record with the fields.
        (IN_MILLIS, renamed(IN_MICROS, name="org.B"), "its field at is timestamp-millis "),
        (IN_MILLIS, renamed(IN_MICROS, name="C"), "its field at is timestamp-millis "),
        (IN_MILLIS[1], renamed(IN_MICROS, name="C"), "its field at is timestamp-millis "),
        (IN_MILLIS, renamed(IN_MICROS, name="C")[1], "its field at is timestamp-millis "),
        (["null", DAY], ["null", MILLIS], "it is date "),
        (["null", DAY], MILLIS, "it is date "),
        (
            record("A", ("a", MILLIS)),
            {**record("A"), "fields": [{"name": "b", "aliases": ["x", "a"], "type": MICROS}]},
            "its field b is timestamp-millis ",
        ),
        (TIME, MICROS, "it is time-micros for the writer, and timestamp-micros for the reader"),
    ],
)
def test_the_field_with_another_unit_is_named(written: Any, read: Any, says: str) -> None:
    assert (unlike(json.dumps(written), json.dumps(read)) or "").startswith(says)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (MILLIS, MILLIS),
        ("long", MILLIS),  # the unit was written down later
        (MILLIS, "long"),
        (MILLIS, {"type": "long", "logicalType": "local-timestamp-millis"}),
        (money(2), {**money(2), "precision": 12}),
        (MILLIS, "string"),  # that does not fit at all, which Spark notices
        (["null", MILLIS, "string"], ["string", "null", MILLIS]),
        ({"type": "string", "logicalType": "uuid"}, "string"),
        (record("A", ("gone", MILLIS)), record("A", ("new", MICROS, 0))),
        (TREE, TREE),
        (record("A", ("a", {"type": MILLIS})), record("A", ("a", MILLIS))),
        ([OTHERS, IN_MICROS[1]], [OTHERS, IN_MICROS[1]]),
        ([OTHERS, IN_MICROS[1]], [{**OTHERS, "name": "org.A"}, {**IN_MICROS[1], "name": "org.B"}]),
        ([DAY, MILLIS], [DAY, MILLIS]),
        (TIME, {"type": "long", "logicalType": "time-of-day"}),  # an unknown type
        (
            record("A", ("a", MILLIS), ("b", MICROS)),
            {
                **record("A", ("a", MILLIS)),
                "fields": [{"name": "b", "aliases": ["a"], "type": MICROS}],
            },
        ),
    ],
)
def test_what_has_one_unit_is_let_through(written: Any, read: Any) -> None:
    assert unlike(json.dumps(written), json.dumps(read)) is None
