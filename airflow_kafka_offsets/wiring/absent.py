"""A ledger that nobody has made yet: a preview of the first window asks nothing else of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.core.errors import LedgerSchemaError
from airflow_kafka_offsets.core.ownership import GroupState

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.window import Claim
    from airflow_kafka_offsets.ports import Ledger


class AbsentLedger:
    """No group has planned in it; whatever else is asked of it raises the error that says how it is made."""

    def __init__(self, error: LedgerSchemaError) -> None:
        self._error = error

    def load(self, group: str, claim: Claim | None = None) -> GroupState:
        """See `Ledger.load`."""
        return GroupState()

    def __getattr__(self, name: str) -> NoReturn:
        raise self._error


def open_ledger_or_absent(url: str) -> Ledger:
    """Open a ledger by SQLAlchemy's URL, or stand in for one that is not there yet; nothing is made.

    Raises:
        LedgerSchemaError: its tables are of another version.
        LedgerUnavailableError: the database does not answer.
    """
    try:
        return wiring.open_ledger_at(url)
    except LedgerSchemaError as exc:
        found, _ = wiring.ledger_revisions(url)
        if found is not None:
            raise
        absent: Any = AbsentLedger(exc)
        return cast("Ledger", absent)
