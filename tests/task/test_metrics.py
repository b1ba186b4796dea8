"""What a task sends as metrics: with Airflow's own client, to a StatsD on loopback."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from airflow_kafka_offsets.airflow_versions import Stats
from airflow_kafka_offsets.core.evidence import Report
from airflow_kafka_offsets.core.plan.ownership import How
from airflow_kafka_offsets.core.plan.request import Windows
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Claim, Lane
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.task import metrics
from airflow_kafka_offsets.task import metrics as names
from airflow_kafka_offsets.task.metrics import TaskMetrics
from tests.core.examples import claim, tp
from tests.lab.memory import IN_MEMORY
from tests.lab.processes import LOOPBACK, free_port, wait_until
from tests.lab.statsd import Sample, StatsdServer
from tests.service.world import World
from tests.task.test_work import REPLAY, all_of

END = "end"
PREFIX = "airflow.kafka_offsets."

Listen = Callable[..., StatsdServer]


def read_settings_again() -> None:
    """Let Airflow's client of this process be made again, by the settings of now."""
    metrics._drops_tags.cache_clear()
    if not hasattr(Stats, "initialize"):  # Airflow 3.1 chooses the kind of client once, when this class is made
        kind: Any = type(Stats)
        del kind.factory
        Stats.instance = None
        kind.__init__(Stats)
        return
    from airflow.sdk.observability.metrics.stats_utils import get_stats_factory

    if "export_legacy_names" in signature(Stats.initialize).parameters:
        Stats.initialize(factory=get_stats_factory(), export_legacy_names=True)
    else:  # Airflow 3.2
        Stats.initialize(factory=get_stats_factory(Stats))  # type: ignore[call-arg]


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listen]:
    """Let this process send its metrics to a StatsD; the arguments are options of Airflow's section `metrics`."""
    with StatsdServer() as server:

        def listening(**options: str) -> StatsdServer:
            settings = {"statsd_on": "True", "statsd_host": LOOPBACK, "statsd_port": str(server.port), **options}
            for name, value in settings.items():
                monkeypatch.setenv(f"AIRFLOW__METRICS__{name.upper()}", value)
            read_settings_again()
            return server

        yield listening
    monkeypatch.undo()
    read_settings_again()


@pytest.fixture
def world() -> Iterator[World]:
    """Return a world in which a window is committed and ten records are unread."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        world = World(Path(folder))
        world.kafka.produce(tp(0), 10)
        world.run(claim("run-0"))
        world.kafka.produce(tp(0), 10)
        yield world


def received(server: StatsdServer) -> list[Sample]:
    """Return all that was sent until now: what is sent after it has come, so has the rest."""
    Stats.incr(END)
    wait_until(lambda: server.samples(f"airflow.{END}"), what="the last packet comes")
    return server.samples(PREFIX)


def counted(samples: list[Sample]) -> dict[str, float]:
    """Return the counters' values by name, without prefix."""
    return {s.name.removeprefix(PREFIX): s.value for s in samples if s.kind == "c"}


def work(world: World, planned: list[Planned], claim_: Claim, *, fails: bool = False) -> None:
    def run(one: Planned) -> Report:
        if fails:
            raise RuntimeError("the job failed")
        return Report(one.window.span - 1)

    all_of(world, planned, run, this_try=Try(), claim=claim_)


def test_a_new_window_is_counted_when_it_is_cut_read_and_committed(world: World, listen: Listen) -> None:
    server, new = listen(statsd_influxdb_enabled="True"), claim("new")
    planned = world.ask(new)
    TaskMetrics("lake", new).planned(planned)
    work(world, planned, new)
    sent = received(server)
    assert counted(sent) == {"windows_planned": 1, "records": 9, "windows_committed": 1}
    whose = {"group": "lake", "lane": "live", "dag_id": new.dag_id, "task_id": new.task_id}
    assert all(whose.items() <= sample.tags.items() for sample in sent)
    timers = {s.name.removeprefix(PREFIX): s.tags.get("outcome") for s in sent if s.kind == "ms"}
    assert timers == {"attempt_duration": "succeeded", "commit_duration": None}
    assert all(sample.value >= 0 for sample in sent)


def test_a_replay_counts_as_replayed_and_not_as_committed(world: World, listen: Listen) -> None:
    server = listen(statsd_influxdb_enabled="True")
    planned = world.ask(REPLAY, Windows((1,)))
    TaskMetrics("lake", REPLAY).planned(planned)
    work(world, planned, REPLAY)
    assert counted(received(server)) == {"records": 9, "windows_replayed": 1}


def test_a_failed_attempt_counts_and_commits_nothing(world: World, listen: Listen) -> None:
    server, new = listen(statsd_influxdb_enabled="True"), claim("new")
    with pytest.raises(RuntimeError):
        work(world, world.ask(new), new, fails=True)
    sent = received(server)
    assert counted(sent) == {"attempts_failed": 1}
    assert [s.tags["outcome"] for s in sent] == ["failed", "failed"]


def test_lost_offsets_are_counted_when_a_window_records_them(world: World, listen: Listen) -> None:
    server, new = listen(statsd_influxdb_enabled="True"), claim("new")
    (one,) = world.ask(new)
    lost = replace(one, window=replace(one.window, lost=one.window.ranges))
    TaskMetrics("lake", new).planned([lost, replace(lost, how=How.ADOPTED)])
    assert counted(received(server)) == {"windows_planned": 1, "offsets_lost": 10}


def test_plain_statsd_drops_tags_so_the_group_is_in_a_second_name(listen: Listen) -> None:
    server = listen()
    TaskMetrics("lake.orders", REPLAY).committed(Lane.LIVE, 0.5, is_first=True, is_rerun=False)
    sent = received(server)
    assert not any(sample.tags for sample in sent)
    assert {s.name: (s.value, s.kind) for s in sent} == {
        f"{PREFIX}windows_committed": (1, "c"),
        f"{PREFIX}windows_committed.lake__orders": (1, "c"),
        f"{PREFIX}commit_duration": (500, "ms"),
        f"{PREFIX}commit_duration.lake__orders": (500, "ms"),
    }


@pytest.mark.parametrize(
    "options", [{"legacy_names_on": "False"}, {"statsd_influxdb_enabled": "True"}], ids=["switched off", "with tags"]
)
def test_there_is_no_second_name_where_tags_are_kept_or_long_names_are_off(
    options: dict[str, str], listen: Listen
) -> None:
    server = listen(**options)
    TaskMetrics("lake.orders", REPLAY).committed(Lane.LIVE, 0.5, is_first=True, is_rerun=False)
    assert {s.name for s in received(server)} == {f"{PREFIX}windows_committed", f"{PREFIX}commit_duration"}


def test_metrics_that_can_not_be_sent_change_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("no such server")

    monkeypatch.setattr(Stats, "incr", broken, raising=False)
    new = claim("new")
    work(world, world.ask(new), new)
    assert "A metric could not be sent" in caplog.text
    assert [row.window.state for row in world.ledger.windows("lake", limit=5)] == ["committed", "committed"]


def test_a_statsd_that_is_away_changes_nothing(world: World, listen: Listen, caplog: pytest.LogCaptureFixture) -> None:
    listen(statsd_port=str(free_port()))
    new = claim("new")
    work(world, world.ask(new), new)
    assert "A metric could not be sent" not in caplog.text
    assert [row.window.state for row in world.ledger.windows("lake", limit=5)] == ["committed", "committed"]


def test_every_name_is_one_that_airflow_takes() -> None:
    for name in (*names.COUNTERS, *names.TIMERS):
        assert re.fullmatch(r"[a-zA-Z0-9_.-]+", name)
        assert names.name_with_group(name, "lake.orders") == f"{name}.lake__orders"
