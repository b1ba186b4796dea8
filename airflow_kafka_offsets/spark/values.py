"""Decodes the keys and values of a window's records: Avro with a schema registry's header, JSON, text.

A registry's header is the byte 0x00 and the schema's id in four bytes (big endian). Spark's `from_avro` decodes the body after it, in one
branch of a CASE for each id. The schemas were frozen with the window, so no job asks a registry.

`from_avro` hides a failure: it returns a row of NULLs. So each schema is wrapped in a record, which Avro encodes as its field alone. The
reader's wrapper has a second field with a default, `_OK`, which is NULL only if the body could not be decoded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from airflow_kafka_offsets.spark.errors import DecodeError
from airflow_kafka_offsets.spark.handoff import Handoff, Subject
from airflow_kafka_offsets.spark.observing import Observed, observe
from airflow_kafka_offsets.spark.shared import short
from airflow_kafka_offsets.spark.units import unlike

KEY, VALUE = "key", "value"
KINDS = ("avro", "json", "string")
FAIL, NULL, SIDE = "fail", "null", "side"

_BAD = "kafka_offsets_bad"
_RAW = "kafka_offsets_raw"
_OK = "kafka_offsets_ok"
_PAYLOAD = "payload"
_HEADERS = "headers"
_HEADER_BYTES = 5
_GUID_BYTES = 17
_WHERE = ("topic", "partition", "offset", "timestamp")


@dataclass(frozen=True)
class Form:
    """The form of a key or a value.

    Attributes:
        part: ``key`` or ``value``.
        kind: ``avro``, ``json`` or ``string``.
        schema: to read it with: an Avro schema, or the columns of JSON.

    Raises:
        DecodeError: the kind is unknown, or the schema does not fit it.
    """

    part: str
    kind: str
    schema: str | StructType | None = None

    def __post_init__(self) -> None:
        _check_choice(self.part, self.kind, KINDS)
        name = _schema_name(self.part)
        if self.kind == "string" and self.schema is not None:
            raise DecodeError(_needless_schema(self.part))
        if self.kind == "json" and not isinstance(self.schema, (str, StructType)):
            raise DecodeError(f"{self.part}='json' requires {name}='<columns as DDL>'; got {short(self.schema)}")
        if self.kind == "avro" and self.schema is not None and not _is_avro(self.schema):
            raise DecodeError(f"{name} must be an Avro schema as JSON; got {short(self.schema)}")


def _check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise DecodeError(f"{name} must be one of {', '.join(choices)}; got {short(value)}")


def _schema_name(part: str) -> str:
    return "schema" if part == VALUE else "key_schema"


def _needless_schema(part: str) -> str:
    return f"{_schema_name(part)} requires {part}='avro' or 'json'"


class Decoding:
    """How one read decodes keys and values.

    Args:
        handoff: holds the schemas.
        value, key: ``avro``, ``json`` or ``string``, or None to leave it binary.
        schema, key_schema: what to read them with.
        on_bad: ``fail``, ``null`` or ``side``.

    Attributes:
        is_on: whether anything is decoded.
        on_bad: as given.

    Raises:
        DecodeError: an argument can't be used, or the window has no schemas.
    """

    def __init__(
        self,
        handoff: Handoff,
        value: str | None = None,
        key: str | None = None,
        schema: str | StructType | None = None,
        key_schema: str | StructType | None = None,
        on_bad: str = FAIL,
    ) -> None:
        _check_choice("on_bad", on_bad, (FAIL, NULL, SIDE))
        self._parts: list[_Part] = []
        for part, kind, part_schema in ((VALUE, value, schema), (KEY, key, key_schema)):
            if kind is not None:
                self._parts.append(_part(Form(part, kind, part_schema), handoff))
            elif part_schema is not None:
                raise DecodeError(_needless_schema(part))
        self.is_on = bool(self._parts)
        self.on_bad = on_bad
        if on_bad != FAIL and not self.is_on:
            raise DecodeError(f"on_bad={on_bad!r} requires value= or key=")

    def options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of Spark's reader, with headers for Avro: they may hold the id of the schema."""
        needs_headers = any(isinstance(part, _Avro) for part in self._parts)
        others = {name: value for name, value in options.items() if name.lower() != "includeheaders"}
        return {**others, "includeHeaders": True} if needs_headers else dict(options)

    def decoded(self, frame: DataFrame, options: Mapping[str, Any]) -> DataFrame:
        """Return a frame of Spark's Kafka source with decoded keys and values.

        Args:
            frame: read with the method `options`.
            options: of the group and the call. The result has headers only if these ask for them.

        Raises:
            DecodeError: Spark has no ``from_avro``.
        """
        lowered = {name.lower(): str(value).lower() for name, value in options.items()}
        keeps_headers = lowered.get("includeheaders") == "true"
        columns = [name for name in frame.columns if name != _HEADERS or keeps_headers]
        raw = F.struct(F.col(KEY), F.col(VALUE))
        for part in self._parts:
            frame = part.prepared(frame)
        for part in self._parts:
            frame = part.decoded(frame)
        bad = F.coalesce(*(part.problem() for part in self._parts))
        results = {part.form.part: part.or_fail() if self.on_bad == FAIL else part.result() for part in self._parts}
        kept = [results[name].alias(name) if name in results else F.col(name) for name in columns]
        more = [F.when(bad.isNotNull(), raw).alias(_RAW)] if self.on_bad == SIDE else []
        return frame.select(*kept, bad.alias(_BAD), *more)


def observe_bad(frame: DataFrame) -> tuple[DataFrame, Observed]:
    """Return the public part of a frame of `Decoding.decoded`, and the observation of the `bad` records of its first action."""
    frame, observed = observe(frame, F.count(F.col(_BAD)).alias("bad"))
    return public(frame), observed


def count_bad(frame: DataFrame) -> int:
    """Count the bad records of a frame of `Decoding.decoded`."""
    [(bad,)] = frame.agg(F.count(F.col(_BAD))).collect()
    return int(bad)


def public(frame: DataFrame) -> DataFrame:
    """Return a frame of `Decoding.decoded` without this module's own columns."""
    return frame.drop(_BAD, _RAW)


def good(frame: DataFrame) -> DataFrame:
    """Return the records of a frame of `Decoding.decoded` that are not bad."""
    return public(frame.filter(F.col(_BAD).isNull()))


def aside(frame: DataFrame) -> DataFrame:
    """Return the bad records of a frame of `Decoding.decoded`, with topic-partition, offset, reason and bytes."""
    raw = F.col(_RAW)
    columns = [*map(F.col, _WHERE), F.col(_BAD).alias("reason"), raw[KEY].alias(KEY), raw[VALUE].alias(VALUE)]
    return frame.filter(F.col(_BAD).isNotNull()).select(*columns)


def _part(form: Form, handoff: Handoff) -> _Part:
    if form.kind == "avro":
        return _Avro(form, readers(form, handoff))
    return _Json(form) if form.kind == "json" else _Text(form)


class _Part:
    """A key or a value that is decoded into two helping columns, `_name` and `_why`."""

    def __init__(self, form: Form) -> None:
        self.form = form
        self._raw = F.col(form.part)
        self._name = f"kafka_offsets_{form.part}"
        self._why = f"{self._name}_bad"

    def prepared(self, frame: DataFrame) -> DataFrame:
        """Add columns that `decoded` needs several times."""
        return frame

    def decoded(self, frame: DataFrame) -> DataFrame:
        """Add `_name`, the decoded part, and `_why`, the reason if it can't be decoded."""
        raise NotImplementedError

    def result(self) -> Column:
        """Return the decoded part; NULL for a bad record, and for one without this part."""
        return F.when(F.col(self._why).isNull(), F.col(self._name))

    def or_fail(self) -> Column:
        """Return the decoded part; a bad record ends the job."""
        place = _sentence("Kafka record ", F.col("topic"), "-", F.col("partition"), " offset ", F.col("offset"), ": ")
        is_bad = F.col(self._why).isNotNull()
        return F.when(is_bad, F.raise_error(F.concat(place, self.problem()))).otherwise(F.col(self._name))

    def problem(self) -> Column:
        """Return why a record is bad, as a sentence about this part; NULL if it is good."""
        return F.concat(F.lit(f"its {self.form.part} can't be decoded: "), F.col(self._why))


class _Text(_Part):
    def decoded(self, frame: DataFrame) -> DataFrame:
        return _with(frame, {self._name: self._raw.cast("string"), self._why: F.lit(None).cast("string")})


class _Json(_Part):
    def decoded(self, frame: DataFrame) -> DataFrame:
        # JSON begins with neither of the bytes that a registry's header begins with.
        body = (
            F.when(_starts_with(self._raw, b"\0"), _after(self._raw, _HEADER_BYTES))
            .when(_starts_with(self._raw, b"\1"), _after(self._raw, _GUID_BYTES))
            .otherwise(self._raw)
        )
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _OK}
        parsed = f"{self._name}_parsed"
        frame = _with(frame, {parsed: F.from_json(body.cast("string"), self._columns(), options)})
        row = F.col(parsed)
        is_bad = self._raw.isNotNull() & (row.isNull() | row[_OK].isNotNull())
        why = F.when(is_bad, F.lit("it is not JSON of the schema"))
        return _with(frame, {self._name: row.dropFields(_OK), self._why: why})

    def _columns(self) -> Any:
        schema: Any = self.form.schema
        if isinstance(schema, StructType):
            return StructType([*schema.fields, StructField(_OK, StringType())])
        return f"{schema}, {_OK} string"


@dataclass(frozen=True)
class Writer:
    """A schema that records were written with.

    Attributes:
        id: in the registry.
        text: the schema.
        topics: those whose subjects have it.
    """

    id: int
    text: str
    topics: tuple[str, ...]


@dataclass(frozen=True)
class Reader:
    """A schema to read with, and the schemas of the records that are read with it.

    Attributes:
        name: of its field, if there are several readers.
        text: the schema.
        writers: the schemas of its records.
    """

    name: str
    text: str
    writers: tuple[Writer, ...]


def readers(form: Form, handoff: Handoff) -> list[Reader]:
    """Return the schemas to read a window with: the user's, or for each name of a record the newest.

    Raises:
        DecodeError: the window has no schemas for this part.
    """
    subjects = [subject for subject in handoff.schemas or () if subject.part == form.part and subject.schemas]
    if not subjects:
        raise DecodeError(_no_schemas(form, handoff))
    if form.schema is not None:
        return [Reader("", str(form.schema), _writers(subjects))]
    by_name: dict[str, list[Subject]] = {}
    for subject in sorted(subjects, key=lambda subject: subject.latest):
        by_name.setdefault(full_name(subject.schemas[subject.latest]), []).append(subject)
    names = _field_names(by_name)
    return [
        Reader(names[name], named[-1].schemas[named[-1].latest], _writers(named))
        for name, named in sorted(by_name.items())
    ]


def _no_schemas(form: Form, handoff: Handoff) -> str:
    names = "subjects" if form.part == VALUE else "key_subjects"
    setting = (
        "KafkaGroup(registry='<connection id>')  # its group has no registry"
        if handoff.schemas is None
        else f"Registry(..., {names}={{'<topic>': [...]}})  # the registry had no subject <topic>-{form.part}"
    )
    return f"Window {handoff.window_id} has no Avro schemas for {form.part}s. Set this and run it again:\n    {setting}"


def _writers(subjects: Iterable[Subject]) -> tuple[Writer, ...]:
    topics: dict[tuple[int, str], set[str]] = {}
    for subject in subjects:
        for number, text in subject.schemas.items():
            topics.setdefault((number, text), set()).update(subject.topics)
    return tuple(Writer(number, text, tuple(sorted(topics[number, text]))) for number, text in sorted(topics))


def _field_names(full_names: Iterable[str]) -> dict[str, str]:
    """Return the last part of each name, or the whole name if others end with the same.

    >>> _field_names(["a.Order", "b.Order", "b.Refund"])
    {'a.Order': 'a.Order', 'b.Order': 'b.Order', 'b.Refund': 'Refund'}
    """
    last = {name: name.rpartition(".")[2] for name in full_names}
    ends = list(last.values())
    return {name: end if ends.count(end) == 1 else name for name, end in last.items()}


def full_name(text: str) -> str:
    """Return the full name in an Avro schema; without a name, its type.

    >>> full_name('{"type": "record", "name": "Order", "namespace": "com.acme", "fields": []}'), full_name('"string"')
    ('com.acme.Order', 'string')
    """
    schema = json.loads(text)
    if isinstance(schema, list):
        return "union"
    if not isinstance(schema, dict):
        return str(schema)
    if "name" not in schema:
        return full_name(json.dumps(schema.get("type")))
    name, namespace = str(schema["name"]), schema.get("namespace")
    return name if "." in name or not namespace else f"{namespace}.{name}"


class _Avro(_Part):
    def __init__(self, form: Form, schemas: Sequence[Reader]) -> None:
        super().__init__(form)
        self._readers = schemas
        writers = [writer for reader in schemas for writer in reader.writers]
        self._topics = {topic for writer in writers for topic in writer.topics}
        self._ids: dict[tuple[str, ...], list[int]] = {}
        for writer in writers:
            self._ids.setdefault(writer.topics, []).append(writer.id)
        pairs = [(writer, unlike(writer.text, reader.text)) for reader in schemas for writer in reader.writers]
        self._unlike = [(writer, difference) for writer, difference in pairs if difference is not None]
        self._header, self._body = f"{self._name}_header", f"{self._name}_body"

    def prepared(self, frame: DataFrame) -> DataFrame:
        return _with(
            frame,
            {self._header: F.substring(self._raw, 1, _HEADER_BYTES), self._body: _after(self._raw, _HEADER_BYTES)},
        )

    def decoded(self, frame: DataFrame) -> DataFrame:
        names = [f"{self._name}_{number}" for number in range(len(self._readers))]
        frame = _with(frame, {name: self._read(reader) for name, reader in zip(names, self._readers)})  # noqa: B905
        rows = [F.col(name) for name in names]
        is_ok = F.coalesce(*(row[_OK] for row in rows)).isNotNull()
        for writer, _ in self._unlike:
            is_ok = is_ok & ~self._is_one_of([writer.id], writer.topics)
        if len(rows) == 1:
            together = rows[0][_PAYLOAD]
        else:
            fields = [row[_PAYLOAD].alias(reader.name) for row, reader in zip(rows, self._readers)]  # noqa: B905
            together = F.when(is_ok, F.struct(*fields))
        return _with(frame, {self._name: together, self._why: self._reason(is_ok)})

    def _read(self, reader: Reader) -> Column:
        from_avro = _from_avro()
        options = {"avroSchema": wrapped(reader.text, is_reader=True), "mode": "PERMISSIVE"}
        chosen: Any = F
        for writer in reader.writers:
            has_it = self._is_one_of([writer.id], writer.topics)
            chosen = chosen.when(has_it, from_avro(F.col(self._body), wrapped(writer.text), options))
        column: Column = chosen
        return column

    def _is_one_of(self, ids: Sequence[int], topics: Sequence[str]) -> Column:
        headers = [_bytes(b"\0" + number.to_bytes(4, "big")) for number in ids]
        has_id = F.col(self._header).isin(*headers)
        # An id means the same in all of a registry, so usually the topic need not be looked at.
        return has_id if set(topics) == self._topics else has_id & F.col("topic").isin(*topics)

    def _reason(self, is_ok: Column) -> Column:
        """Return why a record can't be decoded, or NULL if it can or has no such part."""
        id_header = f"__{self.form.part}_schema_id"
        has_header = F.exists(F.col(_HEADERS), lambda header: header["key"] == id_header)
        number = F.conv(F.hex(F.substring(F.col(self._header), 2, 4)), 16, 10)
        is_frozen: Any = F
        for topics, ids in self._ids.items():
            is_frozen = is_frozen.when(self._is_one_of(ids, topics), F.lit(True))
        other_unit: Any = F
        for writer, difference in self._unlike:
            other_unit = other_unit.when(self._is_one_of([writer.id], writer.topics), F.lit(difference))
        none = F.lit(None).cast("string")
        first = F.lower(F.hex(F.substring(self._raw, 1, 1)))
        return (
            F.when(self._raw.isNull(), none)
            .when(F.coalesce(has_header, F.lit(False)), F.lit(f"its schema id is in header {id_header}"))
            .when(is_ok, none)
            .when(*((F.lit(False), none) if other_unit is F else (other_unit.isNotNull(), other_unit)))
            .when(is_frozen, _sentence("its bytes do not fit schema ", number, ", or not the schema to read with"))
            .when(
                F.length(self._raw) < _HEADER_BYTES,
                _sentence("it has ", F.length(self._raw), " bytes, fewer than a header"),
            )
            .when(first == "01", F.lit("its header has a GUID (byte 0x01), not an id"))
            .when(first != "00", _sentence("it begins with byte 0x", first, ", not 0x00"))
            .otherwise(_sentence("no schema with id ", number, " was frozen with the window"))
        )


def wrapped(schema: str, *, is_reader: bool = False) -> str:
    """Return a record that Avro encodes like its only field; the reader's has the field `_OK`, too."""
    fields: list[dict[str, Any]] = [{"name": _PAYLOAD, "type": json.loads(schema)}]
    if is_reader:
        fields.append({"name": _OK, "type": "boolean", "default": True})
    # Without a namespace: a name inside that has none would take it.
    return json.dumps({"type": "record", "name": "KafkaOffsetsRecord", "fields": fields})


def _from_avro() -> Callable[..., Column]:
    from pyspark.sql.avro.functions import from_avro

    def decode(*args: Any) -> Column:
        try:
            return from_avro(*args)
        except TypeError as exc:
            if "JavaPackage" not in str(exc):
                raise
            raise DecodeError("The jar spark-avro is missing. Add it in Spark's version") from exc

    return decode


def _is_avro(text: object) -> bool:
    """Whether a schema is Avro at first sight; Spark refuses the rest."""
    try:
        unlike(text, text)  # type: ignore[arg-type]
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
    return True


def _with(frame: DataFrame, columns: Mapping[str, Column]) -> DataFrame:
    return frame.select("*", *(column.alias(name) for name, column in columns.items()))


def _sentence(*parts: str | Column) -> Column:
    return F.concat(*(F.lit(part) if isinstance(part, str) else part.cast("string") for part in parts))


def _bytes(value: bytes) -> Column:
    return F.unhex(F.lit(value.hex()))


def _starts_with(column: Column, value: bytes) -> Column:
    return F.substring(column, 1, len(value)) == _bytes(value)


def _after(column: Column, number: int) -> Column:
    return F.substring(column, number + 1, 2**31 - 1)
