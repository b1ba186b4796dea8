"""A ledger that nobody has made yet: a preview of the first window asks nothing else of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.core.errors import NoLedgerError
from airflow_kafka_offsets.core.ownership import GroupState

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.window import Claim
    from airflow_kafka_offsets.ports import Ledger


class AbsentLedger:
    """No group has planned in it; whatever else is asked of it raises the error that says how it is made.

    Attributes:
        where: the database that will have it, without a password.
    """

    def __init__(self, error: NoLedgerError) -> None:
        self._error = error
        self.where = error.where

    def load(self, group: str, claim: Claim | None = None) -> GroupState:
        """See `Ledger.load`."""
        return GroupState()

    def __getattr__(self, name: str) -> NoReturn:
        raise self._error


def open_ledger_or_absent(url: str) -> Ledger:
    """Open a ledger by SQLAlchemy's URL, or stand in for one that is not there yet; nothing is made.

    Raises:
        LedgerSchemaError: its tables are of another version, or the file is another application's.
        LedgerUnavailableError: the database does not answer.
    """
    try:
        return wiring.open_ledger_at(url)
    except NoLedgerError as exc:
        absent: Any = AbsentLedger(exc)
        return cast("Ledger", absent)
