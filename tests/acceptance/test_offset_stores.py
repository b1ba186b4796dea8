"""Offset stores under the real scheduler: published with each commit, down in the middle of one, and the way in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from airflow_kafka_offsets.cli import main
from airflow_kafka_offsets.core.window import Outcome, State
from tests.acceptance.conftest import PARTITIONS, Lab, expect_at_the_end, expect_once, expect_tiling
from tests.acceptance.test_input_and_secrets import dump
from tests.cli.test_audit import islands_of
from tests.lab.jars import spark_connector_jars
from tests.lab.java import pyspark_home
from tests.lab.kafka_tools import kafka_consumer_groups
from tests.lab.proxy import Proxy
from tests.lab.redis import SecureRedisServer

JOBS = Path(__file__).parent / "dags" / "jobs"


def test_kafkas_own_tool_sees_the_watermark_and_the_lag(lab: Lab) -> None:
    lab.topic("published", 100)
    lab.api.run_to("published")
    assert described(lab, "published") == {str(p): ("75", "100", "25") for p in range(PARTITIONS)}
    second = lab.api.run_to("published")
    behind = {str(p): ("100", "100", "0") for p in range(PARTITIONS)}
    assert described(lab, "published") == behind
    lab.api.clear_run("published", second)
    lab.api.wait_for_run("published", second)
    assert described(lab, "published") == behind
    expect_once(lab, "published", [row.window for row in lab.windows("published")])


def described(lab: Lab, group: str) -> dict[str, tuple[str, str, str]]:
    """Return current offset, end offset and lag of each partition, as `kafka-consumer-groups.sh` shows them."""
    shown = kafka_consumer_groups(lab.kafka, "--describe", "--group", group)
    rows = [line.split() for line in shown.splitlines()]
    return {row[2]: (row[3], row[4], row[5]) for row in rows if row[:2] == [group, group]}


@pytest.fixture
def redis(lab: Lab, redis_secure: SecureRedisServer) -> Iterator[tuple[SecureRedisServer, Proxy]]:
    """Give Airflow the connection to a Redis with TLS and a password, behind a proxy."""
    with Proxy(redis_secure.port) as proxy:
        login = redis_secure.login()
        fields = {"conn_type": "redis", "host": login["host"], "port": proxy.port, "password": login["password"]}
        lab.connect("redis_lab", {**fields, "extra": {"ssl": True, "ssl_ca_certs": login["ssl_ca_certs"]}})
        yield redis_secure, proxy


def test_a_store_that_is_down_in_the_middle_of_a_commit_costs_no_second_job(
    lab: Lab, redis: tuple[SecureRedisServer, Proxy]
) -> None:
    server, proxy = redis
    lab.topic("store_down", 50)
    run = lab.api.trigger("store_down")
    with lab.hold("store_down") as hold:
        hold.wait()
        proxy.stop()
        hold.release()
        lab.api.wait_for_retry("store_down", run, "load")
    (row,) = lab.windows("store_down")
    assert row.window.state is State.COMMITTING
    first = lab.api.unfolded_log("store_down", run, "load", 1)
    assert "StoreUnavailableError" in first
    assert "Window store_down-000001: its commit has begun\n" in first
    proxy.heal()
    lab.api.wait_for_run("store_down", run)
    retry = lab.api.unfolded_log("store_down", run, "load")
    expect_at_the_end(retry, ["    job: try 1 of this task had run it (200 records read)"])
    (row,) = lab.windows("store_down")
    assert row.window.state is State.COMMITTED
    assert [a.outcome for a in lab.attempts(row)] == [Outcome.SUCCEEDED], "the job ran once"
    expect_once(lab, "store_down", [row.window])
    with server.client() as client:
        assert client.hgetall("offset:store_down:store_down") == {str(p): "50" for p in range(PARTITIONS)}

    canary = server.login()["password"]
    logs = [p.read_text(errors="replace") for p in (lab.airflow.home / "logs").rglob("*store_down*/**/*.log")]
    assert logs
    assert not [1 for log in logs if canary in log]
    assert canary not in dump(lab.servers.ledger.url)
    assert canary not in str(lab.api.rendered_fields("store_down", run, "load"))
    assert canary not in str(lab.api.xcom("store_down", run, "load"))


def test_a_stream_moves_over_with_its_checkpoint(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, checkpoint = "was_a_stream", tmp_path / "checkpoint"
    lab.topic(name, 100)
    stream(lab, name, checkpoint)
    assert sum(lab.lake(name).values()) == 100 * PARTITIONS
    # A batch that was planned and never done, as a driver leaves it that dies.
    committed = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    committed[-1].unlink()
    last = int(committed[-1].name)
    for path in (lab.folder / "lake" / name / f"window_id=stream-{last}").glob("*"):
        path.unlink()
    lab.produce(name, 30)

    arguments = ["import", name, "--from", f"checkpoint:{checkpoint}", "--topic", name, "--why", "moved over"]
    preview = kafka_offsets(lab, *arguments)
    assert preview.returncode == 4, preview.stdout + preview.stderr
    assert lab.ledger.load(name).version == 0
    done = kafka_offsets(lab, *arguments, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [act.kind for act in lab.ledger.acts(name)] == ["import"]

    lab.api.run_to(name)
    windows = [row.window for row in lab.windows(name)]
    expect_tiling(windows)
    found = lab.lake(name)
    assert set(found.values()) == {1}, "read twice"
    assert set(found) == {(p, o) for p in range(PARTITIONS) for o in range(130)}, "missing"

    monkeypatch.setenv("KAFKA_OFFSETS_LEDGER", lab.servers.ledger.url)
    code, said = audit(name, found.elements(), tmp_path, capsys)
    assert code == 0
    assert f"The table has each record of {len(windows)} committed window" in said
    start = windows[0].ranges.starts
    partition, join = next((tp.partition, offset) for tp, offset in start.items() if offset)
    code, said = audit(name, (found - Counter([(partition, join - 1)])).elements(), tmp_path, capsys)
    assert (code, "Missing before the group's first window" in said) == (1, True)
    code, said = audit(name, [*found.elements(), (partition, join)], tmp_path, capsys)
    assert (code, f"More than once: offsets of {name}-000001" in said) == (1, True)


def audit(
    name: str, records: Iterable[tuple[int, int]], folder: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Audit a table with these records, each a partition and an offset."""
    (folder / "islands.csv").write_text(islands_of((name, partition, offset) for partition, offset in records))
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["audit", name, "--table", str(folder / "islands.csv")])
    return int(ended.value.code or 0), capsys.readouterr().out


def stream(lab: Lab, topic: str, checkpoint: Path) -> None:
    """Run the streaming query that the team had, until it has read everything."""
    command = [str(pyspark_home() / "bin" / "spark-submit"), "--master", "local[1]", "--driver-memory", "512m"]
    jars = ["--jars", ",".join(map(str, spark_connector_jars())), "--conf", "spark.ui.enabled=false"]
    where = [lab.kafka.bootstrap_servers, topic, str(lab.folder / "lake" / topic), str(checkpoint)]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [*command, *jars, str(JOBS / "available_now.py"), *where],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def kafka_offsets(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line against the lab's ledger and Kafka."""
    command = [str(Path(sys.executable).with_name("kafka-offsets")), *arguments, "--bootstrap-servers"]
    environment = {**os.environ, "KAFKA_OFFSETS_LEDGER": lab.servers.ledger.url}
    return subprocess.run(
        [*command, lab.kafka.bootstrap_servers], env=environment, capture_output=True, text=True, check=False
    )
