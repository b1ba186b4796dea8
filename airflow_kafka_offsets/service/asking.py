"""Answers whoever waits, for conditions of every kind: `watch` looks at offsets and windows, `freshness` at verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.conditions import Condition, VerdictIn
from airflow_kafka_offsets.core.lag.deciding import decide_verdict
from airflow_kafka_offsets.core.lag.lag import GroupLag
from airflow_kafka_offsets.core.plan.waiting import Decision
from airflow_kafka_offsets.ports import LogOffsets
from airflow_kafka_offsets.service import freshness, watch
from airflow_kafka_offsets.service.plan import IsOver

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger


def ask(
    conditions: Sequence[Condition],
    open_ledger: Callable[[], Ledger],
    open_log: Callable[[], LogOffsets] | None = None,
    *,
    is_over: IsOver | None = None,
    now: datetime | None = None,
) -> list[Decision | Exception]:
    """Answer each condition, or say why there is no answer, as `watch.ask` does.

    Args:
        conditions: on one Kafka and one ledger.
        open_ledger: opens the ledger, if a condition needs it.
        open_log: opens Kafka, if a condition needs it; None: none does.
        is_over: whether the claim that holds a window is over; None: no condition asks that.
        now: the time; None: that of the clock.
    """
    looked = [c for c in conditions if not isinstance(c, VerdictIn)]
    others = iter(watch.ask(looked, open_ledger, open_log, is_over=is_over, now=now) if looked else ())
    verdicts: dict[VerdictIn, Decision | Exception] = {}
    for same in _together([c for c in conditions if isinstance(c, VerdictIn)]):
        assert open_log, "conditions on Kafka need it"
        verdicts |= _decided(same, open_ledger, open_log, now)
    return [verdicts[c] if isinstance(c, VerdictIn) else next(others) for c in conditions]


def _together(conditions: Sequence[VerdictIn]) -> list[list[VerdictIn]]:
    """Divide conditions into looks: each with one horizon, and with one definition of each group."""
    looks: list[list[VerdictIn]] = []
    for condition in conditions:
        for look in looks:
            if look[0].horizon == condition.horizon and all(_agree(condition, other) for other in look):
                look.append(condition)
                break
        else:
            looks.append([condition])
    return looks


def _agree(one: VerdictIn, other: VerdictIn) -> bool:
    return one.group.name != other.group.name or one.group == other.group


def _decided(
    conditions: Sequence[VerdictIn],
    open_ledger: Callable[[], Ledger],
    open_log: Callable[[], LogOffsets],
    now: datetime | None,
) -> dict[VerdictIn, Decision | Exception]:
    groups = {c.group.name: c.group for c in conditions}
    try:
        found = freshness.look(
            list(groups.values()),
            open_ledger(),
            lambda _: open_log(),
            now,
            is_one_kafka=True,
            horizon=conditions[0].horizon,
        )
    except Exception as exc:
        return dict.fromkeys(conditions, exc)
    return {c: _decision(c, found[c.group.name]) for c in conditions}


def _decision(condition: VerdictIn, found: GroupLag) -> Decision | Exception:
    try:
        return decide_verdict(condition, found)
    except Exception as exc:
        return exc
