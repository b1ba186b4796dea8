"""Empty ledgers of their own, on each database."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from airflow_kafka_offsets.ledger import schema
from airflow_kafka_offsets.ledger.engine import open_engine
from tests.lab.memory import IN_MEMORY

if TYPE_CHECKING:
    from tests.lab.databases import MariaDB, Postgres


@contextmanager
def in_a_file() -> Iterator[str]:
    """Make a ledger in SQLite, and give its URL."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        url = f"sqlite:///{Path(folder) / 'ledger.db'}"
        schema.upgrade(open_engine(url))
        yield url


def on_a_server(server: Postgres | MariaDB) -> str:
    """Make a ledger in a database of its own, and return its URL."""
    url = server.create_database(f"ledger_{uuid.uuid4().hex[:8]}")
    schema.upgrade(open_engine(url))
    return url
