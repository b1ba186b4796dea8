"""Short ways to write what the ledger's tests speak of. Imported by the competing processes too: keep it light."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Act
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Claim, Draft, Lane, Outcome, State, Window, WindowRecord
from airflow_kafka_offsets.ledger.ledger import Ledger

NOW = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)


def group(name: str, **options: Any) -> KafkaGroup:
    """Define a group that reads `orders`."""
    return KafkaGroup(name, **{"topics": ["orders"], **options})


def draft(
    start: int,
    end: int,
    *,
    partitions: int = 2,
    topic: str = "orders",
    lost: Mapping[TopicPartition, OffsetRange] | None = None,
    lane: Lane = Lane.LIVE,
    planned_until: datetime = NOW,
    is_capped: bool = False,
    unread: int | None = None,
) -> Draft:
    """Draft a window that reads the same range of some partitions."""
    ranges = OffsetRanges((TopicPartition(topic, i), OffsetRange(start, end)) for i in range(partitions))
    ids, level = {topic: f"id-of-{topic}"}, IsolationLevel.READ_COMMITTED
    return Draft(ranges, ids, planned_until, level, OffsetRanges(lost or {}), lane, is_capped, unread=unread)


def claim(run: str = "run-1", task: str = "load", **more: Any) -> Claim:
    """Let a task of a run ask."""
    return Claim("dag", run, task, **more)


def act(kind: str = "abandon", why: str = "because", **details: Any) -> Act:
    """Let a person do something."""
    return Act(kind, "ada", why, NOW, details)


def add(ledger: Ledger, name: str, start: int, end: int, by: Claim | None = None, **more: Any) -> WindowRecord:
    """Add the next window."""
    version = ledger.load(name).version
    [held] = ledger.add_windows(group(name), version, [draft(start, end, **more)], by or claim(), NOW)
    return held


def add_all(
    ledger: Ledger, name: str, drafts: Sequence[Draft], by: Claim | None = None, **more: Any
) -> list[WindowRecord]:
    """Add several windows at once."""
    return ledger.add_windows(group(name), ledger.load(name).version, drafts, by or claim(), NOW, **more)


def commit(ledger: Ledger, held: WindowRecord, **more: Any) -> bool:
    """Record a success, and commit."""
    return ledger.commit(held.window.id, held.holder, succeed(ledger, held), NOW, **more)


def succeed(ledger: Ledger, held: WindowRecord) -> int:
    """Record a success, and return the attempt."""
    attempt = ledger.start_attempt(held.id, held.holder, Try(), NOW)
    ledger.end_attempt(attempt, Outcome.SUCCEEDED, held.window.span, NOW)
    return attempt


def check_laws(ledger: Ledger, name: str) -> None:
    """Check on everything that the ledger has of a group: one owner per offset, tiles or gaps, no number twice."""
    windows = [row.window for row in ledger.windows(name, limit=100_000)][::-1]
    assert [w.seq for w in windows] == list(range(1, len(windows) + 1))
    owning = [w for w in windows if w.state.owns]
    _check_owners(owning)
    live = [w for w in owning if w.lane is Lane.LIVE]
    at: dict[TopicPartition, int] = {}
    for w in live:
        for tp, r in w.ranges.items():
            assert r.start >= at.get(tp, 0), f"{w.id} does not start behind the windows before it"
            at[tp] = r.end
    state = ledger.load(name)
    assert [held.window.id for held in state.open] == [w.id for w in live if w.state is not State.COMMITTED]
    if state.position:
        assert all(offset >= at.get(tp, 0) for tp, offset in state.position.offsets.items())


def _check_owners(owning: Sequence[Window]) -> None:
    owned = sorted((tp, r.start, r.end, w.id) for w in owning for tp, r in w.ranges.without_empty().items())
    for (tp, _, end, one), (other_tp, start, _, other) in pairwise(owned):
        assert tp != other_tp or end <= start, f"{one} and {other} both own {tp} from {start} on"
