"""What Kafka says of groups now, as the page shows it: asked after the page is there, and kept for some seconds."""

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
"""Seconds until a Kafka that does not answer is given up for a page, whatever the group's own time-out is."""

LOOKS: Kept[Mapping[str, GroupLag]] = Kept()
"""The answers of this process, for all users. Who may see which is decided afterwards."""


ALL = ""
"""Under this name, the answer for all groups is kept. It is no group's name."""


def open_log(group: KafkaGroup) -> LogOffsets:
    """Open the Kafka of a group, with the patience of a page."""
    return wiring.open_log(_hasty(group))


def _hasty(group: KafkaGroup) -> KafkaGroup:
    return replace(group, kafka_timeout=LONGEST_WAIT) if group.kafka_timeout > LONGEST_WAIT else group


def look(ledger: Ledger, groups: Sequence[KafkaGroup], name: str) -> Mapping[str, GroupLag]:
    """Return how far behind groups are: from the last seconds, or asked now.

    Args:
        ledger: where the groups are.
        groups: the groups.
        name: under which the answer is kept: the same for the same groups.
    """

    def ask() -> Mapping[str, GroupLag]:
        # Groups of one Kafka are asked about together, whatever their own time-outs are.
        hasty = [_hasty(group) for group in groups]
        return freshness.look(hasty, ledger, wiring.open_log, at_once=freshness.AT_ONCE)

    return LOOKS.get(name, ask)


def worst_first(lines: Sequence[GroupLine]) -> list[GroupLine]:
    """Return groups in the order of their last known verdicts, then by name. Kafka is not asked."""
    last = LOOKS.last(ALL) or {}
    return sorted(lines, key=lambda line: (order(last.get(line.group.name)), line.group.name))


def last(name: str) -> GroupLag | None:
    """Return what this process heard of a group last; None: nothing yet. Kafka is not asked."""
    looks = [LOOKS.last(kept) or {} for kept in (name, ALL)]
    found = [look[name] for look in looks if name in look]
    return max(found, key=lambda one: one.at, default=None)


_TONES = {
    GroupVerdict.OK: "good",
    GroupVerdict.BEHIND: "warn",
    GroupVerdict.STALLED: "warn",
    GroupVerdict.AT_RISK: "bad",
    GroupVerdict.LOST: "bad",
}


NOT_KNOWN = "NOT KNOWN"
"""What stands in the place of the verdict if Kafka refused, did not answer, or was not asked. It is none."""

NOT_TOLD = "?"
"""What stands in the place of a number that is not known. Beside it is why."""


@dataclass(frozen=True, slots=True)
class NowView:
    """How far behind a group is, in words.

    Attributes:
        verdict, tone, reason: the verdict, the color of its badge, and the verdict in one sentence.
        needs_a_look: whether it is anything but OK.
        lag, offsets: the lag in time, or else in offsets; and what is small beside it.
        headroom, about: how long until retention reaches the watermark, or that it never does, and what is small beside it.
        left: how much of the retention is left, in hundredths; None: not known, and no bar is drawn.
        next_step: what to type next; None: nothing.
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


def beside_others(found: GroupLag) -> GroupLag:
    """Return what may be told of a group that was asked about together with others: an error may name topics of groups that this user may not see."""
    if found.verdict is not None:
        return replace(found, notes=())
    what = why_unknown(found.error_kind)
    unsaid = f"{what[0].upper()}{what[1:]}. The page of this group says more"
    return replace(found, reason=unsaid, error=unsaid, notes=())


def now_view(found: GroupLag) -> NowView:
    """Return how far behind a group is, in words."""
    if found.verdict is None:
        why = why_unknown(found.error_kind)
        return NowView(NOT_KNOWN, "plain", sentence(found.reason), True, NOT_TOLD, why, NOT_TOLD, why, None)
    lag, offsets = _lag(found)
    headroom, about, left = _headroom(found)
    needs = found.verdict is not GroupVerdict.OK
    reason = sentence("; ".join([found.reason, *found.notes]))
    view = NowView(found.verdict.value, _TONES[found.verdict], reason, needs, lag, offsets, headroom, about, left)
    return replace(view, next_step=advice(found.group, found.verdict))


def _lag(found: GroupLag) -> tuple[str, str]:
    gone = _why_gone(found)
    if not found.lag and gone is not None:
        return NOT_TOLD, gone
    if found.lag is None:
        return _without_lag(found)
    if found.lag == 0:
        return "0 s", "nothing unread"
    least = "at least " if gone is not None else ""
    offsets = least + _offsets(found.lag)
    return (
        (least + length(found.lag_seconds), offsets) if found.lag_seconds is not None else (offsets, "time not known")
    )


def _without_lag(found: GroupLag) -> tuple[str, str]:
    has_planned = any(p.watermark is not None for p in found.partitions.values())
    return (NOT_TOLD, "not known") if has_planned else (NOTHING, "nothing planned yet")


def _headroom(found: GroupLag) -> tuple[str, str, float | None]:
    if found.lost:
        return "lost", f"{_offsets(found.lost)} expired unread", 0.0
    tp, seconds = found.tightest, found.headroom_seconds
    if tp is None or seconds is None:
        return *_headroom_without_time(found), None
    first = found.partitions[tp]
    retention = first.retention.time if first.retention else None
    about = f"{tp} first" if len(found.partitions) > 1 else ""
    if retention:
        about = " · ".join(filter(None, [about, f"{length(retention.total_seconds())} retention"]))
    left = min(100.0, 100 * seconds / retention.total_seconds()) if retention else None
    estimate = "about " if found.is_estimate else ""
    return estimate + length(seconds), about, None if left is None else round(left, 1)


def _headroom_without_time(found: GroupLag) -> tuple[str, str]:
    # What is gone comes before what Kafka keeps: of it, nothing is kept.
    if (gone := _why_gone(found)) is not None:
        return NOT_TOLD, gone
    if found.is_unlimited:
        return "never", "Kafka keeps these records"
    if found.lag is None:
        return _without_lag(found)
    if found.lag == 0:
        return NOTHING, "nothing unread"
    offsets = found.headroom_offsets
    return NOTHING, "not known" if offsets is None else f"{_offsets(offsets)} to the oldest record"


def _why_gone(found: GroupLag) -> str | None:
    return why_unread_unknown(p.verdict for p in found.partitions.values())


def _offsets(number: int) -> str:
    return f"{short_number(number)} offset{'' if number == 1 else 's'}"


def order(found: GroupLag | None) -> int:
    """Return where a group stands in a list of the worst first; one that no one has looked at is last."""
    return len(GroupVerdict) + 1 if found is None else place(found.verdict)


def heat_facts(found: GroupLag) -> dict[str, list[tuple[int, int, int, str, int]]]:
    """Return first partition, lag, level, danger and lost offsets of each cell, by topic; nothing if the partitions are not folded."""
    if len(found.partitions) < heat.FOLDED_FROM:
        return {}
    rows = heat.rows({tp: heat.seen_of(tp, found=p, pace=found.pace) for tp, p in found.partitions.items()})
    return {row.topic: [(c.first, c.lag or 0, c.level, c.danger.value, c.lost) for c in row.cells] for row in rows}


def folded_facts(found: GroupLag, shown: str) -> dict[str, int]:
    """Return how many of the partitions that need a look most have no strip on a page; nothing if the partitions are not folded.

    Args:
        found: the group.
        shown: names of topic-partitions with commas between them, as the page asks for them.

    Returns:
        By ``danger``, those that lost records or are at risk; by ``lag``, also those that are behind.
    """
    if len(found.partitions) < heat.FOLDED_FROM:
        return {}
    # The page has strips of what the group knows: a new partition is there after the next plan.
    urgent = {tp: urgency(p, found.pace) for tp, p in found.partitions.items() if p.watermark is not None}
    wanted = _names(shown)
    worst = [
        urgent[tp] for tp in heapq.nlargest(heat.WORST, sorted(urgent), key=urgent.__getitem__) if str(tp) not in wanted
    ]
    return {
        "danger": sum(danger > 0 for danger, _, _ in worst),
        "lag": sum(danger > 0 or lag > 0 for danger, _, lag in worst),
    }


def _behind(found: PartitionLag) -> str:
    if found.lag:
        return f"{number(found.lag)} behind"
    is_known = found.lag is not None and why_unread_unknown([found.verdict]) is None
    return "read to the end" if is_known else NOTHING


def _names(shown: str) -> set[str]:
    return set(shown.split(",")[:200])


def partition_facts(partitions: Mapping[TopicPartition, PartitionLag], shown: str) -> dict[str, Any]:
    """Return the facts of those partitions that a page shows a strip of: lag, the bounds of the log, and how many unread offsets before its
    beginning retention has removed.

    Args:
        partitions: all of them.
        shown: names of topic-partitions with commas between them, as the page asks for them.
    """
    wanted = _names(shown)
    return {
        str(tp): {
            "behind": _behind(p),
            # Offsets that can't be compared with the watermark have no place in a strip: they are of another topic.
            "beginning": None if p.lag is None else p.beginning,
            "end": None if p.lag is None else p.end,
            "lost": p.lost,
        }
        for tp, p in partitions.items()
        if str(tp) in wanted
    }
