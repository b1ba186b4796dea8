"""What the log of a task ends with: a block for its window, with the same fields in the same order for every launcher.

A task with several windows has a line for each that is done, and the block of the window at which it stopped. A task without a window has the
block of what failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_kafka_offsets.core.errors import MAX_NAMED, counted, cut
from airflow_kafka_offsets.core.offsets import topics_of
from airflow_kafka_offsets.core.ranges import OffsetRanges
from airflow_kafka_offsets.core.spark_log import OWN_ERRORS, is_own
from airflow_kafka_offsets.core.window import COMMITTING_HINT, Lane, State, Window

MAX_LINES = 8
"""How many partitions are listed with their offsets. If there are more, topics are listed with their sums, at most this many."""

MAX_ERROR = 300
"""How many characters of Spark's error are shown. An error of this package is shown as a whole."""

NO_JOB = "none, nothing to read"
RUNS_AGAIN = "the job runs again on the same offsets"
RECONNECTS = f"it continues with the driver; if that is gone, {RUNS_AGAIN}"
LOOKS_AGAIN = "it looks for the job's report again"
GREEN_TASK = "another launcher ran it, without a report"
SAME_CODE = 'A retry and a clear run it again; a clear with "Run with latest bundle version" runs the newest'
"""What Airflow does after an error in the code was corrected. The words in quotes are a box of its dialog."""


@dataclass(frozen=True, slots=True)
class Done:
    """A window that a task has brought to its end.

    Attributes:
        window: the window, as it was planned.
        is_rerun: whether it was committed before.
        job: a few words about its job.
    """

    window: Window
    is_rerun: bool
    job: str

    @property
    def became(self) -> str:
        """What became of the window."""
        return "run again; the watermark stays" if self.is_rerun else "committed"


@dataclass(frozen=True, slots=True)
class Left:
    """The window at which a task stopped.

    Attributes:
        window: the window, as it was planned.
        state: its state now, or None if the ledger did not answer.
        follows: the try that Airflow starts by itself, in the words of `starts`, or None if no retry is left.
        again: what a try does if the job has not succeeded yet.
        job: the evidence that the job succeeded, or None if it did not.
        holder: the task, or the later try of this task, that took the window from this try.
        is_rerun: whether the window was committed before the task.
        needs_person: whether Kafka no longer holds the window's offsets.
        spark_error: the line of Spark's output that names what ended the job, without secrets, if there is one.
        unknown: why `state` is None.
        bundle_version: the code that the try ran (`core.run.Try`).
    """

    window: Window
    state: State | None
    follows: str | None = None
    again: str = RUNS_AGAIN
    job: str | None = None
    holder: str | None = None
    is_rerun: bool = False
    needs_person: bool = False
    spark_error: str | None = None
    unknown: str = ""
    bundle_version: str | None = None


def starts(next_try: int | None, *, has_policy: bool = False, was_stopped: bool = False) -> str | None:
    """Return which try Airflow starts by itself, or None if no retry is left.

    >>> starts(2, has_policy=True)
    'Airflow starts try 2 of this task, unless its retry policy says no'
    """
    if next_try is None:
        return None
    unless = (
        ", unless a person stopped it" if was_stopped else ", unless its retry policy says no" if has_policy else ""
    )
    return f"Airflow starts try {next_try} of this task{unless}"


def end_of_done(done: Sequence[Done], bundle_version: str | None = None) -> str:
    """Return the end of the log for windows that are done, oldest first, and for the code that the try ran."""
    code = _code(bundle_version)
    if len(done) == 1:
        [one] = done
        return _block(f"Window {one.window.id}: {one.became}", *_offsets(one.window), f"job: {one.job}", *code)
    lines = [f"{d.window.id}: {d.became} ({d.job})" for d in done]
    return _list(f"{counted(len(done), 'window')} of group {done[0].window.group} done:", lines, *code)


def end_of_handoff(windows: Sequence[Window]) -> str:
    """Return the end of a plan task's log: the windows that it hands off to the tasks after it, oldest first."""
    became = ["to be run again" if w.state is State.COMMITTED else "planned" for w in windows]
    if len(windows) == 1:
        return _block(f"Window {windows[0].id}: {became[0]}", *_offsets(windows[0]), "next: the tasks after this one")
    lines = [f"{w.id}: {state}; {_size(w.ranges)}" for w, state in zip(windows, became, strict=True)]
    return _list(f"{counted(len(windows), 'window')} of group {windows[0].group} handed off:", lines)


def end_without_window(
    headline: str,
    error: str,
    follows: str | None,
    *,
    may_pass: bool = False,
    new_run: str | None = None,
    bundle_version: str | None = None,
) -> str:
    """Return the end of the log of a task that failed before it had its window.

    Args:
        headline: the first line.
        error: what failed.
        follows: as in `Left`.
        may_pass: whether waiting may help, so that there may be nothing to correct.
        new_run: the command that replaces a run with a wrong conf, or None if the run has nothing of ours in its conf.
        bundle_version: as in `Left`.
    """
    first, *more = (line.rstrip() for line in error.strip().splitlines())
    typed: list[str] = []
    next_ = follows or f"no retry is left: {'' if may_pass else 'correct the error, then '}clear this task"
    if new_run is not None and not (follows or may_pass):
        next_ = "no retry is left. A clear keeps this run's conf: if the error is in it, start a new run; otherwise correct the error, then clear this task"
        typed = [f"type: {new_run.strip()}"]
    code = _code(bundle_version, SAME_CODE)
    return _block(headline, f"error: {first}", *(f"    {line}" for line in more), *code, f"next: {next_}", *typed)


def end_of_left(left: Left) -> str:
    """Return the block of the window at which a task stopped."""
    window = left.window
    became, now, commands = _state(left)
    job = "it did not succeed" if left.job is None else left.job
    error = left.spark_error if left.job is None else None
    return _block(
        f"Window {window.id}: {became}",
        *_offsets(window),
        f"job: {job}",
        *(_spark_error(error) if error else []),
        *_code(left.bundle_version, SAME_CODE if left.job is None else ""),
        f"now: {now}",
        f"next: {_next(left)}",
        *(f"type: {command}" for command in (f"kafka-offsets windows {window.id}", *commands)),
    )


def _spark_error(error: str) -> list[str]:
    if is_own(error):
        first, *commands = cut(error.removeprefix(OWN_ERRORS)).splitlines()
        return [f"error: Spark: {first}", *commands]
    return [f"error: Spark: {error if len(error) <= MAX_ERROR else error[: MAX_ERROR - 3] + '...'}"]


def _state(left: Left) -> tuple[str, str, list[str]]:
    """Return what became of a window, its state, and which commands show more."""
    by = f"; {left.holder} has it" if left.holder is not None else ""
    match left.state:
        case None:
            return "not known to be committed", left.unknown, []
        case State.PLANNED:
            return "not committed", f"the window is open{by}", []
        case State.COMMITTING:
            verify = f"kafka-offsets verify {left.window.group}"
            return "its commit has begun", f"the window is committing{COMMITTING_HINT}", [verify]
        case State.COMMITTED if left.is_rerun:
            output = "" if left.job is not None else "; its output may be incomplete"
            return "its rerun did not finish", f"the window stays committed{output}", []
        case State.COMMITTED:
            when = "by this try" if left.job is not None and left.holder is None else "meanwhile"
            return f"committed {when}", f"the window is committed{by}", []
        case state:
            return f"{state} meanwhile", "it owns nothing: remove what its job wrote", []


def _next(left: Left) -> str:
    if not (left.state is None or left.state.owns):
        return "a new run reads what no window owns"
    if left.state is State.COMMITTED and not left.is_rerun and (left.job or left.holder):
        return "nothing"
    if left.holder is not None:
        return f"{left.holder} commits it"
    if left.needs_person:
        return "a person decides, as the error says"
    again = left.again if left.job is None else "it only commits"
    if left.follows is not None:
        return f"{left.follows}: {again}"
    is_adopted = left.window.lane is Lane.LIVE and not left.is_rerun and left.state is not State.COMMITTED
    adopts = "The next run adopts the window; or clear" if is_adopted else "Clear"
    return f"no retry is left. {adopts} this task: {again}"


def in_short(ranges: OffsetRanges) -> list[str]:
    """Return offset ranges in a few lines, without the empty ones."""
    filled = ranges.without_empty()
    if len(filled) <= MAX_LINES:
        return [f"{tp}: {offsets}" for tp, offsets in filled.items()]
    topics = topics_of(filled)
    sums = [OffsetRanges((tp, r) for tp, r in filled.items() if tp.topic == topic) for topic in topics[:MAX_LINES]]
    lines = [f"{topic}: {_size(of_topic)}" for topic, of_topic in zip(topics, sums, strict=False)]
    rest = len(topics) - MAX_LINES
    return [*lines, f"and {counted(rest, 'more topic')}"] if rest > 0 else lines


def _size(ranges: OffsetRanges) -> str:
    return f"{counted(ranges.span, 'offset')} in {counted(len(ranges.without_empty()), 'partition')}"


def _offsets(window: Window) -> list[str]:
    capped = "; capped by max_offsets" if window.is_capped else ""
    lines = [f"offsets: {_size(window.ranges)}{capped}" if window.span else "offsets: none"]
    lines += [f"    {line}" for line in in_short(window.ranges)]
    if window.lost.span:
        lines += [f"lost: {_size(window.lost)}", *(f"    {line}" for line in in_short(window.lost))]
    return lines


def _code(bundle_version: str | None, after: str = "") -> list[str]:
    return [] if bundle_version is None else [f"code: bundle version {bundle_version}{after and f'. {after}'}"]


def _list(headline: str, lines: Sequence[str], *more: str) -> str:
    shown = lines if len(lines) <= MAX_NAMED else [*lines[: MAX_NAMED - 1], "...", lines[-1]]
    return _block(headline, *shown, *more)


def _block(headline: str, *lines: str) -> str:
    return "\n".join([headline, *(f"    {line}" for line in lines)])
