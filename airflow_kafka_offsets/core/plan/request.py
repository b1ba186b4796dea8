"""What a run asks for: new records, or a replay of windows, of a time span or of offset ranges (docs/design.md, rules 6 to 8)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from shlex import quote
from typing import Any

from airflow_kafka_offsets.core.errors import BadInputError, name_some, short
from airflow_kafka_offsets.core.fields import moment
from airflow_kafka_offsets.core.group import KafkaGroup, Until
from airflow_kafka_offsets.core.ranges import OffsetRanges
from airflow_kafka_offsets.core.run import Run
from airflow_kafka_offsets.core.spark_json import load_offsets
from airflow_kafka_offsets.core.window_id import parse_window_id

WINDOWS, FROM, TO = "windows", "from", "to"
STARTING_OFFSETS, ENDING_OFFSETS = "starting_offsets", "ending_offsets"
REPLAY_KEYS = (WINDOWS, FROM, TO, STARTING_OFFSETS, ENDING_OFFSETS)
"""The params, or keys of a run's conf, that choose a replay. One that is null is ignored."""

LIKE = 0.85
"""How similar a longer key must be to one of ours to count as a misspelling: a letter may differ, a word may not."""

GROUP = "group"
"""The param, or key of a run's conf, that names the group of a replay. By itself it chooses no replay."""

SCOPED = "kafka_offsets"
"""The key of a run's conf that holds the keys above in an object. No param of a DAG changes what they mean there."""

TRIGGER_CONSUMERS = "trigger_consumers"
"""The key of a run's conf that lets windows which run again trigger the consumers of their partitions again."""

OUR_KEYS = (*REPLAY_KEYS, GROUP, TRIGGER_CONSUMERS, SCOPED)
"""All keys of a run's conf that mean something to us."""

MAX_NAMED_WINDOWS = 1000
"""Windows that one text may name."""

WITH_INTERVALS = "Use a timetable with intervals, such as CronDataIntervalTimetable"

_WAYS = ((WINDOWS,), (FROM, TO), (STARTING_OFFSETS, ENDING_OFFSETS))
_ONE_WAY = f"Name one replay: by {', or by '.join(' and '.join(way) for way in _WAYS)}"


@dataclass(frozen=True, slots=True)
class Live:
    """Ask for new records.

    Attributes:
        until: the planned-until time of new windows, or None for the moment of planning.
        ends_at: where new windows end, by Kafka's timestamp index, or None if at the end offset.
        at_most: how many windows the run may get, adopted and new ones together.
    """

    until: datetime | None = None
    ends_at: datetime | None = None
    at_most: int = 1


@dataclass(frozen=True, slots=True)
class Windows:
    """Ask for windows by their sequence numbers, in this order."""

    seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Ask for a time span: the windows with ``start < planned_until <= end``, and records of that time that no one owns.

    Attributes:
        start, end: in UTC, whatever zone they are given in.
        is_interval: it is the data interval of an Airflow backfill's run. The windows are divided among such runs: a run
            without any window is no error, and a run that had windows already gets them, too.
    """

    start: datetime
    end: datetime
    is_interval: bool = False

    def __post_init__(self) -> None:
        # Python compares two times of one zone by their clocks, and in autumn these show one hour twice.
        object.__setattr__(self, "start", self.start.astimezone(UTC))
        object.__setattr__(self, "end", self.end.astimezone(UTC))


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ask for offset ranges."""

    ranges: OffsetRanges


Replay = Windows | TimeSpan | Ranges
Request = Live | Replay


@dataclass(frozen=True, slots=True)
class Refused:
    """A run that asks for nothing sensible. It still gets the windows that it had before (docs/design.md, rule 1).

    Attributes:
        error: raised if it had none.
    """

    error: BadInputError


def request_of(run: Run, group: KafkaGroup, at_most: int = 1) -> Request | Refused | None:
    """Return what a run asks of a group (docs/design.md, rule 8).

    Args:
        run: the run.
        group: the group.
        at_most: how many live windows a new run may get, adopted and new ones together.

    Returns:
        None if the run replays another group of its DAG.
    """
    try:
        triggers_consumers(run)
        match run.kind:
            case "scheduled":
                return _scheduled(run, group, at_most)
            case "asset_triggered":
                return Live(at_most=at_most)
            case "backfill":
                return _interval(run, group)
            case _:
                return _replay_or_live(run, group, at_most)
    except BadInputError as exc:
        return Refused(exc)


def _scheduled(run: Run, group: KafkaGroup, at_most: int) -> Live:
    end = None if run.interval is None else run.interval[1]
    if group.until is Until.NOW:
        # A partition may end after its run begins: what is read now does not reach its end.
        return Live(until=end if run.partition is None else None, at_most=at_most)
    if end is None:
        raise BadInputError(f"This run has no data interval, so until='data_interval_end' is no time. {WITH_INTERVALS}")
    return Live(until=end, ends_at=end, at_most=at_most)


def triggers_consumers(run: Run) -> bool:
    """Whether windows that run again trigger the consumers of their partitions again (docs/design.md, rule 14).

    Raises:
        BadInputError: the conf has something else than true or false there.
    """
    inner = scoped(run.conf)
    wanted = (run.conf if inner is None else inner).get(TRIGGER_CONSUMERS)
    if wanted is not None and not isinstance(wanted, bool):
        raise BadInputError(f'"{TRIGGER_CONSUMERS}" in the conf must be true or false, got {short(wanted)}')
    return bool(wanted)


def _interval(run: Run, group: KafkaGroup) -> TimeSpan | None:
    check_keys(run.conf, run.declared, (GROUP, TRIGGER_CONSUMERS, SCOPED))
    if not is_of_group(group.name, run.groups, _params(run), must_name=False):
        return None
    if run.interval is None:
        raise BadInputError(f"This run has no data interval. {WITH_INTERVALS}")
    return TimeSpan(*run.interval, is_interval=True)


def _replay_or_live(run: Run, group: KafkaGroup, at_most: int) -> Replay | Live | None:
    check_keys(run.conf, run.declared)
    params = _params(run)
    if not names_replay(params):
        if scoped(run.conf) is not None:
            raise BadInputError(f'The conf has "{SCOPED}" without a replay. {_ONE_WAY}')
        return Live(at_most=at_most)
    # The group first: a replay of another group may make no sense in this one.
    if not is_of_group(group.name, run.groups, params, must_name=True):
        return None
    return parse_replay(group.name, params)


def _params(run: Run) -> Mapping[str, Any]:
    """Return what can choose a replay: a run's conf, on top of the DAG's params.

    Names that the DAG itself declares with another meaning are left out. A DAG that declares only some of ours, such as ``from`` and
    ``to`` of a report, does not have them from `replay_params`. What the conf has under `SCOPED` counts alone, whatever the DAG declares.

    Raises:
        BadInputError: the conf has something else under `SCOPED`, or names a second replay beside it.
    """
    declared = run.declared & set(REPLAY_KEYS)
    is_form = len(declared) == len(REPLAY_KEYS)
    own = set() if is_form else declared | (run.declared & {GROUP})
    inner = scoped(run.conf)
    if inner is None:
        # A setting of Airflow can keep the conf out of the params ([core] dag_run_conf_overrides_params).
        return {key: value for key, value in {**run.params, **run.conf}.items() if key not in own}
    if names_replay({key: value for key, value in run.conf.items() if key not in own}):
        raise BadInputError(f'The conf names a replay twice: under "{SCOPED}" and beside it')
    return inner


def parse_replay(group: str, params: Mapping[str, Any]) -> Replay | None:
    """Read a replay from a run's params or conf.

    >>> parse_replay("lake.orders", {"windows": "12-14", "from": None, "mine": 7})
    Windows(seqs=(12, 13, 14))

    Args:
        group: the group's name.
        params: what the run was given; values that are null or empty, and other keys, are ignored.

    Returns:
        None if they choose no replay.

    Raises:
        BadInputError: more than one way at once, only half of one, or a value that can't be read.
    """
    given = _given(params)
    ways = [way for way in _WAYS if given.keys() & set(way)]
    if not ways:
        return None
    if len(ways) > 1:
        raise BadInputError(f"The replay has {' and '.join(given)}. {_ONE_WAY}")
    [way] = ways
    if missing := [key for key in way if key not in given]:
        raise BadInputError(f"A replay by {' and '.join(map(repr, way))} needs both: {missing[0]!r} is missing")
    if FROM in given:
        return span(moment(FROM, given[FROM]), moment(TO, given[TO]))
    if WINDOWS in given:
        return Windows(tuple(parse_windows(group, str(given[WINDOWS]))))
    return Ranges(OffsetRanges.between(load_offsets(given[STARTING_OFFSETS]), load_offsets(given[ENDING_OFFSETS])))


def check_keys(conf: Mapping[str, Any], own: Collection[str], ours: Collection[str] = OUR_KEYS) -> None:
    """Refuse a run with a key that looks like a misspelled one of ours. The run would read what is new, or another group.

    Args:
        conf: what a person gave the run.
        own: the params that the DAG declares. It uses them for something else.
        ours: the keys that count in such a run.

    Raises:
        BadInputError: with the key that is meant.
    """
    for key, meant in _misspelled(conf, own, ours):
        raise BadInputError(
            f"The run's conf has {short(key)}, which looks like {meant!r}. Correct it, or declare it in the DAG's params"
        )


def _misspelled(conf: Mapping[str, Any], own: Collection[str], ours: Collection[str]) -> Iterator[tuple[str, str]]:
    names = {_letters(name): name for name in ours}
    # Short words such as `from` and `to` are similar to too many others.
    long_names = [letters for letters, name in names.items() if len(name) > len(FROM)]
    for key, value in conf.items():
        if key in OUR_KEYS or key in own or _is_empty(value):
            continue
        letters = _letters(str(key))
        letters = "window" if letters == "windowid" else letters
        close = [letters] if letters in names else get_close_matches(letters, long_names, n=1, cutoff=LIKE)
        if close:
            yield key, names[close[0]]


def _letters(key: str) -> str:
    return "".join(filter(str.isalpha, key.lower())).removesuffix("s")


def is_of_group(group: str, groups: Collection[str], params: Mapping[str, Any], *, must_name: bool) -> bool:
    """Whether what a run was given is meant for a group.

    Args:
        group: the group whose task asks.
        groups: the groups that its DAG plans.
        params: what the run was given.
        must_name: with several groups, the run has to name one. If False, a run that names none means all of them.

    Raises:
        BadInputError: it names another group than these, or none of several.
    """
    named, names = params.get(GROUP), sorted({group, *groups})
    if not _is_empty(named):
        if str(named) not in names:
            raise BadInputError(f"This DAG has no group {named} to replay; it has {name_some(names, ', ')}")
        return str(named) == group
    if must_name and len(names) > 1:
        raise BadInputError(
            f'The replay names none of the groups {name_some(names, ", ")}. Add e.g. "{GROUP}": "{names[0]}"'
        )
    return True


def scoped(conf: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a run's conf has under `SCOPED`, or None if it has nothing there.

    >>> scoped({"kafka_offsets": {"group": "lake.orders", "windows": "12-15"}, "mine": 7})
    {'group': 'lake.orders', 'windows': '12-15'}

    Raises:
        BadInputError: it is no object, or has a key that is none of ours.
    """
    given = conf.get(SCOPED)
    if _is_empty(given):
        return None
    keys = (*REPLAY_KEYS, GROUP, TRIGGER_CONSUMERS)
    if not isinstance(given, Mapping) or not given.keys() <= set(keys):
        raise BadInputError(
            f'"{SCOPED}" in the conf must be an object with keys of {", ".join(keys)}, got {short(given)}'
        )
    return given


def conf_of(group: str, replay: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conf of a run with a replay. No param of the DAG changes what it means."""
    return {SCOPED: {GROUP: group, **replay}}


def trigger_command(group: str, replay: Mapping[str, Any], dag_id: str | None = None) -> str:
    """Return the command that starts a run with a replay, on a line of its own.

    Args:
        group: the group.
        replay: what names the replay, with the keys of `REPLAY_KEYS`.
        dag_id: the DAG that runs it, or None for any that has the group.
    """
    return f"\n    airflow dags trigger {dag_id or 'DAG'} --conf {quote(json.dumps(conf_of(group, replay)))}"


def new_run(run: Run, group: str) -> str | None:
    """Return the command that replaces a run whose conf is wrong, with values to fill in; None if the conf has nothing of ours."""
    conf, inner = run.conf, run.conf.get(SCOPED)
    if isinstance(inner, Mapping):
        conf = {**conf, **inner}
    keys = {key for key in OUR_KEYS if not _is_empty(conf.get(key))}
    keys |= {meant for _, meant in _misspelled(conf, run.declared, OUR_KEYS)}
    if not keys:
        return None
    default = (FROM, TO) if run.kind == "backfill" else (WINDOWS,)
    way = next((way for way in _WAYS if keys & set(way)), default)
    return trigger_command(group, dict.fromkeys(way, "..."), run.claim.dag_id)


def names_replay(params: Mapping[str, Any]) -> bool:
    """Whether a run was given anything that chooses a replay, valid or not."""
    return bool(_given(params))


def _given(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key in REPLAY_KEYS if not _is_empty(value := params.get(key))}


def _is_empty(value: Any) -> bool:
    return value is None or value in ({}, []) or (isinstance(value, str) and not value.strip())


def span(start: datetime, end: datetime) -> TimeSpan:
    """Make the span that a person wrote.

    Raises:
        BadInputError: it ends before or where it starts.
    """
    made = TimeSpan(start, end)
    if made.end <= made.start:
        raise BadInputError(f"A replay can't go from {start.isoformat()} to {end.isoformat()}")
    return made


def parse_windows(group: str, text: str) -> list[int]:
    """Return the sequence numbers of windows.

    >>> parse_windows("lake.orders", "3,12-14,lake.orders-000020")
    [3, 12, 13, 14, 20]

    Raises:
        BadInputError: it is something else, names too many windows, or names a window of another group.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise BadInputError(f"{short(text)} has an empty part: write e.g. 3,12-14")
    seqs = {seq for part in parts for seq in _parse_part(group, part)}
    _check_number(text, len(seqs))
    return sorted(seqs)


def _check_number(text: str, number: int) -> None:
    if number > MAX_NAMED_WINDOWS:
        raise BadInputError(f"{short(text)} are more than {MAX_NAMED_WINDOWS} windows; name fewer at a time")


def _parse_part(group: str, part: str) -> range:
    first, dash, last = part.partition("-")
    is_id = first == group and len(last) >= 6  # the name of a group may be a number
    if not is_id and _is_number(first) and (not dash or _is_number(last)):
        low, high = int(first), int(last or first)
        if not 1 <= low <= high:
            raise BadInputError(f"{short(part)} names no window: write e.g. 12, or 3-12")
        _check_number(part, high - low + 1)
        return range(low, high + 1)
    seq = parse_seq(group, part)
    return range(seq, seq + 1)


def parse_seq(group: str, text: str) -> int:
    """Return the sequence number of a window that is named by number or by its whole id.

    Raises:
        BadInputError: it is neither, or a window of another group.
    """
    if _is_number(text):
        return int(text)
    owner, seq = parse_window_id(text)
    if owner != group:
        raise BadInputError(f"Window {text} belongs to group {owner}, not to {group}")
    return seq


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
