"""Whether Kafka still has what a window is to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from airflow_kafka_offsets.core.errors import (
    DataLossError,
    LogError,
    LogTruncatedError,
    MissingPartitionError,
    TopicRecreatedError,
    abandon_command,
    counted,
    name_some,
)
from airflow_kafka_offsets.core.leader_epochs import EpochEnds, replaced_in
from airflow_kafka_offsets.core.log import LogSnapshot, may_be_same
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.window import State, Window


def check_same_topics(window: Window, topic_ids: Mapping[str, str]) -> None:
    """Refuse a window whose topics are no longer those that it was cut from, even if its offsets exist.

    Raises:
        TopicRecreatedError: a topic has another id now.
        MissingPartitionError: a topic is gone.
    """
    wanted = list(window.ranges.without_empty())
    gone = {tp: f"{tp}: topic {tp.topic} is gone from Kafka" for tp in wanted if tp.topic not in topic_ids}
    if gone:
        raise MissingPartitionError.naming(gone, _unreadable(window))
    changed = {
        tp: f"{tp}: topic {tp.topic} was recreated (id {window.topic_ids[tp.topic]}, now {topic_ids[tp.topic]})"
        for tp in wanted
        if not may_be_same(window.topic_ids[tp.topic], topic_ids[tp.topic])
    }
    if changed:
        raise TopicRecreatedError.naming(changed, _unreadable(window))


def ends_behind(window: Window, log: LogSnapshot) -> list[TopicPartition]:
    """Return the partitions whose log seems to end before the window does."""
    return [tp for tp, r in window.ranges.without_empty().items() if tp in log.bounds and log.bounds[tp].end < r.end]


def check_readable(window: Window, log: LogSnapshot, epoch_ends: EpochEnds | None = None) -> None:
    """Refuse to run a window again if Kafka no longer holds all of it.

    Args:
        window: the window.
        log: what Kafka holds.
        epoch_ends: the ends of the leader epochs that are in doubt, see `leader_epochs.of_windows`.

    Raises:
        DataLossError: retention removed offsets of the window, or its log was truncated.
        TopicRecreatedError, MissingPartitionError: see `check_same_topics`.
    """
    check_same_topics(window, log.topic_ids)
    wanted = window.ranges.without_empty()
    missing = {tp: f"{tp}: gone from Kafka" for tp in wanted if tp not in log.bounds}
    if missing:
        raise MissingPartitionError.naming(missing, _unreadable(window))
    gone = {
        tp: f"{tp}: offsets {r} are not all in the log [{b.beginning}, {b.end})"
        for tp, r in wanted.items()
        if (b := log.bounds[tp]).beginning > r.start or b.end < r.end
    }
    if gone:
        is_truncated = bool(ends_behind(window, log))
        error = LogTruncatedError if is_truncated else DataLossError
        raise error.naming(gone, _unreadable(window))
    if replaced := replaced_in(window, epoch_ends or {}):
        raise LogTruncatedError.naming(replaced, _unreadable(window))


def unreadable(windows: Sequence[Window], log: LogSnapshot, epoch_ends: EpochEnds | None = None) -> dict[str, LogError]:
    """Return the errors of the windows that can't be run again, by their ids."""
    errors: dict[str, LogError] = {}
    for window in windows:
        try:
            check_readable(window, log, epoch_ends)
        except LogError as exc:
            errors[window.id] = exc
    return errors


def check_all_readable(windows: Sequence[Window], log: LogSnapshot, epoch_ends: EpochEnds | None = None) -> None:
    """Refuse to run windows again unless Kafka still holds all of them.

    Raises:
        LogError: see `check_readable`; of several windows it names those that can still be run.
    """
    errors = unreadable(windows, log, epoch_ends)
    if not errors:
        return
    error = next(iter(errors.values()))
    if len(windows) == 1:
        raise error
    left = [window.id for window in windows if window.id not in errors]
    partitions = {tp: why for exc in errors.values() for tp, why in exc.partitions.items()}
    gone = name_some([f"{id_}: {name_some(exc.partitions.values())}" for id_, exc in errors.items()], ". ")
    raise type(error)(
        f"{len(errors)} of {counted(len(windows), 'window')} can no longer be read. {gone}"
        + (f". Can be run again: {name_some(left, ', ')}" if left else "")
        + _give_up(window for window in windows if window.id in errors),
        partitions,
    )


def _give_up(unreadable: Iterable[Window]) -> str:
    # The newest first: it leaves no gap if no window follows it.
    if not (is_open := sorted((w for w in unreadable if w.state.is_open), key=lambda w: -w.seq)):
        return ""
    commands = [abandon_command(window.id).strip() for window in is_open]
    listed = name_some(commands, "\n    ")
    return (
        ". If a job has read all of its window, its output is the only copy, so commit that one; to abandon those that are open:"
        f"\n    {listed}"
    )


def _unreadable(window: Window) -> str:
    if window.state.is_open:
        return (
            f"If the job of window {window.id} has read all of it, its output is the only copy, so commit it; else abandon it:\n"
            f"    kafka-offsets commit {window.id} --why '...'{abandon_command(window.id)}"
        )
    only_copy = f"Window {window.id} is {window.state} and can't be read again: its output is the only copy"
    if window.state is not State.COMMITTED:
        return only_copy
    return f"{only_copy}. If it needs another run, and you have checked the output:\n    kafka-offsets commit {window.id} --why '...'"
