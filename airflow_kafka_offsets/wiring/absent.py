"""How readers open a ledger that may not be there yet: a preview of the first window, a sensor, a trigger."""

from __future__ import annotations

import logging
import socket
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.core.errors import NoLedgerError
from airflow_kafka_offsets.core.plan.ownership import GroupState

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

logger = logging.getLogger(__name__)

_ANSWERS = {
    "load": GroupState(),
    "one_connection": nullcontext(),
    "load_all": {},
    "recent_commits": {},
    "frontiers": {},
    "windows": (),
    "groups_of": (),
}


class AbsentLedger:
    """A ledger in which no group has planned. A question that it can't answer raises the error that names how to make it.

    Attributes:
        where: the database that will hold it, without a password.
    """

    def __init__(self, error: NoLedgerError) -> None:
        self._error = error
        self.where = error.where

    def __getattr__(self, name: str) -> Any:
        if name not in _ANSWERS:
            raise self._error
        return lambda *_, **__: _ANSWERS[name]


def open_ledger_or_absent(url: str) -> Ledger:
    """Open a ledger by SQLAlchemy's URL, or return an `AbsentLedger`. Nothing is made.

    Raises:
        LedgerSchemaError: another version of this package made its tables, or the file belongs to another application.
        LedgerUnavailableError: the database does not answer.
    """
    try:
        return wiring.open_ledger_at(url)
    except NoLedgerError as exc:
        return cast("Ledger", AbsentLedger(exc))


def open_ledger_to_look(conn_id: str | None = None) -> Ledger:
    """Open a ledger for a sensor or trigger. A default ledger that is not there yet counts as one without groups.

    Raises:
        BadInputError: the connection is missing or not that of a database which can hold the ledger.
        LedgerError: the database does not answer, or it holds no ledger of this version.
    """
    url = wiring.ledger_url(conn_id)
    if url != wiring.default_ledger_url():
        return wiring.open_ledger_at(url)
    ledger = open_ledger_or_absent(url)
    if isinstance(ledger, AbsentLedger):
        _warn(ledger.where)
    return ledger


@cache
def _warn(where: str) -> None:
    """Warn once in a process, not at each poll."""
    logger.warning(
        "There is no ledger in %s on %s: it counts as empty. If it is elsewhere, correct AIRFLOW_HOME or "
        "[kafka_offsets] ledger_conn_id",
        where,
        socket.gethostname(),
    )
