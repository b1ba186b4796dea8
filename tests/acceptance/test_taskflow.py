"""`@task.kafka_spark` under the real scheduler: on a Spark of the task's own, and on Spark Connect."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AclOperation

from airflow_kafka_offsets.core.window import Outcome, State
from tests.acceptance.conftest import Lab, expect_at_the_end, expect_once, expect_tiling
from tests.acceptance.test_input_and_secrets import dump
from tests.lab.processes import wait_until


def states(lab: Lab, dag_id: str) -> list[State]:
    return [row.window.state for row in lab.windows(dag_id)]


def outcomes(lab: Lab, dag_id: str) -> list[Outcome]:
    return [attempt.outcome for row in lab.windows(dag_id) for attempt in lab.attempts(row)]


def expect_committed_once(lab: Lab, dag_id: str) -> None:
    windows = [row.window for row in lab.windows(dag_id)]
    assert {window.state for window in windows} == {State.COMMITTED}
    expect_tiling(windows)
    expect_once(lab, dag_id, windows)


def topic_of_alice(lab: Lab, dag_id: str) -> None:
    """Create the DAG's topic on the broker with passwords, for alice to read."""
    for operation in (AclOperation.DESCRIBE, AclOperation.READ):
        lab.secure_kafka.allow("alice", operation, topic=dag_id)
    lab.topic(dag_id, kafka=lab.secure_kafka)


@pytest.fixture(scope="module")
def local_run(lab: Lab) -> str:
    """Run on a Spark of the task's own, which reads with a password, and return the run."""
    topic_of_alice(lab, "taskflow_local")
    return lab.api.run_to("taskflow_local")


def test_a_function_gets_the_window_and_its_value_goes_to_xcom(lab: Lab, local_run: str) -> None:
    expect_committed_once(lab, "taskflow_local")
    assert lab.api.xcom("taskflow_local", local_run, "load") == {"seq": 1, "is_rerun": False, "span": 400}
    assert lab.api.xcom("taskflow_local", local_run, "load", "span") == 400, "multiple_outputs"
    facts = lab.api.xcom("taskflow_local", local_run, "load", "window")
    assert (facts["window_id"], facts["records"], facts["span"]) == ("taskflow_local-000001", 400, 400)
    listed = [f"        taskflow_local-{partition}: [0, 100)" for partition in range(4)]
    block = ["Window taskflow_local-000001: committed", "    offsets: 400 offsets in 4 partitions", *listed]
    seen = lab.api.unfolded_log("taskflow_local", local_run, "load")
    expect_at_the_end(seen, [*block, "    job: 400 records read of 400 offsets"])


@pytest.fixture(scope="module")
def two_runs(lab: Lab) -> tuple[str, str]:
    """Run twice over Spark Connect, and return the runs."""
    lab.topic("taskflow_connect")
    first = lab.api.run_to("taskflow_connect")
    lab.produce("taskflow_connect", 10)
    return first, lab.api.run_to("taskflow_connect")


def test_over_spark_connect_runs_follow_one_another_and_a_clear_runs_the_same_window_again(
    lab: Lab, two_runs: tuple[str, str]
) -> None:
    first, second = two_runs
    expect_committed_once(lab, "taskflow_connect")
    assert lab.api.xcom("taskflow_connect", first, "load", "span") == 400
    assert lab.api.xcom("taskflow_connect", second, "load", "window")["records"] == 40
    expect_at_the_end(
        lab.api.unfolded_log("taskflow_connect", second, "load"), ["    job: 40 records read of 40 offsets"]
    )
    before = [row.window for row in lab.windows("taskflow_connect")]
    lab.api.clear("taskflow_connect", first, ["load"])
    lab.api.wait_for_run("taskflow_connect", first)
    assert lab.api.xcom("taskflow_connect", first, "load") == {"seq": 1, "is_rerun": True, "span": 400}
    assert [row.window for row in lab.windows("taskflow_connect")] == before
    expect_committed_once(lab, "taskflow_connect")


def test_an_empty_window_starts_no_spark_and_a_replay_gives_the_value_of_each_window(
    lab: Lab, two_runs: tuple[str, str]
) -> None:
    empty = lab.api.run_to("taskflow_connect")
    assert states(lab, "taskflow_connect") == [State.COMMITTED] * 3
    assert lab.api.xcom("taskflow_connect", empty, "load") is None
    assert lab.api.xcom("taskflow_connect", empty, "load", "window")["records"] == 0
    replay = lab.api.run_to("taskflow_connect", {"windows": "1-2"})
    assert lab.api.xcom("taskflow_connect", replay, "load", "seq") == [1, 2]
    facts = lab.api.xcom("taskflow_connect", replay, "load", "window")
    assert [window["records"] for window in facts["windows"]] == [400, 40]
    expect_committed_once(lab, "taskflow_connect")


def test_a_second_run_waits_deferred_and_gets_the_window_after(lab: Lab) -> None:
    lab.topic("taskflow_waits")
    first = lab.api.trigger("taskflow_waits")
    with lab.hold("taskflow_waits") as hold:
        hold.wait()
        lab.produce("taskflow_waits", 10)
        second = lab.api.trigger("taskflow_waits")
        lab.api.wait_for_task("taskflow_waits", second, "load", "deferred")
    lab.api.wait_for_run("taskflow_waits", first)
    lab.api.wait_for_run("taskflow_waits", second)
    assert lab.api.xcom("taskflow_waits", second, "load") == {"seq": 2, "is_rerun": False, "span": 40}
    expect_committed_once(lab, "taskflow_waits")


def test_a_function_that_raises_commits_nothing_and_the_retry_gets_the_same_window(lab: Lab) -> None:
    lab.topic("taskflow_raises")
    run = lab.api.run_to("taskflow_raises")
    assert lab.api.xcom("taskflow_raises", run, "load_or_raise") == "taskflow_raises-000001"
    assert outcomes(lab, "taskflow_raises") == [Outcome.FAILED, Outcome.SUCCEEDED]
    expect_committed_once(lab, "taskflow_raises")


def test_a_function_that_never_reads_its_window_fails(lab: Lab) -> None:
    lab.topic("taskflow_forgets")
    run = lab.api.run_to("taskflow_forgets", state="failed")
    assert "Window taskflow_forgets-000001: nothing was read" in lab.api.log("taskflow_forgets", run, "forget")
    assert states(lab, "taskflow_forgets") == [State.PLANNED]


def test_windows_of_a_backlog_are_mapped_over_tasks(lab: Lab) -> None:
    lab.topic("taskflow_mapped", 50)
    run = lab.api.run_to("taskflow_mapped")
    spans = [lab.api.xcom("taskflow_mapped", run, "load", map_index=n)["span"] for n in range(2)]
    assert spans == [100, 100]
    expect_committed_once(lab, "taskflow_mapped")


@pytest.mark.parametrize("dag_id", ["taskflow_marked", "taskflow_marked_local"])
def test_marking_the_task_failed_stops_the_work_and_commits_nothing(lab: Lab, dag_id: str) -> None:
    lab.topic(dag_id)
    run = lab.api.trigger(dag_id)
    with lab.hold(dag_id) as hold:
        hold.wait()
        lab.api.mark_task(dag_id, run, "load", "failed")
        lab.wait_for_end_of_process(dag_id, run)
        # Untold, the server goes on for half a minute after the death of its client.
        wait_until(lambda: not is_at_work(lab, dag_id), what="Spark stops its work")
    assert states(lab, dag_id) == [State.PLANNED]
    assert outcomes(lab, dag_id) in ([Outcome.KILLED], [Outcome.RUNNING])
    assert not lab.lake(dag_id)


def test_a_password_goes_to_a_local_spark_as_a_reference_and_to_no_server(lab: Lab, local_run: str) -> None:
    password = lab.secure_kafka.password("alice")
    expect_committed_once(lab, "taskflow_local")
    topic_of_alice(lab, "taskflow_secret_connect")
    refused = lab.api.run_to("taskflow_secret_connect", state="failed")
    log = lab.api.log("taskflow_secret_connect", refused, "load")
    assert "The secret of 'kafka_secret' is not sent to a Spark Connect server" in log
    assert outcomes(lab, "taskflow_secret_connect") == []
    assert password not in log + lab.api.log("taskflow_local", local_run, "load") + dump(lab.servers.ledger.url)


def test_a_sql_file_is_a_template_that_knows_its_window_when_it_runs(lab: Lab) -> None:
    lab.topic("taskflow_sql")
    run = lab.api.run_to("taskflow_sql")
    expect_committed_once(lab, "taskflow_sql")
    rendered = lab.api.rendered_fields("taskflow_sql", run, "load")
    assert "lake/taskflow_sql/window_id=${window_id}" in rendered["sql"]
    assert rendered["parameters"] == {"span": "400"}
    lab.api.clear("taskflow_sql", run, ["load"])
    lab.api.wait_for_run("taskflow_sql", run)
    assert outcomes(lab, "taskflow_sql") == [Outcome.SUCCEEDED, Outcome.SUCCEEDED]
    expect_committed_once(lab, "taskflow_sql")


def test_the_token_of_a_server_is_in_no_log(lab: Lab) -> None:
    token = "a/secret+token=="
    fields = {"conn_type": "spark_connect", "host": "sc://localhost", "port": lab.servers.connect.port}
    lab.connect("spark_connect_token", {**fields, "password": token})
    lab.topic("taskflow_token")
    run = lab.api.run_to("taskflow_token", state="failed")
    log = lab.api.log("taskflow_token", run, "load")
    assert "CANNOT_CONFIGURE_SPARK_CONNECT_MASTER" in log
    assert "token=***" in log, "Spark's message shows the address"
    assert "secret" not in log
    assert "secret" not in str(lab.api.rendered_fields("taskflow_token", run, "load"))


def is_at_work(lab: Lab, dag_id: str) -> bool:
    """Whether Spark still writes: what is held says so ten times a second, by touching its file."""
    return time.time() - (lab.folder / "hold" / f"{dag_id}.reached").stat().st_mtime < 2
