"""What competing processes do, each with a ledger of its own. Run by `Competition`, in processes that are spawned."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.synchronize import Barrier
from typing import Any, Self

from airflow_kafka_offsets.core.errors import ConcurrentChangeError, KafkaOffsetsError, WindowBusyError
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.plan.request import Live, Ranges
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Claim, Outcome
from airflow_kafka_offsets.ledger.engine import open_engine
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service.prune import Pruning
from airflow_kafka_offsets.service.windows import WindowService
from tests.lab.waiting import LONGEST
from tests.ledger.examples import NOW, act, claim, draft, group
from tests.ledger.pooled import ledger_at
from tests.service.memory_log import MemoryLog

PROCESSES = 16
ROUNDS = 3

_DRIVERS = (
    "sqlalchemy.dialects.sqlite",
    "sqlalchemy.dialects.postgresql.psycopg",
    "psycopg",
    "sqlalchemy.dialects.mysql.pymysql",
    "pymysql.connections",
)

# What a contender does when the gun goes off; prepared before.
Race = Callable[[Ledger, str, int], Callable[[], Any]]


def plan(ledger: Ledger, name: str, me: int) -> Callable[[], Any]:
    """Add the next window."""
    state = ledger.load(name)
    start = state.position.offsets[next(iter(state.position.offsets))] if state.position else 0
    return lambda: (
        ledger.add_windows(group(name), state.version, [draft(start, start + 10 + me)], claim(f"run-{me}"), NOW)[
            0
        ].window.id
    )


def adopt(ledger: Ledger, name: str, me: int) -> Callable[[], Any]:
    """Take the open window."""
    (held,) = ledger.load(name).open
    return lambda: ledger.hold([held], claim(f"run-{me}"), NOW)[0].window.id


def commit(ledger: Ledger, name: str, me: int) -> Callable[[], Any]:
    """Commit the open window, on its recorded success."""
    (held,) = ledger.load(name).open
    attempt = ledger.attempts(held.window.id)[-1].id
    return lambda: ledger.commit(held.window.id, held.holder, attempt, NOW) or "was committed"


def commit_or_abandon(ledger: Ledger, name: str, me: int) -> Callable[[], Any]:
    """Commit, or abandon the same window."""
    if me % 2:
        return commit(ledger, name, me)
    (held,) = ledger.load(name).open
    return lambda: ledger.abandon(held.window.id, act()).window.state.value


def plan_or_reset(ledger: Ledger, name: str, me: int) -> Callable[[], Any]:
    """Plan the next window, or reset the group."""
    if me % 2:
        return plan(ledger, name, me)
    state = ledger.load(name)
    assert state.position is not None
    position = Position(dict.fromkeys(state.position.offsets, 100 + me), state.position.topic_ids)
    return lambda: ledger.reset(name, state.version, position, [], act("reset")) or "reset"


def drain(ledger: Ledger, name: str, me: int) -> Callable[[], Any]:
    """Plan, work and commit again and again through the service; whoever holds the window, it may be taken."""
    kafka = MemoryLog()
    kafka.create("orders", 1)
    kafka.produce(TopicPartition("orders", 0), 45)
    service = WindowService(ledger, kafka)

    def loop() -> int:
        committed = 0
        for turn in range(3):
            who = claim(f"{name}-{me}-{turn}")
            try:
                window = service.plan(group(name, max_offsets=3), who, lambda _: True)[0].window
                attempt = service.start_attempt(window, who)
                service.end_attempt(attempt, Outcome.SUCCEEDED)
                committed += service.commit(window.id, who, attempt)
            except KafkaOffsetsError as exc:
                if type(exc).__name__ not in ("WindowBusyError", "ConcurrentChangeError", "NoEvidenceError"):
                    raise
        return committed

    return loop


def drain_several(ledger: Ledger, name: str, me: int) -> Callable[[], Any]:
    """Drain a backlog with up to four windows open at once: runs that live, and some that die with their windows open."""
    kafka = MemoryLog()
    kafka.create("orders", 2)
    for partition, number in enumerate((60, 40)):
        kafka.produce(TopicPartition("orders", partition), number)
    service = WindowService(ledger, kafka)
    definition = group(name, max_offsets=3, max_open_windows=4)

    def run(who: Claim) -> int:
        planned = service.plan(definition, who, lambda claim: claim.run_id.endswith("dead"), Live(at_most=2))
        committed = 0
        for window in [p.window for p in planned][::-1]:
            attempt = service.start_attempt(window, who)
            service.end_attempt(attempt, Outcome.SUCCEEDED)
            if who.run_id.endswith("dead"):
                break
            committed += service.commit(window.id, who, attempt)
        return committed

    def loop() -> int:
        return sum(_unless_beaten(run, claim(f"{name}-{me}-{turn}{'-dead' * (turn == 0)}")) for turn in range(4))

    return loop


def _unless_beaten(run: Callable[[Claim], int], who: Claim) -> int:
    try:
        return run(who)
    except (WindowBusyError, ConcurrentChangeError):
        return 0


def replay(ledger: Ledger, name: str, me: int) -> Callable[[], Any]:
    """Replay offsets below the watermark that no one owns, through the service: each other ranges, and all overlap."""
    kafka = MemoryLog()
    kafka.create("orders", 2)
    for partition in (0, 1):
        kafka.produce(TopicPartition("orders", partition), 200)
    service = WindowService(ledger, kafka)
    asked = OffsetRanges({TopicPartition("orders", 0): OffsetRange(me, 60 + me)})
    who = claim(f"{name}-replay-{me}")

    def go() -> list[str]:
        planned = service.plan(group(name, max_offsets=8), who, lambda _: False, Ranges(asked))
        return [p.window.id for p in planned]

    return go


def prune_or_take(ledger: Ledger, name: str, me: int) -> Callable[[], Any]:
    """Prune all that can go, or begin to work on one of the oldest windows."""
    if me % 2:
        return _take_an_old_one(ledger, name, me)
    kafka = MemoryLog()
    kafka.create("orders", 2)
    for partition in (0, 1):
        kafka.produce(TopicPartition("orders", partition), 200)
        kafka.expire(TopicPartition("orders", partition), 200)
    pruning = Pruning(ledger, kafka, lambda: NOW + timedelta(days=9))
    return lambda: pruning.prune(group(name), timedelta(days=1), "ada", "why").windows


def _take_an_old_one(ledger: Ledger, name: str, me: int) -> Callable[[], Any]:
    window_id = f"{name}-{1 + me % 5:06d}"

    def go() -> str:
        by = claim(f"{name} again {me}")
        [held] = ledger.hold([ledger.window(window_id)], by, NOW)
        ledger.end_attempt(ledger.start_attempt(held.id, by, Try(), NOW), Outcome.SUCCEEDED, 1, NOW)
        return window_id

    return go


@dataclass(frozen=True)
class Answer:
    """What a contender got: a value, or the name of an error."""

    value: Any = None
    error: str | None = None


_start: Barrier


def _set_up(start: Barrier) -> None:
    global _start
    _start = start


def _contend(race: Race, url: str, names: Sequence[str], me: int) -> list[Answer]:
    ledger = ledger_at(url)
    answers = []
    for name in names:
        go = race(ledger, name, me)
        _start.wait(timeout=LONGEST)
        answers.append(_answer(go))
        _start.wait(timeout=LONGEST)
    return answers


def _open_new(url: str, names: Sequence[str], me: int) -> list[Answer]:
    _start.wait(timeout=LONGEST)
    return [_answer(lambda name=name: plan(Ledger(url, create=True), name, me)()) for name in names]  # type: ignore[misc]


def _connect(urls: Sequence[str], me: int) -> list[Answer]:
    answers = []
    for url in urls:
        _start.wait(timeout=LONGEST)
        answers.append(_answer(lambda url=url: open_engine(url).connect().close()))  # type: ignore[misc]
    return answers


def _answer(go: Callable[[], Any]) -> Answer:
    try:
        return Answer(go())
    except Exception as exc:
        return Answer(error=type(exc).__name__ if isinstance(exc, KafkaOffsetsError) else f"{exc!r}")


class Competition:
    """Processes that wait for races."""

    def __enter__(self) -> Self:
        # All are forked from one clean process that has no connection: sixteen interpreters would import for a minute.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, "alembic.command", "alembic.config", *_DRIVERS])
        self._pool = context.Pool(PROCESSES, _set_up, (context.Barrier(PROCESSES),))
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.terminate()
        self._pool.join()

    def race(self, race: Race, url: str, names: Sequence[str]) -> list[list[Answer]]:
        """Let all processes run one race for each group; return the answers by group."""
        return self._all(_contend, [(race, url, names, me) for me in range(PROCESSES)])

    def open_new(self, url: str, name: str) -> list[Answer]:
        """Let all processes make the same new ledger, and plan a group's first window."""
        return self._all(_open_new, [(url, [name], me) for me in range(PROCESSES)])[0]

    def connect(self, urls: Sequence[str]) -> list[list[Answer]]:
        """Let all processes connect to the same new file, one file after the other."""
        return self._all(_connect, [(urls, me) for me in range(PROCESSES)])

    def _all(self, contend: Callable[..., Any], arguments: list[Any]) -> list[list[Any]]:
        # A process waits at the barrier until all are there, and so each of them gets one task.
        answers = self._pool.starmap_async(contend, arguments, chunksize=1).get(timeout=LONGEST)
        return [list(by_group) for by_group in zip(*answers, strict=True)]
