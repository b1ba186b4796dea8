"""What all use cases of windows work on, and the one way in which they repeat a write that lost a race."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from airflow_kafka_offsets.core.errors import ConcurrentChangeError
from airflow_kafka_offsets.ports import LogOffsets, OffsetStore, SchemaRegistry
from airflow_kafka_offsets.service.publish import Publisher

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

logger = logging.getLogger(__name__)

RACES = 60
"""How often a step is tried."""

_T = TypeVar("_T")


def utc_now() -> datetime:
    """Return the time; the service takes it as a parameter, so that tests can pass their own."""
    return datetime.now(UTC)


def until_won(step: Callable[[], _T]) -> _T:
    """Take a step, and take it again if another process was first: it then sees what that one wrote.

    A plan, or an act of a person, is written while the group's row is locked (`Connections.turn`). It loses only if others have planned since
    it looked, or as the victim of a deadlock. A commit takes no turn: only commits of the same window compete with it.

    Raises:
        ConcurrentChangeError: it lost again and again.
    """
    lost: ConcurrentChangeError | None = None
    for _ in range(RACES):
        try:
            return step()
        except ConcurrentChangeError as exc:
            logger.info("%s; trying again", exc)
            lost = exc
    raise ConcurrentChangeError(f"{lost}; that happened {RACES} times. Try again later") from lost


class UseCases:
    """The use cases on one ledger and one Kafka.

    Attributes:
        ledger: the ledger, for whoever only wants to read it.
    """

    def __init__(
        self,
        ledger: Ledger,
        kafka: LogOffsets,
        clock: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], None] = time.sleep,
        store: OffsetStore | None = None,
        output: Sequence[str] = (),
        registry: SchemaRegistry | None = None,
    ) -> None:
        self.ledger = ledger
        self._kafka = kafka
        self._registry = registry
        self._clock = clock
        self._sleep = sleep
        self._output = output
        self._publisher = Publisher(ledger, store, clock)
