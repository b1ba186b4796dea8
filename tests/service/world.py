"""A service on a real SQLite ledger and a Kafka in memory, and the little of Airflow that it asks for."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.pool import SingletonThreadPool

from airflow_kafka_offsets.core.conditions import LagAtMost
from airflow_kafka_offsets.core.plan import ownership
from airflow_kafka_offsets.core.plan.request import Request
from airflow_kafka_offsets.core.plan.waiting import Decision
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Claim, Outcome, Scope, State, Window
from airflow_kafka_offsets.ledger.engine import _sqlite
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service import watch
from airflow_kafka_offsets.service.plan import LIVE, Planned
from airflow_kafka_offsets.service.windows import WindowService
from tests.core.examples import NOON, group
from tests.lab.memory import IN_MEMORY
from tests.service.memory_log import MemoryLog
from tests.stores.memory import MemoryStore

# In memory, if there is such a folder: most of the time of these tests would be SQLite's fsync.


@cache
def _empty_ledger() -> bytes:
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        path = Path(folder) / "empty.db"
        Ledger(f"sqlite:///{path}", create=True)
        return path.read_bytes()


def after_clear(last_clear: int) -> Try:
    """Return the first try after a clear, or of a run that no one has cleared; its task has two retries."""
    return Try(last_clear + 1, last_clear + 2, 2, NOON)


class World:
    """One group `lake` on the topic `orders` with two partitions."""

    def __init__(self, folder: Path, store: MemoryStore | None = None, **options: Any) -> None:
        (folder / "ledger.db").write_bytes(_empty_ledger())
        self.ledger = Ledger(f"sqlite:///{folder / 'ledger.db'}")
        # One connection for each thread: half of the time of many short calls would be to open them.
        kept = create_engine(self.ledger._engine.url, poolclass=SingletonThreadPool, pool_size=200)
        self.ledger._engine = _sqlite(kept)
        self.kafka = MemoryLog()
        self.kafka.create("orders", 2)
        self.now: datetime = NOON
        self.store = store
        self.service = WindowService(self.ledger, self.kafka, clock=lambda: self.now, sleep=lambda _: None, store=store)
        self.group = group(**options)
        self.over: set[Claim] = set()

    def close(self) -> None:
        """Close the connections to the ledger."""
        self.ledger._engine.dispose()

    def configure(self, **options: Any) -> None:
        """Let a person change the group's definition."""
        self.group = group(**options)

    def plan(self, claim: Claim, request: Request = LIVE, **more: Any) -> Planned:
        """Let a run ask for its one window, a minute later."""
        [planned] = self.ask(claim, request, **more)
        return planned

    def ask(self, claim: Claim, request: Request = LIVE, *, last_clear: int = 0, **more: Any) -> list[Planned]:
        """Let a run ask for its windows, a minute later."""
        self.now += timedelta(minutes=1)
        self.over.discard(claim)
        more = {"this_try": after_clear(last_clear), **more}
        return self.service.plan(self.group, claim, self.over.__contains__, request, **more)

    def die(self, claim: Claim) -> None:
        """Let a run be over."""
        self.over.add(claim)

    def work(
        self, window: Window, claim: Claim, outcome: Outcome = Outcome.SUCCEEDED, last_clear: int = 0
    ) -> int | None:
        """Let the window's job run, if there is anything to read; return the attempt."""
        if not window.span:
            return None
        attempt = self.service.start_attempt(window, claim, after_clear(last_clear))
        self.service.end_attempt(attempt, outcome, window.span)
        return attempt

    def do(self, window: Window, claim: Claim, last_clear: int = 0) -> bool:
        """Let the window's job run and succeed, and commit."""
        return self.service.commit(window.id, claim, self.work(window, claim, last_clear=last_clear))

    def run_all(self, claim: Claim, request: Request = LIVE, **more: Any) -> list[Window]:
        """Ask for windows, work on all of them, commit, and be over."""
        asked = [planned.window for planned in self.ask(claim, request, **more)]
        for window in asked:
            self.do(window, claim)
        self.die(claim)
        return asked

    def crash_in_commit(self, window: Window) -> None:
        """Leave a window as a commit leaves it that stops half-way."""
        query = "UPDATE kafka_offsets_windows SET state = :state WHERE seq = :seq"
        with self.ledger._engine.begin() as connection:
            connection.execute(text(query), {"state": State.COMMITTING, "seq": window.seq})

    def run(self, claim: Claim, request: Request = LIVE) -> Window:
        """Plan, work, commit, and be over."""
        window = self.plan(claim, request).window
        attempt = self.work(window, claim) if claim.scope is Scope.TASK else None
        self.service.commit(window.id, claim, attempt)
        self.die(claim)
        return window

    @property
    def watermark(self) -> dict[int, int]:
        """The watermark of `orders`, by partition."""
        position = ownership.watermark(self.ledger.load("lake"))
        return {tp.partition: o for tp, o in position.offsets.items() if tp.topic == "orders"} if position else {}

    @property
    def lag(self) -> int:
        """The lag of the group in sum over its partitions, as a sensor sees it."""
        [answer] = watch.ask([LagAtMost(self.group, 0)], lambda: self.ledger, lambda: self.kafka, now=self.now)
        assert isinstance(answer, Decision), answer
        span: int = answer.facts["lag"]
        return span
