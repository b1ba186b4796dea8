"""Lag, plan and reset on a real broker, without Airflow."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.group import KafkaGroup
from tests.cli.conftest import Lake, in_a_process, run_program
from tests.lab.processes import free_port
from tests.lab.topics import create_topic, delete_records, delete_topic, open_transaction, produce

if TYPE_CHECKING:
    from tests.lab.kafka import KafkaBroker, SecureKafkaBroker


@pytest.fixture
def group(topic: str) -> KafkaGroup:
    return KafkaGroup("lake.real", topics=[topic], kafka_timeout=10)


@pytest.fixture
def shore(kafka: KafkaBroker, group: KafkaGroup, tmp_path: Path) -> Lake:
    """A topic with two partitions, one window committed, and 30 more records."""
    [topic] = group.topics
    create_topic(kafka, topic, 2)
    produce(kafka, topic, 100, partition=0)
    produce(kafka, topic, 50, partition=1)
    lake = Lake(tmp_path / "ledger.db", KafkaLog(kafka.client_config(), 10))
    lake.commit(group, 1)
    produce(kafka, topic, 30, partition=1)
    return lake


def ask(lake: Lake, servers: str, *arguments: str) -> tuple[int, dict[str, Any], str]:
    done = in_a_process(*arguments, "--ledger", lake.url, "--bootstrap-servers", servers, "-o", "json")
    return done.code, json.loads(done.out) if done.out else {}, done.err


def test_lag_is_end_offset_minus_watermark(kafka: KafkaBroker, shore: Lake) -> None:
    code, document, _ = ask(shore, kafka.bootstrap_servers, "status", "lake.real")
    [found] = document["groups"]
    assert (code, found["lag"], found["verdict"]) == (0, 30, "OK")
    assert found["lag_seconds"] + found["headroom_seconds"] == pytest.approx(7 * 86_400)  # the broker's own retention
    assert [(p["watermark"], p["end"], p["lag"]) for p in found["partitions"]] == [(100, 100, 0), (50, 80, 30)]


def test_an_open_transaction_is_not_planned(kafka: KafkaBroker, shore: Lake, group: KafkaGroup) -> None:
    transaction = open_transaction(kafka, group.topics[0], 5, partition=0)
    produce(kafka, group.topics[0], 7, partition=0)
    code, document, _ = ask(shore, kafka.bootstrap_servers, "plan", "lake.real")
    transaction.abort()
    assert (code, document["span"]) == (0, 30)
    assert [(p["start"], p["end"]) for p in document["partitions"]] == [(100, 100), (50, 80)]


def test_expired_records_refuse_the_plan_and_the_command_that_it_names_helps(
    kafka: KafkaBroker, shore: Lake, group: KafkaGroup
) -> None:
    delete_records(kafka, group.topics[0], 60, partition=1)
    code, document, error = ask(shore, kafka.bootstrap_servers, "plan", "lake.real")
    assert code == 1
    assert [p["partition"] for p in document["problems"]] == [1]
    position = error.split(" --to '")[1].split("'")[0]
    before = shore.dump()
    reset = ("reset", "lake.real", "--to", position, "--why", "expired")
    code, document, _ = ask(shore, kafka.bootstrap_servers, *reset)
    assert (code, shore.dump()) == (4, before)
    assert [(s["partition"], s["start"], s["end"]) for s in document["skipped"]] == [(1, 50, 60)]
    assert ask(shore, kafka.bootstrap_servers, *reset, "--yes")[0] == 0
    code, document, _ = ask(shore, kafka.bootstrap_servers, "plan", "lake.real")
    assert (code, document["span"]) == (0, 20)


def test_a_recreated_topic_has_no_lag(kafka: KafkaBroker, shore: Lake, group: KafkaGroup) -> None:
    [topic] = group.topics
    delete_topic(kafka, topic)
    create_topic(kafka, topic, 2)
    code, document, _ = ask(shore, kafka.bootstrap_servers, "status", "lake.real")
    [found] = document["groups"]
    assert (code, found["lag"], found["trouble"]) == (0, None, f"{topic}-0 topic recreated, {topic}-1 topic recreated")
    assert ask(shore, kafka.bootstrap_servers, "plan", "lake.real")[0] == 1
    reset = ("reset", "lake.real", "--to", "earliest", "--topic", topic, "--why", "made again", "--yes")
    assert ask(shore, kafka.bootstrap_servers, *reset)[0] == 0
    code, document, error = ask(shore, kafka.bootstrap_servers, "plan", "lake.real")
    assert (code, document.get("span")) == (0, 0), error


def test_a_time_is_looked_up(kafka: KafkaBroker, shore: Lake) -> None:
    reset = ("reset", "lake.real", "--to", "2100-01-01T00:00:00+00:00", "--why", "skip")
    _, document, _ = ask(shore, kafka.bootstrap_servers, *reset)
    assert [(m["partition"], m["from"], m["to"]) for m in document["moves"]] == [(1, 50, 80)]


def test_a_kafka_that_is_down_is_exit_code_3_and_the_rest_is_shown(shore: Lake) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    code, document, error = ask(shore, nowhere, "status")
    [found] = document["groups"]
    assert (code, found["lag"], found["last_committed"]["id"]) == (3, None, "lake.real-000001")
    assert error.strip() == found["kafka_error"]
    assert error.count("\n") == 1
    assert ask(shore, nowhere, "plan", "lake.real")[0] == 3


def test_a_login_from_a_properties_file(
    kafka_sasl: SecureKafkaBroker, shore: Lake, group: KafkaGroup, tmp_path: Path
) -> None:
    def status(password: str) -> tuple[int, str]:
        config = kafka_sasl.client_config() | {"sasl.password": password}
        path = tmp_path / "kafka.properties"
        path.write_text("# who I am\n" + "".join(f"{name}={value}\n" for name, value in config.items()))
        done = in_a_process("status", "--ledger", shore.url, "--kafka-config", str(path))
        return done.code, done.out + done.err

    assert status(kafka_sasl.password("root"))[0] == 0
    code, said = status("wrong-canary")
    assert code == 3
    assert "refused the login" in said
    assert "canary" not in said


RUN_AND_COUNT_THREADS = """
import atexit, sys
from pathlib import Path

@atexit.register
def count():
    threads = [thread.read_text() for thread in Path("/proc/self/task").glob("*/comm")]
    print("of librdkafka:", sum(thread.startswith("rdk:") for thread in threads), "of", bool(threads), file=sys.stderr)

from airflow_kafka_offsets.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize(("password", "code"), [("", 0), ("wrong-canary", 3)])
def test_no_thread_of_librdkafka_outlives_a_command(
    kafka_sasl: SecureKafkaBroker, shore: Lake, group: KafkaGroup, tmp_path: Path, password: str, code: int
) -> None:
    """If one makes a TLS handshake while the process ends, OpenSSL is gone, and signal 11 is the exit code."""
    config = kafka_sasl.client_config() | ({"sasl.password": password} if password else {})
    path = tmp_path / "kafka.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    command = ("status", "--ledger", shore.url, "--kafka-config", str(path))
    done = run_program([sys.executable, "-c", RUN_AND_COUNT_THREADS, *command])
    assert (done.returncode, done.stderr.splitlines()[-1]) == (code, "of librdkafka: 0 of True")
