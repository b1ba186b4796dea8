"""The exchange: a folder in storage that Airflow and Spark both reach. The plan task leaves the window there, and the job its report.

Each run of a plan task makes a folder of its own below that of the window, so earlier reports do not count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_kafka_offsets.core.errors import BadInputError, short

_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://[^\s?#*\[\]{}]+")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a plan task has left a window.

    Attributes:
        folder: its address.
        conn_id: the Airflow connection to its storage, or None if none is needed.
    """

    folder: str
    conn_id: str | None

    def __str__(self) -> str:
        return self.folder if self.conn_id is None else f"{self.folder} (connection {self.conn_id})"


# Their addresses have a container before the @.
_WITH_CONTAINER = ("abfs", "abfss", "wasb", "wasbs")


def scheme_of(address: str) -> str:
    """Return the scheme of the exchange's address.

    >>> scheme_of("s3://lake/kafka-offsets"), scheme_of("abfss://box@account.dfs.core.windows.net/kafka-offsets")
    ('s3', 'abfss')
    >>> scheme_of("/mnt/lake")
    Traceback (most recent call last):
    airflow_kafka_offsets.core.errors.BadInputError: exchange must be the address of a folder, such as s3://bucket/folder; got '/mnt/lake'

    Raises:
        BadInputError: it is no such address, or holds a login.
    """
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if match is None:
        raise BadInputError(
            f"exchange must be the address of a folder, such as s3://bucket/folder; got {short(address)}"
        )
    if "@" in address and match[1] not in _WITH_CONTAINER:
        # It may be a login, so it is not shown.
        raise BadInputError("exchange holds an @: name the connection in exchange_conn_id")
    return match[1]


def handoff_folder(exchange: str, window_id: str, handoff: str) -> str:
    """Return the address of the folder of one handoff.

    >>> handoff_folder("s3://lake/kafka-offsets/", "lake.orders-000012", "5ad0")
    's3://lake/kafka-offsets/lake.orders-000012/5ad0'
    """
    return f"{exchange.rstrip('/')}/{window_id}/{handoff}"


def check_given(window_id: str, place: Place | None, given: Mapping[str, Any]) -> None:
    """Refuse a report from elsewhere than where the plan task has left the window.

    Args:
        window_id: the window.
        place: where the ledger says that it was left, or None if in no exchange.
        given: what the commit task was given; without an exchange, nothing is compared.

    Raises:
        BadInputError: it names another folder or connection.
    """
    if given.get("exchange") is None:
        return
    named = Place(str(given["exchange"]), given.get("exchange_conn_id"))
    if named != place:
        raise BadInputError(
            f"Window {window_id}: this task got the exchange {short(str(named))}, and the plan task left it in {place or 'none'}. Set "
            "window=plan.output, and clear the plan task with all tasks after it"
        )
