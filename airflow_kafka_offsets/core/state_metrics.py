"""The state of groups, as metrics of ``kafka-offsets metrics``. docs/reference/metrics.md lists them.

A value is NaN without an answer and +Inf without a limit, so that no series ever disappears.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf, isfinite, isnan, nan

from airflow_kafka_offsets.core.errors import DamagedRowError, MissingPartitionError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.lag.lag import GroupLag, GroupVerdict, PartitionLag, longest_wait, sum_of_lags
from airflow_kafka_offsets.core.lag.pace import Pace
from airflow_kafka_offsets.core.lag.verdict import needed_seconds
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.window import Lane

Values = Mapping[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: a gauge with a value for each set of labels.

    Attributes:
        name: its name.
        help: what it is, in one sentence.
        labels: the names of its labels.
        values: its values, by the values of the labels.
    """

    name: str
    help: str
    labels: tuple[str, ...]
    values: Values


@dataclass(frozen=True, slots=True)
class OpenWindows:
    """The open windows of a lane.

    Attributes:
        count: how many.
        oldest: when the oldest of them was planned, or None if there is none.
    """

    count: int = 0
    oldest: datetime | None = None


@dataclass(frozen=True, slots=True)
class GroupNow:
    """The state of a group now.

    Attributes:
        group: the group.
        lag: its lag, from Kafka's last full answer.
        is_up: whether Kafka answered just now, and in full.
        answered_at: when Kafka answered in full last, or None if it never did.
        open: its open windows by lane; a lane that is missing has none.
    """

    group: KafkaGroup
    lag: GroupLag
    is_up: bool
    answered_at: datetime | None = None
    open: Mapping[Lane, OpenWindows] = field(default_factory=dict)


def group_now(group: KafkaGroup, lag: GroupLag, open_: Mapping[Lane, OpenWindows], before: GroupNow | None) -> GroupNow:
    """Return the state of a group. If Kafka does not answer in full, its last answer stays. The ledger's part is always new.

    Args:
        group: the group.
        lag: its lag just now.
        open_: its open windows by lane.
        before: its state in the last collection, or None if there was none.
    """
    # Kafka has answered in full: it has no topic of such a name.
    if lag.error is None or lag.error_kind == MissingPartitionError.__name__:
        return GroupNow(group, lag, True, lag.at, open_)
    if before is not None and lag.error_kind == DamagedRowError.__name__:
        lag = replace(lag, pace=before.lag.pace)  # its commits may be the damaged rows
    if before is None or before.answered_at is None:
        return GroupNow(group, lag, False, None, open_)
    return GroupNow(group, replace(before.lag, pace=lag.pace), False, before.answered_at, open_)


def families(
    groups: Sequence[GroupNow],
    now: datetime,
    *,
    is_ledger_up: bool = True,
    collected_at: datetime | None = None,
    per_partition: bool = False,
) -> list[Family]:
    """Return all metrics.

    Args:
        groups: the groups.
        now: the time.
        is_ledger_up: whether the ledger answered just now.
        collected_at: when the last collection ended; None means never.
        per_partition: whether lag and headroom get the label ``partition``.
    """
    where = ("group", "topic", "partition") if per_partition else ("group", "topic")
    keys = _by_partition if per_partition else _by_topic
    return [
        Family("kafka_offsets_lag", "End offset minus watermark, in offsets.", where, _of(groups, keys, _lag)),
        Family(
            "kafka_offsets_lag_seconds", "Wait of the oldest unread record.", where, _of(groups, keys, _lag_seconds)
        ),
        Family(
            "kafka_offsets_headroom_seconds",
            "Time until retention reaches the watermark.",
            where,
            _of(groups, keys, _headroom_seconds),
        ),
        Family(
            "kafka_offsets_needed_headroom_seconds",
            "With less headroom, the verdict is AT RISK.",
            where,
            {key: _needed(now.lag.pace, lags) for now in groups for key, lags in keys(now).items()},
        ),
        Family(
            "kafka_offsets_headroom_offsets",
            "Watermark minus beginning offset.",
            where,
            _of(groups, keys, _headroom_offsets),
        ),
        Family("kafka_offsets_lost_offsets", "Unread offsets that retention removed.", where, _of(groups, keys, _lost)),
        *_of_groups(groups, now),
        Family("kafka_offsets_ledger_up", "Whether the ledger answered.", (), {(): is_ledger_up}),
        Family(
            "kafka_offsets_scrape_timestamp_seconds",
            "The last answer of the ledger.",
            (),
            {(): _seconds(collected_at)},
        ),
    ]


Samples = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]
"""The labels and the value of each series of a metric, by its name."""

_UP, _ANSWERED = "kafka_offsets_up", "kafka_offsets_answer_timestamp_seconds"


def _needs_kafka(family: Family) -> bool:
    """Whether a metric needs Kafka's answer. All others come from the ledger."""
    return family.name == _ANSWERED or not {"topic", "verdict"}.isdisjoint(family.labels)


def with_earlier(collected: Sequence[Family], earlier: Samples) -> list[Family]:
    """Return metrics in which a group that Kafka did not answer for has the values of an earlier collection, if there is one.

    Args:
        collected: the metrics of a collector that has no earlier answer itself.
        earlier: those of the earlier collection.
    """
    silent = {key[0] for family in collected if family.name == _UP for key, is_up in family.values.items() if not is_up}
    groups = {labels["group"] for labels, at in earlier.get(_ANSWERED, ()) if at and labels.get("group") in silent}
    return [
        replace(family, values=_with_earlier(family, earlier.get(family.name, ()), groups))
        if _needs_kafka(family)
        else family
        for family in collected
    ]


def _with_earlier(
    family: Family, earlier: Sequence[tuple[Mapping[str, str], float]], groups: Collection[str]
) -> Values:
    values = {
        tuple(labels[name] for name in family.labels): value
        for labels, value in earlier
        if labels.keys() == set(family.labels) and labels["group"] in groups
    }
    replaced = {key[0] for key in values}
    return {key: value for key, value in family.values.items() if key[0] not in replaced} | values


def _of_groups(groups: Sequence[GroupNow], now: datetime) -> Iterable[Family]:
    group = ("group",)
    yield Family(
        "kafka_offsets_last_commit_timestamp_seconds",
        "Last commit of a live window.",
        group,
        {(s.group.name,): _seconds(s.lag.pace.last_commit_at) for s in groups},
    )
    yield Family(
        "kafka_offsets_commit_interval_seconds",
        "Usual time from run to run.",
        group,
        {(s.group.name,): _or_nan(s.lag.pace.interval_seconds) for s in groups},
    )
    yield Family(
        "kafka_offsets_open_windows",
        "Windows that wait for their commit.",
        ("group", "lane"),
        {(s.group.name, lane.value): s.open.get(lane, OpenWindows()).count for s in groups for lane in Lane},
    )
    yield Family(
        "kafka_offsets_open_window_age_seconds",
        "Age of the oldest open window.",
        ("group", "lane"),
        {(s.group.name, lane.value): _age(s.open.get(lane), now) for s in groups for lane in Lane},
    )
    yield Family(
        "kafka_offsets_verdict",
        "1 for the verdict of the group.",
        ("group", "verdict"),
        {(s.group.name, verdict.value): s.lag.verdict is verdict for s in groups for verdict in GroupVerdict},
    )
    yield Family(
        _UP,
        "Whether Kafka answered; 0: the values are older.",
        ("group", "kafka_conn_id"),
        {(s.group.name, s.group.kafka_conn_id): s.is_up for s in groups},
    )
    yield Family(
        _ANSWERED,
        "The last answer of Kafka.",
        group,
        {(s.group.name,): _seconds(s.answered_at) for s in groups},
    )


def _seconds(moment: datetime | None) -> float:
    return moment.timestamp() if moment else 0.0


def _or_nan(value: float | None) -> float:
    return nan if value is None else value


def _age(windows: OpenWindows | None, now: datetime) -> float:
    if windows is None or windows.oldest is None:
        return 0.0
    return max(0.0, (now - windows.oldest).total_seconds())


# A set of partitions has one value.
_Parts = Mapping[tuple[str, ...], Sequence[PartitionLag]]


def _of(
    groups: Sequence[GroupNow],
    keys: Callable[[GroupNow], _Parts],
    value: Callable[[Sequence[PartitionLag]], float],
) -> Values:
    return {key: value(lags) for group in groups for key, lags in keys(group).items()}


def _by_topic(now: GroupNow) -> _Parts:
    name = now.group.name
    # A topic without an answer has its series, too.
    parts: dict[tuple[str, ...], list[PartitionLag]] = {(name, topic): [] for topic in now.group.topics}
    for tp, lag in _partitions(now).items():
        parts.setdefault((name, tp.topic), []).append(lag)  # a topic that its pattern matches only now
    return parts


def _by_partition(now: GroupNow) -> _Parts:
    name = now.group.name
    return {(name, tp.topic, str(tp.partition)): [lag] for tp, lag in _partitions(now).items()}


def _partitions(now: GroupNow) -> Mapping[TopicPartition, PartitionLag]:
    """Return the partitions that the group reads. Those of topics that left it would be NaN for ever."""
    reads = now.group.reads
    return {tp: lag for tp, lag in now.lag.partitions.items() if tp.topic in reads}


def _lag(lags: Sequence[PartitionLag]) -> float:
    return _or_nan(sum_of_lags(lags))


def _lag_seconds(lags: Sequence[PartitionLag]) -> float:
    return _or_nan(longest_wait(lags))


def _headroom_seconds(lags: Sequence[PartitionLag]) -> float:
    return _smallest(map(_headroom_of, lags))


def _needed(pace: Pace, lags: Sequence[PartitionLag]) -> float:
    needs = [needed_seconds(lag, pace) for lag in lags if lag.headroom_seconds is not None]
    if needs:
        return max(needs)
    return nan if isnan(_headroom_seconds(lags)) else 0.0


def _headroom_of(lag: PartitionLag) -> float:
    if lag.headroom_seconds is not None:
        return lag.headroom_seconds
    return inf if lag.lag == 0 or lag.is_unlimited else nan


def _headroom_offsets(lags: Sequence[PartitionLag]) -> float:
    return _smallest(inf if lag.lag == 0 else float(_or_nan(lag.headroom_offsets)) for lag in lags)


def _smallest(headrooms: Iterable[float]) -> float:
    """Return the smallest headroom. NaN counts only if no partition has a limit."""
    values = list(headrooms)
    limited = [value for value in values if isfinite(value)]
    if limited:
        return min(limited)
    return nan if not values or any(map(isnan, values)) else inf


def _lost(lags: Sequence[PartitionLag]) -> float:
    return sum(lag.lost for lag in lags) if lags else nan
