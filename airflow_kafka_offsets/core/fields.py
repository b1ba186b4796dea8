"""Checks of the values that a person sets: a table lists what each field takes.

Python takes any value for any field: ``expect_gaps="false"`` would silently count as true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_kafka_offsets.core.errors import BadInputError, short
from airflow_kafka_offsets.core.offsets import MAX_OFFSET, is_whole

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

A_TIME = "a time such as '2026-01-31T00:00:00+01:00'"

MAX_CONN_ID = 250
"""The longest connection id that Airflow's database stores, in characters."""

_DAYS = (datetime(1972, 1, 1), datetime(1897, 2, 3, 4, 5, 6, 7))
"""Two days that a month, a year, and the next Monday move by different lengths."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a field takes.

    Attributes:
        expected: the words that follow "must be" in the message.
        takes: whether the field takes a value.
        shown: how the message shows a refused value.
    """

    expected: str
    takes: Callable[[Any], bool]
    shown: Callable[[object], str] = short


Kinds = Mapping[str, Kind]
"""The kind of each field, by its name."""


def check_fields(values: Mapping[str, object], kinds: Kinds) -> None:
    """Refuse a value that its field does not take.

    >>> check_fields({"expect_gaps": "false"}, {"expect_gaps": FLAG})
    Traceback (most recent call last):
    airflow_kafka_offsets.core.errors.BadInputError: expect_gaps must be True or False; got 'false'

    Raises:
        BadInputError: the message names the field, the value and what is expected.
    """
    for name, kind in kinds.items():
        if not kind.takes(values[name]):
            raise BadInputError(f"{name} must be {kind.expected}; got {kind.shown(values[name])}")


def check_attributes(holder: object, kinds: Kinds) -> None:
    """Make each attribute `plain`, and refuse one that its kind does not take. An attribute without a kind is left alone.

    Raises:
        BadInputError: the message names the attribute, the value and what is expected.
    """
    for name in kinds:
        object.__setattr__(holder, name, plain(getattr(holder, name)))  # a dataclass may be frozen
    check_fields({name: getattr(holder, name) for name in kinds}, kinds)


def plain(value: Any) -> Any:
    """Return a time or a duration of any library as one of Python's own; anything else as it is.

    A time with a zone becomes one in UTC.

    >>> plain(datetime.fromisoformat("2026-01-31T13:00:00+01:00"))
    datetime.datetime(2026, 1, 31, 12, 0, tzinfo=datetime.timezone.utc)

    Raises:
        BadInputError: in UTC, the time lies outside of the years 1 to 9999; or the duration has no fixed length, such as a month.
    """
    if isinstance(value, datetime):
        time = datetime.combine(value.date(), value.timetz())
        try:
            return time if time.tzinfo is None else time.astimezone(UTC)
        except OverflowError as exc:
            raise BadInputError(f"In UTC, the time {time.isoformat()} lies outside of the years 1 to 9999") from exc
    if isinstance(value, timedelta):
        # pendulum's own arithmetic has other results. It takes a month as 30 days; its interval has a start, so its length is fixed.
        has_months = any(getattr(value, unit, 0) for unit in ("months", "years")) and not hasattr(value, "start")
        lengths = set() if has_months else {timedelta.__pos__(value)}
    else:
        try:
            lengths = {day + value - day for day in _DAYS}
        except (TypeError, ValueError, OverflowError):
            return value
    if len(lengths) != 1:
        raise BadInputError(f"{short(value)} has no fixed length; give days or hours instead")
    return lengths.pop()


def is_text(value: object) -> bool:
    """Whether a value is a text that databases, files and command lines can hold: valid UTF-8 without a NUL."""
    return isinstance(value, str) and "\0" not in value and value.encode(errors="replace").decode() == value


def moment(what: str, value: object, forms: str = A_TIME) -> datetime:
    """Return a moment in UTC, from a time of any library or a text in ISO 8601.

    >>> moment("until", " 2026-01-31 13:00+01:00")
    datetime.datetime(2026, 1, 31, 12, 0, tzinfo=datetime.timezone.utc)

    Args:
        what: the name of the field, for messages.
        value: what a person wrote.
        forms: all that the field takes, for messages.

    Raises:
        BadInputError: it is no time, has no zone, or lies before 1970 or after 9999.
    """
    try:
        written = value if isinstance(value, datetime) else read_time(str(value).strip())
    except ValueError as exc:
        raise BadInputError(f"{what}: {short(value)} is not {forms}") from exc
    time: datetime = plain(written)
    if time.tzinfo is None:
        raise BadInputError(f"{what}: the time {time.isoformat()} has no zone; append one, such as Z or +01:00")
    if time < EPOCH:  # Kafka reads -1, -2 and -3 as names of offsets, not as times
        raise BadInputError(f"{what}: {time.isoformat()} is before 1970")
    return time


def read_time(text: str) -> datetime:
    """Read a time in ISO 8601, with or without a zone.

    Raises:
        ValueError: the text is not a time, or holds a character that can't be printed (Python accepts any between day and hour).
    """
    if not text.isprintable():
        raise ValueError("not printable")
    return datetime.fromisoformat(text)


def or_none(kind: Kind) -> Kind:
    """Return the kind that also takes None."""
    return Kind(f"{kind.expected}, or None", lambda value: value is None or kind.takes(value), kind.shown)


def whole(low: int, high: int = MAX_OFFSET) -> Kind:
    """Return the kind of whole numbers from `low` to `high`, both included."""
    bounds = f"at least {low} and below 2^63" if high == MAX_OFFSET else f"{low} to {high}"
    return Kind(f"a whole number, {bounds}", lambda value: is_whole(value) and low <= value <= high)


def seconds(low: float, high: float) -> Kind:
    """Return the kind of seconds from `low` to `high`, both included."""
    return Kind(
        f"a number of seconds, {low:g} to {high:g}",
        lambda value: (is_whole(value) or isinstance(value, float)) and low <= value <= high,
    )


def one_of(choices: Iterable[str]) -> Kind:
    """Return the kind that takes these words only."""
    words = [str(choice) for choice in choices]
    return Kind(f"one of {', '.join(words)}", lambda value: isinstance(value, str) and value in words)


def type_of(value: object) -> str:
    """Show only the type of a value that may hold a secret."""
    return f"a {type(value).__name__}"


def _is_option(item: tuple[object, object]) -> bool:
    name, value = item
    return is_text(name) and (is_text(value) or isinstance(value, bool | int | float))


def _types(options: object) -> str:
    """Show only the types of options, as a value may be a secret."""
    if not isinstance(options, Mapping):
        return type_of(options)
    return short({name: type(value) for name, value in options.items() if not _is_option((name, value))})


FLAG = Kind("True or False", lambda value: isinstance(value, bool))
ANY_TEXT = Kind("a text in UTF-8 without a NUL", is_text)
TEXT = Kind("a text that is not empty", lambda value: is_text(value) and bool(value.strip()))
CONN_ID = Kind(
    f"a connection id of at most {MAX_CONN_ID} characters",
    lambda value: TEXT.takes(value) and len(value) <= MAX_CONN_ID,
)
OPTIONS = Kind(
    "a mapping of names to texts, numbers, True or False",
    lambda options: isinstance(options, Mapping) and all(map(_is_option, options.items())),
    _types,
)
MAPPING = Kind("a mapping", lambda value: isinstance(value, Mapping), type_of)
POLL_INTERVAL = seconds(0, 86_400)
DURATION = Kind("a timedelta above zero", lambda value: isinstance(value, timedelta) and value > timedelta(0))
