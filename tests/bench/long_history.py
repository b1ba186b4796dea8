"""`make bench`: what is asked of the ledger after 1,000 windows and after 1,000,000, side by side, on each database.

The histories are written through the schema (`tests.lab.history`): one group, a window a minute, each with an attempt. Both groups
are in one ledger, and each step is taken by turns for the one and the other. The smallest time of all rounds counts: what comes
on top is other work.

Arguments: windows of the long history (default 1,000,000), rounds (default 5), databases (default all).
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from airflow_kafka_offsets.adapters.ledger.sql_ledger import SqlLedger
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.service.windows import WindowService
from tests.lab.databases import MariaDB, Postgres
from tests.lab.history import History
from tests.lab.kafka import KafkaBroker

SHORT = 1_000
_RUNS = count(1)


@dataclass(frozen=True)
class Side:
    """One of the two histories, and what is needed to work with it."""

    history: History
    ledger: SqlLedger
    service: WindowService
    kafka: KafkaBroker

    @property
    def group(self) -> KafkaGroup:
        """The group."""
        return self.history.group


def main(windows: int, rounds: int, databases: Sequence[str]) -> None:
    """Run the benchmark, and print a table for each database."""
    logging.disable(logging.WARNING)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        kafka = stack.enter_context(KafkaBroker(folder / "kafka", jvm_options=("-Xmx1g",)))
        for name in databases:
            url = stack.enter_context(opened(name, folder))
            sides = [prepared(kafka, SqlLedger(url, create=True), name, number) for number in (SHORT, windows)]
            print(f"... {name}: {windows:,} windows are written", flush=True)
            report(name, sides, measure(sides, rounds))


@contextmanager
def opened(name: str, folder: Path) -> Iterator[str]:
    """Start a database, and return the URL of a ledger in it."""
    match name:
        case "sqlite":
            yield f"sqlite:///{folder}/ledger.db"
        case "postgresql":
            with Postgres() as postgres:
                yield postgres.url
        case "mariadb":
            with MariaDB() as mariadb:
                yield mariadb.url
        case _:
            raise SystemExit(f"no database {name}: sqlite, postgresql or mariadb")
