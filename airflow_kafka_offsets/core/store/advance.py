"""From which offsets to which an offset store is advanced when windows are committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType

from airflow_kafka_offsets.core.errors import BadInputError, StoreDriftError, name_some
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.plan.planning import Plan
from airflow_kafka_offsets.core.store.guarantees import must_write
from airflow_kafka_offsets.core.window import State, Window


def done_in_a_row(live: Iterable[Window]) -> list[Window]:
    """Return the windows that the watermark passes when all that are committing are committed.

    Args:
        live: the live windows from the oldest open one on, oldest first. The first that is only planned holds the watermark,
            and whatever is behind it waits for it.
    """
    return list(takewhile(lambda window: window.state is not State.PLANNED, live))


def path(windows: Sequence[Window], afterwards: Offsets = MappingProxyType({})) -> list[dict[TopicPartition, int]]:
    """Return where a store may stand while windows are published: before the first of them, and behind each.

    What was lost before a window started lies on its way. A partition that a later window leaves out stays where it is.

    Args:
        windows: those that the watermark passes.
        afterwards: where the watermark is then: further than these windows end, if an abandoned one left a gap behind them.
    """
    steps = [before(windows[0])]
    for window in windows:
        steps.append({**steps[-1], **window.ranges.ends})
    if (last := {**steps[-1], **afterwards}) != steps[-1]:
        steps.append(last)
    return steps


def before(window: Window | Plan) -> dict[TopicPartition, int]:
    """Return the watermark that a window is cut at: where it starts, or where what was lost before it did."""
    return {**window.ranges.starts, **window.lost.starts}


def standing(steps: Sequence[Offsets], found: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return from where a store goes on to the end of a path: another commit may have brought it a part of the way.

    Each partition by itself, as a store that is not atomic may stand on several steps at once. One that stands on no step
    is left to the comparison with the first.
    """
    reached = {tp: offset for tp, offset in found.items() if any(step.get(tp) == offset for step in steps)}
    return {**steps[0], **{tp: offset for tp, offset in reached.items() if tp in steps[-1]}}


def check_standing(store: str, group: str, watermark: Offsets, found: Mapping[TopicPartition, int]) -> None:
    """Refuse to go on when a store does not stand at the watermark; what it does not hold at all is published later.

    Raises:
        StoreDriftError: with each partition.
    """
    must_write(store, group, watermark, watermark, found)


def check_first(store: str, group: str, start: Offsets, found: Mapping[TopicPartition, int]) -> None:
    """Refuse the first start of a group elsewhere than where its offset store stands.

    Raises:
        BadInputError: with both numbers.
    """
    try:
        check_standing(store, group, start, found)
    except StoreDriftError as exc:
        named = [f"{tp}: {there}, starting_offsets: {wanted}" for tp, (_, wanted, there) in exc.partitions.items()]
        raise BadInputError(
            f"{store} holds offsets of group {group} already, and starting_offsets would begin elsewhere: "
            f"{name_some(named)}. To go on where the store stands: starting_offsets='committed'. To begin anew, take "
            "another name for the group, or remove its offsets from the store"
        ) from exc


def strange(start: Offsets, known: Offsets, found: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return what a store holds of partitions that are new to the group, and elsewhere than where they start.

    That is not drift: somebody left it there before the group had them, for an earlier topic or another loader. A partition
    that is new to a group starts at its beginning offset, always.
    """
    return {tp: found[tp] for tp, offset in start.items() if tp not in known and found.get(tp, offset) != offset}
