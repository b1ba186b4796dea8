"""Ledgers that keep their connections to a server: to log in costs more than most questions, and so does compiling statements again."""

from __future__ import annotations

from functools import cache
from typing import Any
from unittest.mock import patch

from sqlalchemy import make_url
from sqlalchemy.pool import NullPool, QueuePool

from airflow_kafka_offsets.ledger import engine
from airflow_kafka_offsets.ledger.ledger import Ledger


class _Pool(QueuePool):
    """Keeps connections, and leaves those of a server that died."""

    def __init__(self, creator: Any, **options: Any) -> None:
        super().__init__(creator, **{**options, "pre_ping": True})


@cache
def ledger_at(url: str) -> Ledger:
    """Return this process's ledger in a database that stays: a test that stops its server opens one that keeps nothing."""
    pool = NullPool if make_url(url).get_backend_name() == "sqlite" else _Pool
    with patch.object(engine, "NullPool", pool):
        return Ledger(url)
