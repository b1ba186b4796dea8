"""Tasks on a real Spark Connect server, killed and frozen in the middle."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from airflow_kafka_offsets.core.errors import ClusterUnavailableError, JobAliveError, JobUnseenError, NoEvidenceError
from airflow_kafka_offsets.core.history import Attempt
from airflow_kafka_offsets.core.window import Claim, Outcome, State
from airflow_kafka_offsets.launch import connect
from airflow_kafka_offsets.launch.connect import MAX_ENDED, own_and_earlier, session_url
from tests.lab.child import Child
from tests.lab.processes import LOOPBACK, free_port, wait_until
from tests.lab.proxy import Proxy
from tests.lab.spark_connect import executing
from tests.lab.topics import delete_records

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.kafka import KafkaBroker
    from tests.lab.spark_connect import SparkConnect
    from tests.launch.conftest import Worker


def attempt(number: int, task_id: str = "load", outcome: Outcome = Outcome.RUNNING, second: int = 0) -> Attempt:
    started = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
    return Attempt(number, "lake-000001", Claim("d", "r", task_id), 1, outcome, None, started, None, "0")


def test_each_attempt_of_each_ledger_has_a_session_of_its_own() -> None:
    attempts = [attempt(1), attempt(2), attempt(1, second=1)]
    urls = [session_url("sc://host:1", each) for each in attempts]
    assert len(set(urls)) == 3
    assert [session_url("sc://host:1", each) for each in attempts] == urls


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("sc://host", "sc://host/;user_id=me%20too;session_id=ID"),
        ("sc://host:1/", "sc://host:1/;user_id=me%20too;session_id=ID"),
        ("sc://host/;token=a%3Db;user_id=you", "sc://host/;token=a%3Db;user_id=you;session_id=ID"),
        ("sc://host/;session_id=mine", None),
    ],
)
def test_the_name_of_a_session_joins_what_the_user_has_in_the_address(
    monkeypatch: pytest.MonkeyPatch, url: str, named: str | None
) -> None:
    monkeypatch.delenv("SPARK_USER", raising=False)
    monkeypatch.setenv("USER", "me too")
    found = session_url(url, attempt(1))
    assert (found and re.sub("[0-9a-f-]{36}", "ID", found)) == named


def test_sessions_are_ended_of_earlier_attempts_that_nobody_said_to_have_succeeded() -> None:
    attempts = [attempt(n, "other" if n % 2 else "load") for n in range(1, 20)]
    attempts += [
        attempt(20, outcome=Outcome.SUCCEEDED),
        attempt(21, outcome=Outcome.FAILED),
        attempt(22),
        attempt(23, "x"),
    ]
    mine, earlier = own_and_earlier(attempts, Claim("d", "r", "load"), 1)
    assert mine.id == 22
    assert [each.id for each in earlier] == [*range(11, 20), 21]
    assert len(earlier) == MAX_ENDED


def test_a_frozen_worker_does_not_take_the_session_of_the_try_after_it() -> None:
    attempts = [attempt(1, outcome=Outcome.LOST), replace(attempt(2), try_number=2)]
    with pytest.raises(NoEvidenceError, match="a later attempt has started"):
        own_and_earlier(attempts, Claim("d", "r", "load"), 1)
    assert own_and_earlier(attempts, Claim("d", "r", "load"), 2) == (attempts[1], attempts[:1])


def test_the_retry_of_a_killed_task_stops_what_the_server_still_does_for_it(worker: Worker) -> None:
    worker.hold(1)
    killed = worker.start({"function": "append"})
    worker.wait_for_hold(1, killed)
    killed.kill()
    assert worker.is_held(1), "the server does not notice the death of its client"

    said = worker.run({"function": "append", "try_number": 2})
    assert "Window lake-000001: stopping operation " in said
    assert not worker.is_held(1)
    worker.hold(1).unlink()  # with no one in the middle, no one goes on
    worker.expect_once()
    assert worker.window.window.state is State.COMMITTED
    assert [each.outcome for each in worker.attempts] == [Outcome.LOST, Outcome.SUCCEEDED]


def test_a_frozen_worker_that_comes_back_can_write_nothing_more(worker: Worker) -> None:
    held = worker.hold(1)
    frozen = worker.start({"function": "wait_then_append"})
    worker.wait_for_hold(1, frozen)
    frozen.send_signal(signal.SIGSTOP)
    worker.run({"function": "wait_then_append", "try_number": 2})
    held.unlink()
    frozen.send_signal(signal.SIGCONT)
    said = worker.end(frozen, succeeds=False)
    assert "KafkaOffsetsError: The attempt's Spark Connect session was closed" in said
    worker.expect_once()
    assert [each.outcome for each in worker.attempts] == [Outcome.LOST, Outcome.SUCCEEDED]


def test_a_server_that_dies_in_the_middle_fails_the_task_and_its_successor_runs_the_same_window(
    worker: Worker, spark_connect: SparkConnect
) -> None:
    held = worker.hold(1)
    task = worker.start({"function": "append"})
    worker.wait_for_hold(1, task)
    spark_connect.kill()
    held.unlink()
    spark_connect.start()
    said = worker.end(task, succeeds=False)
    assert "KafkaOffsetsError: The Spark Connect server does not answer, or was restarted" in said
    assert worker.window.window.state is State.PLANNED
    worker.run({"function": "append", "try_number": 2})
    worker.expect_once()
    assert [each.outcome for each in worker.attempts] == [Outcome.FAILED, Outcome.SUCCEEDED]


class Store(dict[str, Any]):
    """What Airflow keeps for the tries of a task."""

    set = dict.__setitem__


def test_what_does_not_end_is_waited_for_by_each_try_that_comes(
    spark_connect: SparkConnect,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(connect, "PATIENCE", 2.5 * connect.SILENCE)  # time for two silences, which there are not
    url = session_url(spark_connect.url, attempt(1))
    # The driver opens a file to which no one writes: that takes longer than anybody lives, no CPU, and looks at no interrupt.
    os.mkfifo(tmp_path / "endless")
    endless = f"SELECT java_method('scala.io.Source', 'fromFile', '{tmp_path}/endless', 'UTF-8') FROM VALUES (1)"
    given = {"url": url, "query": endless}
    client = Child("tests.launch.connect_task:collect", given, tmp_path / "client.log", os.environ)
    try:
        wait_until(lambda: "FileInputStream.open0" in spark_connect.threads(), what="the driver is at work")
        client.kill()
        store = Store()
        for _ in range(2):
            with pytest.raises(JobAliveError, match=r"operation .* still runs .*; the next try checks again"):
                connect.end_sessions(spark_connect.url, [attempt(1)], store)
        # Where Airflow keeps nothing for the next try, this try is the last one that sees the operation.
        with monkeypatch.context() as patch:
            patch.setattr(connect, "_noted", lambda *_: store["connect_operations:1"])
            patch.setattr(connect, "PATIENCE", 5)
            with pytest.raises(JobUnseenError, match=r"operation .* may still run; .*then clear the task"):
                connect.end_sessions(spark_connect.url, [attempt(1)], None)
            assert "the next try starts a second one beside it" in caplog.text

            def noted_by_one_that_then_loses_the_server(*_: Any) -> Any:
                spark_connect.kill()
                return store["connect_operations:1"]

            patch.setattr(connect, "_noted", noted_by_one_that_then_loses_the_server)
            with pytest.raises(JobUnseenError, match=r"operation .* may still run; .*then clear the task"):
                connect.end_sessions(spark_connect.url, [attempt(1)], None)
        spark_connect.start()
        monkeypatch.setattr(connect, "PATIENCE", 100)  # a server that has just started is slow to answer
        connect.end_sessions(spark_connect.url, [attempt(1)], store)
    finally:
        client.kill()


class SlowStore(Store):
    """One that takes its time, in which an interrupted operation ends."""

    def get(self, *key: Any) -> Any:
        time.sleep(3)
        return super().get(*key)


def leave_an_answer(spark_connect: SparkConnect, number: int, seconds: int) -> None:
    """Lose the client of an attempt before its operation first reports progress, and wait for that report."""
    import grpc
    from pyspark.sql.connect import proto

    asleep = "java_method('java.util.concurrent.locks.LockSupport', 'parkNanos', 90000000000 + id)"
    late = {"spark.connect.progress.reportInterval": f"{seconds}s"}
    nap = proto.Relation(sql=proto.SQL(query=f"SELECT {asleep} FROM range(0, 1, 1, 1)"))
    with Proxy(spark_connect.port) as proxy:
        url = str(session_url(f"sc://{LOOPBACK}:{proxy.port}", attempt(number)))
        with executing(url, nap, conf=late) as answers:
            wait_until(lambda: "CallMethodViaReflection" in spark_connect.threads(), what="it is at work")
            proxy.stop()
            with pytest.raises(grpc.RpcError):
                list(answers)  # on a busy machine, one may have come before
    time.sleep(seconds + 2)


def test_an_operation_that_ended_with_an_answer_that_nobody_took_is_not_waited_for(
    spark_connect: SparkConnect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark 4.0 throws such an answer away at the end, and whoever follows the operation later waits for it without end."""
    from pyspark import __version__ as spark_version

    monkeypatch.setattr(connect, "PATIENCE", 100)
    monkeypatch.setattr(connect, "SILENCE", 5)
    asked = Mock(wraps=connect._report_progress)
    monkeypatch.setattr(connect, "_report_progress", asked)
    # On a busy machine the client may be there still when the first news comes, and the operation ends in the ordinary way.
    for number, seconds in ((32, 8), (33, 24), (34, 60)):
        leave_an_answer(spark_connect, number, seconds)
        before = asked.call_count
        connect.end_sessions(spark_connect.url, [attempt(number)], SlowStore())
        if not spark_version.startswith("4.0.") or asked.call_count > before + 1:
            return
    raise AssertionError("it ended in the ordinary way each time: this shows nothing")


def test_a_server_that_can_not_be_asked_is_no_server_that_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_ANSWER", 0.5)
    with pytest.raises(ClusterUnavailableError, match="did not answer about try 1 of r "):
        connect.end_sessions(f"sc://{LOOPBACK}:{free_port()}", [attempt(1)])


def test_records_that_expire_before_they_are_read_are_a_data_loss_over_connect_too(
    worker: Worker, kafka: KafkaBroker
) -> None:
    held = worker.hold(1)
    task = worker.start({"function": "wait_then_append"})
    worker.wait_for_hold(1, task)
    delete_records(kafka, worker.topic, 5, partition=1)
    held.unlink()
    said = worker.end(task, succeeds=False)
    assert "LostRecordsError: Kafka no longer holds all offsets of the window" in said
    assert worker.window.window.state is State.PLANNED
    assert not worker.lake()


def test_what_the_server_does_is_tagged_with_the_window(worker: Worker) -> None:
    said = worker.run({"function": "say_which_spark"})
    assert json.loads(said.rpartition("RETURNED ")[2]) == {"tags": ["lake-000001"], "is_connect": True}
