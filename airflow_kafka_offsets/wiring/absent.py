"""A ledger that does not exist yet, for readers: a preview of the first window, a sensor, a trigger."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn, cast

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.core.errors import NoLedgerError
from airflow_kafka_offsets.core.plan.ownership import GroupState

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.core.history import Frontier, WindowRow
    from airflow_kafka_offsets.core.lag.pace import Commit
    from airflow_kafka_offsets.core.plan.ownership import Owner
    from airflow_kafka_offsets.core.window import Claim
    from airflow_kafka_offsets.ports import Ledger


class AbsentLedger:
    """A ledger in which no group has planned. Any other use raises the error that says how to make it.

    Attributes:
        where: the database that will hold it, without a password.
    """

    def __init__(self, error: NoLedgerError) -> None:
        self._error = error
        self.where = error.where

    def load(self, group: str, claim: Claim | None = None) -> GroupState:
        """See `Ledger.load`."""
        return GroupState()

    def one_connection(self) -> AbstractContextManager[None]:
        """See `Ledger.one_connection`."""
        return nullcontext()

    def load_all(self, names: Sequence[str]) -> Mapping[str, GroupState]:
        """See `Ledger.load_all`."""
        return {}

    def recent_commits(self, wanted: Mapping[str, int]) -> Mapping[str, Sequence[Commit]]:
        """See `Ledger.recent_commits`."""
        return {}

    def frontiers(self, names: Sequence[str]) -> Mapping[str, Frontier]:
        """See `Ledger.frontiers`."""
        return {}

    def windows(self, group: str, **which: object) -> Sequence[WindowRow]:
        """See `Ledger.windows`."""
        return ()

    def groups_of(self, owner: Owner) -> Sequence[KafkaGroup]:
        """See `Ledger.groups_of`."""
        return ()

    def __getattr__(self, name: str) -> NoReturn:
        raise self._error


def open_ledger_or_absent(url: str) -> Ledger:
    """Open a ledger by SQLAlchemy's URL, or return an `AbsentLedger`. Nothing is made.

    Raises:
        LedgerSchemaError: its tables have another version, or the file belongs to another application.
        LedgerUnavailableError: the database does not answer.
    """
    try:
        return wiring.open_ledger_at(url)
    except NoLedgerError as exc:
        absent: Any = AbsentLedger(exc)
        return cast("Ledger", absent)


def open_ledger_to_show(patience: int) -> Ledger:
    """Open the configured ledger for a page that people wait for. Nothing is made, also not the default one.

    Args:
        patience: seconds until a server that does not answer is an error; 2 at least.

    Raises:
        BadInputError: the connection is missing or not that of a database which can hold the ledger.
        NoLedgerError: there is none yet.
        LedgerError: the database does not answer, or its tables are not current.
    """
    from sqlalchemy import make_url

    url = make_url(wiring.ledger_url())
    if url.get_backend_name() != "sqlite":
        # The time-out in the URL, if it has one, is no longer than a person's patience.
        url = url.update_query_dict({"connect_timeout": str(patience)})
    return wiring.open_ledger_at(url.render_as_string(hide_password=False), is_asked_often=True)


def open_ledger_to_look(conn_id: str | None = None) -> Ledger:
    """Open a ledger for a sensor or trigger: unlike `wiring.open_ledger`, it does not make the default one.

    A default ledger that is not there yet is taken as one without groups.

    Raises:
        BadInputError: the connection is missing or not that of a database which can hold the ledger.
        LedgerError: the database does not answer, or its tables are not current.
    """
    url = wiring.ledger_url(conn_id)
    if url != wiring.default_ledger_url():
        return wiring.open_ledger_at(url)
    found = open_ledger_or_absent(url)
    if isinstance(found, AbsentLedger):
        _warn(found.where)
    return found


@cache
def _warn(where: str) -> None:
    """Warn once in a process, not at each poll."""
    logger.warning(
        "There is no ledger in %s on %s: until the first task plans, it counts as one without groups. If the ledger is elsewhere, "
        "check AIRFLOW_HOME and [kafka_offsets] ledger_conn_id of this process",
        where,
        socket.gethostname(),
    )
