"""What a job gets beside its command line."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path

import pytest

from airflow_kafka_offsets.core.errors import BadInputError, CollidingOptionError, KafkaOffsetsError
from airflow_kafka_offsets.core.evidence import Report
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.launch.login import ReaderOptions
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.schemas import Registry
from airflow_kafka_offsets.core.schemas import Subject as AvroSubject
from airflow_kafka_offsets.core.window import Draft, Window
from airflow_kafka_offsets.launch import job_files
from airflow_kafka_offsets.launch.job_files import (
    MAX_ARGUMENT,
    fill,
    joined,
    placeholders,
    read_report,
    reader_of,
    refuse_ours,
    task_folder,
    window_conf,
    with_login,
)
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.spark.handoff import CONF_WINDOW, CONF_WINDOW_FILE, Handoff, Subject
from airflow_kafka_offsets.task.work import MAX_RANGES_IN_XCOM, window_result

LOGIN = ReaderOptions({}, {"kafka.sasl.jaas.config": "module required;"})
NOW = datetime(2026, 1, 31, tzinfo=UTC)


def window_of(partitions: int) -> Window:
    ranges = OffsetRanges((TopicPartition("orders", p), OffsetRange(10**9, 10**9 + p % 3)) for p in range(partitions))
    return Draft(ranges, {"orders": "id"}, NOW, IsolationLevel.READ_COMMITTED).named("g", 7)


def handoff_of(partitions: int) -> Handoff:
    topics = {"orders": {str(p): (10**9, 10**9 + 5) for p in range(partitions)}}
    return Handoff("g-000007", "g", 7, "live", NOW.isoformat(), False, "read_committed", False, topics, {})


def test_a_job_gets_the_ids_of_its_topics_and_ledger_and_how_many_records_an_earlier_run_read() -> None:
    planned = Planned(window_of(3), True, "again", read_before=100, ledgers=("own", "lost"))
    handoff = job_files.handoff_of(planned, {}, KafkaGroup("g", topics=["orders"]), None)
    assert (handoff.topic_ids, handoff.at_least) == ({"orders": "id"}, 100)
    assert Handoff.from_json(handoff.to_json()).ledgers == ("own", "lost")
    handoff = job_files.handoff_of(planned, {}, KafkaGroup("g", topics=["orders"], expect_fewer=True), None)
    assert handoff.at_least is None


@pytest.mark.parametrize(("of_window", "of_group"), permutations(IsolationLevel))
def test_a_job_reads_at_the_isolation_level_of_its_window_whatever_its_group_has_now(
    of_window: IsolationLevel, of_group: IsolationLevel
) -> None:
    planned = Planned(replace(window_of(3), isolation_level=of_window), False, "adopted")
    group = KafkaGroup("g", topics=["orders"], isolation_level=of_group)
    assert job_files.handoff_of(planned, {}, group, None).isolation_level == of_window.value
    assert placeholders(planned.window)["isolation_level"] == of_window.value


def test_a_job_gets_the_frozen_schemas_and_nothing_of_the_registry() -> None:
    frozen = {
        "orders-value": AvroSubject("AVRO", 7, {7: '"long"'}),
        "orders-key": None,
        "j": AvroSubject("JSON", 1, {1: "{}"}),
    }
    planned = Planned(window_of(3), True, "again", frozen=frozen)
    group = KafkaGroup("g", topics=["orders"], registry=Registry("canary", subjects={"orders": ["orders-value", "j"]}))
    handoff = job_files.handoff_of(planned, {}, group, None)
    assert handoff.schemas == (Subject("orders-value", "value", ["orders"], 7, {7: '"long"'}),)
    assert Handoff.from_json(handoff.to_json()) == handoff
    assert "canary" not in handoff.to_json()
    assert job_files.handoff_of(planned, {}, KafkaGroup("g", topics=["orders"]), None).schemas is None


def test_a_job_of_a_pattern_gets_the_schemas_of_quiet_topics_too() -> None:
    frozen = {f"{topic}-value": AvroSubject("AVRO", 7, {7: '"long"'}) for topic in ("orders", "orders-quiet")}
    planned = Planned(window_of(3), True, "again", frozen=frozen, topics=("left", "orders", "orders-quiet"))
    handoff = job_files.handoff_of(planned, {}, KafkaGroup("g", topics_pattern="orders.*", registry="registry"), None)
    assert handoff.schemas is not None
    assert [subject.topics for subject in handoff.schemas] == [("orders",), ("orders-quiet",)]


def test_a_window_travels_in_spark_conf_and_a_large_one_as_a_file(tmp_path: Path) -> None:
    small = handoff_of(10)
    assert window_conf(small, tmp_path) == ({CONF_WINDOW: small.to_json()}, [])
    large = handoff_of(20_000)
    conf, (file,) = window_conf(large, tmp_path)
    assert conf == {CONF_WINDOW_FILE: Path(file).name}
    assert Handoff.from_json(Path(file).read_text()) == large


def test_a_login_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    options = with_login(
        ReaderOptions({}, {"kafka.sasl.jaas.config": 'module required password="pa:ss=wörd";'}), tmp_path
    )
    path = tmp_path / "login.properties"
    assert options["kafka.sasl.jaas.config"] == f"${{kafka_offsets_login:{path}:kafka.sasl.jaas.config}}"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == 'kafka.sasl.jaas.config=module required password="pa:ss=w\\u00f6rd";\n'


TASK = """
import subprocess, sys, time
from airflow_kafka_offsets.core.launch.login import ReaderOptions
from airflow_kafka_offsets.launch.job_files import task_folder, with_login

with task_folder() as folder:
    driver = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with_login(ReaderOptions({}, {"x": "secret"}), folder)
    print(folder, driver.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which each task, also of another process, makes its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def another_task(temporary: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """Start a task in a process of its own, with a child, and return its folder."""
    with subprocess.Popen([sys.executable, "-c", TASK], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder, driver = process.stdout.readline().split()
        yield Path(folder), process
        process.kill()
        os.kill(int(driver), signal.SIGKILL)


def test_a_task_leaves_no_folder(temporary: Path) -> None:
    with task_folder() as folder:
        with_login(LOGIN, folder)
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(temporary.iterdir()) == []


def test_the_login_of_a_killed_task_is_removed_by_the_next_task(
    another_task: tuple[Path, subprocess.Popen[str]],
) -> None:
    folder, process = another_task
    process.kill()
    process.wait()
    assert (folder / "login.properties").exists()
    with task_folder():
        assert not folder.exists()


def test_the_login_of_a_task_at_work_stays(another_task: tuple[Path, subprocess.Popen[str]]) -> None:
    folder, _ = another_task
    with task_folder() as mine, task_folder():
        with_login(LOGIN, mine)
        with task_folder():
            assert (folder / "login.properties").exists()
            assert (mine / "login.properties").exists()


def test_what_is_not_known_to_be_of_a_dead_task_of_ours_stays(
    temporary: Path, another_task: tuple[Path, subprocess.Popen[str]]
) -> None:
    folder, process = another_task
    process.kill()
    process.wait()
    elsewhere = temporary / "elsewhere"
    folder.rename(elsewhere)
    link = temporary / folder.name
    link.symlink_to(elsewhere)
    without_lock = temporary / "kafka-offsets-older"  # of a version that held no lock, and may be at work
    without_lock.mkdir()
    (without_lock / "login.properties").touch()
    just_made = temporary / "kafka-offsets-new"  # it has its lock file, and does not hold the lock yet
    just_made.mkdir()
    (just_made / "lock").touch()
    with task_folder():
        assert (elsewhere / "login.properties").exists()
        assert without_lock.exists()
        assert just_made.exists()


def test_where_files_have_no_locks_a_task_works_and_nobody_takes_it_for_a_dead_one(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as without_locks:
        without_locks.setattr(fcntl, "flock", refuse)
        task = task_folder()
        folder = task.__enter__()
    with_login(LOGIN, folder)
    with task_folder():
        assert (folder / "login.properties").exists()
    task.__exit__(None, None, None)
    assert not folder.exists()


def test_the_login_of_a_task_on_another_machine_stays(another_task: tuple[Path, subprocess.Popen[str]]) -> None:
    folder, process = another_task
    (folder / "lock").write_text("another-machine")
    process.kill()
    process.wait()
    with task_folder():
        assert folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_login_of_another_user_stays(another_task: tuple[Path, subprocess.Popen[str]]) -> None:
    folder, process = another_task
    process.kill()
    process.wait()
    os.chown(folder, 65534, 65534)
    with task_folder():
        assert (folder / "login.properties").exists()


@pytest.mark.parametrize("name", [CONF_WINDOW, CONF_WINDOW.upper(), CONF_WINDOW_FILE.title()])
def test_our_spark_properties_are_refused_in_any_case(name: str) -> None:
    with pytest.raises(CollidingOptionError, match=name):
        refuse_ours({"spark.executor.memory": "1g", name: "x"})


def test_arguments_get_the_window_where_they_ask_for_it() -> None:
    values = placeholders(window_of(3))
    filled = fill(
        ["--start", "{starting_offsets}", '{"json":"{seq}"}', "{unknown}", 5, '{"a":{"ends":{ending_offsets}}}'], values
    )
    # With a space: YARN takes each "}}" out of a command line.
    assert filled[:5] == ["--start", '{"orders":{"1":1000000000,"2":1000000000} }', '{"json":"7"}', "{unknown}", "5"]
    assert filled[5] == '{"a":{"ends":{"orders":{"1":1000000001,"2":1000000002} } } }'
    assert values["ending_offsets"] == '{"orders":{"1":1000000001,"2":1000000002} }'
    assert values["assign"] == '{"orders":[1,2]}'


def test_an_argument_that_no_command_line_can_carry_is_refused() -> None:
    with pytest.raises(BadInputError, match=f"at most {MAX_ARGUMENT}"):
        fill(["{starting_offsets}"], placeholders(window_of(20_000)))


def test_a_report_of_another_window_is_no_evidence(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert read_report(None, window_of(3)) == Report(took_window=None), "unknown for a job in a cluster"
    assert read_report(path, window_of(3)) == Report(took_window=False)
    counts = {"orders": {"1": 1, "2": 2}}
    path.write_text(json.dumps({"window_id": "g-000007", "records": 3, "counts": counts}))
    assert read_report(path, window_of(3)) == Report(3, counts, took_window=True)
    skipped = {"window_id": "g-000007", "records": None, "counts": {}, "written": False}
    path.write_text(json.dumps(skipped))
    assert read_report(path, window_of(3)) == Report(None, {}, written=False, took_window=True)
    path.write_text(json.dumps({"window_id": "g-000007", "records": 3, "counts": {}, "written": True, "bad": 2}))
    assert read_report(path, window_of(3)) == Report(3, {}, written=True, took_window=True, bad=2)
    path.write_text(json.dumps({"window_id": "g-000006", "records": 3, "counts": {}}))
    with pytest.raises(KafkaOffsetsError, match="g-000006, not g-000007"):
        read_report(path, window_of(3))


def test_lists_are_joined_without_what_is_not_there() -> None:
    assert joined(None, "a.jar,b.jar", None, "c.jar") == "a.jar,b.jar,c.jar"
    assert joined(None) == ""


def test_a_result_stays_small_and_is_json() -> None:
    group = KafkaGroup("g", topics=["orders"])
    small = window_result(group, Planned(window_of(3), False, "new"), Report(3, {"orders": {"1": 1}}))
    assert small["ranges"] == {"orders": {"1": [10**9, 10**9 + 1], "2": [10**9, 10**9 + 2]}}
    assert small["written"] is None
    skipped = window_result(group, Planned(window_of(3), False, "new"), Report(written=False))
    assert (skipped["records"], skipped["written"]) == (None, False)
    large = window_result(group, Planned(window_of(3 * MAX_RANGES_IN_XCOM), False, "new"))
    assert large["ranges"] is None
    assert len(json.dumps(large)) < 1000


def connect(monkeypatch: pytest.MonkeyPatch, **settings: str) -> KafkaGroup:
    """Return a group whose Kafka speaks TLS, with these settings."""
    extra = {"bootstrap.servers": "k:9092", "security.protocol": "SSL", **settings}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    return KafkaGroup("g", topics=["orders"])


def test_a_folder_of_authorities_is_refused_as_java_reads_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInputError, match=rf"^{tmp_path} is a folder.* Set ssl.ca.location to a file"):
        reader_of(connect(monkeypatch, **{"ssl.ca.location": str(tmp_path)}))


def test_a_folder_that_the_job_gets_from_elsewhere_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = connect(monkeypatch, **{"ssl.ca.location": "/ca.pem"})
    mine = {"kafka.ssl.truststore.location": str(tmp_path), "kafka.ssl.truststore.type": "PEM"}
    assert reader_of(replace(group, spark_options=mine)).options.items() >= mine.items()


@pytest.fixture
def tls_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KafkaGroup:
    """Return a group whose Kafka wants a client certificate; its key, in `lake.key`, may have the password hunter2."""
    settings = {"ssl.certificate.location": "/lake.crt", "ssl.key.location": str(tmp_path / "lake.key")}
    return connect(monkeypatch, **settings, **{"ssl.key.password": "hunter2"})


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.parametrize(
    "form",
    [
        ["genrsa", "-traditional", "-out", "lake.key", "2048"],
        ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "lake.key"],
        ["genrsa", "-traditional", "-aes256", "-passout", "pass:hunter2", "-out", "lake.key", "2048"],
        ["genpkey", "-algorithm", "RSA", "-aes256", "-pass", "pass:hunter2", "-out", "lake.key"],
    ],
)
def test_a_key_that_java_could_not_read_is_converted_and_secret(
    tmp_path: Path, tls_group: KafkaGroup, form: list[str]
) -> None:
    openssl(tmp_path, *form)
    reader = reader_of(tls_group)
    [(name, key)] = reader.secrets.items()
    assert name == "kafka.ssl.keystore.key"
    assert key.startswith("-----BEGIN PRIVATE KEY-----")


def test_a_key_that_java_reads_stays_in_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openssl(tmp_path, "genpkey", "-algorithm", "RSA", "-out", "lake.key")
    settings = {"ssl.certificate.location": "/lake.crt", "ssl.key.location": str(tmp_path / "lake.key")}
    reader = reader_of(connect(monkeypatch, **settings))
    assert not reader.secrets
    assert reader.options["kafka.ssl.keystore.key"] == f"${{kafka_offsets_folder:{tmp_path}:lake.key}}"


def test_a_wrong_password_of_a_key_is_refused_and_neither_is_shown(tmp_path: Path, tls_group: KafkaGroup) -> None:
    openssl(tmp_path, "genpkey", "-algorithm", "RSA", "-aes256", "-pass", "pass:other", "-out", "lake.key")
    with pytest.raises(BadInputError, match=r"can't be read. Correct ssl.key.location .* ssl.key.password") as error:
        reader_of(tls_group)
    assert "hunter2" not in str(error.value)


def test_a_key_that_the_job_gets_from_elsewhere_is_not_touched(tmp_path: Path, tls_group: KafkaGroup) -> None:
    (tmp_path / "lake.key").write_text("no key")
    mine = {"kafka.ssl.keystore.key": "${env:KEY}", "kafka.ssl.key.password": "${env:PASSWORD}"}
    reader = reader_of(replace(tls_group, spark_options=mine))
    assert not reader.secrets
    assert reader.options.items() >= mine.items()


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that only its owner can enter; the process is of another user."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    (tmp_path / "lake.key").write_text("x")
    tmp_path.chmod(0o700)
    os.seteuid(65534)
    yield tmp_path
    os.seteuid(0)


def test_a_key_that_this_user_may_not_read_is_refused_by_its_setting(
    locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"ssl.certificate.location": "/lake.crt", "ssl.key.location": str(locked / "lake.key")}
    group = connect(monkeypatch, **settings)
    with pytest.raises(BadInputError, match=rf"^ssl\.key\.location .*{locked}/lake\.key.*Permission denied"):
        reader_of(group)
    inside = replace(group, spark_options={"kafka.security.protocol": "plaintext"})
    assert not reader_of(inside).secrets
    connect(monkeypatch, **{**settings, "security.protocol": "PLAINTEXT"})
    assert not reader_of(group).secrets


def test_authorities_that_this_user_may_not_read_are_left_to_the_clients(
    locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(connect(monkeypatch, **{"ssl.ca.location": str(locked / "lake.key")}))
    assert reader.options["kafka.ssl.truststore.location"] == str(locked / "lake.key")


@pytest.mark.parametrize(
    "mine",
    [{"kafka.ssl.keystore.type": "PEM"}, {"kafka.ssl.keystore.certificate.chain": "${directory:/etc/kafka:lake.crt}"}],
)
def test_a_key_of_the_connection_is_converted_whatever_else_the_job_has_of_its_own(
    tmp_path: Path, tls_group: KafkaGroup, mine: dict[str, str]
) -> None:
    openssl(tmp_path, "genrsa", "-traditional", "-out", "lake.key", "2048")
    reader = reader_of(replace(tls_group, spark_options=mine))
    assert reader.secrets["kafka.ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----")
    assert reader.options.items() >= mine.items()
