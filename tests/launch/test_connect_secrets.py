"""What a Spark Connect server shows, and keeps, of a Kafka login."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import requests
from confluent_kafka.admin import AclOperation

from airflow_kafka_offsets.core.launch.properties import properties_file
from tests.lab.processes import wait_until
from tests.lab.waiting import ANSWER
from tests.launch.conftest import Worker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.kafka import SecureKafkaBroker
    from tests.lab.spark_connect import SparkConnect

PROVIDERS = "org.apache.kafka.common.config.provider"


def secure_worker(folder: Path, kafka: SecureKafkaBroker, connect: SparkConnect, topic: str) -> Worker:
    """Return a worker whose Kafka wants a login."""
    worker = Worker(folder, kafka, connect, topic)
    worker.connections["kafka_default"]["extra"] = kafka.client_config("alice")
    for operation in (AclOperation.DESCRIBE, AclOperation.READ):
        kafka.allow("alice", operation, topic=topic)
    return worker


def login(kafka: SecureKafkaBroker) -> str:
    """Return Java's form of the login."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{module} required username="alice" password="{kafka.password("alice")}";'


def test_a_login_that_the_server_looks_up_itself_is_nowhere_to_be_seen(
    tmp_path: Path, kafka_sasl: SecureKafkaBroker, spark_connect: SparkConnect, topic: str
) -> None:
    worker = secure_worker(tmp_path, kafka_sasl, spark_connect, topic)
    (tmp_path / "client.properties").write_text(properties_file({"jaas": login(kafka_sasl)}))
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted" / "jaas").write_text(login(kafka_sasl))
    tries = []
    for number, (provider, reference) in enumerate(
        [("File", f"{tmp_path}/client.properties"), ("Directory", f"{tmp_path}/mounted")], start=1
    ):
        options = {
            "kafka.config.providers": "here",
            "kafka.config.providers.here.class": f"{PROVIDERS}.{provider}ConfigProvider",
            "kafka.sasl.jaas.config": f"${{here:{reference}:jaas}}",
        }
        # A person's clear, so that the second try runs, too.
        again = {"try_number": number, "last_clear": number - 1}
        # A plan that is not deep: of what lies further down, the pages leave out all options.
        tries.append({"function": "say_which_spark", "group": {**worker.group, "spark_options": options}, **again})
    said = worker.run(*tries)
    assert said.count("RETURNED {") == 2, "each provider has read the window"

    password = kafka_sasl.password("alice")
    shown = all_pages(spark_connect)
    assert any(worker.topic in page for page in shown.values()), "the operation is not on the pages"
    assert any("${here:" in page for page in shown.values()), (
        "nor are the options, so a missing password proves nothing"
    )
    assert not [url for url, page in shown.items() if password in page]
    wait_until(lambda: any(worker.topic in text for text in kept(spark_connect)), what="it is in the event log")
    assert not [1 for text in kept(spark_connect) if password in text]
    assert password not in said


def test_a_login_in_the_connection_is_refused_with_what_to_do_and_nothing_is_planned(
    tmp_path: Path, kafka_sasl: SecureKafkaBroker, spark_connect: SparkConnect, topic: str
) -> None:
    worker = secure_worker(tmp_path, kafka_sasl, spark_connect, topic)
    said = worker.run({"function": "append"}, succeeds=False)
    assert "The secret of 'kafka_default' is not sent to a Spark Connect server. Store it as a secret there" in said
    assert "docs/howto/log-in-to-your-kafka.md#on-a-cluster" in said
    assert kafka_sasl.password("alice") not in said
    assert not (tmp_path / "airflow" / "kafka_offsets.db").exists()


def all_pages(connect: SparkConnect) -> dict[str, str]:
    """Return the pages of the server's UI and of its REST interface, two links deep."""
    (application,) = requests.get(f"{connect.ui_url}/api/v1/applications", timeout=ANSWER).json()
    api = f"/api/v1/applications/{application['id']}"
    starts = ["jobs", "stages", "storage", "environment", "executors", "SQL", "connect"]
    rest = [f"{api}/{what}" for what in ("environment", "jobs", "stages?details=true", "sql?details=true&length=1000")]
    pages: dict[str, str] = {}
    todo: list[tuple[str, int]] = [(f"/{start}/", 0) for start in starts] + [(path, 2) for path in rest]
    while todo:
        path, depth = todo.pop()
        if path in pages:
            continue
        pages[path] = requests.get(f"{connect.ui_url}{path}", timeout=ANSWER).text
        links: list[Any] = re.findall(r'href="(?:http://[^/"]+)?(/(?:SQL|connect)/[^"#]*id=[^"#]*)"', pages[path])
        todo += [(link.replace("&amp;", "&"), depth + 1) for link in links if depth < 2]
    return pages


def kept(connect: SparkConnect) -> list[str]:
    """Return the texts of its event logs."""
    return [path.read_text(errors="replace") for path in connect.events.rglob("*") if path.is_file()]
