"""The collector on a real ledger: Kafka and ledger may be down, and nothing disappears."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from math import inf, isnan
from threading import Event

import pytest

from airflow_kafka_offsets.core.errors import KafkaUnavailableError, LedgerUnavailableError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.state_metrics import Values
from airflow_kafka_offsets.core.window import Lane
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.ports import LogOffsets
from airflow_kafka_offsets.service.metrics import Collector
from tests.core.examples import claim, group, tp
from tests.lab.waiting import LONGEST, wait_until
from tests.ledger.examples import draft
from tests.service.memory_log import MemoryLog, NoTimes
from tests.service.world import World


class Servers:
    """A world whose Kafka and ledger may be down, and its collector."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_kafka_down = self.is_ledger_down = False
        self.collector = Collector(self._ledger, self._log, clock=lambda: world.now)

    def _ledger(self) -> Ledger:
        if self.is_ledger_down:
            raise LedgerUnavailableError("the ledger did not answer")
        return self.world.ledger

    def _log(self, _: KafkaGroup) -> LogOffsets:
        if self.is_kafka_down:
            raise KafkaUnavailableError("Kafka did not answer")
        return self.world.kafka

    def values(self, name: str) -> Values:
        found = {family.name: family.values for family in self.collector.families()}
        return found[f"kafka_offsets_{name}"]


@pytest.fixture
def servers(world: World) -> Servers:
    """Return a world in which a window is committed, another one open, and five records come after it."""
    world.kafka.produce(tp(0), 10, at=world.now)
    world.run(claim("run-1"))
    world.kafka.produce(tp(0), 10, at=world.now)
    world.plan(claim("run-2"))
    world.kafka.produce(tp(0), 5, at=world.now)
    return Servers(world)


def test_lag_and_open_windows_are_collected(servers: Servers) -> None:
    assert servers.collector.collect() == []
    assert servers.values("lag") == {("lake", "orders"): 15}
    assert servers.values("open_windows") == {("lake", "live"): 1, ("lake", "backfill"): 0}
    assert servers.values("open_window_age_seconds")[("lake", "live")] == 0
    assert servers.values("up") == {("lake", "kafka_default"): 1}
    assert servers.values("last_commit_timestamp_seconds")[("lake",)] > 0


def test_open_windows_of_one_lane_do_not_hide_those_of_the_other(servers: Servers) -> None:
    world = servers.world
    fill, newer = ([draft(0, 1, lane=lane)] for lane in (Lane.BACKFILL, Lane.LIVE))
    ledger, opened = world.ledger, world.now
    ledger.add_windows(world.group, ledger.load("lake").version, fill, claim("fill"), opened)
    many = newer * 60
    ledger.add_windows(world.group, ledger.load("lake").version, many, claim("many"), opened + timedelta(minutes=9))
    world.now = opened + timedelta(minutes=10)
    servers.collector.collect()
    assert servers.values("open_windows") == {("lake", "live"): 61, ("lake", "backfill"): 1}
    assert servers.values("open_window_age_seconds") == {("lake", "live"): 600, ("lake", "backfill"): 600}


def test_before_the_first_collection_it_says_that_there_is_nothing_yet(servers: Servers) -> None:
    assert servers.values("ledger_up") == {(): 0}
    assert servers.values("scrape_timestamp_seconds") == {(): 0}


def test_a_kafka_that_goes_down_leaves_its_last_answer(servers: Servers) -> None:
    servers.collector.collect()
    servers.is_kafka_down = True
    servers.world.now += timedelta(minutes=7)
    assert servers.collector.collect() == ["Kafka did not answer"]
    assert servers.values("lag") == {("lake", "orders"): 15}
    assert servers.values("up") == {("lake", "kafka_default"): 0}
    assert servers.values("open_window_age_seconds")[("lake", "live")] == 7 * 60
    servers.is_kafka_down = False
    servers.collector.collect()
    assert servers.values("up") == {("lake", "kafka_default"): 1}


def test_a_kafka_that_answers_half_leaves_its_last_answer_too(servers: Servers) -> None:
    world = servers.world
    world.kafka.configure("orders", retention_ms="7200000")
    world.now += timedelta(minutes=115)
    servers.collector.collect()
    assert servers.values("verdict")[("lake", "AT RISK")] == 1
    headroom = servers.values("headroom_seconds")
    assert 0 <= headroom[("lake", "orders")] < 300
    world.kafka.found_times.clear()  # as after a restart of the exporter
    world.kafka.__class__ = NoTimes
    assert servers.collector.collect() == ["no answer about times"]
    assert servers.values("verdict")[("lake", "AT RISK")] == 1
    assert servers.values("headroom_seconds") == headroom
    assert servers.values("up") == {("lake", "kafka_default"): 0}
    world.kafka.__class__ = MemoryLog
    servers.collector.collect()
    assert servers.values("up") == {("lake", "kafka_default"): 1}


def test_a_ledger_that_goes_down_leaves_all_that_was_known(servers: Servers) -> None:
    servers.collector.collect()
    known = servers.values("scrape_timestamp_seconds")
    servers.is_ledger_down = True
    servers.world.now += timedelta(minutes=7)
    with pytest.raises(LedgerUnavailableError):
        servers.collector.collect()
    assert servers.values("ledger_up") == {(): 0}
    assert servers.values("scrape_timestamp_seconds") == known
    assert servers.values("lag") == {("lake", "orders"): 15}
    servers.is_ledger_down = False
    servers.collector.collect()
    assert servers.values("ledger_up") == {(): 1}


def test_what_is_committed_leaves_no_lag_and_no_open_window(servers: Servers) -> None:
    world = servers.world
    world.run_all(claim("run-2"))
    world.run_all(claim("run-3"))
    servers.collector.collect()
    assert servers.values("lag") == {("lake", "orders"): 0}
    assert servers.values("headroom_seconds") == {("lake", "orders"): inf}
    assert servers.values("open_windows")[("lake", "live")] == 0


DAMAGES = {
    "its watermark": (
        "UPDATE kafka_offsets_windows SET ranges = 'x' WHERE state = 'planned'",
        "last_commit_timestamp_seconds",
    ),
    "a time": (
        "UPDATE kafka_offsets_windows SET planned_at = 'x' WHERE state = 'committed'",
        "last_commit_timestamp_seconds",
    ),
    "the time of an open one": (
        "UPDATE kafka_offsets_windows SET planned_at = 'x' WHERE state = 'planned'",
        "open_windows",
    ),
}


@pytest.mark.parametrize(("damage", "kept"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_row_of_one_group_leaves_the_others_and_what_was_known_of_it(
    servers: Servers, damage: str, kept: str
) -> None:
    world = servers.world
    servers.collector.collect()
    before = servers.values(kept)
    with world.ledger._engine.begin() as connection:
        connection.exec_driver_sql(damage)
    world.group = group("new")
    world.run(claim("new"))
    [said] = servers.collector.collect()
    assert "its row is damaged" in said
    assert servers.values("up")["new", "kafka_default"] == 1
    assert {key: servers.values(kept)[key] for key in before} == before


def test_a_new_group_with_a_damaged_row_leaves_the_others(servers: Servers) -> None:
    world = servers.world
    servers.collector.collect()
    world.group, lake = group("new"), world.group
    world.plan(claim("new"))
    with world.ledger._engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE kafka_offsets_windows SET ranges = 'x' WHERE group_id = (SELECT id FROM kafka_offsets_groups WHERE name = 'new')"
        )
    world.kafka.produce(tp(0), 1000, at=world.now)
    [said] = servers.collector.collect()
    assert "its row is damaged" in said
    assert servers.values("lag")[lake.name, "orders"] == 1015
    assert servers.values("up") == {("lake", "kafka_default"): 1, ("new", "kafka_default"): 0}


def test_beside_a_topic_that_never_was_the_others_stay_live(servers: Servers) -> None:
    world = servers.world
    servers.collector.collect()
    world.configure(topics=["orders", "ordres"])
    world.run(claim("run-2"))
    world.kafka.produce(tp(0), 1000, at=world.now)
    servers.collector.collect()
    assert servers.values("lag")["lake", "orders"] == 1005
    assert servers.values("up") == {("lake", "kafka_default"): 1}


def test_while_a_silent_kafka_is_waited_for_the_others_are_there(world: World) -> None:
    world.kafka.produce(tp(0), 10, at=world.now)
    world.run(claim("run-1"))
    silent = group("silent", kafka_conn_id="kafka_silent")
    world.ledger.add_windows(silent, world.ledger.load("silent").version, [draft(0, 1)], claim("run-1"), world.now)
    gives_up = Event()

    def open_log(of: KafkaGroup) -> LogOffsets:
        if of.name == "silent":
            assert gives_up.wait(LONGEST)
            raise KafkaUnavailableError("Kafka did not answer")
        return world.kafka

    collector = Collector(lambda: world.ledger, open_log, clock=lambda: world.now)

    def values(name: str) -> Values:
        return {family.name: family.values for family in collector.families()}[f"kafka_offsets_{name}"]

    def up() -> Values:
        return values("up")

    with ThreadPoolExecutor(1) as pool:
        collected = pool.submit(collector.collect)
        try:
            wait_until(lambda: bool(up()), what="the other group is there")
            wait_until(lambda: up()["lake", "kafka_default"] == 1, what="the other group has an answer")
            assert up() == {("lake", "kafka_default"): 1, ("silent", "kafka_silent"): 0}
            assert values("open_windows")["silent", "live"] == 1
            assert isnan(values("lag")["silent", "orders"])
            assert not collected.done()
        finally:
            gives_up.set()
        assert collected.result() == ["Kafka did not answer"]
    assert up() == {("lake", "kafka_default"): 1, ("silent", "kafka_silent"): 0}
