"""``kafka-offsets try-login`` on a real broker with SASL_SSL and ACLs: what is right, what is wrong with which setting, and no secret."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AclOperation

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.adapters.stores.kafka import PREFIX
from airflow_kafka_offsets.cli import main
from airflow_kafka_offsets.core.group import KafkaGroup
from tests.cli.conftest import Done, Lake, in_a_process
from tests.lab.processes import LOOPBACK, free_port
from tests.lab.topics import create_topic

if TYPE_CHECKING:
    from tests.lab.kafka import TwoDoorBroker

Try = Callable[..., Done]


@pytest.fixture
def try_login(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Try:
    """Run the command on a connection with this extra."""
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")

    def run(extra: dict[str, Any], *arguments: str) -> Done:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "kafka", "extra": extra}))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["try-login", "lake", *arguments])
        return Done(int(ended.value.code or 0), *capsys.readouterr())

    return run


def lines(done: Done) -> dict[str, str]:
    """Return what was found, by what was tried."""
    found = [line.partition(": ") for line in done.out.splitlines() if line.startswith(("ok ", "WRONG "))]
    return {subject: text for subject, _, text in found}


def test_a_login_that_works_shows_its_topics_and_how_a_job_logs_in(
    kafka_sasl: TwoDoorBroker, topic: str, try_login: Try
) -> None:
    create_topic(kafka_sasl, topic)
    kafka_sasl.allow("alice", AclOperation.READ, topic=topic)
    kafka_sasl.allow("alice", AclOperation.DESCRIBE_CONFIGS, topic=topic)
    done = try_login(kafka_sasl.client_config("alice"), "--topic", topic)
    found = lines(done)
    assert done.code == 0
    assert topic in found["ok     planning"]
    assert found[f"ok     topic {topic}"] == "may be read, and its configuration too"
    servers = kafka_sasl.bootstrap_servers
    assert found["ok     job"].endswith(f"not tried (--job tries it): SASL_SSL with SCRAM-SHA-512 to {servers}")
    assert kafka_sasl.password("alice") not in done.out + done.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sasl.password": "hunter2"}, "refused the login .* check sasl.mechanism, sasl.username and sasl.password"),
        ({"ssl.ca.location": "other-ca.crt"}, "could not be reached over TLS .* check ssl.ca.location"),
        ({"ssl.ca.location": "absent.crt"}, "The settings of Kafka at .*ssl.ca.location"),
        ({"security.protocol": "PLAINTEXT"}, "check security.protocol"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "check security.protocol"),
        ({"bootstrap.servers": "kafka.invalid:9092"}, "kafka.invalid:9092.*Check bootstrap.servers"),
        ({"bootstrap.servers": "CLOSED"}, "Connection refused.*Check bootstrap.servers"),
        ({"sasl.usrname": "alice"}, 'No such configuration property: "sasl.usrname" .did you mean sasl.username'),
    ],
    ids=["password", "CA", "no CA file", "plain", "plain SASL", "host", "port", "misspelled"],
)
def test_a_login_that_fails_names_its_setting_within_seconds(
    kafka_sasl: TwoDoorBroker, try_login: Try, change: dict[str, str], words: str
) -> None:
    if "ssl.ca.location" in change:
        change = {"ssl.ca.location": str(kafka_sasl.tls / change["ssl.ca.location"])}
    if change.get("bootstrap.servers") == "CLOSED":
        change = {"bootstrap.servers": f"{LOOPBACK}:{free_port()}"}
    began = time.monotonic()
    done = try_login({**kafka_sasl.client_config("alice"), **change}, "--timeout", "5")
    assert time.monotonic() - began < 15
    assert done.code == 1
    [planning] = [line for line in done.out.splitlines() if "planning" in line]
    assert planning.startswith("WRONG  planning: ")
    assert re.search(words, planning), planning
    assert not any(secret in done.out + done.err for secret in ("hunter2", kafka_sasl.password("alice")))


def test_each_right_that_a_group_needs_is_named_until_it_is_there(
    kafka_sasl: TwoDoorBroker, topic: str, try_login: Try, tmp_path: Path
) -> None:
    create_topic(kafka_sasl, topic)
    lake = Lake(tmp_path / "ledger.db", KafkaLog(kafka_sasl.client_config("root"), 20))
    group = f"lake.{topic}"
    lake.plan(KafkaGroup(group, topics=[topic], offset_store="kafka://"), 1)
    extra, before = kafka_sasl.client_config("bob"), lake.dump()
    store, tid = "store kafka://", PREFIX + group

    def wrong() -> dict[str, str]:
        done = try_login(extra, "--group", group, "--ledger", lake.url)
        found = {name[7:]: text for name, text in lines(done).items() if name.startswith("WRONG")}
        assert done.code == bool(found)
        return found

    assert "Grant the ACL Describe on Topic" in wrong()[f"topic {topic}"]
    kafka_sasl.allow("bob", AclOperation.DESCRIBE, topic=topic)
    assert f"Grant the ACL Read on Topic {topic}" in wrong()[f"topic {topic}"]
    kafka_sasl.allow("bob", AclOperation.READ, topic=topic)
    assert list(found := wrong()) == [store]
    assert "Grant the ACL Describe on Group" in found[store]
    kafka_sasl.allow("bob", AclOperation.DESCRIBE, group=group)
    assert f"Grant the ACL Read on Group {group}" in wrong()[store]
    kafka_sasl.allow("bob", AclOperation.READ, group=group)
    assert f"Write on TransactionalId {tid}" in wrong()[store]
    for operation in (AclOperation.DESCRIBE, AclOperation.WRITE):
        kafka_sasl.allow("bob", operation, transactional_id=tid)
    assert wrong() == {}
    assert not lake.log.commits(group, lake.log.partitions([topic]))
    assert lake.dump() == before


def test_what_planning_can_do_and_the_job_can_not_is_wrong(kafka_sasl: TwoDoorBroker, try_login: Try) -> None:
    # A mechanism of librdkafka alone; the planning side finds the broker's refusal on its own.
    extra = {**kafka_sasl.client_config("alice"), "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "hunter2"}
    done = try_login(extra, "--timeout", "2")
    assert done.code == 1
    assert "WRONG  job: " in done.out
    assert "hunter2" not in done.out + done.err


@pytest.fixture
def with_job(launch_jars: Path) -> Try:
    """Run the command with ``--job`` on a connection with this extra, in a process: a JVM stays as long as that."""

    def run(extra: dict[str, Any], *arguments: str, **environment: str) -> Done:
        variables = {
            "AIRFLOW_CONN_LAKE": json.dumps({"conn_type": "kafka", "extra": extra}),
            "AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER": str(launch_jars),
        }
        return in_a_process("try-login", "lake", "--job", *arguments, environment={**variables, **environment})

    return run


def test_with_job_sparks_own_client_logs_in_and_says_what_is_wrong_with_it(
    kafka_sasl: TwoDoorBroker, topic: str, with_job: Try, tmp_path: Path
) -> None:
    create_topic(kafka_sasl, topic)
    extra = kafka_sasl.client_config("root")
    done = with_job(extra)
    expected = f"SASL_SSL with SCRAM-SHA-512 to {kafka_sasl.bootstrap_servers}"
    assert (done.code, lines(done)["ok     job"].rpartition("machine: ")[2]) == (0, expected), done
    assert kafka_sasl.password("root") not in done.out + done.err
    lake = Lake(tmp_path / "ledger.db", KafkaLog(extra, 20))
    trust = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": f"{kafka_sasl.tls}/other-ca.crt"}
    lake.plan(KafkaGroup("lake.orders", topics=[topic], spark_options=trust), 1)
    done = with_job(extra, "--group", "lake.orders", "--ledger", lake.url, "--timeout", "60")
    found = lines(done)
    assert (done.code, "ok     planning" in found) == (1, True), done
    says = "Spark.s Kafka client did not get in: .*unable to find valid certification path"
    assert re.match(says, found["WRONG  job"]), found
    assert kafka_sasl.password("root") not in done.out + done.err


def test_with_job_a_jvm_that_forbids_what_the_login_needs_is_named(with_job: Try) -> None:
    forbidding = "org.apache.kafka.automatic.config.providers"
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    extra = {"bootstrap.servers": f"{LOOPBACK}:{free_port()}", **login, "sasl.password": "hunter2"}
    done = with_job(extra, "--timeout", "1", JAVA_TOOL_OPTIONS=f"-D{forbidding}=none")
    found = lines(done)["WRONG  job"]
    assert re.match(f"{forbidding} forbids Kafka's client .*FileConfigProvider", found), found
    assert "hunter2" not in done.out + done.err


def test_a_connection_without_servers_is_wrong_for_both(try_login: Try) -> None:
    done = try_login({"bootstrap.server": "kafka:9092"})
    assert done.code == 1
    assert lines(done) == dict.fromkeys(
        ("WRONG  planning", "WRONG  job"),
        "Connection 'lake': rename 'bootstrap.server' to bootstrap.servers in its extra",
    )


def test_programs_get_the_findings(try_login: Try) -> None:
    document = try_login({}, "-o", "json").json
    assert document["right"] is False
    assert [finding["subject"] for finding in document["findings"]] == ["planning", "job"]


def test_a_connection_or_group_that_is_not_there_is_wrong_usage(
    try_login: Try, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Lake(tmp_path / "ledger.db", None)
    done = try_login({}, "--group", "lake.nothing", "--ledger", f"sqlite:///{tmp_path / 'ledger.db'}")
    assert (done.code, "lake.nothing" in done.err) == (2, True)
    with pytest.raises(SystemExit) as ended:
        main(["try-login", "nowhere"])
    assert ended.value.code == 2
    assert "Airflow has no connection 'nowhere'" in capsys.readouterr().err
