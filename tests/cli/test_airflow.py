"""``airflow kafka-offsets`` in a real Airflow process, with connections that are stored in Airflow's database."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.group import KafkaGroup
from tests.cli.conftest import Lake, run_program
from tests.lab.airflow import empty_metadata
from tests.lab.topics import create_topic, produce
from tests.versions import HAS_COMMANDS_OF_PROVIDERS

if TYPE_CHECKING:
    from tests.lab.kafka import KafkaBroker

CANARY = "hunter2-canary"
pytestmark = pytest.mark.airflow
Program = Callable[..., subprocess.CompletedProcess[str]]

AIRFLOWS = ("airflow", "kafka-offsets") if HAS_COMMANDS_OF_PROVIDERS else ("kafka-offsets",)
"""What runs the commands of Airflow, from the version on that has them."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An AIRFLOW_HOME whose database has the tables."""
    home = tmp_path_factory.mktemp("airflow")
    shutil.copyfile(empty_metadata(), home / "airflow.db")
    # Without one, no Airflow is at home there.
    (home / "airflow.cfg").touch()
    return home


def timeless(document: Any) -> Any:
    """Return a document without what changes from one look to the next."""
    if isinstance(document, list):
        return [timeless(part) for part in document]
    if not isinstance(document, dict):
        return document
    moving = {"looked_at", "lag_seconds", "headroom_seconds", "reason"}
    return {key: timeless(value) for key, value in document.items() if key not in moving}


def airflow(home: Path) -> Program:
    programs = Path(sys.executable).parent
    environment = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "NO_COLOR": "1",
        "PATH": f"{programs}:{os.environ['PATH']}",
    }

    def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_program([str(programs / program), *arguments], environment)

    return run


def test_status_through_airflow(home: Path, kafka: KafkaBroker, topic: str, tmp_path: Path) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 10)
    lake = Lake(tmp_path / "ledger.db", KafkaLog(kafka.client_config(), 10))
    group = KafkaGroup("lake.orders", topics=[topic], kafka_conn_id="my_kafka")
    lake.commit(group, 1)
    produce(kafka, topic, 5)
    run = airflow(home)
    extra = {**kafka.client_config(), "sasl.password": CANARY}
    connections = {
        "my_kafka": {"conn_type": "kafka", "extra": extra},
        "my_ledger": {"conn_type": "sqlite", "host": str(lake.path)},
    }
    # In one command: each takes four seconds of a processor to start.
    file = tmp_path / "connections.json"
    file.write_text(json.dumps(connections))
    added = run("airflow", "connections", "import", str(file))
    assert added.returncode == 0, added.stderr
    assert added.stdout.count("Imported connection") == len(connections), added.stdout + added.stderr

    through_airflow = run(*AIRFLOWS, "status", "--ledger", "my_ledger", "-o", "json")
    assert through_airflow.returncode == 0, through_airflow.stderr
    [found] = json.loads(through_airflow.stdout)["groups"]
    assert (found["group"], found["lag"]) == ("lake.orders", 5)

    ours = run("kafka-offsets", "status", "--ledger", "my_ledger", "-o", "json")
    assert ours.returncode == 0, ours.stderr
    assert timeless(json.loads(ours.stdout)) == timeless(json.loads(through_airflow.stdout))

    # The exit code comes through, and so does the sentence.
    refused = run(*AIRFLOWS, "plan", "no one", "--ledger", "my_ledger")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "The ledger has no group no one; it has lake.orders" in refused.stderr
    missing = run("kafka-offsets", "plan", "no one", "--ledger", "no_such_connection")
    assert missing.returncode == 2
    assert (
        "Airflow has no connection 'no_such_connection'. Create it, for example:\n    airflow connections add"
        in missing.stderr
    )
    slip = run("kafka-offsets", "plan", "no one", "--ledger", "my_ledgr")
    assert slip.returncode == 2
    assert "Airflow has no connection 'my_ledgr' (did you mean my_ledger?)" in slip.stderr
    assert "Traceback" not in missing.stderr
    assert CANARY not in through_airflow.stdout + through_airflow.stderr + ours.stdout + ours.stderr


def test_airflow_has_the_commands_or_says_which_it_has(home: Path) -> None:
    shown = airflow(home)("airflow", "kafka-offsets", "--help")
    assert (shown.returncode == 0) == HAS_COMMANDS_OF_PROVIDERS
    assert HAS_COMMANDS_OF_PROVIDERS or "invalid choice: 'kafka-offsets'" in shown.stderr


def test_the_default_ledger_is_in_airflow_home(home: Path) -> None:
    run = airflow(home)
    nothing = run("kafka-offsets", "status")
    assert nothing.returncode == 3
    assert f"There is no ledger in sqlite:///{home}/kafka_offsets.db yet" in nothing.stderr
    made = run(*AIRFLOWS, "db", "upgrade")
    assert made.returncode == 0, made.stderr
    assert "none (no tables) before" in made.stdout
    assert (home / "kafka_offsets.db").exists()


def test_abandon_asks_airflow_whether_the_holder_is_at_work(home: Path, tmp_path: Path, lake: Lake) -> None:
    def holder_is_over(airflow_home: Path) -> bool | None:
        command = ("abandon", "lake.orders-000003", "--why", "w", "--ledger", lake.url, "-o", "json")
        answer: bool | None = json.loads(airflow(airflow_home)("kafka-offsets", *command).stdout)["holder_is_over"]
        return answer

    claim = lake.ledger.window("lake.orders-000003").holder
    run = {"dag_id": claim.dag_id, "run_id": claim.run_id}
    assert holder_is_over(home) is True, "Airflow has no such run"
    insert(home, "dag_run", **run, state="running")
    insert(home, "task_instance", **run, task_id=claim.task_id, map_index=-1, state="deferred")
    assert holder_is_over(home) is False
    execute(home, "UPDATE task_instance SET state = 'failed'")
    assert holder_is_over(home) is True
    execute(home, "UPDATE task_instance SET state = 'running'")
    execute(home, "UPDATE dag_run SET state = 'failed'")
    assert holder_is_over(home) is True
    nowhere = tmp_path / "nowhere"
    assert holder_is_over(nowhere) is None
    assert not nowhere.exists()


def insert(home: Path, table: str, **values: object) -> None:
    """Write a row into Airflow's database, with nothing that means anything in the columns that are not named."""
    connection = sqlite3.connect(home / "airflow.db")
    columns = list(connection.execute(f"PRAGMA table_info({table})"))
    connection.close()
    filled = {name: "00" for _, name, _, is_needed, default, _ in columns if is_needed and default is None}
    row = {**filled, **values}
    execute(home, f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", *row.values())


def execute(home: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(home / "airflow.db")
    with connection:
        connection.execute(statement, values)
    connection.close()
