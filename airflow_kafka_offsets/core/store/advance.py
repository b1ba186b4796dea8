"""Which offsets an offset store may hold while windows are committed, and which it gets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType

from airflow_kafka_offsets.core.errors import BadInputError, StoreDriftError, name_some
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.store.guarantees import must_write
from airflow_kafka_offsets.core.window import Draft, State, Window


def done_in_a_row(live: Iterable[Window]) -> list[Window]:
    """Return the windows that the watermark passes once every window that is `committing` is committed.

    Args:
        live: the live windows from the oldest open one on, oldest first. The first that is still planned stops the watermark,
            also for the windows after it.
    """
    return list(takewhile(lambda window: window.state is not State.PLANNED, live))


def path(windows: Sequence[Window], afterwards: Offsets = MappingProxyType({})) -> list[dict[TopicPartition, int]]:
    """Return the steps of a store while windows are published: its offsets before the first window, and after each.

    A step also passes what was lost before a window. A partition that a later window does not have keeps its offset. A partition
    that only later windows have is at its start from the first step on: planning puts it there.

    Args:
        windows: the windows that the watermark passes.
        afterwards: the watermark after them. It is beyond their end if an abandoned window left a gap after them.
    """
    steps = [first_starts(windows)]
    for window in windows:
        steps.append({**steps[-1], **window.ranges.ends})
    if (last := {**steps[-1], **afterwards}) != steps[-1]:
        steps.append(last)
    return steps


def before(window: Draft) -> dict[TopicPartition, int]:
    """Return the watermark before a window: its starts, or the starts of the lost offsets before it."""
    return {**window.ranges.starts, **window.lost.starts}


def first_starts(windows: Sequence[Window]) -> dict[TopicPartition, int]:
    """Return where each partition starts in the first of some windows that has it.

    Args:
        windows: live windows that follow one another, oldest first.
    """
    return {tp: start for window in reversed(windows) for tp, start in before(window).items()}


def standing(steps: Sequence[Offsets], stored: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the offsets that an advance of the store must start from: another commit may have done some of the steps.

    Each partition is looked up by itself, because a store that is not atomic may have partitions at different steps. A
    partition at no step gets the first step's offset, and the store's own comparison then refuses the advance.
    """
    reached = {tp: offset for tp, offset in stored.items() if any(step.get(tp) == offset for step in steps)}
    return {**steps[0], **reached}


def is_past(after: Offsets, stored: Offsets) -> bool:
    """Whether a store has all offsets after some windows, or later ones: then the commit of these windows leaves it where it is."""
    return all(stored.get(tp, -1) >= offset for tp, offset in after.items())


def check_standing(store: str, group: str, watermark: Offsets, stored: Mapping[TopicPartition, int]) -> None:
    """Refuse a store that is not at the watermark. Partitions that it does not hold are published later.

    Raises:
        StoreDriftError: a partition in the store has another offset.
    """
    must_write(store, group, watermark, watermark, stored)


def check_first(store: str, group: str, start: Offsets, stored: Mapping[TopicPartition, int]) -> None:
    """Refuse to start a new group at other offsets than those in its offset store.

    Raises:
        BadInputError: the offsets of a partition differ.
    """
    try:
        check_standing(store, group, start, stored)
    except StoreDriftError as exc:
        named = [f"{tp}: {offset}, starting_offsets: {start}" for tp, (_, start, offset) in exc.partitions.items()]
        raise BadInputError(
            f"{store} holds other offsets of group {group}: {name_some(named)}. Set starting_offsets='committed' to continue "
            "there, or rename the group"
        ) from exc


def foreign_offsets(
    start: Offsets, watermark: Offsets, stored: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the store's offsets of partitions that are new to the group, where they differ from the start of these partitions.

    This is not drift: an earlier topic or another loader wrote them before the group read these partitions.
    """
    return {tp: stored[tp] for tp, offset in start.items() if tp not in watermark and stored.get(tp, offset) != offset}
