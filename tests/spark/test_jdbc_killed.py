"""A job that is killed while it writes to a table: the rows that it leaves, and the next try, which mends them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from airflow_kafka_offsets.spark import KafkaWindow
from airflow_kafka_offsets.spark.shared import stage_prefix
from airflow_kafka_offsets.spark.sinks.jdbc_sql import PUBLISHED, Target
from tests.lab.jars import jdbc_jars
from tests.lab.processes import wait_until
from tests.spark.conftest import handoff
from tests.spark.jdbc import Database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.lab.databases import MariaDB, Postgres

OLD, NEW = [0, 1, 2], [10, 11, 12, 13, 14]


class Case:
    """One window of a job, with rows of an earlier run, and what keeps its next run from going on."""

    def __init__(self, database: Database, step: str) -> None:
        self.database, self.step = database, step
        self.window_id = f"lake.{step}-000001"
        self.table = f"killed_{step}"
        self.was_there = False
        self._is_held = False
        self._held = ExitStack()
        self.target = database.create(self.table, "n INTEGER UNIQUE")
        for n in OLD:
            database.run(f"INSERT INTO {self.table} VALUES ({n}, '{self.window_id}')")

    def block(self) -> None:
        """Let the job wait at its step."""
        if self.step == "staged":
            target = Target(self.database.jdbc, self.table)
            self.database.run(target.create_published())
            self.database.run(f"INSERT INTO {PUBLISHED} (window_id) VALUES ('{self.window_id}')")
            self._hold(f"UPDATE {PUBLISHED} SET published_at = NULL WHERE window_id = '{self.window_id}'")
        elif self.step == "deleted":
            self._hold(f"INSERT INTO {self.table} (n) VALUES (12)")

    def is_there(self) -> bool:
        """Whether the job waits at its step."""
        if self.step == "staged":
            return self.database.is_running(PUBLISHED, "UPDATE") or self.database.is_running(PUBLISHED, "INSERT")
        if self.step == "deleted":
            return self.database.is_running("INSERT INTO", self.table)
        if not self._is_held and (stages := self.stages()):
            self._hold(f"SELECT count(*) FROM {stages[0]}")  # who drops it waits
        return self.database.is_running("DROP TABLE", stage_prefix(self.window_id, self.table))

    def release(self) -> None:
        """Let go."""
        self._held.close()

    def _hold(self, statement: str) -> None:
        self._is_held = True
        connection = self._held.enter_context(self.database.engine.connect())
        connection.execute(text(statement))

    def stages(self) -> list[str]:
        prefix = stage_prefix(self.window_id, self.table)
        return [name for name in self.database.stages() if name.startswith(prefix)]

    def job(self) -> dict[str, Any]:
        given = {"url": self.database.jdbc, "table": self.table, "properties": self.database.properties}
        return {"handoff": asdict(handoff({}, window_id=self.window_id, is_rerun=True)), **given, **self._login()}

    def _login(self) -> dict[str, Any]:
        """Return how the job logs in without a password, as in docs/sinks/jdbc.md; the others have it in their properties."""
        if self.step != "published":
            return {}
        if self.database.is_mysql:
            return {"url": f"{self.database.jdbc}&credentialType=ENV", "properties": {}}
        return {"properties": {"user": "test"}}


@pytest.fixture
def cases(postgres: Postgres, mariadb: MariaDB) -> Iterator[list[Case]]:
    """Return each step on each database, one job for all: a Spark of its own takes longest."""
    # Each test has its own: the rest of a failed test must not fail others.
    databases = [Database(server.create_database("killed")) for server in (postgres, mariadb)]
    made = [Case(database, step) for database in databases for step in ("staged", "deleted", "published")]
    yield made
    for case in made:
        case.release()


def test_a_job_that_is_killed_leaves_the_old_rows_or_the_new_ones_and_the_next_try_mends_the_rest(
    cases: list[Case], spark: SparkSession, tmp_path: Path
) -> None:
    for case in cases:
        case.block()
    job = _start([case.job() for case in cases], tmp_path)
    try:
        wait_until(lambda: _all_there(cases, job, tmp_path), what="the job is at its steps")
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    for case in cases:
        case.release()
    for case in cases:
        wait_until(lambda case=case: case.database.others() == 0, what="the job's sessions are gone")
        expected = NEW if case.step == "published" else OLD
        assert case.database.found(case.table) == [(case.window_id, n) for n in expected], case.step
        # A DROP that is under way is done, whoever asked for it is killed or not.
        assert len(case.stages()) == 1 or case.step == "published"
    _check_no_password(tmp_path)
    for case in cases:
        _write_again(spark, case)
        assert case.database.found(case.table) == [(case.window_id, n) for n in NEW]
        assert case.stages() == []


def _start(jobs: list[dict[str, Any]], directory: Path) -> subprocess.Popen[bytes]:
    (directory / "events").mkdir()
    conf = {
        "spark.jars": ",".join(map(str, jdbc_jars())),
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{directory}/events",
        "spark.log.level": "INFO",
    }
    root = Path(__file__).parents[2]
    secret = directory / "pgpass"
    secret.write_text("*:*:*:test:test-pw")
    secret.chmod(0o600)
    logins = {"PGPASSFILE": str(secret), "MARIADB_USER": "test", "MARIADB_PWD": "test-pw"}
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, Path(__file__).with_name("jdbc_child.py"), json.dumps({"conf": conf, "jobs": jobs})],
            cwd=directory,
            env={**os.environ, **logins, "PYTHONPATH": str(root)},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Spark's JVM is killed with it
        )


def _all_there(cases: list[Case], job: subprocess.Popen[bytes], directory: Path) -> bool:
    assert job.poll() is None, (directory / "log").read_text()[-5000:]
    for case in cases:
        case.was_there = case.was_there or case.is_there()
    return all(case.was_there for case in cases)


def _check_no_password(directory: Path) -> None:
    """Neither Spark's log nor its events, which its UI shows, tell the password; both speak of the tables."""
    events = "".join(path.read_text() for path in (directory / "events").rglob("events_*"))
    assert "killed_staged" in events or "kafka_offsets_stage_" in events
    assert "test-pw" not in events
    assert "test-pw" not in (directory / "log").read_text()


def _write_again(spark: SparkSession, case: Case) -> None:
    window = KafkaWindow(spark, handoff({}, window_id=case.window_id, is_rerun=True))
    df = spark.range(10, 15, 1, 2).selectExpr("cast(id as int) as n")
    window.write_jdbc(df, case.database.jdbc, case.table, case.database.properties)
