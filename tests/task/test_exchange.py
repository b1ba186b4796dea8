"""A window around another launcher, with its job's report as evidence: on a real ledger and a real folder, with a Kafka in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from airflow_kafka_offsets import CommitWindowOperator, PlanWindowOperator, wiring
from airflow_kafka_offsets.airflow_versions import AirflowFailException
from airflow_kafka_offsets.core.errors import ExchangeError, NoReportError, TopicRecreatedError, WindowBusyError
from airflow_kafka_offsets.core.exchange import Place
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Outcome, State
from airflow_kafka_offsets.spark.handoff import Handoff
from tests.core.examples import claim, tp
from tests.lab.memory import IN_MEMORY
from tests.service.world import World
from tests.task.airflow import context_of


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Return a world with ten records to read in each of two partitions."""
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": "kafka:9092"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(kafka))
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        world = World(Path(folder))
        monkeypatch.setattr(wiring, "open_service", lambda _: world.service)
        monkeypatch.setattr(wiring, "open_service_for", lambda *_: world.service)
        for partition in range(2):
            world.kafka.produce(tp(partition), 10)
        yield world


def context(task_id: str, run: str = "run", number: int = 1, max_tries: int = 0) -> Any:
    """Return what Airflow gives to a try of a task."""
    return context_of(claim(run, task_id), Try(number, max_tries, max_tries))


def plan(world: World, folder: Path, **options: Any) -> dict[str, Any]:
    """Let a plan task hand its window off."""
    operator = PlanWindowOperator(task_id="plan", group=world.group, exchange=f"file://{folder}", **options)
    result: dict[str, Any] = operator.execute(context("plan"))
    return result


def commit(output: Any, **options: Any) -> Any:
    """Let a commit task commit what the plan task handed off."""
    return CommitWindowOperator(task_id="commit", window=output, **options).execute(context("commit"))


def report(output: Mapping[str, Any], name: str = "1-a.1", **values: Any) -> None:
    """Report as a job does that has read all of the window; `values` replace the usual ones."""
    report = {
        "window_id": output["window_id"],
        "records": 20,
        "counts": {"orders": {"0": 10, "1": 10}},
        "written": True,
        "bad": 1,
        "taken_at": "2026-01-31T12:00:00+00:00",
        "application": "app-7",
    }
    folder = Path(output["exchange"].removeprefix("file://"), "reports", name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "part-00000.txt").write_text(json.dumps({**report, **values}))


def state(world: World, output: Mapping[str, Any]) -> State:
    return world.service.ledger.window(output["window_id"]).window.state


def test_the_job_gets_all_that_it_needs_and_no_secret(world: World, tmp_path: Path) -> None:
    world.configure(
        spark_options={
            "kafka.config.providers": "env",
            "kafka.config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
            "kafka.sasl.jaas.config": "${env:JAAS}",
        }
    )
    output = plan(world, tmp_path)
    assert output["exchange"] == f"file://{tmp_path}/lake-000001/{output['handoff']}"
    assert len(output["handoff"]) == 32
    window = Handoff.from_json(Path(output["exchange"].removeprefix("file://"), "window.json").read_text())
    assert window.ranges == {"orders": {0: (0, 10), 1: (0, 10)}}
    assert window.report == f"{output['exchange']}/reports"
    assert window.options["kafka.sasl.jaas.config"] == "${env:JAAS}"
    assert window.at_least is None


def test_what_the_job_reported_is_committed_and_kept(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    output = plan(world, tmp_path)
    report(output)
    assert commit(output) == {"window_id": "lake-000001", "is_rerun": False, "records": 20, "bad": 1}
    assert state(world, output) is State.COMMITTED
    [attempt] = world.service.ledger.attempts("lake-000001")
    assert (attempt.claim.task_id, attempt.outcome, attempt.records) == ("commit", Outcome.SUCCEEDED, 20)
    assert "job: 20 records read of 20 offsets; 1 record could not be decoded" in caplog.messages[-1]


def test_a_green_task_without_a_report_commits_nothing(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = plan(world, tmp_path)
    with pytest.raises(NoReportError, match="no job has reported"):
        commit(output)
    assert state(world, output) is State.PLANNED
    assert "clear this task: it looks for the job's report again" in caplog.messages[-1]
    operator = CommitWindowOperator(task_id="commit", window=output)
    with pytest.raises(NoReportError):
        operator.execute(context("commit", number=2, max_tries=2))
    assert "next: Airflow starts try 3 of this task: it looks for the job's report again" in caplog.messages[-1]
    report(output)
    operator.execute(context("commit", number=3, max_tries=2))
    assert state(world, output) is State.COMMITTED


def test_a_commit_task_that_gets_only_the_windows_id_looks_for_the_report_where_the_plan_task_left_the_window(
    world: World, tmp_path: Path
) -> None:
    output = plan(world, tmp_path)
    with pytest.raises(NoReportError, match="no job has reported"):
        commit(output["window_id"])
    report(output)
    assert commit(output["window_id"])["records"] == 20


@pytest.mark.parametrize("forged", [{"exchange": "file://{}/lake-000001/forged"}, {"exchange_conn_id": "aws_mine"}])
def test_a_report_elsewhere_than_where_the_plan_task_left_the_window_is_refused(
    world: World, tmp_path: Path, forged: dict[str, str]
) -> None:
    output = plan(world, tmp_path / "exchange")
    report(output, records=13, counts={"orders": {"0": 3, "1": 10}})
    given = {**output, **{name: value.format(tmp_path) for name, value in forged.items()}}
    if "exchange" in forged:
        report(given)
    with pytest.raises(
        AirflowFailException, match=r"this task got .*, and the plan task left it in .*lake-000001"
    ) as caught:
        commit(given)
    assert "clear the plan task" in str(caught.value).lower()
    assert state(world, output) is State.PLANNED


def test_a_forged_exchange_is_refused_where_the_plan_task_has_none(world: World, tmp_path: Path) -> None:
    output: dict[str, Any] = PlanWindowOperator(task_id="plan", group=world.group).execute(context("plan"))
    forged = {**output, "exchange": f"file://{tmp_path}/lake-000001/forged", "exchange_conn_id": None}
    report(forged)
    with pytest.raises(AirflowFailException, match="the plan task left it in none"):
        commit(forged)
    assert commit(output)["records"] is None


def test_a_plan_task_that_runs_again_without_its_exchange_leaves_none_behind(world: World, tmp_path: Path) -> None:
    plan(world, tmp_path)
    again = PlanWindowOperator(task_id="plan", group=world.group).execute(context("plan"))
    assert commit(again["window_id"])["records"] is None


def test_a_plan_task_that_lost_its_window_to_another_run_hands_nothing_over(world: World, tmp_path: Path) -> None:
    output = plan(world, tmp_path)
    world.die(claim("run", "plan"))
    world.plan(claim("other", "plan"))
    late = Place(output["exchange"], None)
    with pytest.raises(WindowBusyError):
        world.service.hand_off(output["window_id"], claim("run", "plan"), late)
    assert world.service.ledger.place("lake-000001") is None


def test_what_was_reported_before_the_plan_task_ran_again_does_not_count(world: World, tmp_path: Path) -> None:
    first = plan(world, tmp_path)
    report(first)
    second = plan(world, tmp_path)
    assert second["window_id"] == first["window_id"]
    assert second["exchange"] != first["exchange"]
    with pytest.raises(NoReportError, match="no job has reported"):
        commit(second)
    report(second)
    assert commit(second)["records"] == 20


def test_the_job_that_took_the_window_last_must_have_reported(world: World, tmp_path: Path) -> None:
    output = plan(world, tmp_path)
    report(output, "1-z.1")
    report(output, "2-a.1", records=None, counts={}, application="app-8")
    with pytest.raises(NoReportError, match=r"the last job \(app-8, .*has not reported what it read"):
        commit(output)
    assert state(world, output) is State.PLANNED


def test_a_report_of_a_part_commits_nothing_unless_gaps_are_normal(world: World, tmp_path: Path) -> None:
    output = plan(world, tmp_path)
    report(output, records=13, counts={"orders": {"0": 3, "1": 10}})
    with pytest.raises(NoReportError, match=r"orders-0: 3 of 10"):
        commit(output)
    world.configure(expect_gaps=True)
    output = plan(world, tmp_path)
    report(output, records=13, counts={"orders": {"0": 3, "1": 10}})
    assert commit(output)["records"] == 13


def test_a_user_may_say_that_a_green_task_is_enough(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    output = plan(world, tmp_path)
    assert commit(output, green_is_enough=True) == {
        "window_id": "lake-000001",
        "is_rerun": False,
        "records": None,
        "bad": None,
    }
    assert "another launcher ran it, without a report" in caplog.messages[-1]
    assert world.service.ledger.attempts("lake-000001") == []


@pytest.mark.parametrize("options", [{}, {"green_is_enough": True}])
def test_a_topic_that_was_recreated_while_the_job_ran_is_noticed_before_the_commit(
    world: World, tmp_path: Path, options: dict[str, Any]
) -> None:
    output = plan(world, tmp_path)
    report(output)
    world.kafka.recreate("orders", 2)
    for partition in range(2):
        world.kafka.produce(tp(partition), 20)  # so its offsets look plausible
    with pytest.raises(TopicRecreatedError, match="topic orders was recreated"):
        commit(output, **options)
    assert state(world, output) is State.PLANNED
    assert world.service.ledger.attempts("lake-000001") == []


def test_a_rerun_needs_its_own_report_and_is_told_how_many_records_there_were(world: World, tmp_path: Path) -> None:
    output = plan(world, tmp_path)
    report(output)
    commit(output)
    again = plan(world, tmp_path)
    assert again["is_rerun"]
    window = Handoff.from_json(Path(again["exchange"].removeprefix("file://"), "window.json").read_text())
    assert (window.is_rerun, window.at_least) == (True, 20)
    with pytest.raises(NoReportError):
        commit(again)
    report(again)
    assert commit(again) == {"window_id": "lake-000001", "is_rerun": True, "records": 20, "bad": 1}


def test_what_can_not_be_handed_off_is_refused_before_anything_is_planned(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AirflowFailException, match="must be the address of a folder"):
        PlanWindowOperator(task_id="plan", group=world.group, exchange=str(tmp_path)).execute(context("plan"))
    extra = {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "etl",
        "sasl.password": "hunter2",
    }
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    with pytest.raises(AirflowFailException, match="is not sent to the job of another launcher") as caught:
        plan(world, tmp_path)
    assert "hunter2" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    assert world.ledger.position("lake") is None


def test_a_window_that_can_not_be_left_there_stays_for_the_next_try(world: World, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExchangeError, match="can't write the exchange"):
        plan(world, tmp_path / "file")
    output = plan(world, tmp_path / "folder")
    assert output["window_id"] == "lake-000001"


def test_an_exchange_that_can_not_be_read_commits_nothing(world: World, tmp_path: Path) -> None:
    output = plan(world, tmp_path)
    report(output)
    part = Path(output["exchange"].removeprefix("file://"), "reports", "1-a.1", "part-00000.txt")
    part.unlink()
    part.symlink_to(part)
    with pytest.raises(ExchangeError, match="can't read the exchange"):
        commit(output)
    assert state(world, output) is State.PLANNED
