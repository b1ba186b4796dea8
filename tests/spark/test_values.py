"""Keys and values decoded by a real Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from airflow_kafka_offsets.adapters.registry import ConfluentRegistry
from airflow_kafka_offsets.spark import values
from airflow_kafka_offsets.spark.errors import (
    BadRecordError,
    DecodeError,
    IncompleteReadError,
    LostRecordsError,
    PublishError,
    WriteOptionError,
)
from airflow_kafka_offsets.spark.handoff import Handoff, Subject
from airflow_kafka_offsets.spark.values import Decoding
from tests.lab.apicurio import Apicurio
from tests.lab.topics import create_topic, delete_records, produce_bytes
from tests.spark.avro import encoded, framed, record
from tests.spark.conftest import frame_of, handoff
from tests.spark.jdbc import Database

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from airflow_kafka_offsets.spark import KafkaWindow
    from tests.lab.kafka import KafkaBroker
    from tests.spark.conftest import MakeWindow

COLUMNS = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

FIRST = json.dumps(record("Order", ("id", "long")))
SECOND = json.dumps(record("Order", ("id", "long"), ("city", "string", "?")))
THIRD = json.dumps(record("Order", ("id", "long"), ("city", "string", "?"), ("boxes", "long", 1)))
REFUND = json.dumps(record("Refund", ("id", "long"), ("why", "string")))
OF_ORDERS = Subject("orders-value", "value", ["orders"], 2, {1: FIRST, 2: SECOND})


@dataclass(frozen=True)
class Row:
    """A record of a topic."""

    value: bytes | None
    key: bytes | None = None
    topic: str = "orders"
    headers: tuple[tuple[str, bytes], ...] | None = None


def frame(spark: SparkSession, *rows: Row) -> DataFrame:
    """Return records as Spark's Kafka source gives them; their offsets are 0, 1, ..."""
    there = [(r.key, r.value, r.topic, 3, offset, NOON, 0, r.headers) for offset, r in enumerate(rows)]
    return frame_of(spark, there, COLUMNS)


def of(*subjects: Subject) -> Handoff:
    return handoff({"orders": {0: (0, 9)}}, schemas=subjects)


def decoded(spark: SparkSession, decoding: Decoding, *rows: Row) -> DataFrame:
    return decoding.decoded(frame(spark, *rows), {})


def as_data(value: Any) -> Any:
    return value.asDict(recursive=True) if hasattr(value, "asDict") else value


def results(found: DataFrame, part: str = "value") -> list[Any]:
    return [as_data(row[part]) for row in values.public(found).orderBy("offset").collect()]


def reasons(found: DataFrame) -> list[str | None]:
    return [row["kafka_offsets_bad"] for row in found.orderBy("offset").collect()]


def test_records_of_all_versions_are_read_with_the_latest_schema(spark: SparkSession) -> None:
    rows = [Row(framed(1, encoded(7))), Row(framed(2, encoded(-8, "Köln"))), Row(None)]
    found = decoded(spark, Decoding(of(OF_ORDERS), "avro"), *rows)
    assert results(found) == [{"id": 7, "city": "?"}, {"id": -8, "city": "Köln"}, None]
    assert values.public(found).columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]


def test_the_schema_to_read_with_may_be_given(spark: SparkSession) -> None:
    mine = json.dumps(record("Order", ("city", "string", "nowhere")))
    rows = [Row(framed(1, encoded(7))), Row(framed(2, encoded(8, "Bonn")))]
    found = decoded(spark, Decoding(of(OF_ORDERS), "avro", schema=mine), *rows)
    assert results(found) == [{"city": "nowhere"}, {"city": "Bonn"}]


def test_what_can_not_be_decoded_is_named_with_the_reason(spark: SparkSession) -> None:
    strict = json.dumps(record("Order", ("id", "long"), ("must", "string")))
    cases = {
        framed(1, encoded(7)): None,
        framed(1, b""): "its value can't be decoded: its bytes do not fit schema 1, or not the schema to read with",
        framed(2, encoded(7) + b"\xff"): "its bytes do not fit schema 2, or not the schema to read with",
        framed(2**31 + 5, encoded(7)): "no schema with id 2147483653 was frozen with the window",
        b"": "it has 0 bytes, fewer than a header",
        b"\0\0\0\1": "it has 4 bytes, fewer than a header",
        b"\1" + bytes(16) + encoded(7): "its header has a GUID (byte 0x01), not an id",
        b'{"id": 7}': "it begins with byte 0x7b, not 0x00",
    }
    found = decoded(spark, Decoding(of(OF_ORDERS), "avro", on_bad="null"), *map(Row, cases))
    assert results(found) == [{"id": 7, "city": "?"}, *[None] * 7]
    for said, expected in zip(reasons(found), cases.values(), strict=True):
        assert (said or "").find(expected or "") >= 0
        assert (said is None) is (expected is None)
    given = decoded(spark, Decoding(of(OF_ORDERS), "avro", schema=strict, on_bad="null"), Row(framed(1, encoded(7))))
    assert "not the schema to read with" in str(reasons(given)[0])


RICH = (
    ("small", "int"),
    ("amount", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("millis", {"type": "long", "logicalType": "timestamp-millis"}),
    ("micros", {"type": "long", "logicalType": "timestamp-micros"}),
    ("uuid", {"type": "string", "logicalType": "uuid"}),
    ("gone", "string"),
)
EVOLVED = (("small", "long"), *RICH[1:6], ("note", ["null", "string"], None))


def test_logical_types_promotions_and_removed_fields_are_read_with_the_latest_schema(spark: SparkSession) -> None:
    texts = {1: json.dumps(record("Order", *RICH)), 2: json.dumps(record("Order", *EVOLVED))}
    subject = replace(OF_ORDERS, schemas=texts)
    amount = b"\x04" + (-1234).to_bytes(2, "big", signed=True)
    noon = int(NOON.timestamp())
    uuid = "8d3e6f0a-0c38-4e5e-9a0a-6f6a6b1c2d3e"
    middle = amount + encoded(20454, noon * 1000 + 5, noon * 1_000_000 + 7, uuid)
    rows = [
        Row(framed(1, encoded(-7) + middle + encoded("left out"))),
        Row(framed(2, encoded(2**40) + middle + b"\x02" + encoded("kept"))),
    ]
    found = decoded(spark, Decoding(of(subject), "avro"), *rows)
    columns = ("small", "amount", "day", "unix_micros(millis)", "unix_micros(micros)", "uuid", "note")
    [old, new] = values.public(found).orderBy("offset").select("value.*").selectExpr(*columns).collect()
    same = (Decimal("-12.34"), date(2026, 1, 1), noon * 1_000_000 + 5000, noon * 1_000_000 + 7, uuid)
    assert tuple(old) == (-7, *same, None)
    assert tuple(new) == (2**40, *same, "kept")


NO_FIT = "its bytes do not fit schema 1, or not the schema to read with"
MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
CENTS, FINER = ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale} for scale in (2, 4))


@pytest.mark.parametrize(
    ("written", "latest", "body", "says"),
    [
        ("long", "int", encoded(7), NO_FIT),
        ("string", "long", encoded("7"), NO_FIT),
        (MILLIS, MICROS, encoded(7), "its field id is timestamp-millis for the writer"),
        (["null", MILLIS], ["null", MICROS], b"\x02" + encoded(7), "its field id is timestamp-millis for the writer"),
        (CENTS, FINER, b"\x04\x04\xd2", "its field id is decimal of scale 2 for the writer"),
    ],
)
def test_a_latest_schema_that_does_not_fit_that_of_a_record_is_named_and_no_wrong_value_is_read(
    spark: SparkSession, written: Any, latest: Any, body: bytes, says: str
) -> None:
    texts = {1: json.dumps(record("Order", ("id", written))), 2: json.dumps(record("Order", ("id", latest)))}
    subject = replace(OF_ORDERS, schemas=texts)
    found = decoded(spark, Decoding(of(subject), "avro", on_bad="null"), Row(framed(1, body)))
    [row] = found.collect()
    assert row["value"] is None
    assert says in row["kafka_offsets_bad"]


def test_a_record_of_nulls_is_not_taken_for_a_bad_one(spark: SparkSession) -> None:
    nullable = json.dumps(record("Order", ("id", ["null", "long"]), ("city", ["null", "string"])))
    subject = replace(OF_ORDERS, schemas={2: nullable})
    found = decoded(spark, Decoding(of(subject), "avro", on_bad="null"), Row(framed(2, b"\0\0")), Row(framed(2, b"\0")))
    assert results(found) == [{"id": None, "city": None}, None]
    assert [reason is None for reason in reasons(found)] == [True, False]


def test_a_record_whose_schema_is_named_in_its_headers_does_not_pass_for_another(spark: SparkSession) -> None:
    # Its body begins like a registry's header.
    row = Row(framed(1, encoded(7)), headers=(("__value_schema_id", b"\1" + bytes(16)),))
    other = replace(row, headers=(("__key_schema_id", b""), ("trace", b"x")))
    found = decoded(spark, Decoding(of(OF_ORDERS), "avro", on_bad="null"), row, other)
    assert results(found) == [None, {"id": 7, "city": "?"}]
    assert "its schema id is in header __value_schema_id" in str(reasons(found)[0])


def test_the_first_bad_record_ends_the_job_with_its_place(spark: SparkSession) -> None:
    found = decoded(spark, Decoding(of(OF_ORDERS), "avro"), Row(framed(1, encoded(7))), Row(framed(9, b"")))
    with pytest.raises(
        Exception, match=r"Kafka record orders-3 offset 1: its value can't be decoded: no schema with id 9 "
    ):
        values.public(found).collect()


def test_several_kinds_of_records_have_a_field_each(spark: SparkSession) -> None:
    refunds = Subject("refunds", "value", ["orders"], 3, {3: REFUND})
    rows = [Row(framed(3, encoded(1, "late"))), Row(framed(2, encoded(2, "Bonn"))), Row(None), Row(framed(4, b""))]
    found = decoded(spark, Decoding(of(OF_ORDERS, refunds), "avro", on_bad="null"), *rows)
    refund, order = {"id": 1, "why": "late"}, {"id": 2, "city": "Bonn"}
    assert results(found) == [{"Order": None, "Refund": refund}, {"Order": order, "Refund": None}, None, None]
    assert [reason is None for reason in reasons(found)] == [True, True, True, False]


def test_topics_with_one_kind_of_record_are_read_alike_with_the_newest_schema(spark: SparkSession) -> None:
    here = Subject("orders-value", "value", ["orders"], 1, {1: FIRST})
    there = Subject("more-value", "value", ["more"], 2, {1: FIRST, 2: SECOND})
    rows = [
        Row(framed(1, encoded(1))),
        Row(framed(1, encoded(2)), topic="more"),
        Row(framed(2, encoded(3, "x")), topic="more"),
    ]
    # What a topic's subjects do not have is not read, though another topic's have it.
    rows += [Row(framed(2, encoded(4, "x")))]
    found = decoded(spark, Decoding(of(here, there), "avro", on_bad="null"), *rows)
    assert results(found) == [{"id": 1, "city": "?"}, {"id": 2, "city": "?"}, {"id": 3, "city": "x"}, None]


def test_one_id_may_mean_different_things_in_different_topics(spark: SparkSession) -> None:
    # Registries with contexts count the ids of each context by themselves.
    subjects = [Subject(f":.{c}:s", "value", [c], 1, {1: json.dumps(record("V", (c, "long")))}) for c in ("a", "b")]
    mine = json.dumps(record("V", ("a", "long", 0), ("b", "long", 0)))
    rows = [Row(framed(1, encoded(5)), topic="a"), Row(framed(1, encoded(6)), topic="b")]
    assert results(decoded(spark, Decoding(of(*subjects), "avro", schema=mine), *rows)) == [
        {"a": 5, "b": 0},
        {"a": 0, "b": 6},
    ]


def test_names_inside_keep_their_namespace(spark: SparkSession) -> None:
    inner = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    schema = {**record("Order", ("kind", inner), ("again", "Kind")), "namespace": "com.acme"}
    subject = replace(OF_ORDERS, schemas={2: json.dumps(schema)})
    assert results(decoded(spark, Decoding(of(subject), "avro"), Row(framed(2, encoded(1, 0))))) == [
        {"kind": "B", "again": "A"}
    ]


@pytest.mark.parametrize(
    "schema", ['"string"', '["null", "string"]', '{"type": "string", "avro.java.string": "String"}']
)
def test_a_value_need_not_be_a_record(spark: SparkSession, schema: str) -> None:
    body = (b"\2" if "null" in schema else b"") + encoded("hi")
    subject = replace(OF_ORDERS, schemas={2: schema})
    found = decoded(spark, Decoding(of(subject), "avro", on_bad="null"), Row(framed(2, body)), Row(framed(2, b"\x7f")))
    assert results(found) == ["hi", None]


def test_62_versions_are_one_plan(spark: SparkSession) -> None:
    texts = {
        n: json.dumps(record("Order", ("id", "long"), *((f"f{i}", "long", i) for i in range(n)))) for n in range(62)
    }
    subject = Subject("orders-value", "value", ["orders"], 61, texts)
    rows = [Row(framed(n, encoded(n, *range(100, 100 + n)))) for n in texts]
    found = results(decoded(spark, Decoding(of(subject), "avro"), *rows))
    assert [(value["id"], value["f60"]) for value in found] == [(n, 160 if n == 61 else 60) for n in texts]


def test_keys_are_decoded_by_their_own_subjects(spark: SparkSession) -> None:
    keys = Subject("orders-key", "key", ["orders"], 8, {8: '"long"'})
    rows = [
        Row(framed(1, encoded(7)), key=framed(8, encoded(42))),
        Row(None, key=None),
        Row(None, key=framed(1, encoded(7))),
    ]
    decoding = Decoding(of(OF_ORDERS, keys), "avro", "avro", on_bad="null")
    found = decoded(spark, decoding, *rows)
    assert results(found, "key") == [42, None, None]
    assert results(found) == [{"id": 7, "city": "?"}, None, None]
    assert str(reasons(found)[2]).startswith("its key can't be decoded: no schema with id 1 ")


def test_json_is_read_with_and_without_a_registrys_header(spark: SparkSession) -> None:
    body = b'{"id": 7, "name": "a", "more": true}'
    rows = [
        Row(body),
        Row(framed(5, body)),
        Row(b"\1" + bytes(16) + body),
        Row(b"[]"),
        Row(b'{"id": "x"}'),
        Row(b""),
        Row(None),
    ]
    found = decoded(spark, Decoding(of(), "json", schema="id bigint, name string", on_bad="null"), *rows)
    assert results(found) == [*[{"id": 7, "name": "a"}] * 3, *[None] * 4]
    assert [reason is None for reason in reasons(found)] == [True, True, True, False, False, False, True]
    assert reasons(found)[3] == "its value can't be decoded: it is not JSON of the schema"


def test_json_takes_a_type_too_and_a_key_its_own_columns(spark: SparkSession) -> None:
    from pyspark.sql.types import LongType, StructType

    decoding = Decoding(of(), "json", "json", StructType().add("id", LongType()), "k string")
    found = decoded(spark, decoding, Row(b'{"id": 7}', key=b'{"k": "x"}'))
    assert (results(found), results(found, "key")) == ([{"id": 7}], [{"k": "x"}])


def test_strings_are_texts(spark: SparkSession) -> None:
    found = decoded(spark, Decoding(of(), "string", "string"), Row("grün".encode(), key=b"k"), Row(None))
    assert (results(found), results(found, "key")) == (["grün", None], ["k", None])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"value": "xml"}, "value must be one of avro, json, string; got 'xml'"),
        ({"value": "json"}, "value='json' requires schema='<columns as DDL>'; got None"),
        ({"key": "json", "schema": "a int"}, "schema requires value='avro' or 'json'"),
        ({"key": "json"}, "key_schema='<columns as DDL>'"),
        ({"value": "string", "schema": "a int"}, "schema requires value='avro' or 'json'"),
        ({"value": "avro", "schema": "a int"}, "schema must be an Avro schema as JSON; got 'a int'"),
        ({"value": "avro", "schema": "3"}, "schema must be an Avro schema as JSON; got '3'"),
        ({"value": "avro", "schema": '{"name": "x"}'}, "schema must be an Avro schema as JSON"),
        ({"value": "avro", "schema": '{"type": "record", "name": "x"}'}, "schema must be an Avro schema as JSON"),
        ({"value": "avro", "on_bad": "skip"}, "on_bad must be one of fail, null, side; got 'skip'"),
        ({"on_bad": "null"}, "on_bad='null' requires value= or key="),
        (
            {"key": "avro"},
            r"has no Avro schemas for keys\. Set this and run it again:\n    Registry(..., key_subjects=",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DecodeError, match=said.replace("(", r"\(")):
        Decoding(of(OF_ORDERS), **given)


def test_a_window_without_schemas_names_what_to_set() -> None:
    with pytest.raises(
        DecodeError, match=r"lake\.orders-000012 has no Avro schemas for values\. Set .*\n    KafkaGroup\(registry="
    ):
        Decoding(handoff({"orders": {0: (0, 9)}}), "avro")


def test_headers_are_read_only_for_avro_and_shown_only_if_asked_for(spark: SparkSession) -> None:
    avro, json_only = Decoding(of(OF_ORDERS), "avro"), Decoding(of(), "json", schema="a int")
    assert avro.options({"IncludeHeaders": "false", "a": 1}) == {"a": 1, "includeHeaders": True}
    assert json_only.options({"a": 1}) == {"a": 1}
    rows = frame(spark, Row(None))
    assert "headers" not in avro.decoded(rows, {}).columns
    assert "headers" in avro.decoded(rows, {"IncludeHeaders": True}).columns
    # The call's come after the group's.
    assert "headers" not in avro.decoded(rows, {"includeheaders": "true", "includeHeaders": False}).columns


def fill(kafka: KafkaBroker, topic: str) -> Subject:
    """Make a topic of 10 records with a bad one at offset 4, and return its subject."""
    create_topic(kafka, topic)
    produce_bytes(kafka, topic, [framed(9 if n == 4 else 1, encoded(n)) for n in range(10)])
    return replace(OF_ORDERS, topics=[topic])


def test_a_window_is_decoded_counted_and_written(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, spark: SparkSession, tmp_path: Path
) -> None:
    subject, report = fill(kafka, topic), tmp_path / "report.json"
    window = make_window({topic: {0: (0, 10)}}, schemas=[subject], report=str(report))
    rows = window.read(value="avro", on_bad="null").select("offset", "value.*")
    path = window.write_parquet(rows, f"{tmp_path}/lake")
    assert (window.records, window.bad) == (10, 1)
    assert (json.loads(report.read_text())["records"], json.loads(report.read_text())["bad"]) == (10, 1)
    found = [tuple(row) for row in spark.read.parquet(path).orderBy("offset").collect()]
    assert found == [(n, None, None) if n == 4 else (n, n, "?") for n in range(10)]


def test_a_bad_record_leaves_the_window_unpublished_and_is_named(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, tmp_path: Path
) -> None:
    window = make_window({topic: {0: (0, 10)}}, schemas=[fill(kafka, topic)])
    with pytest.raises(
        BadRecordError,
        match=rf"Window {window.id}: Kafka record {topic}-0 offset 4: .*id 9 .*; nothing was published\. .*without such records: on_bad='null'",
    ):
        window.write_parquet(window.read(value="avro"), f"{tmp_path}/lake")
    assert [path.name for path in tmp_path.glob("lake/[!.]*")] == []
    with pytest.raises(BadRecordError, match="offset 4"), window.persisted(value="avro"):
        raise AssertionError("the block was run")
    with window.persisted(value="avro", on_bad="null") as frame:
        assert frame.filter("value is null").count() == window.bad == 1


def test_bad_records_go_aside_and_a_rerun_replaces_them(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, spark: SparkSession, tmp_path: Path
) -> None:
    subject, side = fill(kafka, topic), f"{tmp_path}/side"
    window = make_window({topic: {0: (0, 10)}}, schemas=[subject])
    with window.persisted(value="avro", on_bad="side", side=side) as frame:
        assert [row.offset for row in frame.orderBy("offset").collect()] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        window.write_parquet(frame.select("value.id"), f"{tmp_path}/lake")
    assert window.bad == 1
    [row] = spark.read.parquet(f"{side}/window_id={window.id}").collect()
    assert (row.topic, row.partition, row.offset, bytes(row.value), row.key) == (
        topic,
        0,
        4,
        framed(9, encoded(4)),
        None,
    )
    assert "no schema with id 9 " in row.reason

    # The schema is known by now: its subject was added to the group.
    whole = replace(subject, schemas={**subject.schemas, 9: FIRST})
    again = make_window({topic: {0: (0, 10)}}, schemas=[whole], is_rerun=True)
    seen: list[int] = []
    with again.persisted(value="avro", on_bad="side", side=side) as frame:
        assert frame.count() == 10
        with pytest.raises(WriteOptionError, match="a second write would replace the first"):
            again.write_parquet(frame, side)
    assert (again.bad, spark.read.schema(row_schema()).parquet(side).count()) == (0, 0)
    third = make_window({topic: {0: (0, 10)}}, schemas=[subject])
    with third.persisted(value="avro", on_bad="side", side=lambda bad, window: seen.append(bad.count())):
        pass
    assert seen == [1]


def expected_aside(topic: str) -> list[tuple[Any, ...]]:
    """Return what `aside` has to return of the bad record of `fill`."""
    return [(topic, 0, 4, None, framed(9, encoded(4)), "no schema with id 9 ")]


def as_aside(bad: DataFrame) -> list[tuple[Any, ...]]:
    """Return where bad records are, their bytes, and the beginning of the reason."""
    return [
        (row.topic, row.partition, row.offset, row.key, bytes(row.value), row.reason.split(": ", 1)[1][:20])
        for row in bad.orderBy("offset").collect()
    ]


def test_one_call_reads_once_puts_bad_records_aside_and_returns_the_others(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, spark: SparkSession, tmp_path: Path
) -> None:
    subject, report, side = fill(kafka, topic), tmp_path / "report.json", f"{tmp_path}/side"
    before = kept_by(spark)
    window = make_window({topic: {0: (0, 10)}}, schemas=[subject], report=str(report))
    rows = window.read(value="avro", on_bad="side", side=side).select("offset", "value.*")
    reported = json.loads(report.read_text())
    assert (window.records, window.bad, reported["records"], reported["bad"]) == (10, 1, 10, 1)
    assert as_aside(spark.read.parquet(f"{side}/window_id={window.id}")) == expected_aside(topic)

    delete_records(kafka, topic, 10)  # what follows can't come from Kafka
    path = window.write_parquet(rows, f"{tmp_path}/lake")
    window.write_json(rows.filter("id > 7"), f"{tmp_path}/late")
    found = [tuple(row) for row in spark.read.parquet(path).orderBy("offset").collect()]
    assert found == [(n, n, "?") for n in range(10) if n != 4]
    window.finish()
    assert len(kept_by(spark) - before) == 1
    with pytest.raises(LostRecordsError):
        window.read(value="avro", on_bad="side", side=side)
    assert len(kept_by(spark) - before) == 1, "a call that fails releases only its own frame"
    assert rows.count() == 9
    window.release()
    assert not kept_by(spark) - before
    window.release()


def kept_by(spark: SparkSession) -> set[int]:
    """Return the ids of the frames that Spark keeps, perhaps those of other tests, too."""
    spark_context: Any = spark.sparkContext
    return set(spark_context._jsc.getPersistentRDDs())


@pytest.mark.parametrize("form", ["path", "table", "jdbc"])
def test_a_rerun_replaces_what_is_aside_also_by_nothing(
    form: str,
    kafka: KafkaBroker,
    topic: str,
    make_window: MakeWindow,
    spark: SparkSession,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    subject, ranges = fill(kafka, topic), {topic: {0: (0, 10)}}
    whole = replace(subject, schemas={**subject.schemas, 9: FIRST})
    side, found = aside_in(form, spark, tmp_path, request)
    for its_subject, good, expected in [
        (subject, 9, expected_aside(topic)),
        (subject, 9, expected_aside(topic)),
        (whole, 10, []),
    ]:
        window = make_window(ranges, schemas=[its_subject], is_rerun=True)
        assert window.read(value="avro", on_bad="side", side=side).count() == good
        assert as_aside(found().filter(f"window_id = '{window.id}'")) == expected
        assert window.bad == len(expected)
        window.release()


def aside_in(
    form: str, spark: SparkSession, folder: Path, request: pytest.FixtureRequest
) -> tuple[Any, Callable[[], DataFrame]]:
    """Return a `side`, and what returns all rows that are there."""
    there = f"{folder}/side"
    if form == "path":
        reader = spark.read.schema(f"{row_schema()}, key binary, value binary, window_id string")
        return there, lambda: reader.parquet(there)
    if form == "table":
        return lambda bad, window: window.write_delta(bad, there), lambda: spark.read.format("delta").load(there)
    database, table = Database(request.getfixturevalue("postgres").url), f"aside_{uuid4().hex}"

    def write(bad: DataFrame, window: KafkaWindow) -> int:
        return window.write_jdbc(bad, database.jdbc, table, database.properties, create=True)

    return write, lambda: spark.read.jdbc(
        database.jdbc, table, properties={**database.properties, "driver": "org.postgresql.Driver"}
    )


def test_what_can_not_be_put_aside_ends_the_job_before_anything_is_published(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, spark: SparkSession, tmp_path: Path
) -> None:
    window = make_window({topic: {0: (0, 10)}}, schemas=[fill(kafka, topic)])
    before = kept_by(spark)

    def side(bad: DataFrame, window: KafkaWindow) -> None:
        raise ValueError("no space left")

    with pytest.raises(ValueError, match="no space left"):
        window.read(value="avro", on_bad="side", side=side)
    assert not kept_by(spark) - before
    with pytest.raises(PublishError, match="write to side failed, and the job continued without it"):
        window.finish()  # a job that swallows the error gets it again

    rows = window.read(value="avro", on_bad="side", side=f"{tmp_path}/side")
    window.write_parquet(rows.select("value.id"), f"{tmp_path}/lake")
    with pytest.raises(PublishError, match="write to side failed"):
        window.finish()  # the records for it are still not there
    window.release()


def test_a_read_that_is_not_complete_puts_nothing_aside(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, tmp_path: Path
) -> None:
    window = make_window({topic: {0: (0, 10)}}, schemas=[fill(kafka, topic)])
    delete_records(kafka, topic, 3)
    with pytest.raises(LostRecordsError, match="nothing was published"):
        window.read(value="avro", on_bad="side", side=f"{tmp_path}/side")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(IncompleteReadError, match="nothing was read"):
        window.finish()


@pytest.mark.parametrize("given", [{"on_bad": "side"}, {"side": "hdfs:///lake/bad"}])
def test_a_side_and_the_wish_for_one_go_together(given: dict[str, Any], make_window: MakeWindow) -> None:
    window = make_window({"orders": {0: (0, 10)}}, schemas=[OF_ORDERS])
    with pytest.raises(DecodeError, match="on_bad='side' and side= go together"):
        window.read(value="avro", **given)
    with (
        pytest.raises(DecodeError, match="on_bad='side' and side= go together"),
        window.persisted(value="avro", **given),
    ):
        raise AssertionError("the block was run")
    assert window.is_unread


def row_schema() -> str:
    return "topic string, partition int, offset long, reason string"


def test_headers_that_the_group_asks_for_are_there(make_window: MakeWindow, topic: str) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "includeHeaders": "true"}
    window = make_window({topic: {0: (7, 7)}}, options=options, schemas=[replace(OF_ORDERS, topics=[topic])])
    assert window.read(value="avro").columns[-1] == "headers"


def test_an_empty_window_has_the_columns_of_a_full_one(make_window: MakeWindow, topic: str) -> None:
    subject = replace(OF_ORDERS, topics=[topic])
    frame = make_window({topic: {0: (7, 7)}}, options={}, schemas=[subject]).read(value="avro", key="string")
    assert frame.select("value.id", "value.city", "key").collect() == []
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


ANY_OBJECT = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}


def test_what_a_real_registry_has_is_frozen_and_decoded(spark: SparkSession, tmp_path: Path) -> None:
    city = json.dumps({**record("City", ("name", "string")), "namespace": "geo"})
    with Apicurio(tmp_path) as server:
        registry = ConfluentRegistry(server.url, "apicurio")
        assert registry.subject("orders-value") is None
        first = server.register("orders-value", FIRST)
        second = server.register("orders-value", SECOND)
        third = server.register("orders-value", THIRD)
        server.delete("orders-value", 3)
        server.register("city", city)
        reference = [{"name": "geo.City", "subject": "city", "version": 1}]
        stay = server.register("stays-value", json.dumps(record("Stay", ("at", "geo.City"))), references=reference)
        note = server.register("notes-value", json.dumps(ANY_OBJECT), schemaType="JSON")
        orders, stays, notes = (registry.subject(f"{name}-value") for name in ("orders", "stays", "notes"))
    assert orders is not None
    assert stays is not None
    assert notes is not None
    assert (orders.latest, sorted(orders.schemas)) == (second, sorted([first, second, third])), "third is deleted"
    rows = [
        Row(framed(first, encoded(7))),
        Row(framed(second, encoded(8, "Bonn"))),
        Row(framed(third, encoded(9, "Ulm", 3))),
    ]
    subject = Subject("orders-value", "value", ["orders"], orders.latest, orders.schemas)
    assert results(decoded(spark, Decoding(of(subject), "avro"), *rows)) == [
        {"id": 7, "city": "?"},
        {"id": 8, "city": "Bonn"},
        {"id": 9, "city": "Ulm"},
    ]
    subject = Subject("stays-value", "value", ["orders"], stays.latest, stays.schemas)
    found = decoded(spark, Decoding(of(subject), "avro"), Row(framed(stay, encoded("Rom"))))
    assert results(found) == [{"at": {"name": "Rom"}}]
    assert (notes.kind, notes.latest) == ("JSON", note)
    found = decoded(spark, Decoding(of(), "json", schema="text string"), Row(framed(note, b'{"text": "hi"}')))
    assert results(found) == [{"text": "hi"}]
