"""From which offsets to which an offset store is advanced when windows are committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from airflow_kafka_offsets.core.errors import BadInputError, StoreDriftError, name_some
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.planning import Plan
from airflow_kafka_offsets.core.store import must_write
from airflow_kafka_offsets.core.window import State, Window


def done_in_a_row(live: Iterable[Window]) -> list[Window]:
    """Return the windows that the watermark passes when all that are committing are committed.

    Args:
        live: the live windows from the oldest open one on, oldest first. The first that is only planned holds the watermark,
            and whatever is behind it waits for it.
    """
    return list(takewhile(lambda window: window.state is not State.PLANNED, live))


def path(windows: Sequence[Window]) -> list[dict[TopicPartition, int]]:
    """Return where a store may stand while windows are published: before the first of them, and behind each.

    What was lost before a window started lies on its way. A partition that a later window leaves out stays where it is.
    """
    steps = [before(windows[0])]
    for window in windows:
        steps.append({**steps[-1], **before(window), **window.ranges.ends})
    return steps


def before(window: Window | Plan) -> dict[TopicPartition, int]:
    """Return the watermark that a window is cut at: where it starts, or where what was lost before it did."""
    return {**window.ranges.starts, **window.lost.starts}


def standing(store: str, group: str, steps: Sequence[Offsets], found: Mapping[TopicPartition, int]) -> Offsets:
    """Return the step of a path that a store stands at: another commit may have brought it a part of the way.

    Raises:
        StoreDriftError: it stands at none of them.
    """
    for step in reversed(steps):
        if all(offset == step.get(tp) for tp, offset in found.items()):
            return step
    must_write(store, group, steps[0], steps[-1], found)
    return steps[0]


def check_standing(store: str, group: str, watermark: Offsets, found: Mapping[TopicPartition, int]) -> None:
    """Refuse to go on when a store does not stand at the watermark; what it does not hold at all is published later.

    Raises:
        StoreDriftError: with each partition.
    """
    known = {tp: offset for tp, offset in found.items() if tp in watermark}
    must_write(store, group, watermark, watermark, known)


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
