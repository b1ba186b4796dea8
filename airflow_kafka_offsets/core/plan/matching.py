"""A group whose topics a pattern chooses: which topics Kafka is asked about, and the notes on those that come and go.

A topic that appears is a partition that appears. One that was deleted is missing, by its name: a pattern does not forget what its
group has read. One that the pattern no longer matches has left the group. It keeps its watermark, and continues there when a pattern
matches it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from airflow_kafka_offsets.core.errors import MissingPartitionError, name_some
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.log import LogSnapshot
from airflow_kafka_offsets.core.offsets import topics_of
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.schemas import Frozen, Part, Registry, topics_then, wanted
from airflow_kafka_offsets.core.window import Draft, Lane


def topics_to_ask_for(group: KafkaGroup, listed: Iterable[str], position: Position | None) -> tuple[str, ...]:
    """Return the topics of a group that Kafka is asked about.

    Args:
        group: the group.
        listed: the topics that Kafka lists; they matter only to a pattern.
        position: where the next live window starts, or None if the group has no window. With a pattern, its topics are asked for as
            well: Kafka does not list a topic that was deleted, or that this user may no longer see.
    """
    if group.topics_pattern is None:
        return tuple(group.topics)
    planned, reads = position.topic_ids if position else {}, group.reads
    return tuple(sorted({topic for topic in (*listed, *planned) if topic in reads}))


def topics_with(group: KafkaGroup, window: Draft) -> set[str]:
    """Return the topics that a group reads and that it or one of its windows names, also those without new records."""
    reads = group.reads
    return {topic for topic in (*group.topics, *window.topic_ids) if topic in reads}


def subjects_of_new(registry: Registry, group: KafkaGroup, draft: Draft) -> dict[str, str]:
    """Return the subjects to freeze with a new window, see `wanted`."""
    return wanted(registry, topics_with(group, draft), topics_of(draft.ranges.without_empty()))


def subjects_of(registry: Registry, group: KafkaGroup, window: Draft, before: Frozen) -> dict[str, str]:
    """Return the subjects to freeze with a window of an earlier plan, see `wanted`.

    Args:
        registry: of the group.
        group: as it last planned; see `KafkaGroup.having_matched`.
        window: the window.
        before: what is frozen with it.
    """
    # A backfill window has no ranges of quiet topics, and is decoded with their subjects, too.
    quiet = {
        topic for topic in group.topics if any(name in before for part in Part for name in registry.of(part, topic))
    }
    topics = topics_then(topics_with(group, window), quiet.union(topics_of(window.ranges)))
    return wanted(registry, topics, topics_of(window.ranges.without_empty()))


def as_planned(group: KafkaGroup, drafts: Sequence[Draft]) -> KafkaGroup:
    """Return a group as the ledger keeps it with new windows: a pattern with the topics that the newest live window was planned from."""
    live = [draft for draft in drafts if draft.lane is Lane.LIVE]
    if group.topics_pattern is None or not live:
        return group
    reads = group.reads
    return group.having_matched(topic for topic in live[-1].topic_ids if topic in reads)


def appeared_note(
    group: KafkaGroup, matched: Iterable[str], position: Position | None, given: Collection[str], source: str
) -> str | None:
    """Return the note about topics that appeared since the group last planned, and that a source has no offset of.

    Args:
        group: the group.
        matched: its topics of this moment; see `topics_to_ask_for`.
        position: where the next live window starts, or None if the group has no window.
        given: the topics that the source has offsets of.
        source: its name.

    Returns:
        A sentence, or None if there is no such topic.
    """
    planned = position.topic_ids if position else {}
    new = sorted(topic for topic in matched if topic not in planned and topic not in given)
    if not new:
        return None
    return (
        f"{source} has no offset of {name_some(new, ', ')}, which topics_pattern={group.topics_pattern!r} matches now. The next window "
        "reads it from its beginning offset"
    )


def left_warning(group: KafkaGroup, position: Position) -> str | None:
    """Return the warning about topics that the pattern no longer matches.

    Args:
        group: a group as it last planned; see `KafkaGroup.having_matched`.
        position: where the next live window starts.

    Returns:
        A sentence, or None if no topic has left since.
    """
    reads = group.reads
    left = {topic for topic in group.topics if topic not in reads and topic in position.topic_ids}
    if not left:
        return None
    watermarks = [f"{tp} at {offset}" for tp, offset in sorted(position.offsets.items()) if tp.topic in left]
    return (
        f"topics_pattern={group.topics_pattern!r} no longer matches {name_some(sorted(left), ', ')}, so no window reads it "
        f"(watermarks: {name_some(watermarks, ', ')}). If that is a mistake, correct the pattern before retention removes the records"
    )


def check_there(group: KafkaGroup, position: Position, log: LogSnapshot) -> None:
    """Refuse a group with a topic that does not exist and never did; or with a pattern that matches nothing.

    Raises:
        MissingPartitionError: with what can be done.
    """
    if group.topics_pattern is not None:
        _check_matches(group, position, log)
    elif absent := [t for t in group.topics if t not in log.topic_ids and t not in position.topic_ids]:
        raise MissingPartitionError(
            f"Kafka has no topic {name_some(absent, ', ')}: create it, or correct the group's topics"
        )


def _check_matches(group: KafkaGroup, position: Position, log: LogSnapshot) -> None:
    # One that was listed, and deleted before it was looked at, was never the group's.
    reads = group.reads
    if any(topic in reads for topic in (*log.topic_ids, *position.topic_ids)):
        return
    had = f" (the group has read {name_some(sorted(position.topic_ids), ', ')})" if position.topic_ids else ""
    raise MissingPartitionError(
        f"Kafka lists no topic whose whole name matches topics_pattern={group.topics_pattern!r}{had}. Correct the pattern, or grant this "
        "user the ACL Describe on the topics"
    )


def way_out_of_missing(group: KafkaGroup) -> str:
    """Return what to do about topics that were deleted on purpose."""
    return f"If it was deleted on purpose, leave it out of the group's {'topics_pattern' if group.topics_pattern else 'topics'}"
