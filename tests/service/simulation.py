"""Random schedules in which anything can die: the laws of the package have to hold after each.

A schedule is a group with some runs, retries, zombies and people. Each of these is a greenlet, that is, a function that can pause. It pauses
before and after each call to the ledger, Kafka and the offset store. There, a random number chooses who goes on, who dies, and whose call
gets no answer. One seed is one schedule: no clock, thread or sleep changes it. A zombie, which Airflow takes for dead, is a process that
goes on later.

Real are the service, the ledger on SQLite and what a task does with its windows (`task.work`). Kafka and the offset store are
in memory, and pass the same contracts as the real ones. Airflow is the little that the package asks it for.

At the end of a schedule nothing dies any more: tasks are retried until they end, and a person does what errors suggest, and nothing else.
Then the simulation checks the laws: each record was read by exactly one window, windows tile the log, the offset store stands at the
watermark, and so on (`_check_laws`), as `step_laws` did at each step.

Play many schedules, or one with its story::

    python -m tests.service.simulation --seconds 3600 --first-seed 1000
    python -m tests.service.simulation --seed 17

The first line of a story is the group's settings. Each other line is one event, in order:

    run-2 (load) asks for Live(...)                  a run of the task `load` is planned by Airflow
    dag/run-2/load#1 starts                          its first try begins
    dag/run-2/load#1 dies after ledger.turn          it is killed when this call has come back
    dag/run-2/load#1 stands after ledger.acts        it pauses there, and may go on lines later
    a person: abandon lake-000001                    a person types a command

A broken law is the first line, `seed 17: ...`, before the story. To debug it, play the seed again with the mended code.
`broken_rules` turns this around: it breaks a rule of the package, and the simulation has to notice.
"""

from __future__ import annotations

import argparse
import logging
import random
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from greenlet import getcurrent, greenlet

from airflow_kafka_offsets.cli.parser import make_parser
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConfirmationError,
    KafkaOffsetsError,
    KafkaUnavailableError,
    LedgerUnavailableError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
    WindowBusyError,
)
from airflow_kafka_offsets.core.evidence import Report
from airflow_kafka_offsets.core.log import Bounds
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan import ownership
from airflow_kafka_offsets.core.plan.request import Live, Ranges, Request, TimeSpan, Windows
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.run import Run, Try
from airflow_kafka_offsets.core.window import Claim, Lane, Scope, State, Window, WindowRecord
from airflow_kafka_offsets.core.window_id import parse_window_id
from airflow_kafka_offsets.service import prune
from airflow_kafka_offsets.service.move import Moving, Selection
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.service.prune import Pruning
from airflow_kafka_offsets.service.sources import LedgerSource
from airflow_kafka_offsets.service.windows import WindowService
from airflow_kafka_offsets.task import work as working
from airflow_kafka_offsets.task.definition import Stop
from airflow_kafka_offsets.task.work import Work
from tests.core.examples import tp
from tests.lab.memory import IN_MEMORY
from tests.service.step_laws import StepLaws
from tests.service.test_way_out import COMMAND, STEPS
from tests.service.world import World
from tests.stores.memory import MemoryStore
from tests.task.airflow import all_of

Record = tuple[TopicPartition, int]

RETRIES = [0, 0, 1, 2]
PARTITIONS = 4
ROUNDS = 60
"""Rounds in which all that is left to do has to end."""

_TURNS = 3000
"""Steps in which what runs has to end when nothing dies any more; a commit has about twenty."""


class Died(BaseException):
    """The process was killed: nothing of it runs any more, no `except` and no `finally` of its own either."""


class JobFailedError(Exception):
    """The job failed by itself, or found that Kafka no longer holds its records."""


class BrokenLawError(AssertionError):
    """A law does not hold; the message has the seed and the story."""


def records(ranges: OffsetRanges) -> set[Record]:
    """Spell out ranges."""
    return {(p, offset) for p, r in ranges.items() for offset in range(r.start, r.end)}


class Boundary:
    """Stands before something that a process calls: the process stops before and after each call."""

    def __init__(
        self,
        target: Any,
        pause: Callable[[str], None],
        part: str,
        called: Callable[[str, Sequence[Any]], None] = lambda *_: None,
    ) -> None:
        self._target = target
        self._pause = pause
        self._part = part
        self._called = called
        self._in_turn: list[tuple[str, Sequence[Any]]] | None = None

    @contextmanager
    def turn(self, group: str) -> Iterator[None]:
        """Let a turn be one call: it is one transaction, and others wait."""
        self._pause(f"before {self._part}.turn")
        self._in_turn = called = []
        try:
            with self._target.turn(group):
                yield
        finally:
            self._in_turn = None
        for name, args in called:
            self._called(name, args)
        self._pause(f"after {self._part}.turn")

    @property
    def is_in_turn(self) -> bool:
        """Whether a turn is under way."""
        return self._in_turn is not None

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._in_turn is not None:
                # Nothing stops inside a turn: it is one transaction, so a death in it leaves what a death before it leaves, and others wait.
                self._in_turn.append((name, args))
                return value(*args, **kwargs)
            self._pause(f"before {self._part}.{name}")
            answer = value(*args, **kwargs)
            self._called(name, args)
            self._pause(f"after {self._part}.{name}")
            return answer

        return call


_LONG = 200
"""More steps than a task has with one window."""

_LEDGER_WRITES = [
    f"{when} ledger.{call}"
    for when in ("before", "after")
    for call in ("turn", "start_attempt", "end_attempt", "commit", "finish")
]
_STORE_WRITES = ["before store.advance", "after store.advance"]

_SILENCE: Mapping[str, Callable[[], Exception]] = {
    "before ledger": lambda: LedgerUnavailableError("no answer"),
    "after ledger": lambda: LedgerUnavailableError("no answer, and it was written"),
    "before kafka": lambda: KafkaUnavailableError("no answer"),
    "after kafka": lambda: KafkaUnavailableError("no answer"),
    "before store": lambda: StoreUnavailableError("no answer"),
    "after store": lambda: StoreOutcomeUnknownError("no answer, and it was written"),
}


@dataclass(eq=False)
class Process:
    """What runs: one try of a task, or one act of a person."""

    name: str
    greenlet: greenlet
    at: str = "start"
    is_dead: bool = False
    airflow: Run | None = None
    """What Airflow said of this try when it began: a zombie knows nothing newer."""
    stop: Stop = field(default_factory=Stop)


@dataclass(eq=False)
class Task:
    """A task as Airflow knows it: what it does, and how far it is."""

    claim: Claim
    run: list[Task]
    body: Callable[[Task, Process], None]
    started: Any
    retries: int
    number: int = 0
    max_tries: int = field(init=False)
    state: str = "queued"
    process: Process | None = None
    cleared_at: int = 0
    """How many jobs had run when a person cleared it."""

    def __post_init__(self) -> None:
        self.max_tries = self.retries

    @property
    def is_over(self) -> bool:
        """Whether it works no more, as far as Airflow knows."""
        return self.state in ("success", "failed")

    @property
    def airflow(self) -> Run:
        """What Airflow says of its current try."""
        return Run(self.claim, Try(self.number, self.max_tries, self.retries, self.started))


class _Watched(WindowService):
    """The service, whose commits are looked at."""

    def __init__(self, *args: Any, laws: StepLaws, noted: Callable[[str, bool, bool], None], **more: Any) -> None:
        super().__init__(*args, **more)
        self._laws = laws
        self._noted = noted

    def commit(self, window_id: str, claim: Claim, attempt: int | None = None) -> bool:
        before = self._laws.commits_of(getcurrent())
        is_first = super().commit(window_id, claim, attempt)
        did = self._laws.commits_of(getcurrent())[len(before) :]
        self._noted(window_id, is_first, parse_window_id(window_id)[1] in did)
        return is_first


class Simulation:
    """One schedule: `run` plays it, drives what is left to quiet, and checks the laws."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.story: list[str] = []
        self.crashes = 0
        self.is_calm = False
        has_store = self.random.random() < 0.7
        # A sink that is replaced by a rename, or one that is written in place and keeps a part when its job dies.
        self.in_place = self.random.random() < 0.4
        self.store = MemoryStore() if has_store else None
        self.options = {
            "max_open_windows": self.random.choice([1, 2, 3, 4]),
            "max_offsets": self.random.choice([5, 9]),
            "starting_offsets": self.random.choice(["earliest", "latest"]),
            "on_data_loss": self.random.choice(["fail", "skip"]),
        }
        self.world = World(
            folder, self.store, **self.options
        )  # all processes have one connection: none stops in a transaction
        self.ledger = self.world.ledger
        self.kafka = self.world.kafka
        self.group = self.world.group
        self.main = getcurrent()
        self.laws = StepLaws(self._execute, self.require, getcurrent)
        self.boundary = Boundary(self.ledger, self.pause, "ledger", self._called)
        self.service = _Watched(
            self.boundary,
            Boundary(self.kafka, self.pause, "kafka"),
            clock=lambda: self.world.now,
            sleep=lambda _: None,
            store=Boundary(self.store, self.pause, "store") if self.store else None,
            laws=self.laws,
            noted=self.note_commit,
        )
        self.processes: list[Process] = []
        self.tasks: dict[Claim, Task] = {}
        self.numbers = count(1)
        self.sink: dict[str, list[Record]] = {}
        self.seen: dict[str, Window] = {}
        self.winners: Counter[str] = Counter()
        self.by_hand: set[str] = set()
        self.jobs: list[tuple[Claim, str]] = []
        self.gone: dict[int, Window] = {}
        """The windows that were pruned, as they were then."""

    def _called(self, name: str, args: Sequence[Any]) -> None:
        if name == "prune":
            self._note_gone([old.window for old in args[0]])
        self.laws.called(name, args)

    def _note_gone(self, windows: Sequence[Window]) -> None:
        log = self._log()
        for window in windows:
            held = [str(p) for p, r in window.ranges.without_empty().items() if r.end > log[p].beginning]
            self.require(not held, f"{window.id} was pruned, and Kafka holds its {held}")
            self.require(not window.state.is_open, f"{window.id} was pruned, and was {window.state}")
            self.gone[window.seq] = window

    def _execute(self, query: str) -> Sequence[Any]:
        driver = self.ledger._engine.raw_connection().driver_connection
        assert driver is not None
        rows: Sequence[Any] = driver.execute(query).fetchall()
        return rows

    def tell(self, what: str) -> None:
        """Go on with the story."""
        self.story.append(what)

    def require(self, holds: bool, what: str) -> None:
        """Refuse a schedule that breaks a law."""
        if not holds:
            raise BrokenLawError(what)

    # Processes.

    def pause(self, where: str) -> None:
        """Let others go on; whoever asks outside of a process is not stopped."""
        here = next((p for p in self.processes if p.greenlet is getcurrent()), None)
        if here is None:
            return
        if here.is_dead:
            raise Died
        self.require(not self.boundary.is_in_turn, f"{here.name} stops in its turn {where}, which holds a lock")
        here.at = where
        self.main.switch()

    def start(self, name: str, body: Callable[[Process], None]) -> Process:
        """Start a process, which stops at once."""
        process = Process(name, greenlet(lambda: body(process), parent=self.main))
        self.processes.append(process)
        return process

    def go_on(self, process: Process, error: BaseException | None = None) -> None:
        """Let a process run to its next stop, or let something happen to it where it stands."""
        if error is None:
            process.greenlet.switch()
        else:
            process.greenlet.throw(error)
        if process.greenlet.dead:
            self.processes.remove(process)

    def kill(self, process: Process) -> None:
        """Let a process die where it stands."""
        self.tell(f"{process.name} dies {process.at}")
        self.crashes += 1
        process.is_dead = True
        if process.greenlet:
            self.go_on(process, Died())
        else:
            self.processes.remove(process)
        self._lost(process)

    def _lost(self, process: Process) -> None:
        for task in self.tasks.values():
            if task.process is process:
                self._ended(task, "failed")

    def bury(self) -> None:
        """End all processes, whatever they do."""
        for process in list(self.processes):
            process.is_dead = True
            if process.greenlet:
                process.greenlet.throw(Died())
        self.processes.clear()
        self.world.close()

    # Airflow.

    def is_over(self, claim: Claim) -> bool:
        """Answer as Airflow does; without a stop, as the service asks for a set, in any order."""
        is_over = self._is_over(self.tasks[claim])
        if is_over:
            self.laws.is_over(claim)
        return is_over

    def _is_over(self, task: Task) -> bool:
        if all(other.is_over for other in task.run):
            return True
        if task.claim.scope is Scope.RUN and task.state == "success":
            return False
        return task.is_over

    def add(self, claim: Claim, run: list[Task], body: Callable[[Task, Process], None]) -> None:
        """Let a run have a task, that waits for its first try."""
        task = Task(claim, run, body, self.world.now, self.random.choice(RETRIES))
        run.append(task)
        self.tasks[claim] = task

    def try_again(self, task: Task) -> None:
        """Start the next try of a task."""
        task.number += 1
        task.state = "running"
        name = f"{task.claim}#{task.number}"
        self.tell(f"{name} starts")
        task.process = self.start(name, lambda process: self._run(task, process))
        task.process.airflow = task.airflow

    def _run(self, task: Task, process: Process) -> None:
        try:
            task.body(task, process)
            ended = "success"
        except Died:
            return
        except BadInputError as exc:
            self.tell(f"{process.name} is refused: {exc}")
            ended = "refused"
        except (KafkaOffsetsError, JobFailedError) as exc:
            self.tell(f"{process.name} fails: {type(exc).__name__}: {exc}")
            ended = "failed"
        else:
            self.tell(f"{process.name} succeeds")
        if task.process is process:
            self._ended(task, ended)

    def _ended(self, task: Task, how: str) -> None:
        task.process = None
        if how == "failed" and task.number <= task.max_tries:
            task.state = "queued"
        else:
            task.state = "success" if how == "success" else "failed"

    def give_up(self, task: Task) -> None:
        """Let Airflow miss a task's heartbeats: its process goes on."""
        assert task.process is not None
        self.tell(f"{task.process.name} counts as dead, and is a zombie {task.process.at}")
        if self.random.random() < 0.3:
            task.process.stop.set()
        self._ended(task, "failed")

    def clear(self, task: Task) -> None:
        """Let a person clear a task, also one that runs."""
        self.tell(f"a person clears {task.claim}")
        if task.process is not None:
            task.process.stop.set()
            task.process = None
        elif all(other.is_over for other in task.run):
            for other in task.run:
                other.started = self.world.now
        if self.random.random() < 0.3:
            task.retries = self.random.choice(RETRIES)  # someone edited the DAG
        task.max_tries = task.number + task.retries
        task.state = "queued"
        task.cleared_at = len(self.jobs)

    # What tasks do.

    def start_run(self, request: Request, kind: str = "load", at_most: int = 1) -> list[Task]:
        """Start a run of one task, or of a plan task with mapped ones, ours or around another launcher."""
        run: list[Task] = []
        dag = "replays" if not isinstance(request, Live) and self.random.random() < 0.5 else "dag"
        claim = Claim(dag, f"run-{next(self.numbers)}", "load")
        self.tell(f"{claim.run_id} ({kind}) asks for {request}")
        if kind == "load":
            self.add(claim, run, lambda task, process: self.load(task, process, request))
        else:
            plan = Claim(dag, claim.run_id, "load", scope=Scope.RUN)
            self.add(plan, run, lambda task, process: self.plan_many(task, process, request, kind))
        return run

    def load(self, task: Task, process: Process, request: Request) -> None:
        """Plan, and work on all windows."""
        self._work(task, process, self._ask(task, process, request))

    def plan_many(self, task: Task, process: Process, request: Request, kind: str) -> None:
        """Plan, commit what is empty, and leave the others to mapped tasks."""
        planned = self._ask(task, process, request)
        for p in planned:
            if p.window.span == 0:
                self.service.commit(p.window.id, task.claim)
        if task.process is not process:
            return  # a zombie's result is of no use to Airflow
        for index, p in enumerate(p for p in planned if p.window.span):
            self._add_mapped(task, p.window, index, kind)

    def _add_mapped(self, plan: Task, window: Window, index: int, kind: str) -> None:
        scope = Scope.TASK if kind == "mapped" else Scope.RUN
        claim = Claim(plan.claim.dag_id, plan.claim.run_id, "work", index, scope)
        body = self.take if kind == "mapped" else self.commit_after_another_launcher
        if claim in self.tasks:  # the plan task was cleared, and its mapped tasks with it
            mapped = self.tasks[claim]
            mapped.body = lambda task, process: body(task, process, window)
            self.clear(mapped)
        else:
            self.add(claim, plan.run, lambda task, process: body(task, process, window))

    def take(self, task: Task, process: Process, window: Window) -> None:
        """Take the window that the plan task handed off, and work on it."""
        assert process.airflow is not None
        this_try = process.airflow.this_try
        ask = lambda: [self.service.take(self.group, window.id, task.claim, self.is_over, this_try)]  # noqa: E731
        self._work(task, process, self._patiently(task, process, ask))

    def commit_after_another_launcher(self, task: Task, process: Process, window: Window) -> None:
        """Let another launcher run the job; then commit."""
        self.job(task, process, window)
        self.service.check_same_topics(window)
        self.service.commit(window.id, task.claim)

    def _ask(self, task: Task, process: Process, request: Request) -> list[Planned]:
        assert process.airflow is not None
        this_try = process.airflow.this_try

        def ask() -> list[Planned]:
            return self.service.plan(self.group, task.claim, self.is_over, request, this_try=this_try, at_most=None)

        planned = self._patiently(task, process, ask)
        is_interval = isinstance(request, TimeSpan) and request.is_interval
        self.require(
            bool(planned) or is_interval, f"{process.name} asked for {request}, and got nothing without an error"
        )
        return planned

    def _patiently(self, task: Task, process: Process, ask: Callable[[], list[Planned]]) -> list[Planned]:
        """Ask for windows; wait while others work on them, but not for the end of the own run."""
        while True:
            log = self._log()
            try:
                planned = ask()
            except WindowBusyError as busy:
                assert isinstance(busy.holder, Claim)  # noqa: PT017
                is_sibling = busy.holder.scope is Scope.TASK and busy.holder.task_id == task.claim.task_id
                if busy.crossed or (busy.holder.is_same_run(task.claim) and not is_sibling):
                    raise
                self.pause(f"waits for {busy.holder}")
                continue
            for p in planned:
                self._note_window(p.window)
                self._check_was_there(process, p, log)
            return planned

    def _log(self) -> Mapping[TopicPartition, Bounds]:
        return self.kafka.snapshot(["orders"], self.group.isolation_level).bounds

    def _check_was_there(self, process: Process, planned: Planned, log: Mapping[TopicPartition, Bounds]) -> None:
        """Refuse that someone gets what Kafka had lost before they asked: the job could only fail."""
        gone = [
            str(p) for p, r in planned.window.ranges.without_empty().items() if p in log and r.start < log[p].beginning
        ]
        is_given = planned.needs_job and planned.how != "new"
        self.require(
            not (is_given and gone), f"{process.name} got {planned.window.id}, whose {gone} Kafka had lost before"
        )

    def _note_window(self, window: Window) -> None:
        known = self.seen.setdefault(window.id, window)
        same = (known.ranges, known.lost, known.lane, known.planned_until) == (
            window.ranges,
            window.lost,
            window.lane,
            window.planned_until,
        )
        self.require(same, f"{window.id} was cut again: {known.ranges}, then {window.ranges}")

    def _work(self, task: Task, process: Process, planned: Sequence[Planned]) -> None:
        assert process.airflow is not None
        # Not entered: what it logs at the end asks the ledger, and changes nothing.
        work = Work(process.airflow, self.service, self.group, planned, process.stop)
        all_of(work, planned, lambda p: self.job(task, process, p.window))
        if task.process is process:
            ran = set(self.jobs[task.cleared_at :])
            old = [p.window.id for p in planned if p.window.span and (task.claim, p.window.id) not in ran]
            self.require(not old, f"{process.name} was cleared, and the jobs of {old} did not run again")

    def job(self, task: Task, process: Process, window: Window) -> Report:
        """Read a window and write it under its id, in steps."""
        self.pause(f"before the job of {window.id}")
        self.jobs.append((task.claim, window.id))
        found = self._read(window)
        if not self.in_place:
            self.pause(f"before the job publishes {window.id}")
            self.sink[window.id] = found
        else:
            half = len(found) // 2
            for start, end in ((0, 0), (0, half), (half, len(found))):
                self._check_stopped(task, process)
                self.sink[window.id] = [] if end == 0 else [*self.sink.get(window.id, []), *found[start:end]]
                self.pause(f"while the job writes {window.id}, after {end} of {len(found)}")
        if not self.is_calm and self.random.random() < 0.05:
            raise JobFailedError(f"the job of {window.id} fails")
        self.pause(f"after the job of {window.id}")
        return Report(records=len(found))

    def _check_stopped(self, task: Task, process: Process) -> None:
        """Let a driver end whose task counts as dead: launchers stop it before they launch another."""
        if task.process is not process:
            process.is_dead = True
            raise Died

    def _read(self, window: Window) -> list[Record]:
        bounds = self._log()
        for p, r in window.ranges.without_empty().items():
            if r.start < bounds[p].beginning:
                raise JobFailedError(f"{p} begins at {bounds[p].beginning}")
        return sorted(records(window.ranges))

    def note_commit(self, window_id: str, is_first: bool, did_it: bool) -> None:
        """Look at what a commit said."""
        self.require(is_first == did_it, f"a commit of {window_id} returned {is_first}, and {did_it} is right")
        self.winners[window_id] += is_first
        self.require(self.winners[window_id] <= 1, f"two commits of {window_id} returned True")
        gone = self.gone.get(parse_window_id(window_id)[1])
        state = (gone or self.ledger.window(window_id).window).state
        done = state in (State.COMMITTED, State.SUPERSEDED)
        self.require(done, f"a commit of {window_id} returned, and it is {state}")

    # People.

    def act(self) -> None:
        """Let a person do something, which takes steps as well."""
        windows = self.windows()
        planned = [w for w in windows if w.state is State.PLANNED]
        kind = self.random.choice(["abandon", "abandon", "reset", "reset", "commit", "prune", "prune"])
        if kind == "prune" and windows:
            self._start_prune()
        elif kind == "reset" and windows:
            self._start_reset(windows)
        elif kind == "abandon" and planned:
            window, leave_gap = self.random.choice(planned), self.random.random() < 0.5
            self._start_act(
                f"abandon {window.id} leave_gap={leave_gap}",
                lambda: self._abandon(window.id, leave_gap=leave_gap),
            )
        elif kind == "commit" and planned and self.random.random() < 0.3:
            window = self.random.choice(planned)
            self.by_hand.add(window.id)
            self._start_act(f"commit {window.id}", lambda: self.service.commit_by_hand(window.id, "ada", "why"))

    def _start_prune(self) -> None:
        """Let a person prune, in transactions of one window and then of two."""
        older_than = timedelta(seconds=self.random.choice([0, 20, 200]))
        kafka = Boundary(self.kafka, self.pause, "kafka")
        pruning = Pruning(self.boundary, kafka, lambda: self.world.now)
        self._start_act(f"prune {older_than}", lambda: pruning.prune(self.group, older_than, "ada", "why"))

    def _abandon(self, window_id: str, *, leave_gap: bool) -> None:
        done = self.service.abandon(window_id, "ada", "why", leave_gap=leave_gap)
        self.require(leave_gap or not done.skipped, f"no one confirmed the gap {done.skipped}")

    def _start_reset(self, windows: Sequence[Window]) -> None:
        position = self.ledger.load("lake").position
        assert position is not None
        somewhere = f'{{"orders":{{"0":{max(0, position.offsets[tp(0)] + self.random.choice([-4, 3]))}}}}}'
        to = self.random.choice(["earliest", "latest", somewhere])
        to_window = self.random.choice([None, self.random.choice(windows).id])
        supersede = self.random.random() < 0.7
        self._start_act(
            f"reset {to} to_window={to_window} supersede={supersede}",
            lambda: self.service.reset(self.group, to, "ada", "why", to_window=to_window, supersede=supersede),
        )

    def _start_act(self, what: str, step: Callable[[], object]) -> None:
        self.tell(f"a person: {what}")
        self.start(what, lambda _: self._act(what, step))

    def _act(self, what: str, step: Callable[[], object]) -> None:
        try:
            step()
            self.tell(f"{what}: done")
        except Died:
            pass
        except KafkaOffsetsError as exc:
            self.tell(f"{what}: {type(exc).__name__}: {exc}")

    # The schedule.

    def run(self) -> None:
        """Play the schedule to its end, and check the laws.

        Raises:
            BrokenLawError: a law does not hold; with the story, which any other error has as a note.
        """
        try:
            with ExitStack() as patched:
                # Its minute of patience is over at once.
                patched.enter_context(patch.object(working, "patiently", lambda step: step()))
                patched.enter_context(patch.object(prune, "FIRST_PAGE", 1))
                patched.enter_context(patch.object(prune, "LONGEST_PAGE", 2))
                self._play()
                self.is_calm = True
                self._drive_to_quiet()
            self._check_laws()
        except BrokenLawError as exc:
            raise BrokenLawError(f"seed {self.seed}: {exc}\n  {self._told()}") from exc
        except Exception as exc:  # a crash, which no law has noticed
            exc.add_note(f"seed {self.seed}:\n  {self._told()}")
            raise
        finally:
            self.bury()

    def _told(self) -> str:
        return "\n  ".join(self.story)

    def _play(self) -> None:
        self.tell(f"{self.options}, {'in place' if self.in_place else 'by rename'}, {self.store and 'a store'}")
        self._produce()
        self.start_run(Live(at_most=self.group.max_open_windows))
        things: list[tuple[Callable[[], None], int]] = [
            (self._advance, 50),
            (self._race, 10),
            (self._start_a_try, 12),
            (self._new_run, 5),
            (self._produce, 4),
            (self._kill, 4),
            (self._silence, 2),
            (self._zombie, 3),
            (self._clear, 3),
            (self.act, 3),
            (self._expire, 1),
            (self._add_partition, 1),
            (self._stop_at_a_call, 3),
            (self._crowd, 2),
            (self._give_a_new_partition_back, 1),
        ]
        what, weights = zip(*things, strict=True)
        for turn in range(self.random.choice([60, 120, 200])):
            self.world.now += timedelta(seconds=20)
            [thing] = self.random.choices(what, weights)
            thing()
            if turn % 10 == 9:
                self._check_output()
            if turn % 40 == 39:
                self._check_owners()

    def _advance(self) -> None:
        if not self.processes:
            return self._start_a_try()
        process = self.random.choice(self.processes)
        for _ in range(self.random.choice([1, 2, 3, 8, 20, 40])):
            self.go_on(process)
            if process not in self.processes:
                return None
            if process.at.startswith("waits"):
                break
        self.tell(f"{process.name} stands {process.at}")
        return None

    def _race(self) -> None:
        """Let two or three processes race: most rules are for what comes between two calls."""
        some = self.random.sample(self.processes, min(len(self.processes), self.random.choice([2, 2, 3])))
        self._let_race(some, self.random.choice([10, 25, 50]))

    def _let_race(self, racing: Sequence[Process], steps: int) -> None:
        """Let one of them go ahead for some steps, then another: what takes turns at each step meets at few places."""
        ahead = None
        for _ in range(steps):
            racing = [process for process in racing if process in self.processes]
            if not racing:
                return
            if ahead not in racing or self.random.random() < 0.15:
                ahead = self.random.choice(racing)
            self.go_on(ahead)
        self.tell("a race: " + ", ".join(f"{process.name} stands {process.at}" for process in racing))

    def _stop_at_a_call(self) -> None:
        """Let a process die, or count as dead, just before or after a call that writes."""
        if not self.processes:
            return
        calls = _LEDGER_WRITES if self.store is None else [*_LEDGER_WRITES, *_STORE_WRITES]
        process, call = self.random.choice(self.processes), self.random.choice(calls)
        if not self._reaches(process, call):
            return
        self.tell(f"{process.name} stands {call}")
        if self.random.random() < 0.5:
            self.kill(process)
            self._crowd()
        elif task := next((task for task in self.tasks.values() if task.process is process), None):
            self.give_up(task)
            if self.random.random() < 0.3:
                self.clear(task)
            if task.state == "queued" and self.random.random() < 0.7:
                self.try_again(task)
                assert task.process is not None
                self._let_race([process, task.process], 40)

    def _reaches(self, process: Process, call: str) -> bool:
        for _ in range(_LONG):
            if process not in self.processes or process.at.startswith("waits"):
                return False
            if process.at == call:
                return True
            self.go_on(process)
        return False

    def _crowd(self) -> None:
        """Let several tasks begin at one moment."""
        for _ in range(2):
            self.start_run(Live(at_most=self.group.max_open_windows))
        queued = [task for task in self.tasks.values() if task.state == "queued"][-3:]
        for task in queued:
            self.try_again(task)
        self._let_race([task.process for task in queued if task.process], 60)

    def _give_a_new_partition_back(self) -> None:
        """Let the first window of a partition be abandoned, and retention take of it before the next one is planned."""
        if self.in_place or len(self._partitions()) == PARTITIONS:
            return
        new = tp(len(self._partitions()))
        self._add_partition()
        self._produce()
        [task] = self.start_run(Live())
        self.try_again(task)
        assert task.process is not None
        if self._reaches(task.process, "after ledger.turn"):
            task.max_tries = 0
            self.kill(task.process)
            newest = self.windows()[-1]
            self._start_act(f"abandon {newest.id}", lambda: self._abandon(newest.id, leave_gap=False))
            self._reaches(self.processes[-1], "the end")
            self.kafka.expire(new, 3)

    def _start_a_try(self) -> None:
        if queued := [task for task in self.tasks.values() if task.state == "queued"]:
            self.try_again(self.random.choice(queued))

    def _new_run(self) -> None:
        kind = self.random.choice(["load", "load", "mapped", "foreign"])
        self.start_run(self._request(), kind)

    def _request(self) -> Request:
        windows, kind = self.windows(), self.random.choice(["live"] * 5 + ["windows", "offsets", "span"])
        if kind == "live" or not windows:
            return Live(at_most=self.random.randint(1, self.group.max_open_windows))
        if kind == "windows":
            some = self.random.sample(windows, min(len(windows), self.random.randint(1, 2)))
            return Windows(tuple(sorted(window.seq for window in some)))
        if kind == "offsets":
            start = self.random.randint(0, 30)
            return Ranges(OffsetRanges({tp(self.random.randint(0, 1)): OffsetRange(start, start + 5)}))
        cut = self.random.choice(windows).planned_until
        return TimeSpan(cut - timedelta(minutes=3), cut, is_interval=self.random.random() < 0.5)

    def _produce(self) -> None:
        for partition in range(len(self._partitions())):
            self.kafka.produce(tp(partition), self.random.randint(0, 9), at=self.world.now)

    def _partitions(self) -> list[TopicPartition]:
        return sorted(self._log())

    def _kill(self) -> None:
        if self.processes:
            self.kill(self.random.choice(self.processes))

    def _silence(self) -> None:
        """Let a call not be answered, before it is made or after."""
        silent = [p for p in self.processes if p.at.partition(".")[0] in _SILENCE]
        if silent:
            process = self.random.choice(silent)
            self.tell(f"{process.name} gets no answer {process.at}")
            self.go_on(process, _SILENCE[process.at.partition(".")[0]]())

    def _zombie(self) -> None:
        if running := [task for task in self.tasks.values() if task.process is not None]:
            self.give_up(self.random.choice(running))

    def _clear(self) -> None:
        if begun := [task for task in self.tasks.values() if task.number]:
            task = self.random.choice(begun)
            # Around another launcher from the plan task on, as docs/guarantees.md asks for.
            self.clear(task.run[0] if task.claim.scope is Scope.RUN else task)

    def _expire(self) -> None:
        partition = self.random.choice(self._partitions())
        before = self.random.randint(1, 40)
        self.tell(f"retention removes {partition} below {before}")
        self.kafka.expire(partition, before)

    def _add_partition(self) -> None:
        if len(self._partitions()) < PARTITIONS:
            self.tell("a partition is added")
            self.kafka.add_partitions("orders")

    # To quiet.

    def _drive_to_quiet(self) -> None:
        self.tell("-- all that is left is driven to its end --")
        self._finish_tasks()
        self._run_again()
        self.group = replace(
            self.group, max_offsets=None
        )  # to read the rest in small windows would be half of the time
        for _ in range(STEPS):
            if self._read_on():
                return
        raise BrokenLawError("the errors name commands in a circle")

    def _run_again(self) -> None:
        """Do what the verdict says of committed windows that need another run; vouch for what Kafka no longer holds."""
        for rerun in self._reruns():
            self.start_run(Windows((parse_window_id(rerun)[1],)))
            self._finish_tasks()
        for rerun in self._reruns():
            log, window = self._log(), self.ledger.window(rerun).window
            lost = any(r.start < log[p].beginning for p, r in window.ranges.without_empty().items())
            self.require(lost, f"{rerun} was run again and needs another run, and Kafka holds its records")
            self._do(f"kafka-offsets commit {rerun} --why x")
        self.require(not self._reruns(), f"{self._reruns()} need another run, whatever is done")

    def _reruns(self) -> list[str]:
        states = self.ledger.load_all(["lake"])
        return [rerun.window_id for rerun in states["lake"].reruns] if states else []

    def _finish_tasks(self) -> None:
        for _ in range(ROUNDS):
            for task in list(self.tasks.values()):
                if task.state == "queued":
                    self.try_again(task)
            if not self.processes:
                return
            for process in list(self.processes):
                for _ in range(_TURNS):
                    if process not in self.processes:
                        break
                    self.go_on(process)
                    if process.at.startswith("waits"):
                        break
        waiting = [f"{process.name} {process.at}" for process in self.processes]
        raise BrokenLawError(f"no end in sight: {waiting}")

    def _read_on(self) -> bool:
        """Let one more run read all there is; True: it found nothing of others."""
        claim = Claim("dag", f"run-{next(self.numbers)}", "load")
        errors: list[KafkaOffsetsError] = []
        planned: list[Planned] = []

        def body(task: Task, process: Process) -> None:
            try:
                planned.extend(self._ask(task, process, Live(at_most=10)))
                self._work(task, process, planned)
            except KafkaOffsetsError as exc:
                errors.append(exc)
                raise

        self.add(claim, [], body)
        task = self.tasks[claim]
        task.max_tries = 0
        self._finish_tasks()
        if not errors:
            rest = self.ledger.load("lake").open
            return not rest and all(p.how == "new" for p in planned) and sum(p.window.span for p in planned) == 0
        self._follow(errors[0])
        return False

    def _follow(self, error: KafkaOffsetsError) -> None:
        """Do what an error says, of several commands any, and what it says when that is refused."""
        for _ in range(STEPS):
            commands = COMMAND.findall(str(error))
            self.require(bool(commands), f"no way out: {error}")
            try:
                return self._do(self.random.choice(commands))
            except KafkaOffsetsError as exc:
                error = exc
        raise BrokenLawError(f"the errors name commands in a circle: {error}")

    def _do(self, command: str) -> None:
        self.tell(f"a person does what the error says: {command}")
        args = make_parser().parse_args(shlex.split(command)[1:])
        if args.function.endswith(".abandon"):
            self._confirmed(lambda yes: self._abandon(args.window_id, leave_gap=yes))
        elif args.function.endswith(".commit"):
            self.by_hand.add(args.window_id)
            self.service.commit_by_hand(args.window_id, "ada", "why")
        elif args.function.endswith(".reset"):
            self._confirmed(
                lambda yes: self.service.reset(
                    self.group,
                    args.to or "",
                    "ada",
                    "why",
                    topics=args.topic or (),
                    to_window=args.to_window,
                    supersede=yes,
                )
            )
        else:
            assert args.function.endswith(".copy")
            assert args.from_source == "ledger"
            assert self.store is not None
            moving = Moving(self.ledger, lambda: self.world.now)
            asked = Selection(LedgerSource(self.ledger, "lake"), "lake")
            found = moving.plan_copy(self.group, asked, self.store, lambda _: self.world.kafka)
            differing = moving.carry_out_copy(found, self.store, "ada", "why")
            self.require(not differing, f"the copy left {differing}")

    def _confirmed(self, step: Callable[[bool], object]) -> None:
        try:
            step(False)
        except ConfirmationError:
            step(True)

    # The laws.

    def windows(self) -> list[Window]:
        """Return all windows, oldest first."""
        return [held.window for held in self._helds()]

    def _helds(self) -> list[WindowRecord]:
        return list(reversed(self.ledger.windows("lake", limit=10_000)))

    def history(self) -> list[Window]:
        """Return all windows that ever were, oldest first."""
        return [window for _, window in sorted(self.gone.items())] + self.windows()

    def _check_laws(self) -> None:
        windows = self.history()
        self._check_owners()
        for window in windows:
            self._note_window(window)
        self._check_output()
        self._check_below_watermark(windows)
        if self.store is not None:
            stands = self.store.groups.get("lake", {})
            self.require(
                stands == self._watermark(), f"the store stands at {stands}, the watermark at {self._watermark()}"
            )

    def _watermark(self) -> Mapping[TopicPartition, int]:
        position = ownership.watermark(self.ledger.load("lake"))
        return position.offsets if position else {}

    def _check_owners(self) -> None:
        windows = self.history()
        before = self.ledger.pruned("lake").first
        self.require(
            before == len(self.gone) + 1, f"{sorted(self.gone)} are gone, and all before {before} are said to be"
        )
        numbers = [w.seq for w in windows]
        self.require(numbers == list(range(1, len(numbers) + 1)), f"the numbers are {numbers}")
        owners = Counter(record for w in windows if w.state.owns for record in records(w.ranges))
        twice = sorted(str(record) for record, number in owners.items() if number > 1)
        self.require(not twice, f"two windows own {twice}")
        gaps = self._gaps(windows)
        at: dict[TopicPartition, int] = {}
        named: set[TopicPartition] = set()
        for w in windows:
            if w.lane is not Lane.LIVE or not w.state.owns:
                continue
            # A replay looks no further down for a partition than to a window that does not name it.
            self.require(named <= w.ranges.keys(), f"{w.id} does not name {sorted(named - w.ranges.keys())}")
            named |= w.ranges.keys()
            for p, r in w.ranges.without_empty().items():
                left_out = {(p, o) for o in range(at.get(p, r.start), r.start)} - gaps
                tiles = at.get(p, 0) <= r.start and not left_out
                self.require(tiles, f"{w.id} does not start where the one before ends: {p} {r}")
                at[p] = r.end

    def _check_output(self) -> None:
        """Look for windows that are committed, and whose output is not what they own, although nothing says so."""
        said = {*self.by_hand, *self._reruns()}
        for w in self.history():
            if w.state is State.COMMITTED and w.id not in said:
                there, planned = sorted(self.sink.get(w.id, [])), sorted(records(w.ranges))
                self.require(there == planned, f"{w.id} is committed with {there}, and owns {planned}")

    def _check_below_watermark(self, windows: Sequence[Window]) -> None:
        """Look for offsets that the watermark passed, and that are no one's."""
        read = {record for w in windows if w.state is State.COMMITTED for record in records(w.ranges)}
        gaps = self._gaps(windows)
        for p, watermark in self._watermark().items():
            missing = sorted({(p, o) for o in range(watermark)} - read - gaps)
            self.require(not missing, f"the watermark passed {missing}")

    def _gaps(self, windows: Sequence[Window]) -> set[Record]:
        """Return what is recorded as lost or left out, or was there before the group first saw its partition."""
        gaps = {record for w in windows if w.state is not State.ABANDONED for record in records(w.lost)}
        for act in self.ledger.acts("lake"):
            for name, bounds in act.details.get("skipped", {}).items():
                gaps |= {(tp(int(name.rpartition("-")[2])), o) for o in range(*bounds)}
        first: dict[TopicPartition, int] = {}
        for w in windows:
            if w.lane is Lane.LIVE:
                for p, start in w.ranges.starts.items():
                    first.setdefault(p, w.lost[p].start if p in w.lost else start)
        return gaps | {(p, o) for p, start in first.items() for o in range(start)}


@contextmanager
def _quiet_log() -> Iterator[None]:
    """Leave out what the package logs: the story says more."""
    logger = logging.getLogger("airflow_kafka_offsets")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def simulate(seed: int) -> Simulation:
    """Play the schedule of a seed.

    Raises:
        BrokenLawError: a law does not hold; with the story.
    """
    with _quiet_log(), TemporaryDirectory(dir=IN_MEMORY) as folder:
        simulation = Simulation(Path(folder), seed)
        simulation.run()
    return simulation


def _tell(seed: int) -> int:
    """Play one schedule and print its story; return 1 if it breaks a law."""
    try:
        print("\n  ".join(simulate(seed).story))
    except BrokenLawError as exc:
        print(exc)
        return 1
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Play schedules for a while. The first one that breaks a law ends this with status 1, and its story is printed."""
    parser = argparse.ArgumentParser(prog="python -m tests.service.simulation", description=main.__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seed", type=int, help="play only this one, and print its story")
    args = parser.parse_args(argv)
    if args.seed is not None:
        return _tell(args.seed)
    until = time.monotonic() + args.seconds
    schedules = crashes = windows = 0
    for seed in count(args.first_seed):
        if time.monotonic() > until:
            break
        try:
            played = simulate(seed)
        except BrokenLawError as exc:
            print(exc)
            print(f"{schedules} schedules before this one were fine")
            return 1
        schedules += 1
        crashes += played.crashes
        windows += len(played.seen)
    print(f"{schedules} schedules from seed {args.first_seed}: {crashes} crashes, {windows} windows, no law was broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
