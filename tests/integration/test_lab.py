"""The lab itself: its servers start, keep their data over a restart, and leave nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

import psutil
import pytest
import requests
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, AdminClient
from sqlalchemy import create_engine, text

from tests.lab.databases import MariaDB, Postgres
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import Server, ServerError, is_dead, wait_until
from tests.lab.topics import (
    abort_transaction,
    commit_transaction,
    create_topic,
    delete_topic,
    end_offset,
    produce,
    topic_id,
)
from tests.lab.waiting import ANSWER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.kafka import SecureKafkaBroker
    from tests.lab.spark_connect import SparkConnect


REPOSITORY = Path(__file__).parents[2]


STARTS_A_CHILD = (
    "import subprocess, time; "
    "print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True); time.sleep(600)"
)


@pytest.mark.server
def test_a_server_that_dies_shows_the_end_of_its_log(tmp_path: Path) -> None:
    server = Server("no one", [sys.executable, "-c", "exit('no disk')"], log=tmp_path / "log", ready=lambda: False)
    with pytest.raises(ServerError, match=r"ended with status 1[^\n]*\n[^\n]*\nno disk"):
        server.start()


@pytest.mark.server
def test_stopping_a_server_reaches_a_child_that_made_a_session_of_its_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Server("parent", [sys.executable, "-c", STARTS_A_CHILD], log=log, ready=lambda: bool(log.read_text())):
        child = psutil.Process(int(log.read_text()))
    assert is_dead(child)


@pytest.mark.server
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_server_is_gone_when_all_that_it_started_are_however_long_that_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """A database that starts again must not find the shared memory of its dead parent in use by a process that is still ending."""
    kill = psutil.Process.kill
    monkeypatch.setattr(psutil.Process, "kill", lambda process: Timer(0.5, kill, (process,)).start())
    log = tmp_path / "log"
    server = Server("parent", [sys.executable, "-c", STARTS_A_CHILD], log=log, ready=lambda: bool(log.read_text()))
    server.start()
    child = psutil.Process(int(log.read_text()))
    getattr(server, end)()
    assert is_dead(child)


@pytest.mark.server
def test_a_server_whose_answer_comes_too_late_is_asked_again(tmp_path: Path) -> None:
    answers = iter([requests.ReadTimeout("slow"), requests.ConnectionError("refused"), OSError("reset")])

    def is_ready() -> bool:
        for error in answers:
            raise error
        return True

    with Server("slow", ["sleep", "600"], log=tmp_path / "log", ready=is_ready) as server:
        assert server.is_running


@pytest.mark.server
def test_a_server_that_never_answers_tells_what_its_client_saw(tmp_path: Path) -> None:
    def is_ready() -> bool:
        raise requests.ReadTimeout("read timed out")

    server = Server("mute", ["sleep", "600"], log=tmp_path / "log", ready=is_ready, timeout=0.1)
    with pytest.raises(ServerError, match=r"mute did not answer within 0\.1 s, at last ReadTimeout\(.read timed out"):
        server.start()
    assert not server.is_running


@pytest.mark.server
def test_an_exception_stops_the_server(tmp_path: Path) -> None:
    server = Server("sleeper", ["sleep", "600"], log=tmp_path / "log", ready=lambda: True)

    def be_interrupted() -> None:
        with server:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        be_interrupted()
    assert not server.is_running


def test_a_server_does_not_outlive_a_test_run_that_is_killed(tmp_path: Path) -> None:
    starts_a_server = (
        "import pathlib, sys, time; from tests.lab.processes import Server; "
        "server = Server('sleeper', ['sleep', '600'], log=pathlib.Path(sys.argv[1]), ready=lambda: True).start(); "
        "print(server.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", starts_a_server, str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        sleeper = psutil.Process(int(run.stdout.readline()))
        run.kill()
    wait_until(lambda: is_dead(sleeper), what="the server is dead")


def test_a_server_is_refused_to_a_test_without_its_marker(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"test_a_server_is_refused\w+ starts sleeper, .*: mark it `server`"):
        Server("sleeper", ["sleep", "600"], log=tmp_path / "log", ready=lambda: True).start()


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Run a broker that tests stop, and that another one joins."""
    with KafkaBroker(tmp_path_factory.mktemp("own-kafka")) as broker:
        yield broker


def leads(broker: KafkaBroker, topic: str) -> bool:
    """Tell whether a restarted broker leads a topic again. Its metadata may say so a moment earlier."""
    try:
        end_offset(broker, topic)
    except KafkaException as exc:
        if exc.args[0].code() != KafkaError.UNKNOWN_LEADER_EPOCH:
            raise
        return False
    return True


@pytest.mark.kafka
def test_a_broker_keeps_topics_and_records_over_stop_and_start(own_kafka: KafkaBroker, topic: str) -> None:
    created = create_topic(own_kafka, topic, 2)
    produce(own_kafka, topic, 100)
    own_kafka.stop()
    own_kafka.start()
    wait_until(lambda: leads(own_kafka, topic), what="the broker leads its topic again")
    assert (topic_id(own_kafka, topic), end_offset(own_kafka, topic)) == (created, 100)


def test_a_recreated_topic_has_another_id(kafka: KafkaBroker, topic: str) -> None:
    before = create_topic(kafka, topic)
    delete_topic(kafka, topic)
    assert create_topic(kafka, topic) != before


def test_a_transaction_takes_one_offset_more_than_its_records(kafka: KafkaBroker, topic: str) -> None:
    create_topic(kafka, topic)
    commit_transaction(kafka, topic, 10)
    abort_transaction(kafka, topic, 5)
    assert end_offset(kafka, topic) == 17


@pytest.mark.kafka
def test_a_partition_on_a_stopped_broker_has_no_leader(own_kafka: KafkaBroker, tmp_path: Path, topic: str) -> None:
    with KafkaBroker(tmp_path / "second", joins=own_kafka) as second:
        create_topic(own_kafka, topic, on_brokers=[1, 2])
        second.stop()
        partitions = own_kafka.admin.list_topics(topic, timeout=ANSWER).topics[topic].partitions
        assert [partitions[0].leader, partitions[1].leader] == [1, -1]


def test_a_user_sees_the_topics_that_the_acl_allows(kafka_sasl: SecureKafkaBroker, topic: str) -> None:
    create_topic(kafka_sasl, topic)
    alice = AdminClient(kafka_sasl.client_config("alice"))
    assert topic not in alice.list_topics(timeout=ANSWER).topics
    kafka_sasl.allow("alice", AclOperation.DESCRIBE, topic=topic)
    assert topic in alice.list_topics(timeout=ANSWER).topics


@pytest.mark.parametrize(
    "database",
    [pytest.param(Postgres, marks=pytest.mark.postgres), pytest.param(MariaDB, marks=pytest.mark.mariadb)],
)
def test_a_database_keeps_its_rows_over_stop_and_kill(database: type[Postgres] | type[MariaDB]) -> None:
    with database() as server:
        engine = create_engine(server.url, pool_pre_ping=True)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE numbers (n INTEGER)"))
            connection.execute(text("INSERT INTO numbers VALUES (42)"))
        server.stop()
        server.start()
        server.kill()
        server.revive()
        with engine.begin() as connection:
            assert connection.execute(text("SELECT n FROM numbers")).scalar() == 42
        engine.dispose()


CONNECT_CLIENT = """
import json, sys
from pyspark.sql import SparkSession, functions

options = dict(zip(("kafka.bootstrap.servers", "assign", "startingOffsets", "endingOffsets"), sys.argv[2:]))
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
records = spark.read.format("kafka").options(**options).load()
doubled = functions.udf(lambda value: 2 * int(value), "int")(records["value"].cast("string"))
print(json.dumps([row[0] for row in records.select(doubled).sort("offset").collect()]))
"""


def test_spark_connect_reads_offset_ranges_of_kafka(
    spark_connect: SparkConnect, kafka: KafkaBroker, topic: str
) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 20)
    ranges = [f'{{"{topic}":[0]}}', f'{{"{topic}":{{"0":5}}}}', f'{{"{topic}":{{"0":9}}}}']
    command = [sys.executable, "-c", CONNECT_CLIENT, spark_connect.url, kafka.bootstrap_servers, *ranges]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [10, 12, 14, 16]
