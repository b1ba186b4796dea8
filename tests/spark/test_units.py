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
TREE = record("Tree", ("at", MILLIS), ("below", {"type": "array", "items": "Tree"}))


@pytest.mark.parametrize(
    ("written", "read", "says"),
    [
        (MILLIS, MICROS, "it is timestamp-millis in the schema that it was written with, and timestamp-micros in the"),
        (money(2), money(4), "it is decimal of scale 2 in the schema that it was written with, and decimal of scale 4"),
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
    ],
)
def test_what_has_one_unit_is_let_through(written: Any, read: Any) -> None:
    assert unlike(json.dumps(written), json.dumps(read)) is None
