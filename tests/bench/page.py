"""`make bench`: what the page takes on the server: 1,000 groups, a group with 1,000,000 windows, and groups of 20,000 partitions.

Airflow's own API server answers, with its login and its authorization, and a client on the same machine waits for the last byte. The
histories are written through the schema (`tests.lab.history`). Kafka is not asked: no page waits for it. The smallest time of all rounds
counts: whatever comes on top is other work. *More memory* is by how much the server's processes grew while they answered, at the most.

Arguments: windows of the long history (1,000,000), rounds (7), databases (sqlite postgresql).
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import requests
from sqlalchemy import select, update
from tabulate import tabulate

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.window import State
from airflow_kafka_offsets.ledger.engine import writing
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.ledger.tables import groups, windows
from tests.acceptance.server import connection_of
from tests.bench.long_history import DEEP, GROUPS, SHORT, WIDE, settle
from tests.lab.databases import Postgres
from tests.lab.history import History, write
from tests.page.server import PageServer

OPEN = 50
"""How many windows of the group `open` wait for their commit."""

HEADERS = ["page", "HTML: ms", "kB", "more memory: MB", "JSON: ms", "kB", "more memory: MB"]


def history(name: str, windows: int, partitions: int = 4) -> History:
    """Return the history of a group that a Kafka has which is away."""
    group = KafkaGroup(name, topics=[name], kafka_conn_id="kafka_down", max_offsets=partitions * 7)
    return History(group, {name: partitions}, {name: f"id-of-{name}"}, windows)


def write_many(ledger: Ledger, long: History) -> None:
    """Write the groups with few partitions. Those of the list belong to a DAG each, as they do where there are so many."""
    many = [history(f"many-{number:04}", 20, 3) for number in range(GROUPS)]
    write(ledger._engine, [history("short", SHORT), long, *many])
    with writing(ledger._engine) as connection:
        connection.execute(update(groups).where(groups.c.name.like("many-%")).values(owner_dag_id=groups.c.name))
    settle(ledger)


def write_wide(ledger: Ledger) -> None:
    """Write the groups with many partitions."""
    write(ledger._engine, [history("wide", DEEP, WIDE), history("open", DEEP, WIDE)])
    with writing(ledger._engine) as connection:
        is_open = select(groups.c.id).where(groups.c.name == "open").scalar_subquery()
        newest = update(windows).where(windows.c.group_id == is_open, windows.c.seq > DEEP - OPEN)
        connection.execute(newest.values(state=State.PLANNED, committed_at=None))
    settle(ledger)


def pages_of_many(long: History) -> dict[str, str]:
    """Return addresses by what they show."""
    first, last = (f"{long.cut(seq):%Y-%m-%dT%H:%M}" for seq in (long.windows // 2, long.windows // 2 + 60))
    return {
        f"{GROUPS + 2:,} groups": "groups?",
        f"a group with {SHORT:,} windows": "groups/short?",
        f"a group with {long.windows:,} windows": "groups/long?",
        "the same, by time": "groups/long?axis=time",
        "the same, an hour of long ago": f"groups/long?axis=time&from={first}&to={last}",
        "its newest window": f"windows/long-{long.windows:06d}?",
    }


def pages_of_wide() -> dict[str, str]:
    """Return addresses by what they show."""
    return {
        f"a group of {WIDE:,} partitions": "groups/wide?",
        f"the same, with {OPEN} open windows": "groups/open?",
        f"a window of {WIDE:,} partitions": f"windows/wide-{DEEP:06d}?",
    }


class Asker:
    """A client of the server, who is logged in."""

    def __init__(self, server: PageServer) -> None:
        self._url = f"{server.url}/kafka-offsets"
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {server.token('admin')}"
        first = psutil.Process(server.airflow.components["api-server"].pid)
        self._folders = [Path(f"/proc/{one.pid}") for one in (first, *first.children(recursive=True))]

    def rows(self, pages: Mapping[str, str], rounds: int) -> list[list[str]]:
        """Measure pages, as HTML and as JSON."""
        return [
            [shown, *self.measure(path, rounds), *self.measure(f"{path}&format=json", rounds)]
            for shown, path in pages.items()
        ]

    def measure(self, path: str, rounds: int) -> list[str]:
        """Return milliseconds, kilobytes, and megabytes of memory of a page."""
        least, size = float("inf"), 0
        for _ in range(rounds):
            began = time.perf_counter()
            answer = self._session.get(f"{self._url}/{path}", timeout=300)
            least = min(least, time.perf_counter() - began)
            answer.raise_for_status()
            size = len(answer.content)
        for folder in self._folders:
            (folder / "clear_refs").write_text("5")  # the largest size begins again at that of now
        before = self._memory("VmRSS")
        self._session.get(f"{self._url}/{path}", timeout=300)
        more = max(0, self._memory("VmHWM") - before)
        return [f"{1000 * least:.0f}", f"{size / 1000:.0f}", f"{more / 1000:.0f}"]

    def _memory(self, name: str) -> int:
        """Return a figure of the server's processes, in kB."""
        lines = [line for folder in self._folders for line in (folder / "status").read_text().splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


@contextmanager
def opened(name: str, folder: Path) -> Iterator[tuple[PageServer, Ledger]]:
    """Prepare a server, and a ledger in a database for it."""
    server = PageServer(folder, {})
    match name:
        case "sqlite":
            yield server, server.ledger
        case "postgresql":
            with Postgres() as postgres:
                server.replace_connections({"ledger": connection_of(postgres)})
                yield server, Ledger(postgres.url, create=True)
        case _:
            raise SystemExit(f"no database {name}: sqlite or postgresql")


def main(long: History, rounds: int, databases: Sequence[str]) -> None:
    """Run the benchmark, and print a table for each database."""
    logging.disable(logging.WARNING)
    for name in databases:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-page-")))
            server, ledger = stack.enter_context(opened(name, folder))
            write_many(ledger, long)
            asker = Asker(stack.enter_context(server))
            report(name, asker.rows(pages_of_many(long), rounds))
            write_wide(ledger)
            report(name, asker.rows(pages_of_wide(), rounds))


def report(database: str, rows: Sequence[Sequence[str]]) -> None:
    """Print a table."""
    print(database, tabulate(rows, HEADERS, tablefmt="github", disable_numparse=True), "", sep="\n\n", flush=True)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        history("long", int(arguments[0]) if arguments else 1_000_000),
        int(arguments[1]) if len(arguments) > 1 else 7,
        arguments[2:] or ["sqlite", "postgresql"],
    )
