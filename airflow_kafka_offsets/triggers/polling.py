"""One poll for many triggers: all triggers of this process that ask the same Kafka and ledger, or one Spark cluster, share one thread.

A call that blocks stops only that thread, not the triggerer's event loop, and not the triggers that ask another Kafka.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_kafka_offsets.core.conditions import DriverOver, LedgerCondition, WindowFree, ledger_conn_id
from airflow_kafka_offsets.core.errors import BadInputError, ClusterUnavailableError
from airflow_kafka_offsets.core.launch.jobs import JobState
from airflow_kafka_offsets.core.plan.waiting import Decision

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.conditions import Condition
    from airflow_kafka_offsets.ports import Cluster, LogOffsets

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

MIN_POLL = 5.0
"""Seconds before the first look, and between looks, at least."""

Endpoints = tuple[Any, str | None, bool]
"""Connection to Kafka (None if it is not asked), or what leads to a cluster; connection to the ledger; whether Airflow is asked too.

Slow answers hold up no one else.
"""


def shortest_deferral() -> float:
    """Return for how many seconds a task is deferred, at least: 10 with Airflow's default settings.

    The worker can miss the moment in which the process of the deferred task ends. Then it looks again after a heartbeat. If the task runs
    again by then, the scheduler takes this end for that of the second run, and fails the task (seen with Airflow 3.3.2 on a busy machine).
    """
    from airflow_kafka_offsets.airflow_versions import conf

    return float(conf.getint("workers", "min_heartbeat_interval")) + MIN_POLL


async def answered(
    condition: Condition | DriverOver, poll_interval: float, first_look: float = 0.0, *, met_or_not: bool = False
) -> Decision:
    """Wait until a condition is met.

    Args:
        condition: the condition.
        poll_interval: seconds between two looks, at least 5. All who wait with the same interval are served at the same
            moments.
        first_look: seconds from now before which there is no look, at least 5.
        met_or_not: return the answer of the first look, also if the condition is not met.

    Raises:
        Exception: the error that came instead of an answer. The caller decides whether to keep waiting.
    """
    loop = asyncio.get_running_loop()
    waiting = _Waiting(condition, max(poll_interval, MIN_POLL), loop, loop.create_future(), met_or_not, first_look)
    poller = _join(waiting)
    try:
        return await waiting.future
    finally:
        poller.leave(waiting)


@dataclass(eq=False, slots=True)
class _Waiting:
    """Someone who waits, in an event loop of any thread."""

    condition: Condition | DriverOver
    interval: float
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Decision]
    met_or_not: bool = False
    first_look: InitVar[float] = 0.0
    due: float = field(init=False)

    def __post_init__(self, first_look: float) -> None:
        self.put_off(time.monotonic() + max(first_look, MIN_POLL))

    def put_off(self, moment: float) -> None:
        """Be due at the first multiple of the interval after a moment, so that many are due together."""
        self.due = (moment // self.interval + 1) * self.interval

    def settle(self, answer: Decision | Exception) -> None:
        """Give the answer, from another thread."""
        try:
            self.loop.call_soon_threadsafe(self._set, answer)
        except RuntimeError:
            logger.debug("The event loop that waited for %s is closed", type(self.condition).__name__)

    def _set(self, answer: Decision | Exception) -> None:
        if self.future.done():
            return
        if isinstance(answer, Exception):
            self.future.set_exception(answer)
        else:
            self.future.set_result(answer)


_pollers: dict[Endpoints, _Poller] = {}
# Re-entrant: the garbage collector may interrupt whoever holds it, and end a wait that was abandoned: `leave`.
_lock = threading.RLock()


def _join(waiting: _Waiting) -> _Poller:
    place = _place(waiting.condition)
    with _lock:
        poller = _pollers.get(place)
        if poller is None:
            poller = _pollers[place] = _Poller(place)
        poller.add(waiting)
    return poller


def _place(condition: Condition | DriverOver) -> Endpoints:
    if isinstance(condition, DriverOver):
        return tuple(sorted(condition.cluster.items())), None, False
    kafka = None if isinstance(condition, LedgerCondition) else condition.group.kafka_conn_id
    return kafka, ledger_conn_id(condition), isinstance(condition, WindowFree)


class _Poller:
    """A thread that looks for all who wait on one place; it ends when no one waits."""

    def __init__(self, place: Endpoints) -> None:
        self._place = place
        self._waiting: set[_Waiting] = set()
        self._changed = threading.Condition(_lock)
        self._sleeps_until = 0.0
        self._opened: dict[str, Any] = {}
        # A daemon, so that the process can end even if Kafka hangs.
        self._thread = threading.Thread(target=self._run, name=f"kafka-offsets {place}", daemon=True)

    def add(self, waiting: _Waiting) -> None:
        """Add someone who waits; the caller holds the lock."""
        self._waiting.add(waiting)
        if not self._thread.ident:
            self._thread.start()
        elif waiting.due < self._sleeps_until:
            self._changed.notify()

    def leave(self, waiting: _Waiting) -> None:
        """Forget someone who got an answer or was cancelled."""
        with _lock:
            self._waiting.discard(waiting)
            if not self._waiting:
                self._changed.notify()

    def _run(self) -> None:
        while due := self._next_due():
            for waiting, answer in zip(due, self._ask([w.condition for w in due]), strict=True):
                if isinstance(answer, Exception) or answer.is_met or waiting.met_or_not:
                    self.leave(waiting)
                    waiting.settle(answer)
                else:
                    waiting.put_off(time.monotonic())

    def _next_due(self) -> list[_Waiting]:
        """Sleep until someone is due, and return all who are due, or nothing if the last one has left."""
        with _lock:
            while self._waiting:
                now = time.monotonic()
                waiting = list(self._waiting)  # a copy: see `_lock`
                if due := [w for w in waiting if w.due <= now]:
                    return due
                self._sleeps_until = min((w.due for w in waiting), default=now)
                self._changed.wait(self._sleeps_until - now)
            # Under the lock: whoever comes now finds no poller, and starts the next one.
            del _pollers[self._place]
            return []

    def _ask(self, conditions: Sequence[Condition | DriverOver]) -> Sequence[Decision | Exception]:
        from airflow_kafka_offsets.service import freshness
        from airflow_kafka_offsets.wiring import absent, runs

        drivers = [c for c in conditions if isinstance(c, DriverOver)]  # no one else waits on their place
        others = [c for c in conditions if not isinstance(c, DriverOver)]
        open_ledger = partial(self._open, "ledger", partial(absent.open_ledger_to_look, self._place[1]))
        try:
            if drivers:
                return self._ask_cluster(drivers)
            return freshness.ask(others, open_ledger, lambda: self._open_log(others), is_over=runs.is_over)
        except Exception as exc:  # otherwise all would wait for a thread that is gone
            return [exc] * len(conditions)

    def _ask_cluster(self, drivers: Sequence[DriverOver]) -> Sequence[Decision | Exception]:
        from airflow_kafka_offsets.launch.submit_hook import cluster_of

        cluster: Cluster = self._open("cluster", partial(cluster_of, drivers[0].cluster))
        answers: list[Decision | Exception] = []
        try:
            for over in drivers:
                state = cluster.state(over.driver)
                answers.append(Decision(state is not JobState.ALIVE, {"state": state}))
        except ClusterUnavailableError as exc:  # each of the others would wait as long for it
            answers += [exc] * (len(drivers) - len(answers))
        return answers

    def _open_log(self, conditions: Sequence[Condition]) -> LogOffsets:
        from airflow_kafka_offsets import wiring

        groups = [c.group for c in conditions if not isinstance(c, LedgerCondition)]
        most_patient = max(groups, key=lambda group: group.kafka_timeout)
        return self._open("log", partial(wiring.open_log, most_patient))

    def _open(self, name: str, open_it: Callable[[], _T]) -> _T:
        # Opened again for each poll, because passwords change. But Airflow also reports "no such connection" while its
        # own database does not answer. Then the connection of the last poll is still right.
        try:
            self._opened[name] = open_it()
        except BadInputError as exc:
            if name not in self._opened:
                raise
            logger.warning("Continuing with the connection of the last poll: %s", exc)
        opened: _T = self._opened[name]
        return opened
