"""From the ledger into each store, and from each store back: the command line, Airflow's connections, real servers."""

from __future__ import annotations

import csv
import io
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from airflow_kafka_offsets.adapters.ledger.sql_ledger import SqlLedger
from airflow_kafka_offsets.cli import main
from airflow_kafka_offsets.core.errors import StoreDriftError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Act
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.store_address import parse_store_address
from airflow_kafka_offsets.core.window import Claim, Scope
from airflow_kafka_offsets.service.windows import WindowService, utc_now
from airflow_kafka_offsets.wiring import open_log, open_service
from airflow_kafka_offsets.wiring.stores.opening import open_store
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import LOOPBACK
from tests.lab.topics import create_topic, produce

Fixture = Callable[[str], Any]
Run = Callable[..., tuple[int, str]]


def _redis(fixture: Fixture, _: Path) -> tuple[str, dict[str, Any]]:
    login = fixture("redis_secure").login()
    fields = {"conn_type": "redis", "host": login["host"], "port": login["port"], "password": login["password"]}
    return "redis://lab", {**fields, "extra": {"ssl": True, "ssl_ca_certs": login["ssl_ca_certs"]}}


def _redis_cluster(fixture: Fixture, _: Path) -> tuple[str, dict[str, Any]]:
    fields = {"conn_type": "redis", "host": LOOPBACK, "port": fixture("redis_cluster").port}
    return "redis://lab?cluster=true", fields


def _zookeeper(fixture: Fixture, _: Path) -> tuple[str, dict[str, Any]]:
    return "zookeeper://lab", {"conn_type": "zookeeper", "host": LOOPBACK, "port": fixture("zookeeper").port}


def _zookeeper_json(fixture: Fixture, path: Path) -> tuple[str, dict[str, Any]]:
    return "zookeeper://lab?layout=json", _zookeeper(fixture, path)[1]


def _hbase(fixture: Fixture, _: Path) -> tuple[str, dict[str, Any]]:
    import happybase

    server, table = fixture("hbase"), f"offsets_{uuid.uuid4().hex[:8]}"
    happybase.Connection(LOOPBACK, server.port).create_table(table, {"offsets": {}, "state": {}})
    return f"hbase://lab/{table}?timeout=60", {"conn_type": "hbase", "host": LOOPBACK, "port": server.port}


def _database(url: str, conn_type: str) -> tuple[str, dict[str, Any]]:
    parsed = make_url(url)
    login = {"login": parsed.username, "password": parsed.password, "schema": parsed.database}
    return "sql://lab/across?create=true", {"conn_type": conn_type, "host": parsed.host, "port": parsed.port, **login}


def _postgres(fixture: Fixture, _: Path) -> tuple[str, dict[str, Any]]:
    return _database(fixture("postgres").url, "postgres")


def _mariadb(fixture: Fixture, _: Path) -> tuple[str, dict[str, Any]]:
    return _database(fixture("mariadb").url, "mysql")


def _files(_: Fixture, path: Path) -> tuple[str, dict[str, Any]]:
    (path / "offsets").mkdir()
    return f"files://{path}/offsets", {"conn_type": "generic"}


def _s3(fixture: Fixture, _: Path) -> tuple[str, dict[str, Any]]:
    server = fixture("s3")
    bucket = server.create_bucket(f"across-{uuid.uuid4().hex[:8]}")
    keys = {"login": "key", "password": "secret"}
    return f"s3://lab/{bucket}/offsets", {
        "conn_type": "aws",
        **keys,
        "extra": {"endpoint_url": server.url, "region_name": "us-east-1"},
    }


def _hdfs(fixture: Fixture, _: Path) -> tuple[str, dict[str, Any]]:
    server = fixture("hdfs")
    return "hdfs://lab/across", {"conn_type": "webhdfs", "host": LOOPBACK, "port": server.port, "login": server.user}


def _kafka(_: Fixture, __: Path) -> tuple[str, dict[str, Any]]:
    return "kafka://kafka_default", {"conn_type": "generic"}


def _kafka_plain(_: Fixture, __: Path) -> tuple[str, dict[str, Any]]:
    return "kafka://?commit=plain", {"conn_type": "generic"}


PLACES = [
    _redis,
    _redis_cluster,
    _zookeeper,
    _zookeeper_json,
    _hbase,
    _postgres,
    _mariadb,
    _files,
    _s3,
    _hdfs,
    _kafka,
    _kafka_plain,
]
pytestmark = pytest.mark.server


@pytest.fixture(params=PLACES, ids=lambda place: place.__name__.strip("_"))
def address(request: pytest.FixtureRequest, kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give Airflow the connection to a store, and return its address."""
    address, fields = request.param(request.getfixturevalue, tmp_path)
    monkeypatch.setenv("AIRFLOW_CONN_LAB", json.dumps(fields))
    connection = {"conn_type": "kafka", "extra": kafka.client_config()}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))
    return str(address)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlLedger:
    """Make the ledger that the command line and the service open."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    monkeypatch.setenv("KAFKA_OFFSETS_LEDGER", url)
    monkeypatch.setattr("airflow_kafka_offsets.wiring.ledger_url", lambda conn_id=None: url)
    return SqlLedger(url, create=True)


@pytest.fixture
def group(kafka: KafkaBroker, ledger: SqlLedger, topic: str, address: str) -> KafkaGroup:
    """Found a group on a topic with two partitions, at the offsets 30 and 7."""
    create_topic(kafka, topic, 2)
    for partition in range(2):
        produce(kafka, topic, 50, partition=partition)
    group = KafkaGroup(f"lake.{uuid.uuid4().hex[:8]}", topics=[topic], kafka_timeout=10, offset_store=address)
    ids = open_log(group).topic_ids([topic])
    act = Act("import", "ada", "begin", utc_now(), {})
    ledger.found(group, Position({TopicPartition(topic, 0): 30, TopicPartition(topic, 1): 7}, ids), act)
    return group


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command, and return its exit code and what it printed."""

    def run(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out + (shown.err if ended.value.code else "")

    return run


def test_out_and_back_again(run: Run, ledger: SqlLedger, group: KafkaGroup, address: str) -> None:
    [topic] = group.topics
    stands = {TopicPartition(topic, 0): 30, TopicPartition(topic, 1): 7}
    why = ("--why", "moving")
    copy = ("copy", group.name, "--from", "ledger", "--to", address, *why)
    assert run(*copy)[0] == 4, "a dry run"
    store = open_store(parse_store_address(address), group)
    assert store.read(group.name, [topic]) == {}
    code, said = run(*copy, "--yes")
    assert code == 0, said
    assert store.read(group.name, [topic]) == stands
    assert run("verify", group.name)[0] == 0

    code, said = run("export", group.name, "--from", address, "--to", "-")
    assert code == 0, said
    assert list(csv.reader(io.StringIO(said))) == [[topic, "0", "30"], [topic, "1", "7"]]

    code, said = run(
        "import", f"{group.name}.copy", "--from", address, "--as", group.name, "--topic", topic, *why, "--yes"
    )
    assert code == 0, said
    position = ledger.load(f"{group.name}.copy").position
    assert position is not None
    assert position.offsets == stands
    assert [act.kind for act in ledger.acts(group.name)] == ["import", "copy"]
    assert [act.kind for act in ledger.acts(f"{group.name}.copy")] == ["import"]


def test_a_window_moves_the_store_and_what_others_move_is_seen_before_the_next(
    run: Run, ledger: SqlLedger, group: KafkaGroup, address: str
) -> None:
    [topic] = group.topics
    service: WindowService = open_service(group)
    claim = Claim("dag", "run", "task", scope=Scope.RUN)
    [planned] = service.plan(group, claim, lambda _: True)
    service.commit(planned.window.id, claim)
    end = {TopicPartition(topic, 0): 50, TopicPartition(topic, 1): 50}
    store = open_store(parse_store_address(address), group)
    assert store.read(group.name, [topic]) == end
    assert run("verify", group.name)[0] == 0

    store.advance(group.name, end, {**end, TopicPartition(topic, 1): 40})
    with pytest.raises(StoreDriftError, match=rf"{topic}-1: found 40, expected 50"):
        service.plan(group, Claim("dag", "next", "task", scope=Scope.RUN), lambda _: True)
    code, said = run("verify", group.name)
    assert code == 1, said
    assert "copy" in said
    code, said = run("copy", group.name, "--from", "ledger", "--to", address, "--why", "put right", "--yes")
    assert code == 0, said
    assert run("verify", group.name)[0] == 0
