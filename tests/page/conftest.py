"""One API server with the page for all of its tests, and one browser."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Act
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Claim
from tests.lab.browser import open_browser
from tests.lab.processes import LOOPBACK
from tests.lab.topics import create_topic, delete_records, produce
from tests.page.server import PageServer, Story

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

    from tests.lab.kafka import KafkaBroker

HERE = Path(__file__).parent

HOSTILE_RUN = '"><img src=x onerror=boom()>'
HOSTILE_WHY = "</q><script>boom()</script>"
HOSTILE_TASK = "load'\"><b onmouseover=boom()>"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need the API server."""
    for item in items:
        if item.path.is_relative_to(HERE) and "server" in getattr(item, "fixturenames", ()):
            for marker in ("server", "airflow", "kafka"):
                item.add_marker(marker)


@pytest.fixture(scope="session")
def silent() -> Iterator[int]:
    """Listen, and never answer, like a server that hangs or is behind a firewall."""
    with socket.create_server((LOOPBACK, 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaBroker, silent: int) -> Iterator[PageServer]:
    """Run an API server with a ledger of some groups."""
    servers = {
        "kafka_default": kafka.client_config(),
        "kafka_silent": {"bootstrap.servers": f"{LOOPBACK}:{silent}"},
    }
    connections = {name: {"conn_type": "kafka", "extra": config} for name, config in servers.items()}
    made = PageServer(tmp_path_factory.mktemp("page"), connections)
    _write(made, kafka)
    with made:
        yield made


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    """Open a browser."""
    with open_browser(tmp_path_factory.mktemp("browser"), width=1280, height=1000) as opened:
        yield opened


def _write(server: PageServer, kafka: KafkaBroker) -> None:
    topic = "page-orders"
    create_topic(kafka, topic, 3)
    for partition in range(3):
        produce(kafka, topic, 1_500 + 100 * partition, partition=partition)
    ids = KafkaLog(kafka.client_config(), 20).topic_ids([topic])
    orders = Story(server.ledger, KafkaGroup("lake.orders", topics=[topic]), topic_ids=ids)
    orders.hours(2, start=200)
    orders.backfill(100, 200, dag_id="replays", run_id="manual__1")
    orders.run(orders.draft(400, 500), tries=12)
    orders.run(orders.draft(500, 600), is_open=True)
    orders.act("reset", "ada", "broker disk lost", superseded=["lake.orders-000002"])
    orders.act("commit", "ada", "checked by hand", window="lake.orders-000003")
    delete_records(kafka, topic, 150)  # of partition 0, in the middle of the backfill window

    hostile = Story(server.ledger, KafkaGroup("lake.hostile", topics=["hostile"], kafka_conn_id="kafka_down"), "plain")
    hostile.run(hostile.draft(0, 5))
    taken = server.ledger.window(hostile.run(hostile.draft(5, 9)))
    by = Claim(HOSTILE_RUN, HOSTILE_RUN, HOSTILE_TASK)
    server.ledger.hold([taken], by, hostile.at)
    server.ledger.start_attempt(taken.id, by, Try(), hostile.at)
    hostile.act("abandon", HOSTILE_RUN, HOSTILE_WHY, window="lake.hostile-000001")

    secret = Story(server.ledger, KafkaGroup("dwh.secret", topics=["salaries"], kafka_conn_id="kafka_down"), "payroll")
    secret.hours(2)
    imported = KafkaGroup("hr.imported", topics=["imported"], kafka_conn_id="kafka_down")
    starts = Position({TopicPartition("imported", 0): 7}, {"imported": "id-of-imported"})
    server.ledger.found(imported, starts, Act("import", "ada", "moving over", secret.at))
    wide = Story(server.ledger, KafkaGroup("lake.wide", topics=["clicks", "views"], kafka_conn_id="kafka_down"))
    wide.hours(3, partitions=500)
    many = Story(server.ledger, KafkaGroup("lake.many", topics=["many"], kafka_conn_id="kafka_down"))
    for start, dag_id in enumerate(("paused", "stale", "broken", "gone", "orders")):
        many.run(many.draft(start, start + 1), dag_id=dag_id)
    waiting = Story(server.ledger, KafkaGroup("lake.silent", topics=["silent"], kafka_conn_id="kafka_silent"))
    waiting.hours(1)
    pruned = Story(server.ledger, KafkaGroup("lake.pruned", topics=["pruned"], kafka_conn_id="kafka_down"))
    pruned.hours(4)
    pruned.backfill(100, 200)
    pruned.prune(2)
    back = Story(server.ledger, KafkaGroup("lake.back", topics=[topic]), topic_ids=ids)
    back.hours(3, start=200)
    back.reset(300, [2, 3])
    late = Story(server.ledger, KafkaGroup("lake.late", topics=[topic]), topic_ids=ids)
    late.hours(1, start=0, span=50)
    late.run(late.draft(50, 100), is_open=True)  # of partition 0, all of it has expired, and 50 more
