"""What the log of a task ends with: its window, the offsets in short, what became of it, and what to do when it is not committed.

Spark's log is long, so this is one block at its end. The block is the same for every launcher. The log of a task with several windows ends
with a line for each, and with the whole block of the window at which it stopped. The log of a task that got no window ends with what failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_kafka_offsets.core.errors import MAX_NAMED, counted
from airflow_kafka_offsets.core.offsets import topics_of
from airflow_kafka_offsets.core.ranges import OffsetRanges
from airflow_kafka_offsets.core.window import COMMITTING_HINT, Lane, State, Window

MAX_LINES = 8
"""How many partitions are listed with their offsets. If there are more, topics are listed with their sums, at most this many."""

MAX_SAID = 300
"""How many characters of Spark's error are shown."""

NO_JOB = "nothing to read, so none was launched"
SILENT = "the ledger does not answer"
NOT_ASKED = "the ledger was not asked, because the task was stopped"
GREEN_TASK = "another launcher ran it; the only evidence of its success is that this task runs after it"


@dataclass(frozen=True, slots=True)
class Done:
    """A window that a task has brought to its end.

    Attributes:
        window: as it was planned.
        is_rerun: it was committed before; False: this task has committed it.
        job: what is known of its job.
    """

    window: Window
    is_rerun: bool
    job: str

    @property
    def became(self) -> str:
        """What became of the window."""
        if self.is_rerun:
            return "run again; it was committed before, and the watermark stays"
        return "committed" if self.window.span else "committed; there was nothing new to read"


@dataclass(frozen=True, slots=True)
class Left:
    """A window that a task has not brought to its end.

    Attributes:
        window: as it was planned.
        state: where it is now; None: not known.
        job: what is known of its job, if the job's success is recorded; None: it is not.
        taken_by: the task, or the later try of this task, that had it last; None: this try.
        next_try: the number of the try that Airflow starts by itself; None: it starts none.
        was_stopped: someone stopped the task. If a person did, Airflow starts no other try by itself.
        was_skipped: its job asked Airflow to skip the task.
        needs_person: Kafka no longer has what the window is to read: no try can succeed until a person has decided.
        is_rerun: the window was committed before this task.
        why_unknown: why `state` is not known.
        can_reconnect: the next try can continue with the driver of this try.
        has_policy: the task has a retry policy, which also decides whether a try follows.
        spark_said: the line of Spark's output that says what ended the job, without secrets; None: the output was not read, or does not say it.
        is_elsewhere: another launcher runs the job, so that a retry of this task does not run it again.
    """

    window: Window
    state: State | None
    job: str | None = None
    taken_by: str | None = None
    next_try: int | None = None
    was_stopped: bool = False
    was_skipped: bool = False
    needs_person: bool = False
    is_rerun: bool = False
    why_unknown: str = SILENT
    can_reconnect: bool = False
    has_policy: bool = False
    spark_said: str | None = None
    is_elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class NoWindow:
    """A task that failed before it had a window.

    Attributes:
        what: what it did not get, as a sentence.
        failed: what failed.
        next_try: the number of the try that Airflow starts by itself; None: it starts none.
        had_tries: a try before this one may have had a window.
        has_policy: the task has a retry policy, which also decides whether a try follows.
        look: a command that shows more; None: the error itself names one, or none helps.
    """

    what: str
    failed: str
    next_try: int | None = None
    had_tries: bool = False
    has_policy: bool = False
    look: str | None = None


def evidence(
    span: int, *, records: int | None, written: bool | None, took_window: bool | None, bad: int | None = None
) -> str:
    """Say what is known of what a job read.

    >>> evidence(200, records=10, written=None, took_window=True)
    '10 records read of 200 offsets; 190 offsets (95.0 %) gave none'

    Args:
        span: how many offsets the window has.
        records: how many the job reported, see `operators.job_files.Report`.
        written: whether it wrote them.
        took_window: whether it asked for its window.
        bad: how many records it could not decode and left out.
    """
    if records is not None:
        gaps = span - records
        share = f"; {counted(gaps, 'offset')} ({gaps / span:.1%} gave none".replace("%", " %)") if gaps > 0 else ""
        left_out = f"; {counted(bad, 'record')} could not be decoded" if bad else ""
        return f"{counted(records, 'record')} read of {counted(span, 'offset')}{share}{left_out}"
    if written is False:
        return "an earlier run had written it, so this one read nothing"
    if took_window:
        return "its job read the window in its own way and reported no count; the evidence is that the job succeeded"
    if took_window is None:
        return (
            "a job in a cluster sends no report; the evidence is that it succeeded. (A job that calls "
            "current_window() checks its read by itself)"
        )
    return "its job never called current_window(); the only evidence that it read the window is its exit code 0"


def earlier_try(try_number: int, records: int | None) -> str:
    """Say what is known of a job that an earlier try of the task has run.

    >>> earlier_try(1, 10)
    'try 1 of this task had run it (10 records read), so it was not run again'
    """
    read = "" if records is None else f" ({counted(records, 'record')} read)"
    return f"try {try_number} of this task had run it{read}, so it was not run again"


def in_short(ranges: OffsetRanges) -> list[str]:
    """Return offset ranges in a few lines. Empty ranges are left out.

    Args:
        ranges: any number of them.
    """
    filled = ranges.without_empty()
    if len(filled) <= MAX_LINES:
        return [f"{tp}: {offsets}" for tp, offsets in filled.items()]
    topics = topics_of(filled)
    lines = [_topic(topic, filled) for topic in topics[:MAX_LINES]]
    rest = len(topics) - MAX_LINES
    return [*lines, f"and {counted(rest, 'more topic')}"] if rest > 0 else lines


def _topic(topic: str, ranges: OffsetRanges) -> str:
    of_topic = OffsetRanges((tp, offsets) for tp, offsets in ranges.items() if tp.topic == topic)
    partitions = list(of_topic)
    first, last = (f"{tp}: {of_topic[tp]}" for tp in (partitions[0], partitions[-1]))
    return f"{topic}: {_size(of_topic)}; {first if first == last else f'first {first}, last {last}'}"


def _size(ranges: OffsetRanges) -> str:
    return f"{counted(ranges.span, 'offset')} in {counted(len(ranges.without_empty()), 'partition')}"


def last_words(done: Sequence[Done], left: Sequence[Left] = ()) -> str:
    """Return the end of a task's log.

    Args:
        done: the windows that it brought to their end, oldest first.
        left: the others: first the window at which it stopped, then those that it did not begin. Only the first one's state counts.
    """
    if not left:
        return _done(done[0]) if len(done) == 1 else _several(done)
    stopped = _left(left[0])
    before = [_several(done)] if done else []
    after = [f"Not begun: {counted(len(left) - 1, 'window')}, from {left[1].window.id} on."] if left[1:] else []
    return "\n".join([*before, *after, stopped])


def failed_afterwards(done: Sequence[Done]) -> str:
    """Return the end of the log of a task that fails after all of its windows are done."""
    return f"{last_words(done)}\nThe task failed after that. A retry does not repeat a job that has succeeded."


def no_window(one: NoWindow) -> str:
    """Return the end of the log of a task that failed before it had a window."""
    failed = "\n        ".join(line.rstrip() for line in one.failed.strip().splitlines())
    follows = f"{_starts(one.next_try, has_policy=one.has_policy)}. Until that is corrected, it fails in the same way"
    return _block(
        one.what,
        f"failed: {failed}",
        *(["now: if an earlier try had a window, it is as that try left it"] if one.had_tries else []),
        f"next: {'no retry is left. When that is corrected, clear this task' if one.next_try is None else follows}",
        *([f"type: {one.look}"] if one.look is not None else []),
    )


def _starts(next_try: int | None, *, has_policy: bool) -> str:
    return f"Airflow starts try {next_try} of this task{', unless its retry policy says no' if has_policy else ''}"


def handed_on(windows: Sequence[Window]) -> str:
    """Return the end of a plan task's log.

    Args:
        windows: those that it hands to the tasks after it, oldest first; at least one.
    """
    if len(windows) == 1:
        return _block(f"Window {windows[0].id}: {_handed_on(windows[0])}", *_offsets(windows[0]))
    lines = [f"{window.id}: {_size(window.ranges)}; {_handed_on(window)}" for window in windows]
    return _list(f"{counted(len(windows), 'window')} of group {windows[0].group} handed on:", lines)


def _handed_on(window: Window) -> str:
    if window.state is State.COMMITTED:
        return "committed before; the tasks after this one run it again"
    return "planned; the tasks after this one run and commit it"


def _several(done: Sequence[Done]) -> str:
    lines = [f"{one.window.id}: {one.became} ({one.job})" for one in done]
    return _list(f"{counted(len(done), 'window')} of group {done[0].window.group} done:", lines)


def _list(headline: str, lines: Sequence[str]) -> str:
    shown = lines if len(lines) <= MAX_NAMED else [*lines[: MAX_NAMED - 1], "...", lines[-1]]
    return _block(headline, *shown)


def _done(one: Done) -> str:
    return _block(f"Window {one.window.id}: {one.became}", *_offsets(one.window), f"job: {one.job}")


def _left(one: Left) -> str:
    window = one.window
    became, now, commands = _standing(one)
    below = "it skipped the task" if one.was_skipped else "no success of its job is recorded; the error is below"
    job = below if one.job is None else one.job if one.job in (NO_JOB, GREEN_TASK) else f"succeeded: {one.job}"
    look = f"kafka-offsets windows {window.id}"
    return _block(
        f"Window {window.id}: {became}",
        *_offsets(window),
        f"job: {job}",
        *([f"Spark's last error: {_short(one.spark_said)}"] if one.job is None and one.spark_said else []),
        f"now: {now}",
        f"next: {_next(one)}",
        *(f"type: {command}" for command in (look, *commands)),
    )


def _short(said: str) -> str:
    return said if len(said) <= MAX_SAID else f"{said[: MAX_SAID - 3]}..."


def _standing(one: Left) -> tuple[str, str, list[str]]:
    """Return what became of a window, where it stands, and what a person may type."""
    window, group = one.window, one.window.group
    match one.state:
        case None:
            known = "run again to its end; it was committed before" if one.is_rerun else "committed"
            return f"not known to be {known}", f"{one.why_unknown}; whoever tries next looks there first", []
        case State.COMMITTED if not one.is_rerun:
            if one.taken_by is None and one.job is not None:
                return "committed; the task failed after that", "it is no longer open", []
            by = f": {one.taken_by} had it last" if one.taken_by is not None else ""
            return "committed meanwhile, and not by this try", f"it is no longer open{by}", []
        case State.COMMITTED if one.job is not None:
            return "run again, but its commit failed; it stays committed", "the watermark stays where it is", []
        case State.COMMITTED:
            said = "what its job wrote may be incomplete until it has run again"
            return "its rerun did not finish; it stays committed", f"the watermark stays where it is; {said}", []
        case State.COMMITTING:
            said = f"the window is committing{COMMITTING_HINT}"
            return "its commit has begun and is not finished", said, [f"kafka-offsets verify {group}"]
        case State.PLANNED:
            passed = "" if window.lane is Lane.BACKFILL else f": the watermark of group {group} has not passed it"
            holder = f"; {one.taken_by} works on it" if one.taken_by is not None else ""
            give_up = f"kafka-offsets abandon {window.id} --why '...'  # only to abandon it for good"
            return "not committed", f"the window is open{passed}{holder}", [give_up]
        case state:
            return f"not committed, because it was {state} meanwhile", "remove what its job wrote under this id", []


def _next(one: Left) -> str:
    window = one.window
    if one.state is State.SUPERSEDED:
        return "a retry of this task is refused: a reset gave its offsets to other windows. A new run reads what no window has"
    if one.state is State.ABANDONED and window.lane is Lane.BACKFILL:
        return "only a replay plans its offsets again"
    if one.state is State.ABANDONED:
        return "a new run plans its offsets under another id, unless they were recorded as a gap"
    is_done = one.state is State.COMMITTED and not one.is_rerun
    if is_done and one.job is not None:
        return "nothing. A retry of this task runs no job again"
    if is_done and one.taken_by is not None:
        return "nothing. Only a clear of this task runs its job again"
    if one.taken_by is not None:
        return f"{one.taken_by} commits it; this try does not"
    if one.needs_person:
        return (
            "a person decides: the error below, or that of the next try, says what is gone and what to type. Until then each "
            "try fails in the same way"
        )
    return _by_itself(one)


def _by_itself(one: Left) -> str:
    work = "the job runs again, on the same offsets under the same id" if one.job is None else "it only commits"
    if one.job is None and one.is_elsewhere:
        return _elsewhere(one)
    if one.next_try is not None:
        if one.job is None and one.can_reconnect:
            work = f"it continues with the driver if that is still there; if not, {work}"
        starts = f"{_starts(one.next_try, has_policy=one.has_policy)}: {work}"
        return f"the task was stopped. Unless a person did that, {starts}" if one.was_stopped else starts
    ended = "the task was skipped, so there is no retry" if one.was_skipped else "no retry is left"
    is_committed = one.is_rerun or one.state is State.COMMITTED
    if one.window.lane is Lane.BACKFILL or is_committed:
        return f"{ended}. Clear this task: {work}; or replay the window"
    return f"{ended}. The next run of the DAG adopts the window as it is; or clear this task: {work}"


def _elsewhere(one: Left) -> str:
    again = "the job runs again, on the same offsets under the same id"
    if one.next_try is not None:
        return (
            f"{_starts(one.next_try, has_policy=one.has_policy)}: it looks for the job's report again, and runs no job"
        )
    return f"no retry is left. Clear the plan task with all tasks after it: {again}"


def _offsets(window: Window) -> list[str]:
    if not window.span:
        return [f"offsets: none in {counted(len(window.ranges), 'partition')}", *_lost(window)]
    capped = "; capped by max_offsets, more was there" if window.is_capped else ""
    listed = [f"    {line}" for line in in_short(window.ranges)]
    return [f"offsets: {_size(window.ranges)}{capped}", *listed, *_lost(window)]


def _lost(window: Window) -> list[str]:
    if not window.lost.span:
        return []
    return [
        f"lost before it, recorded as a gap: {_size(window.lost)}",
        *(f"    {line}" for line in in_short(window.lost)),
    ]


def _block(headline: str, *lines: str) -> str:
    return "\n".join([headline, *(f"    {line}" for line in lines)])
