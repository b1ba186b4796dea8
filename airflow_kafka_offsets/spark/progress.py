"""The steps of a job with its window: the read has a state, and the output at each target has one."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Literal

from airflow_kafka_offsets.spark.errors import KafkaWindowError, UnfinishedReadError, WriteOptionError

State = Literal["unread", "taken", "read", "checked", "skipped", "unwritten", "writing", "late", "written", "failed"]
Step = Literal["take", "read", "run", "check", "skip", "again", "write", "done", "fail"]

# "taken": the job has both bounds and reads by its own means. "read": a frame waits for its check. "skipped": an earlier run
# wrote the output, so the frame need not be run ("run": it was run anyway). "again": the job begins again after a failure.
# "late": a thread of the job was still writing this output at that moment.
LIFE: Mapping[State, Mapping[Step, State]] = {
    "unread": {"take": "taken", "read": "read", "check": "checked", "skip": "skipped"},
    "taken": {"take": "taken", "read": "read", "check": "checked", "skip": "skipped"},
    "read": {"take": "read", "check": "checked", "skip": "skipped", "run": "read", "again": "unread"},
    "checked": {"take": "checked", "read": "read", "check": "checked", "skip": "checked", "run": "checked"},
    "skipped": {"take": "skipped", "read": "skipped", "run": "read", "check": "checked", "skip": "skipped"},
    "unwritten": {"write": "writing"},
    "writing": {"done": "written", "fail": "failed", "again": "late"},
    "late": {"done": "unwritten", "fail": "failed"},
    "written": {"again": "unwritten"},
    "failed": {"write": "writing"},
}

_REFUSALS: Mapping[Step, tuple[type[KafkaWindowError], str]] = {
    "read": (
        UnfinishedReadError,
        "the frame of an earlier read() was not checked. Write it, call check(), or use one frame twice:\n"
        "    with window.persisted() as frame:",
    ),
    "write": (
        WriteOptionError,
        "a second write would replace the first. Write all rows together (union)",
    ),
}


def after(state: State, step: Step, subject: str) -> State:
    """Return the state after a step; a step that `LIFE` does not have is an error, whose message begins with `subject`."""
    if step in LIFE[state]:
        return LIFE[state][step]
    error, message = _REFUSALS.get(step, (KafkaWindowError, f"no step {step!r} from the state {state!r}"))
    raise error(f"{subject}: {message}")


class Progress:
    """How far a job is with its window. Threads may write at once.

    Attributes:
        read: the state of the read.
        failures: the name and the error of each write that failed and did not succeed since, or that was refused. Only the former let
            the job begin again: to begin again after a second write was refused would let it replace the first.
    """

    def __init__(self, window_id: str) -> None:
        self.read: State = "unread"
        self.failures: dict[tuple[object, ...], tuple[str, BaseException]] = {}
        self._subject = f"Window {window_id}"
        self._outputs: dict[tuple[object, ...], State] = {}
        self._begins_again: set[tuple[object, ...]] = set()
        self._held: list[object] = []
        self._lock = threading.Lock()

    def to(self, step: Step) -> None:
        """Take a step of the read."""
        with self._lock:
            self.read = after(self.read, step, self._subject)

    def begin(self) -> None:
        """Make sure that the job may read; after a failure it begins again, once, and writes again what it wrote before."""
        with self._lock:
            if self._begins_again:
                self._begins_again.clear()
                self.read = LIFE[self.read].get("again", self.read)
                self._outputs = {target: LIFE[state].get("again", state) for target, state in self._outputs.items()}
            after(self.read, "read", self._subject)

    def remember(self, earlier: Progress) -> None:
        """Share what the same job has written in a session that it stopped."""
        self.failures, self._outputs = earlier.failures, earlier._outputs

    def vouch(self) -> None:
        """Forget the failures: the job says that it wrote the window by other means."""
        self.failures.clear()
        self._begins_again.clear()

    def end_block(self, exc: BaseException) -> None:
        """Note that the job left a block by an error. The next read begins again, except after a write that was refused."""
        if not isinstance(exc, WriteOptionError):
            self._begins_again.add(("block",))

    @contextlib.contextmanager
    def writing(self, write: str, **to: object) -> Iterator[None]:
        """Remember how a write ends, because a job may ignore its error; refuse a second one to the same target.

        Args:
            write: the method's name.
            **to: its parameters that name the target; a ``function`` may be called for several frames.
        """
        # A function need not be hashable. Its id stays its own as long as someone holds it.
        self._held.append(to.get("function"))
        target = tuple(
            (name, id(value) if name == "function" else str(value).rstrip("/")) for name, value in to.items()
        )
        *_, last = to.values()
        name = f"{write} to {getattr(last, '__name__', last)}"
        output = (*target, object()) if "function" in to else target
        try:
            self._step(output, "write", name)
        except WriteOptionError as exc:
            self.failures[("again", *target)] = name, exc
            raise
        try:
            yield
        except BaseException as exc:
            self.failures[(write, *target)] = name, exc
            self._begins_again.add((write, *target))
            self._step(output, "fail", name)
            raise
        self.failures.pop((write, *target), None)
        self._begins_again.discard((write, *target))
        self._step(output, "done", name)

    def _step(self, output: tuple[object, ...], step: Step, name: str) -> None:
        with self._lock:
            self._outputs[output] = after(self._outputs.get(output, "unwritten"), step, f"{self._subject}: {name}")
