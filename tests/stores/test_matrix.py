"""The matrix in docs/stores equals the stores' guarantees, which the contract suite checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.store_address import _KINDS, parse_store_address
from airflow_kafka_offsets.ports import OffsetStore
from airflow_kafka_offsets.wiring.stores.opening import open_store

PAGE = Path(__file__).parents[2] / "docs" / "stores" / "README.md"
ROWS = {
    "[Kafka](kafka.md)": "kafka://",
    "[Kafka](kafka.md), plain commits": "kafka://?commit=plain",
    "[Redis](redis.md)": "redis://redis_default",
    "[ZooKeeper](zookeeper.md)": "zookeeper://zookeeper_default",
    "[ZooKeeper](zookeeper.md), one node": "zookeeper://zookeeper_default?layout=json",
    "[HBase](hbase.md)": "hbase://hbase_default",
    "[SQL](sql.md)": "sql://postgres_default/kafka_offsets",
    "[local files](files.md)": "files:///var/lib/offsets",
    "[S3](files.md)": "s3://aws_default/my-bucket/offsets",
    "[HDFS](files.md)": "hdfs://webhdfs_default/apps/offsets",
}
CONNECTIONS = {
    "kafka_default": '{"conn_type": "kafka", "extra": {"bootstrap.servers": "kafka:9092"}}',
    "redis_default": '{"conn_type": "redis", "host": "redis"}',
    "zookeeper_default": '{"conn_type": "zookeeper", "host": "zookeeper"}',
    "hbase_default": '{"conn_type": "hbase", "host": "hbase"}',
    "postgres_default": '{"conn_type": "postgres", "host": "postgres", "schema": "offsets"}',
    "aws_default": '{"conn_type": "aws"}',
    "webhdfs_default": '{"conn_type": "webhdfs", "host": "namenode", "port": 9870}',
}


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give Airflow a connection to each kind of store; no one is asked anything."""
    for name, fields in CONNECTIONS.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", fields)


def opened(address: str) -> OffsetStore:
    """Open a store by its address."""
    return open_store(parse_store_address(address), KafkaGroup("lake", topics=["orders"]))


def row(title: str, address: str, note: int) -> str:
    """Return the line of the matrix that a store's guarantees make, with the number of its note below."""
    promised = opened(address).guarantees
    atomic = "yes" if promised.is_atomic else "**no**"
    cells = [
        title,
        f"`{address}`",
        atomic,
        promised.compares.value,
        promised.limit or "more than 10,000",
        f"see {note}",
    ]
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("title", ROWS)
def test_the_page_shows_what_the_store_declares(title: str) -> None:
    note = 1 + list(ROWS).index(title)
    page = PAGE.read_text()
    assert row(title, ROWS[title], note) in page
    assert f"\n{note}. " in page


def test_every_kind_of_store_has_a_line_and_opens_without_asking_its_server() -> None:
    assert {opened(address).name.partition(":")[0] for address in ROWS.values()} == set(_KINDS)
