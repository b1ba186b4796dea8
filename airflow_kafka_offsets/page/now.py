"""The lag of groups as the page shows it. The page asks after it has loaded, and answers are kept for some seconds."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.lag.lag import GroupLag, GroupVerdict, PartitionLag, why_unread_unknown
from airflow_kafka_offsets.core.lag.verdict import urgency
from airflow_kafka_offsets.core.lag.words import Advice, advice, length, place, why_unknown
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.page import heat
from airflow_kafka_offsets.page.looks import Kept
from airflow_kafka_offsets.page.words import NOTHING, number, sentence, short_number
from airflow_kafka_offsets.ports import LogOffsets
from airflow_kafka_offsets.service import freshness
from airflow_kafka_offsets.service.pictures import GroupLine

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

LONGEST_WAIT = 5.0
"""The longest time-out of Kafka for a page, in seconds, whatever the group's own is."""

LOOKS: Kept[Mapping[str, GroupLag]] = Kept()
"""The answers of this process, for all users. Each route shows a user only what they may see."""

ALL = ""
"""The name of the answer for all groups. It is no group's name."""


def open_log(group: KafkaGroup) -> LogOffsets:
    """Open the Kafka of a group, with the time-out of a page."""
    return wiring.open_log(_hasty(group))


def _hasty(group: KafkaGroup) -> KafkaGroup:
    return replace(group, kafka_timeout=LONGEST_WAIT) if group.kafka_timeout > LONGEST_WAIT else group


def look(ledger: Ledger, groups: Sequence[KafkaGroup], name: str) -> Mapping[str, GroupLag]:
    """Return how far behind groups are: from the last seconds, or asked now.

    Args:
        ledger: where the groups are.
        groups: the groups.
        name: the name of the answer: the same for the same groups.
    """

    def ask() -> Mapping[str, GroupLag]:
        # One question is for all groups of one Kafka, whatever their own time-outs are.
        hasty = [_hasty(group) for group in groups]
        return freshness.look(hasty, ledger, wiring.open_log, at_once=freshness.AT_ONCE)

    return LOOKS.get(name, ask)


def worst_first(lines: Sequence[GroupLine]) -> list[GroupLine]:
    """Return groups in the order of their newest verdicts, then by name, without asking Kafka."""
    last = LOOKS.last(ALL) or {}
    return sorted(lines, key=lambda line: (order(last.get(line.group.name)), line.group.name))


def last(name: str) -> GroupLag | None:
    """Return the newest lag of a group in this process, without asking Kafka; None if there is none."""
    answers = [LOOKS.last(kept) or {} for kept in (name, ALL)]
    lags = [answer[name] for answer in answers if name in answer]
    return max(lags, key=lambda lag: lag.at, default=None)


_TONES = {
    GroupVerdict.OK: "good",
    GroupVerdict.BEHIND: "warn",
    GroupVerdict.STALLED: "warn",
    GroupVerdict.NEEDS_RERUN: "bad",
    GroupVerdict.AT_RISK: "bad",
    GroupVerdict.LOST: "bad",
}


NOT_KNOWN = "NOT KNOWN"
"""In place of the verdict if Kafka refused, or did not answer."""

UNKNOWN = "?"
"""In place of a number. The reason is beside it."""


@dataclass(frozen=True, slots=True)
class NowView:
    """How far behind a group is, in words.

    Attributes:
        verdict, tone, reason: the verdict, the color of its badge, and the verdict in one sentence.
        needs_a_look: whether it is anything but OK.
        lag, offsets: the lag in time, or else in offsets; and the small print beside it.
        headroom, about: how long until retention reaches the watermark, and the small print beside it.
        left: how much of the retention is left, in hundredths; None if unknown: then there is no bar.
        next_step: what to do; None if all is well.
    """

    verdict: str
    tone: str
    reason: str
    needs_a_look: bool
    lag: str
    offsets: str
    headroom: str
    about: str
    left: float | None
    next_step: Advice | None = None


def without_details(lag: GroupLag) -> GroupLag:
    """Return a lag without the notes and the error: these may name topics of other groups, which this user may not see."""
    if lag.verdict is not None:
        return replace(lag, notes=())
    why = why_unknown(lag.error_kind)
    reason = f"{why[0].upper()}{why[1:]}. See the page of this group"
    return replace(lag, reason=reason, error=reason, notes=())


def now_view(lag: GroupLag) -> NowView:
    """Return how far behind a group is, in words."""
    if lag.verdict is None:
        why = why_unknown(lag.error_kind)
        return NowView(NOT_KNOWN, "plain", sentence(lag.reason), True, UNKNOWN, why, UNKNOWN, why, None)
    lag_text, offsets = _lag(lag)
    headroom, about, left = _headroom(lag)
    needs = lag.verdict is not GroupVerdict.OK
    reason = sentence("; ".join([lag.reason, *lag.notes]))
    view = NowView(lag.verdict.value, _TONES[lag.verdict], reason, needs, lag_text, offsets, headroom, about, left)
    return replace(view, next_step=advice(lag.group, lag.verdict, lag.reruns))


def _lag(lag: GroupLag) -> tuple[str, str]:
    why = _why_unread_unknown(lag)
    if not lag.lag and why is not None:
        return UNKNOWN, why
    if lag.lag is None:
        return _without_lag(lag)
    if lag.lag == 0:
        return "0 s", "nothing unread"
    least = "at least " if why is not None else ""
    offsets = least + _offsets(lag.lag)
    return (least + length(lag.lag_seconds), offsets) if lag.lag_seconds is not None else (offsets, "time not known")


def _without_lag(lag: GroupLag) -> tuple[str, str]:
    has_planned = any(p.watermark is not None for p in lag.partitions.values())
    return (UNKNOWN, "not known") if has_planned else (NOTHING, "nothing planned yet")


def _headroom(lag: GroupLag) -> tuple[str, str, float | None]:
    if lag.lost:
        return "lost", f"{_offsets(lag.lost)} expired unread", 0.0
    tp, seconds = lag.tightest, lag.headroom_seconds
    if tp is None or seconds is None:
        return *_headroom_without_time(lag), None
    first = lag.partitions[tp]
    retention = first.retention.time if first.retention else None
    about = f"{tp} first" if len(lag.partitions) > 1 else ""
    if retention:
        about = " · ".join(filter(None, [about, f"{length(retention.total_seconds())} retention"]))
    left = min(100.0, 100 * seconds / retention.total_seconds()) if retention else None
    estimate = "about " if lag.is_estimate else ""
    return estimate + length(seconds), about, None if left is None else round(left, 1)


def _headroom_without_time(lag: GroupLag) -> tuple[str, str]:
    # A loss outranks retention: lost records have no headroom.
    if (why := _why_unread_unknown(lag)) is not None:
        return UNKNOWN, why
    if lag.is_unlimited:
        return "never", "Kafka keeps these records"
    if lag.lag is None:
        return _without_lag(lag)
    if lag.lag == 0:
        return NOTHING, "nothing unread"
    offsets = lag.headroom_offsets
    return NOTHING, "not known" if offsets is None else f"{_offsets(offsets)} to the oldest record"


def _why_unread_unknown(lag: GroupLag) -> str | None:
    return why_unread_unknown(p.verdict for p in lag.partitions.values())


def _offsets(number: int) -> str:
    return f"{short_number(number)} offset{'' if number == 1 else 's'}"


def order(lag: GroupLag | None) -> int:
    """Return the place of a group in a list with the worst first; a group without a lag is last."""
    return len(GroupVerdict) + 1 if lag is None else place(lag.verdict)


def heat_facts(lag: GroupLag) -> dict[str, list[tuple[int, int, int, str, int]]]:
    """Return first partition, lag, level, danger and lost offsets of each cell, by topic; empty if the partitions are not folded."""
    if len(lag.partitions) < heat.FOLDED_FROM:
        return {}
    rows = heat.rows({tp: heat.state_of(tp, lag=p, pace=lag.pace) for tp, p in lag.partitions.items()})
    return {row.topic: [(c.first, c.lag or 0, c.level, c.danger.value, c.lost) for c in row.cells] for row in rows}


def folded_facts(lag: GroupLag, shown: str) -> dict[str, int]:
    """Return how many of the worst partitions have no strip on a page; empty if the partitions are not folded.

    Args:
        lag: of the group.
        shown: names of topic-partitions with commas between them.

    Returns:
        ``danger``: those that lost records or are at risk; ``lag``: also those that are behind.
    """
    if len(lag.partitions) < heat.FOLDED_FROM:
        return {}
    # A new partition has no strip before the next plan.
    urgent = {tp: urgency(p, lag.pace) for tp, p in lag.partitions.items() if p.watermark is not None}
    wanted = _names(shown)
    worst = [
        urgent[tp] for tp in heapq.nlargest(heat.WORST, sorted(urgent), key=urgent.__getitem__) if str(tp) not in wanted
    ]
    return {
        "danger": sum(danger > 0 for danger, _, _ in worst),
        "lag": sum(danger > 0 or lag > 0 for danger, _, lag in worst),
    }


def _behind(lag: PartitionLag) -> str:
    if lag.lag:
        return f"{number(lag.lag)} behind"
    is_known = lag.lag is not None and why_unread_unknown([lag.verdict]) is None
    return "read to the end" if is_known else NOTHING


def _names(shown: str) -> set[str]:
    return set(shown.split(",")[:200])


def partition_facts(partitions: Mapping[TopicPartition, PartitionLag], shown: str) -> dict[str, Any]:
    """Return lag, bounds of the log and lost offsets of the partitions that have a strip.

    Args:
        partitions: all of them.
        shown: names of topic-partitions with commas between them.
    """
    wanted = _names(shown)
    return {
        str(tp): {
            "behind": _behind(p),
            # Offsets of another topic have no place in a strip.
            "beginning": None if p.lag is None else p.beginning,
            "end": None if p.lag is None else p.end,
            "lost": p.lost,
        }
        for tp, p in partitions.items()
        if str(tp) in wanted
    }
