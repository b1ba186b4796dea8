"""A real API server of Airflow with the page, and a ledger with stories. Its address has a path, as behind a proxy."""

from __future__ import annotations

import configparser
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import jwt
import requests

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import KEPT_FROM, Act
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Claim, Draft, Lane, Outcome
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.ledger.ledger import Ledger
from tests.lab.airflow import Airflow
from tests.lab.processes import LOOPBACK
from tests.lab.waiting import ANSWER

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

ROOT = Path(__file__).parents[2]
PATH = "/af"
HOUR = timedelta(hours=1)
ROLES = {"admin": "admin", "user": "user", "viewer": "viewer", "limited": "viewer", "unplugged": "viewer"}
DAG = """
from airflow.sdk import DAG
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow_kafka_offsets import KafkaGroup, PlanWindowOperator

for name in ("orders", "replays", "paused", "stale", "broken"):
    with DAG(name, schedule=None):
        EmptyOperator(task_id="load")
with DAG("planned", schedule=None):
    PlanWindowOperator(task_id="load", group=KafkaGroup("lake.planned", topics=["planned"]))
"""


class PageServer:
    """Airflow's API server alone: no scheduler, so a run that the page starts stays queued.

    Args:
        home: for its files.
        connections: Airflow connections.
    """

    def __init__(self, home: Path, connections: Mapping[str, Mapping[str, Any]]) -> None:
        self.folder = home
        self.ledger_file = home / "ledger.db"
        self.ledger = Ledger(f"sqlite:///{self.ledger_file}", create=True)
        dags = home / "dags"
        dags.mkdir()
        (dags / "dags.py").write_text(DAG)
        self.airflow = Airflow(
            home / "airflow",
            dags,
            connections={
                "ledger": {"conn_type": "sqlite", "host": str(self.ledger_file)},
                "kafka_down": {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}},
                **connections,
            },
            environment={"PYTHONPATH": str(ROOT)},
            settings={
                "core": {
                    "auth_manager": "tests.page.auth.SomeDags",
                    "simple_auth_manager_users": ",".join(f"{user}:{role}" for user, role in ROLES.items()),
                },
                "kafka_offsets": {"ledger_conn_id": "ledger"},
                # Connections in this file are stronger than those above, and it is read each time.
                "secrets": {
                    "backend": "airflow.secrets.local_filesystem.LocalFilesystemBackend",
                    "backend_kwargs": json.dumps({"connections_file_path": str(home / "connections.json")}),
                },
            },
        )
        self.replace_connections({})
        self.url = self.airflow.url + PATH
        self._tokens: dict[str, str] = {}

    def __enter__(self) -> Self:
        airflow = self.airflow
        airflow._settings = {**airflow._settings, "api": {"base_url": self.url}}
        airflow._write_settings()
        (airflow.home / "passwords.json").write_text(json.dumps({user: f"{user}-pw" for user in ROLES}))
        airflow._write_preload()
        airflow._migrate()
        airflow.cli("dags", "reserialize")
        self._mark_dags(paused="is_paused", stale="is_stale", broken="has_import_errors")
        server = airflow.components["api-server"]
        # Not the API of tasks, as none runs here: it is made of all its versions, for four seconds of a processor.
        server.command = [*server.command, "--apps", "core"]
        server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.airflow.components["api-server"].stop()

    def _mark_dags(self, **columns: str) -> None:
        """Write into Airflow's database what the scheduler and the processor of DAG files note about a DAG."""
        with closing(sqlite3.connect(self.airflow.home / "airflow.db")) as database, database:
            database.execute("UPDATE dag SET is_paused = 0")
            for dag_id, column in columns.items():
                database.execute(f"UPDATE dag SET {column} = 1 WHERE dag_id = ?", (dag_id,))

    def replace_connections(self, connections: Mapping[str, Mapping[str, Any]]) -> None:
        """Let these connections, and no others, be stronger than those that the server was made with."""
        file = self.folder / "connections.json"
        file.with_suffix(".new").write_text(json.dumps(connections))
        file.with_suffix(".new").rename(file)

    @contextmanager
    def with_ledger_at(self, port: int) -> Iterator[None]:
        """Let the ledger's connection lead to another port of this machine meanwhile."""
        self.replace_connections({"ledger": {"conn_type": "postgres", "host": LOOPBACK, "port": port}})
        try:
            yield
        finally:
            self.replace_connections({})

    def resigned(self, user: str, **claims: Any) -> str:
        """Return the token of a user with other claims, signed as Airflow signs it."""
        settings = configparser.ConfigParser(interpolation=None)
        settings.read(self.airflow.home / "airflow.cfg")
        token = self.token(user)
        payload = jwt.decode(token, options={"verify_signature": False})
        header = jwt.get_unverified_header(token)
        return jwt.encode({**payload, **claims}, settings["api_auth"]["jwt_secret"], header["alg"], header)

    def token(self, user: str) -> str:
        """Return the token of a user."""
        if user not in self._tokens:
            answer = requests.post(
                f"{self.url}/auth/token", json={"username": user, "password": f"{user}-pw"}, timeout=ANSWER
            )
            answer.raise_for_status()
            self._tokens[user] = answer.json()["access_token"]
        return self._tokens[user]

    def get(self, path: str, user: str | None = "admin", token: str | None = None, **more: Any) -> requests.Response:
        """Ask for a page of ours, as a user or with a token."""
        if token is None and user is not None:
            token = self.token(user)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return requests.get(f"{self.url}/kafka-offsets/{path}", headers=headers, timeout=ANSWER, **more)

    def log_in(self, browser: WebDriver, user: str = "admin") -> None:
        """Let a browser be logged in as a user."""
        # A browser takes a cookie only of where it is: at a few bytes, and not at Airflow's login, which is a program of megabytes.
        browser.get(f"{self.url}/api/v2/version")
        browser.delete_all_cookies()
        browser.add_cookie({"name": "_token", "value": self.token(user), "path": PATH})


@dataclass
class Story:
    """Writes the windows of a group into a ledger, as runs do.

    Attributes:
        ledger: where to.
        group: its definition.
        dag_id: who plans.
        topic_ids: of its topics.
        at: the cut of the next window.
    """

    ledger: Ledger
    group: KafkaGroup
    dag_id: str = "orders"
    topic_ids: Mapping[str, str] | None = None
    at: datetime = datetime(2026, 11, 1, tzinfo=UTC)

    def draft(self, start: int, end: int, partitions: int = 3) -> Draft:
        """Draft a window with the same range in each partition of each topic."""
        some = {
            TopicPartition(topic, p): OffsetRange(start, end) for topic in self.group.topics for p in range(partitions)
        }
        ids = self.topic_ids or {topic: f"id-of-{topic}" for topic in self.group.topics}
        return Draft(OffsetRanges(some), ids, self.at, IsolationLevel.READ_COMMITTED)

    def run(self, draft: Draft, *, is_open: bool = False, tries: int = 1, **claimed: str) -> str:
        """Let a run have a window, try some times, and commit it; return the window's id."""
        ledger, name = self.ledger, self.group.name
        if draft.unread is None and draft.lane is Lane.LIVE:
            draft = replace(draft, unread=draft.span)
        claim = Claim(
            **{"dag_id": self.dag_id, "run_id": f"scheduled__{self.at:%Y-%m-%dT%H}", "task_id": "load", **claimed}
        )  # type: ignore[arg-type]
        [held] = ledger.add_windows(self.group, ledger.load(name).version, [draft], claim, self.at)
        for number in range(1, tries + 1):
            attempt = ledger.start_attempt(held.id, claim, Try(number), self.at + number * timedelta(minutes=2))
            is_last = number == tries
            if not (is_last and is_open):
                outcome = Outcome.SUCCEEDED if is_last else Outcome.FAILED
                ledger.end_attempt(
                    attempt, outcome, draft.span if is_last else None, self.at + number * timedelta(minutes=3)
                )
        if not is_open:
            ledger.commit(held.window.id, claim, attempt, self.at + (tries + 1) * timedelta(minutes=3))
        self.at += HOUR
        return held.window.id

    def hours(self, number: int, start: int = 1_000, span: int = 100, partitions: int = 3) -> None:
        """Let a run commit a window each hour."""
        for i in range(number):
            self.run(self.draft(start + i * span, start + (i + 1) * span, partitions))

    def backfill(self, start: int, end: int, partitions: int = 3, **claimed: str) -> str:
        """Let a replay read offsets that no one owned."""
        return self.run(replace(self.draft(start, end, partitions), lane=Lane.BACKFILL), **claimed)

    def act(self, kind: str, who: str, why: str, **details: Any) -> None:
        """Record an act."""
        self.ledger.record(self.group.name, Act(kind, who, why, self.at, details))

    def reset(self, to: int | Mapping[TopicPartition, int], superseded: Sequence[int] = ()) -> None:
        """Let a person move the watermark, of every partition or of each to an offset of its own."""
        name = self.group.name
        state = self.ledger.load(name)
        assert state.position
        offsets = dict.fromkeys(state.position.offsets, to) if isinstance(to, int) else to
        moved = Position(offsets, state.position.topic_ids)
        ids = [name_window(name, seq) for seq in superseded]
        act = Act("reset", "ada", "read again", self.at, {"superseded": ids})
        self.ledger.reset(name, state.version, moved, superseded, act)

    def prune(self, windows: int) -> None:
        """Take the oldest windows out of the ledger."""
        old = self.ledger.old_windows(self.group.name, since=1, limit=windows)
        act = Act("prune", "ada", "monthly", self.at, {"windows": windows, KEPT_FROM: windows + 1})
        self.ledger.prune(old, act)
