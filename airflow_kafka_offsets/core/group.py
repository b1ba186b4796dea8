"""A group: the name that owns a watermark and its windows, and how these windows are cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from types import NoneType
from typing import Any, NamedTuple

from airflow_kafka_offsets.core.errors import BadInputError, CollidingOptionError, name_some, short
from airflow_kafka_offsets.core.fields import (
    CONN_ID,
    FLAG,
    OPTIONS,
    Kind,
    check_attributes,
    one_of,
    or_none,
    plain,
    seconds,
    whole,
)
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.output_tables import checked_tables
from airflow_kafka_offsets.core.schemas import Registry, parse_registry
from airflow_kafka_offsets.core.secrets import is_in_clear, options_in_clear
from airflow_kafka_offsets.core.starting import Start, StartingOffsets, parse_starting_offsets
from airflow_kafka_offsets.core.store_address import StoreAddress, parse_store_address
from airflow_kafka_offsets.core.window_id import check_group_name
from airflow_kafka_offsets.spark.shared import FIXED_OPTIONS

MAX_OPEN = 1000
MAX_GRACE = timedelta(days=30)
MAX_RETENTION = timedelta(days=36_500)


class OnDataLoss(StrEnum):
    """What to do when retention removed records before they were read."""

    FAIL = "fail"
    SKIP = "skip"


class OnAtRisk(StrEnum):
    """What planning does if retention may remove records of a window before it has run."""

    WARN = "warn"
    FAIL = "fail"


class Until(StrEnum):
    """Where a live window of a scheduled run ends."""

    NOW = "now"
    INTERVAL_END = "data_interval_end"


def _of(*types: type) -> Callable[[Any], Any]:
    def read(value: object) -> object:
        if not isinstance(value, types):
            raise TypeError(f"{short(value)} is not of type {' or '.join(t.__name__ for t in types)}")
        return value

    return read


def _names(value: object) -> tuple[str, ...]:
    return tuple(map(_of(str), _of(list)(value)))


def _start(value: object) -> object:
    # Spark's JSON for a topic named seconds_back holds a mapping here, not a number.
    if isinstance(value, Mapping) and isinstance(value.get("seconds_back"), int | float):
        return timedelta(seconds=value["seconds_back"])
    return _of(str, dict)(value)


def _start_json(start: StartingOffsets) -> object:
    if isinstance(start, timedelta):
        return {"seconds_back": start.total_seconds()}
    if isinstance(start, datetime):
        return start.isoformat()
    if isinstance(start, Mapping):
        return {topic: dict(offsets) for topic, offsets in start.items()}
    return start


class _Field(NamedTuple):
    """What a field of a group takes (None if `__post_init__` parses it), and how its JSON is read and written."""

    kind: Kind | None
    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = lambda value: value


_FIELDS = {
    "name": _Field(None, _of(str)),
    "topics": _Field(None, _names, list),
    "topics_pattern": _Field(None, _of(str, NoneType)),
    "kafka_conn_id": _Field(CONN_ID, _of(str)),
    "ledger_conn_id": _Field(or_none(CONN_ID), _of(str, NoneType)),
    "starting_offsets": _Field(None, _start, _start_json),
    "isolation_level": _Field(one_of(IsolationLevel), IsolationLevel),
    "max_offsets": _Field(or_none(whole(1)), _of(int, NoneType)),
    "max_open_windows": _Field(whole(1, MAX_OPEN), _of(int)),
    "until": _Field(one_of(Until), Until),
    "grace": _Field(
        Kind(
            f"a timedelta of 0 to {MAX_GRACE.days} days",
            lambda grace: isinstance(grace, timedelta) and timedelta(0) <= grace <= MAX_GRACE,
        ),
        lambda seconds: timedelta(seconds=seconds),
        timedelta.total_seconds,
    ),
    "on_data_loss": _Field(one_of(OnDataLoss), OnDataLoss),
    "on_at_risk": _Field(one_of(OnAtRisk), OnAtRisk),
    "retention": _Field(
        or_none(
            Kind(
                f"a timedelta above zero, at most {MAX_RETENTION.days} days",
                lambda retention: isinstance(retention, timedelta) and timedelta(0) < retention <= MAX_RETENTION,
            )
        ),
        lambda seconds: None if seconds is None else timedelta(seconds=seconds),
        lambda retention: None if retention is None else retention.total_seconds(),
    ),
    "expect_gaps": _Field(FLAG, _of(bool)),
    "expect_fewer": _Field(FLAG, _of(bool)),
    "kafka_timeout": _Field(seconds(1, 3600), _of(int, float)),
    "spark_options": _Field(OPTIONS, _of(dict)),
    "offset_store": _Field(None, _of(str, NoneType)),
    "output_tables": _Field(None, _names, list),
    "registry": _Field(
        None,
        lambda document: None if document is None else Registry.from_json(document),
        lambda registry: None if registry is None else registry.to_json(),
    ),
}


@dataclass(frozen=True)
class KafkaGroup:
    """The definition of a group, which operators, sensors, triggers, CLI and UI share. Holds no secret, opens no connection.

    Args:
        name: the group's name in the ledger, and its ``group.id`` wherever offsets are published.
        topics: the topics it reads, at least one; or none, with a `topics_pattern`.
        topics_pattern: instead of `topics`: a regular expression of RE2. The group reads all topics whose whole names match it. Each
            window is planned from the topics that are there at that moment. One that appears is read from its beginning offset. One that
            was deleted stops the group with an error that names it.
        kafka_conn_id: Airflow connection of type ``kafka``.
        ledger_conn_id: Airflow connection to the ledger's PostgreSQL or MySQL; None means the configured one
            (``[kafka_offsets] ledger_conn_id``), or SQLite under AIRFLOW_HOME if it names none.
        starting_offsets: where the first window starts: ``"earliest"``, ``"latest"``, ``"committed"`` (the offsets in the
            `offset_store`, or else of the Kafka consumer group of this name), a time with a zone, a timedelta back from now,
            or Spark's JSON.
        isolation_level: which records are read; the same for planning and for Spark.
        max_offsets: the largest span of one window; None means up to the end offset at the moment of planning.
        max_open_windows: how many live windows may wait for their commit at once, 1 to 1000. With more than one, runs and
            mapped tasks work on several windows in parallel. The watermark passes a window after all windows before it are
            committed.
        until: where a window of a scheduled run ends: ``"now"``, the end offset at the moment of planning, or
            ``"data_interval_end"``, the first record of that time or later by Kafka's timestamp index. A run of
            `CronPartitionTimetable` ends with its partition.
        grace: how long after the interval's end a run with ``until="data_interval_end"`` waits for late records. A record
            that arrives after that belongs to the next window.
        on_data_loss: ``"fail"``, or ``"skip"``: continue at the beginning offset and record what was lost.
        on_at_risk: ``"warn"``, or ``"fail"``: plan nothing if retention may remove records of the next window before it has run.
        retention: how long Kafka keeps the records of the topics, for a user who may not read their configuration. Where Kafka
            answers, its answer counts.
        expect_gaps: whether offsets without a record are normal, as in topics that are compacted or written in transactions. If not,
            a job that did not read every planned offset fails.
        expect_fewer: whether a later run of a window may read fewer records than an earlier run, and replace its output. If not, such
            a job fails before it publishes. Records that compaction removed in between exist only in the old output.
        kafka_timeout: seconds after which a lookup in Kafka times out, 1 to 3600.
        spark_options: options for Spark's Kafka reader, e.g. ``kafka.max.poll.records`` or references to secrets that
            the cluster resolves (``kafka.sasl.jaas.config``). Options that a window fixes are refused. ``sourceVersion``
            chooses between Spark's two Kafka sources, for jobs that read with `KafkaWindow.read`.
        offset_store: where each commit also publishes the watermark, and where ``starting_offsets="committed"``
            begins: ``"redis://redis_default"``, or a `StoreAddress`; None means nowhere.
        output_tables: a name or several, with or without a schema: tables in the ledger's own database. The transaction that
            commits a window also moves into them what the job staged with ``window.stage_jdbc``. Empty: the job publishes
            its output itself.
        registry: the schema registry of the topics: the id of an Airflow connection of type ``http``, or a `Registry`, which also
            names subjects. When a window is planned, the schemas are kept with it, and jobs decode with these:
            ``window.read(value="avro")``. None means no registry.

    Raises:
        BadInputError: a value can't be used.
    """

    name: str
    _: KW_ONLY
    topics: Sequence[str] = ()
    topics_pattern: str | None = None
    kafka_conn_id: str = "kafka_default"
    ledger_conn_id: str | None = None
    starting_offsets: StartingOffsets = "earliest"
    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    max_offsets: int | None = None
    max_open_windows: int = 1
    until: Until = Until.NOW
    grace: timedelta = timedelta(0)
    on_data_loss: OnDataLoss = OnDataLoss.FAIL
    on_at_risk: OnAtRisk = OnAtRisk.WARN
    retention: timedelta | None = None
    expect_gaps: bool = False
    expect_fewer: bool = False
    kafka_timeout: float = 30.0
    spark_options: Mapping[str, str] = field(default_factory=dict)
    offset_store: str | StoreAddress | None = None
    output_tables: str | Sequence[str] = ()
    registry: str | Registry | None = None

    def __post_init__(self) -> None:
        check_group_name(self.name)
        check_pattern(self.topics_pattern)
        _set(self, "topics", checked_topics(self.topics, self.topics_pattern))
        check_attributes(self, {name: field.kind for name, field in _FIELDS.items() if field.kind})
        _set(self, "starting_offsets", plain(self.starting_offsets))
        parse_starting_offsets(self.starting_offsets)
        for name in ("isolation_level", "until", "on_data_loss", "on_at_risk"):
            _set(self, name, _FIELDS[name].read(getattr(self, name)))
        if self.grace and self.until is Until.NOW:
            raise BadInputError("grace has no effect without until='data_interval_end'")
        check_spark_options(self.spark_options)
        _set(self, "spark_options", {str(k): str(v) for k, v in self.spark_options.items()})
        if self.offset_store is not None:
            _set(self, "offset_store", str(parse_store_address(self.offset_store)))
        _set(self, "output_tables", checked_tables(self.output_tables))
        _set(self, "registry", parse_registry(self.registry))

    @property
    def start(self) -> Start:
        """`starting_offsets` in parsed form."""
        return parse_starting_offsets(self.starting_offsets)

    @property
    def reads(self) -> Container[str]:
        """The topics that the group reads, to look whether one is among them. With a pattern, they need not exist."""
        return frozenset(self.topics) if self.topics_pattern is None else Matching(self.topics_pattern)

    @property
    def topics_in_words(self) -> str:
        """What the group reads, for a sentence."""
        if self.topics_pattern is None:
            return name_some(self.topics, ", ")
        return f"topics that match {self.topics_pattern!r}"

    def having_matched(self, topics: Iterable[str]) -> KafkaGroup:
        """Return a group that has a pattern as the ledger keeps it: with the topics that the pattern matched."""
        return replace(self, topics=Matched(sorted(topics)))

    @property
    def schema_registry(self) -> Registry | None:
        """`registry` in parsed form."""
        return parse_registry(self.registry)

    def to_json(self) -> dict[str, Any]:
        """Return the definition as JSON-able data, for the ledger and for triggers."""
        return {name: field.write(getattr(self, name)) for name, field in _FIELDS.items()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> KafkaGroup:
        """Rebuild a group from `to_json`; keys of a newer version are ignored.

        The values are not checked: a group must stay readable, also if this version would refuse its values in a DAG.
        (`dataclasses.replace` checks them.)

        Raises:
            KeyError, TypeError, ValueError: no version of this package stores such a document.
        """
        group: KafkaGroup = object.__new__(cls)
        if "topics" not in document:  # only a DAG leaves them out
            raise KeyError("topics")
        for f in fields(cls):
            if f.name in document:
                value = _FIELDS[f.name].read(document[f.name])
            elif f.default is not MISSING:
                value = f.default
            elif f.default_factory is not MISSING:
                value = f.default_factory()
            else:
                raise KeyError(f.name)
            _set(group, f.name, value)
        if group.topics_pattern is not None:
            _set(group, "topics", Matched(group.topics))
        return group


GROUP = Kind("a KafkaGroup", lambda value: isinstance(value, KafkaGroup))


def check_spark_options(options: Mapping[str, str]) -> None:
    """Refuse options that override what a window fixes, and secrets in clear text.

    Raises:
        BadInputError: an option holds a secret.
        CollidingOptionError: a window fixes an option.
    """
    in_clear = [name for name, value in options.items() if is_in_clear(str(name), str(value))]
    if in_clear:
        refused = [option for name in in_clear for option in options_in_clear(str(name), str(options[name]))]
        listed = f" ({', '.join(refused)})" if refused else ""
        raise BadInputError(
            f"spark_options must not hold {', '.join(in_clear)} in clear text{listed}. "
            "Write a reference: docs/howto/log-in-to-your-kafka.md#on-a-cluster"
        )
    colliding = [name for name in options if str(name).lower() in FIXED_OPTIONS]
    if colliding:
        raise CollidingOptionError(f"spark_options must not hold {', '.join(colliding)}, which the window fixes")


def check_reads(group: KafkaGroup, topics: Iterable[str]) -> None:
    """Refuse topics that the group does not read.

    Raises:
        BadInputError: there are some.
    """
    reads = group.reads
    if unread := sorted({topic for topic in topics if topic not in reads}):
        raise BadInputError(
            f"Group {group.name} doesn't read {name_some(unread, ', ')}; it reads {group.topics_in_words}"
        )


def _set(holder: object, name: str, value: object) -> None:
    object.__setattr__(holder, name, value)  # the dataclass is frozen


# The characters that Kafka allows, so that no name has to be escaped but for its dots.
_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_INTERNAL = "__"
_LEAVES_OUT = "(?!"
MAX_PATTERN = 1000


class Matched(tuple[str, ...]):
    """The topics that a pattern matched when its group last planned. A DAG never has them: they are in the ledger."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Matching(Container[str]):
    """All topics whose whole names match a pattern, as in Spark's ``subscribePattern``, whether they exist or not.

    Planning looks a pattern up in Kafka. The window then holds the topics that were there: a job, a retry and a replay read those, and
    never look at the pattern. Names that begin with two underscores are those of Kafka and its tools. Only a pattern that itself begins
    with two underscores matches them: one like ``.*`` means the topics of people.

    >>> "orders-eu" in Matching("orders-.*"), "old-orders-eu" in Matching("orders-.*"), "__consumer_offsets" in Matching(".*")
    (True, False, False)
    """

    pattern: str
    _expressions: tuple[Any, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _set(self, "_expressions", _expressions(self.pattern))

    def __contains__(self, topic: object) -> bool:
        if not isinstance(topic, str):
            return False
        if topic.startswith(_INTERNAL) and not self.pattern.startswith(_INTERNAL):
            return False
        expression, *left_out = self._expressions
        return expression.fullmatch(topic) is not None and not any(other.match(topic) for other in left_out)


def checked_topics(topics: Sequence[str], pattern: str | None) -> tuple[str, ...]:
    """Return the topics of a group that names them, or that has a pattern instead.

    Raises:
        BadInputError: there are none, one is no topic name, or there is a pattern as well.
    """
    if pattern is not None:
        return _matched(topics)
    if isinstance(topics, str) or not isinstance(topics, Sequence) or not topics:
        raise BadInputError(f"topics must be a list of at least one topic; got {short(topics)}")
    for topic in topics:
        if not isinstance(topic, str) or topic in (".", "..") or len(topic) > 249 or not _TOPIC.fullmatch(topic):
            raise BadInputError(f"{short(topic)} in topics is not a Kafka topic name")
    if len(set(topics)) < len(topics):
        raise BadInputError(f"topics names a topic twice: {name_some(topics, ', ')}")
    return tuple(topics)


def _matched(topics: Sequence[str]) -> Matched:
    is_empty = isinstance(topics, list | tuple) and not topics
    if not is_empty and not isinstance(topics, Matched):
        raise BadInputError("topics and topics_pattern exclude each other")
    return Matched(topics)


def check_pattern(pattern: object) -> None:
    """Refuse anything but None or a pattern.

    Raises:
        BadInputError: it is no regular expression of RE2, or too long.
    """
    if pattern is None:
        return
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MAX_PATTERN or not pattern.isprintable():
        raise BadInputError(f"topics_pattern must be 1 to {MAX_PATTERN} printable characters; got {short(pattern)}")
    Matching(pattern)


def _expressions(pattern: str) -> tuple[Any, ...]:
    """Return the expression of the names that match, and after it those of the names that ``(?!...)`` at its start leaves out."""
    ends = (i for i, letter in enumerate(pattern) if letter == ")") if pattern.startswith(_LEAVES_OUT) else ()
    for end in ends:
        try:
            left_out = _compiled(pattern[len(_LEAVES_OUT) : end])
        except BadInputError:  # this bracket closes an inner one
            continue
        _check_one_alternative(pattern[end + 1 :])
        return (*_expressions(pattern[end + 1 :]), left_out)
    return (_compiled(pattern),)


def _check_one_alternative(pattern: str) -> None:
    """Refuse `a|b` after `(?!...)`: in Spark and Python, that leaves names out of `a` only."""
    for i, letter in enumerate(pattern):
        if letter == "|" and not pattern.startswith(_LEAVES_OUT):
            try:
                _compiled(pattern[:i])
            except BadInputError:  # it stands in brackets, or is escaped
                continue
            raise BadInputError(
                f"topics_pattern: before {short(pattern)}, (?!...) leaves names out of all alternatives, but Spark would leave them out of the "
                "first only. Write (?!...)(?:...|...), or a list of topics"
            )


def _compiled(expression: str) -> Any:
    # With Python's own, the time for one name may double with each of its characters, and the API server matches names, too.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as exc:
        raise BadInputError(
            f"topics_pattern: {short(expression)} is not a regular expression of RE2 ({exc.args[0].decode()}). It has no backreferences, "
            "and (?!...) only at its start"
        ) from exc
