"""Collects the state of groups, for `core.state_metrics`. Writes nothing, and reads no record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import LedgerError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.plan.overview import Outline
from airflow_kafka_offsets.core.state_metrics import Family, GroupNow, OpenWindows, families, group_now
from airflow_kafka_offsets.core.window import Lane
from airflow_kafka_offsets.ports import LogOffsets
from airflow_kafka_offsets.service import watch
from airflow_kafka_offsets.service.base import utc_now
from airflow_kafka_offsets.service.freshness import before_kafka, each

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger


class Collector:
    """Asks ledger and Kafka, and remembers the answers: whoever wants the metrics waits for neither.

    Args:
        open_ledger: opens the ledger; called for each collection.
        open_log: opens the Kafka of a group.
        is_one_kafka: whether `open_log` opens the same Kafka for every group.
        per_partition: whether each partition has its lag and headroom.
        clock: returns the time.
    """

    def __init__(
        self,
        open_ledger: Callable[[], Ledger],
        open_log: Callable[[KafkaGroup], LogOffsets],
        *,
        is_one_kafka: bool = False,
        per_partition: bool = False,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._open_ledger = open_ledger
        self._open_log = open_log
        self._is_one_kafka = is_one_kafka
        self._per_partition = per_partition
        self._clock = clock
        self._groups: Sequence[GroupNow] = ()
        self._collected_at: datetime | None = None
        self._is_ledger_up = False

    @property
    def has_collected(self) -> bool:
        """Whether the ledger has answered once."""
        return self._collected_at is not None

    def collect(self) -> list[str]:
        """Ask, and return why there is no answer of a Kafka: it refused, did not answer, or was not asked; nothing: all answered.

        Raises:
            LedgerError: the ledger did not answer, or can't be read. What it said before stays.
        """
        try:
            errors = self._ask(self._open_ledger())
        except LedgerError:
            self._is_ledger_up = False
            raise
        self._collected_at, self._is_ledger_up = self._clock(), True
        return errors

    def _ask(self, ledger: Ledger) -> list[str]:
        groups = ledger.groups()
        by_name = {group.name: group for group in groups}
        outlines = watch.together(list(by_name), ledger.outlines, lambda _: None)
        known = {one.group.name: one for one in self._groups}
        if new := [group for group in groups if group.name not in known]:
            # So that a group has its series also while a silent Kafka is waited for.
            for name, alone in before_kafka(new, ledger, self._clock()).items():
                known[name] = group_now(by_name[name], alone, _open_windows(outlines[name], None), None)
            self._groups = [known[name] for name in by_name]
        errors = {name: str(said) for name, said in outlines.items() if isinstance(said, Exception)}
        for answer in each(groups, ledger, self._open_log, self._clock(), is_one_kafka=self._is_one_kafka):
            for name, lag in answer.items():
                before = known[name]
                known[name] = group_now(by_name[name], lag, _open_windows(outlines[name], before), before)
                if lag.error is not None:
                    errors[name] = lag.error
            # At once, for a scrape meanwhile: a Kafka that is silent holds up no other one.
            self._groups = [known[name] for name in by_name]
        return list(dict.fromkeys(errors[name] for name in by_name if name in errors))

    def families(self) -> list[Family]:
        """Return the metrics as of the last collection; the ages of open windows are those of now."""
        return families(
            self._groups,
            self._clock(),
            is_ledger_up=self._is_ledger_up,
            collected_at=self._collected_at,
            per_partition=self._per_partition,
        )


def _open_windows(outline: Outline | Exception | None, before: GroupNow | None) -> Mapping[Lane, OpenWindows]:
    """Return the open windows of a group; of one whose rows are damaged those that were there before."""
    if isinstance(outline, Exception):
        return before.open if before else {}
    if outline is None:
        return {}
    return {lane: OpenWindows(outline.open[lane], oldest.planned_at) for lane, oldest in outline.oldest.items()}
