"""The verdict on a group, from worst to best. docs/howto/see-what-is-going-on.md explains each rule in a sentence.

- LOST: Kafka no longer holds what the group reads next.
- AT RISK: retention reaches unread records before the group can be expected to have read them.
- NEEDS RERUN: a committed window began to run again, and that did not succeed: its output may be a part.
- STALLED: the offset store refuses; a transaction that hangs hides records; or they wait for much longer than usual, and nothing was committed in that time.
- BEHIND: records wait for much longer than usual, although windows are committed.
- OK: none of these.

What is usual comes from the group's own last commits, so the rules fit one commit a minute and one a day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airflow_kafka_offsets.core.errors import KafkaAnswerError, LogError, counted, name_some
from airflow_kafka_offsets.core.history import Rerun
from airflow_kafka_offsets.core.lag.lag import GroupLag, GroupVerdict, PartitionLag
from airflow_kafka_offsets.core.lag.pace import Pace
from airflow_kafka_offsets.core.lag.words import NOT_ASKED, hiding, length, why_unknown
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.planning import Verdict
from airflow_kafka_offsets.core.window import Outcome

GONE = frozenset({Verdict.DATA_LOSS, Verdict.TRUNCATED, Verdict.RECREATED, Verdict.MISSING})
"""The verdicts of planning on a partition whose next records Kafka no longer holds."""

UNUSUAL = 2
"""Records wait for too long after this many times the usual wait."""

SHORTEST_WAIT = timedelta(minutes=1)
LONGEST_WAIT = timedelta(days=1)
"""The usual wait of a group that has committed windows of fewer than two runs."""

TRIES = 3
"""How often a job may take as long as the longest of the last ones, until retention may not reach its records."""

MOST = 0.5
"""The largest share of the retention that these tries count for: whatever one job took, records that have just arrived are safe."""

RESERVE = 0.1
"""The share of the retention that is kept as headroom, whatever the pace is."""


@dataclass(frozen=True, slots=True)
class _Finding:
    verdict: GroupVerdict
    reason: str


def usual_wait(pace: Pace) -> float:
    """Return how long a record usually waits for its commit, in seconds: the time from run to run, and the longest job."""
    if pace.interval_seconds is None:
        return LONGEST_WAIT.total_seconds()
    return max(SHORTEST_WAIT.total_seconds(), pace.interval_seconds + (pace.longest_seconds or 0.0))


def needed_seconds(partition: PartitionLag, pace: Pace, horizon: timedelta | None = None) -> float:
    """Return how much headroom a partition needs, in seconds.

    Args:
        partition: with its retention.
        pace: how fast its group commits.
        horizon: it needs at least this; None means at least a tenth of the retention.
    """
    retention = partition.retention.time if partition.retention else None
    least = (RESERVE * retention.total_seconds() if retention else 0.0) if horizon is None else horizon.total_seconds()
    within = retention.total_seconds() if retention else None
    return max(least, (pace.interval_seconds or 0.0) + tries_seconds(pace, within))


def tries_seconds(pace: Pace, retention: float | None) -> float:
    """Return how long `TRIES` jobs take that are as slow as the longest of the last ones, in seconds.

    Args:
        pace: how fast the group commits.
        retention: how long records stay, in seconds; None means not limited by time.
    """
    tries = TRIES * (pace.longest_seconds or 0.0)
    return tries if retention is None else min(tries, MOST * retention)


def danger(partition: PartitionLag, pace: Pace) -> GroupVerdict:
    """Return what one partition alone makes of its group: LOST, AT RISK, or else OK. Lateness is judged by all of them together.

    Args:
        partition: the partition.
        pace: how fast its group commits.
    """
    if partition.verdict in GONE:
        return GroupVerdict.LOST
    if partition.headroom_seconds is not None and partition.headroom_seconds < needed_seconds(partition, pace):
        return GroupVerdict.AT_RISK
    return GroupVerdict.OK


def urgency(partition: PartitionLag, pace: Pace) -> tuple[int, float, int]:
    """Return how much a partition needs a look: the larger, the more.

    First come those that lost records (2), then those at risk by their headroom (1), then all others by their lag (0).
    """
    match danger(partition, pace):
        case GroupVerdict.LOST:
            return 2, float(partition.lost), partition.lag or 0
        case GroupVerdict.AT_RISK:
            return 1, -_headroom(partition), partition.lag or 0
        case _:
            return 0, 0.0, partition.lag or 0


def judged(
    group: str,
    at: datetime,
    partitions: Mapping[TopicPartition, PartitionLag],
    pace: Pace,
    *,
    horizon: timedelta | None = None,
    notes: tuple[str, ...] = (),
    refused: str | None = None,
    reruns: Sequence[Rerun] = (),
) -> GroupLag:
    """Return the lag of a group with its verdict.

    Args:
        group: its name.
        at: the moment of the look.
        partitions: the lag of each partition.
        pace: how fast it commits.
        horizon: how much headroom it needs at least; None means a tenth of the retention.
        notes: sentences on what is not known.
        refused: why its offset store refused the newest plan or commit, or None.
        reruns: what has begun again of its committed windows, and is not committed again.
    """
    needs = {tp: needed_seconds(p, pace, horizon) for tp, p in partitions.items() if p.headroom_seconds is not None}
    tightest = min(needs, key=lambda tp: _tightness(tp, _headroom(partitions[tp]), needs[tp]), default=None)
    needed = needs[tightest] if tightest is not None else None
    lag = GroupLag(
        *(group, at, None, "", partitions, pace),
        tightest=tightest,
        needed_seconds=needed,
        trouble=_trouble(partitions),
        notes=notes,
        reruns=tuple(rerun.window_id for rerun in reruns if _is_broken(rerun, at, pace)),
    )
    risky = sum(_headroom(partitions[tp]) < need for tp, need in needs.items())
    finding = (
        _lost(lag)
        or _at_risk(lag, risky)
        or _incomplete(lag)
        or _refused(refused)
        or _hidden(lag)
        or _late(lag)
        or _fine(lag)
    )
    return replace(lag, verdict=finding.verdict, reason=finding.reason)


def unknown(group: str, at: datetime, why: Exception, pace: Pace) -> GroupLag:
    """Return the lag of a group whose Kafka refused, did not answer, or was not asked."""
    kind = type(why).__name__
    # Other errors are about what Kafka did.
    prefix = f"{NOT_ASKED}: " if why_unknown(kind) == NOT_ASKED else ""
    return GroupLag(group, at, None, f"Not known: {prefix}{why}", pace=pace, error=str(why), error_kind=kind)


def in_part(lag: GroupLag, why: KafkaAnswerError) -> GroupLag:
    """Return the lag of a group if Kafka reported the offsets, but not the times or the open transactions.

    Only a loss is certain then. So the lag has no headroom, and no other verdict.

    Args:
        lag: the lag, without times.
        why: the error of the questions that failed.
    """
    partitions = {tp: replace(p, headroom_seconds=None, estimate=None) for tp, p in lag.partitions.items()}
    offsets_only = replace(lag, partitions=partitions, tightest=None, needed_seconds=None)
    return offsets_only if lag.verdict is GroupVerdict.LOST else _not_known(offsets_only, why)


def beside_missing(lag: GroupLag, why: LogError) -> GroupLag:
    """Return the lag of a group that planning refuses whatever its partitions hold: one of its topics never existed.

    Args:
        lag: that of the other topics.
        why: the error of planning.
    """
    if lag.verdict is GroupVerdict.OK:
        return replace(_not_known(lag, why), trouble=str(why))
    return replace(lag, reason=f"{lag.reason}; {why}", trouble=str(why))


def _not_known(lag: GroupLag, why: Exception) -> GroupLag:
    reason = f"Not known: {why}. By what is known: {lag.verdict}: {lag.reason}"
    return replace(lag, verdict=None, reason=reason, error=str(why), error_kind=type(why).__name__)


def _lost(lag: GroupLag) -> _Finding | None:
    gone = {tp: p for tp, p in lag.partitions.items() if p.verdict in GONE}
    if expired := [
        f"{tp} [{p.watermark}, {p.watermark + p.lost})" for tp, p in gone.items() if p.lost and p.watermark is not None
    ]:
        return _Finding(
            GroupVerdict.LOST,
            f"{counted(lag.lost, 'offset')} expired before they were read: {name_some(expired, ', ')}",
        )
    if gone:
        return _Finding(GroupVerdict.LOST, f"Kafka no longer holds what the group reads next: {lag.trouble}")
    return None


def _trouble(partitions: Mapping[TopicPartition, PartitionLag]) -> str | None:
    return name_some([f"{tp} {p.verdict}" for tp, p in partitions.items() if p.verdict in GONE], ", ") or None


def _tightness(tp: TopicPartition, headroom: float, needed: float) -> tuple[bool, float, TopicPartition]:
    """Return the order of partitions: first those at risk, by their headroom; then all others, by how soon they may be."""
    is_safe = headroom >= needed
    return is_safe, headroom - needed if is_safe else headroom, tp


def _at_risk(lag: GroupLag, risky: int) -> _Finding | None:
    if not risky or lag.tightest is None:
        return None
    first, p = lag.tightest, lag.partitions[lag.tightest]
    guess = " (an estimate)" if p.estimate else ""
    when = f"in {length(_headroom(p))}" if _headroom(p) >= 1 else "at any moment"
    left = f"may remove unread records of {first} {when}{guess}"
    others = f", and of {counted(risky - 1, 'more partition')} soon" if risky > 1 else ""
    return _Finding(
        GroupVerdict.AT_RISK,
        f"Retention {left}{others}; this group needs at least {length(lag.needed_seconds or 0)}",
    )


def _is_broken(rerun: Rerun, at: datetime, pace: Pace) -> bool:
    """Whether a rerun has failed, or takes so long that its process is probably dead."""
    lasts = (at - rerun.begun_at).total_seconds()
    return rerun.outcome is not Outcome.RUNNING or lasts > UNUSUAL * usual_wait(pace)


def _incomplete(lag: GroupLag) -> _Finding | None:
    if not lag.reruns:
        return None
    windows = counted(len(lag.reruns), "committed window")
    return _Finding(
        GroupVerdict.NEEDS_RERUN,
        f"{windows} began to run again and got no second commit, so the output may be a part: {name_some(lag.reruns, ', ')}",
    )


def _refused(why: str | None) -> _Finding | None:
    # Its first sentence: what to do, and the commands, are not part of a reason.
    return _Finding(GroupVerdict.STALLED, f"No run gets on: {why.partition('. ')[0]}") if why else None


def _hidden(lag: GroupLag) -> _Finding | None:
    hidden = [str(tp) for tp, p in lag.partitions.items() if p.hidden_to is not None]
    return _Finding(GroupVerdict.STALLED, f"No run can read on: {hiding(hidden)}") if hidden else None


def _late(lag: GroupLag) -> _Finding | None:
    limit, silent = UNUSUAL * usual_wait(lag.pace), _since(lag, lag.pace.last_commit_at)
    lasts = _since(lag, lag.pace.began_at) if silent is None else silent
    is_silent = silent is None or silent > limit
    waits = max((p.lag_seconds for p in lag.partitions.values() if p.lag and p.lag_seconds is not None), default=0.0)
    # Without the age of records, only the silence counts: since the last commit, or since the group began.
    is_late = waits > limit or (lag.lag_seconds is None and lasts is not None and lasts > limit)
    if not lag.lag or not is_late:
        return None
    has_pace = lag.pace.interval_seconds is not None
    usual = f"usually at most {length(limit / UNUSUAL)}" if has_pace else "no usual pace yet"
    if lag.lag_seconds is not None:
        how_long = f"the oldest record waits for {length(waits)}"
    else:
        how_long = f"a record waits for {length(waits)}" if waits > limit else "for an unknown time"
    unread = f"{counted(lag.lag, 'offset')} unread, {how_long} ({usual})"
    last = "nothing was ever committed" if silent is None else f"the last commit was {length(silent)} ago"
    if is_silent:
        return _Finding(GroupVerdict.STALLED, f"{unread}, and {last}")
    return _Finding(GroupVerdict.BEHIND, f"{unread}, although {last}")


def _since(lag: GroupLag, moment: datetime | None) -> float | None:
    return (lag.at - moment).total_seconds() if moment else None


def _fine(lag: GroupLag) -> _Finding:
    if lag.lag is None:
        return _Finding(GroupVerdict.OK, "Nothing is planned yet")
    if not lag.lag:
        return _Finding(GroupVerdict.OK, "Nothing is unread")
    waited = f", the oldest record waits for {length(lag.lag_seconds)}" if lag.lag_seconds is not None else ""
    return _Finding(GroupVerdict.OK, f"{counted(lag.lag, 'offset')} unread{waited}")


def _headroom(partition: PartitionLag) -> float:
    assert partition.headroom_seconds is not None
    return partition.headroom_seconds
