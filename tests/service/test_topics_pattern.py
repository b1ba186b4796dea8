"""Topics by pattern: they come, are deleted, leave and come back, and every offset has one owner."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from airflow_kafka_offsets.core.conditions import LagAtMost, TimePassed
from airflow_kafka_offsets.core.errors import (
    KafkaUnavailableError,
    MissingPartitionError,
    TopicRecreatedError,
    UnreadTopicError,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.lag.lag import GroupVerdict
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, topics_of
from airflow_kafka_offsets.core.plan.planning import Verdict
from airflow_kafka_offsets.core.plan.request import Windows
from airflow_kafka_offsets.core.window import State, Window
from airflow_kafka_offsets.ports import OffsetSource
from airflow_kafka_offsets.service import freshness, watch
from airflow_kafka_offsets.service.move import Copy, Moving, Selection
from airflow_kafka_offsets.service.sources import LedgerSource, StoreSource
from tests.core.examples import claim, tp
from tests.lab.memory import IN_MEMORY
from tests.service.memory_log import MemoryLog
from tests.service.world import World
from tests.stores.memory import MemoryStore

EU, US, ASIA, CLICKS = tp(0, "orders-eu"), tp(0, "orders-us"), tp(0, "orders-asia"), tp(0, "clicks")


@pytest.fixture
def by_pattern(world: World) -> World:
    """Let the group read `orders-eu` and `orders-us` by a pattern."""
    for p in (EU, US, CLICKS):
        world.kafka.create(p.topic)
        world.kafka.produce(p, 5)
    configure(world, "orders-.*")
    return world


def configure(world: World, pattern: str, **more: Any) -> None:
    world.group = KafkaGroup("lake", topics_pattern=pattern, **more)


def read(window: Window) -> dict[str, tuple[int, int]]:
    """What a window reads, by topic; each has one partition."""
    return {p.topic: (r.start, r.end) for p, r in window.ranges.without_empty().items()}


def test_all_topics_whose_whole_names_match_are_read_and_one_that_appears_from_its_beginning(by_pattern: World) -> None:
    configure(by_pattern, "orders-.*", starting_offsets="latest")
    assert read(by_pattern.run(claim("r1"))) == {}
    by_pattern.kafka.create("orders-asia")
    by_pattern.kafka.produce(tp(0, "orders-asia"), 3)
    by_pattern.kafka.produce(EU, 2)
    planned = by_pattern.service.next_window(by_pattern.group, by_pattern.ledger.load("lake").position)
    assert planned.verdicts[tp(0, "orders-asia")] is Verdict.NEW_PARTITION
    assert read(by_pattern.run(claim("r2"))) == {"orders-asia": (0, 3), "orders-eu": (5, 7)}
    assert by_pattern.ledger.group("lake").topics == ("orders-asia", "orders-eu", "orders-us")


def test_the_list_of_a_window_is_fixed(by_pattern: World) -> None:
    planned = by_pattern.plan(claim("r1")).window
    by_pattern.kafka.create("orders-asia")
    by_pattern.kafka.produce(tp(0, "orders-asia"), 3)
    again = by_pattern.plan(claim("r1")).window
    assert again == planned
    assert topics_of(again.ranges) == ["orders-eu", "orders-us"]


class Away(MemoryLog):
    """Kafka that does not answer."""

    def topics(self) -> tuple[str, ...]:
        raise KafkaUnavailableError("Kafka did not answer")


def copied(world: World, source: OffsetSource, *, kafka: MemoryLog | None = None, topic: str = "") -> Copy:
    """Copy the offsets of a place to a new store, and return what was copied."""
    asked = Selection(source, "lake", topics=(topic,) if topic else ())
    moving, to = Moving(world.ledger, lambda: world.now), MemoryStore("new://")
    found = moving.plan_copy(world.ledger.group("lake"), asked, to, lambda _: kafka or world.kafka)
    assert moving.carry_out_copy(found, to, "ada", "w") == {}
    return found


def by_topic(found: Offsets) -> dict[str, int]:
    return {p.topic: offset for p, offset in found.items()}


def test_a_copy_of_another_tool_s_offsets_has_the_topics_that_match_now(by_pattern: World) -> None:
    by_pattern.run(claim("r1"))
    by_pattern.kafka.create("orders-asia")
    other = MemoryStore("other://")
    other.groups["lake"] = {EU: 1, US: 2, CLICKS: 3, ASIA: 4}
    found = copied(by_pattern, StoreSource(other, "lake"))
    assert by_topic(found.given.offsets) == {"orders-asia": 4, "orders-eu": 1, "orders-us": 2}
    assert found.given.notes == ()
    assert by_topic(copied(by_pattern, StoreSource(other, "lake"), topic="orders-us").given.offsets) == {"orders-us": 2}


def test_a_copy_names_a_topic_that_appeared_and_the_next_window_reads_it_from_its_beginning(by_pattern: World) -> None:
    by_pattern.run(claim("r1"))
    by_pattern.kafka.create("orders-asia")
    by_pattern.kafka.produce(ASIA, 3)
    found = copied(by_pattern, LedgerSource(by_pattern.ledger, "lake"))
    assert by_topic(found.given.offsets) == {"orders-eu": 5, "orders-us": 5}
    [note] = found.given.notes
    assert note.startswith("ledger has no offset of orders-asia, which topics_pattern='orders-.*' matches now")
    assert read(by_pattern.run(claim("r2"))) == {"orders-asia": (0, 3)}
    assert copied(by_pattern, LedgerSource(by_pattern.ledger, "lake")).given.notes == ()


def test_a_topic_that_has_left_the_pattern_is_copied_too(by_pattern: World) -> None:
    by_pattern.run(claim("r1"))
    by_pattern.kafka.produce(EU, 1)
    configure(by_pattern, "orders-eu")
    by_pattern.run(claim("r2"))
    other = MemoryStore("other://")
    other.groups["lake"] = {EU: 1, US: 2, CLICKS: 3}
    expected = {"orders-eu": 1, "orders-us": 2}
    assert by_topic(copied(by_pattern, StoreSource(other, "lake")).given.offsets) == expected


def test_while_kafka_is_away_the_ledger_is_copied_and_another_place_is_not(by_pattern: World) -> None:
    by_pattern.run(claim("r1"))
    found = copied(by_pattern, LedgerSource(by_pattern.ledger, "lake"), kafka=Away())
    assert by_topic(found.given.offsets) == {"orders-eu": 5, "orders-us": 5}
    assert found.given.notes == (
        "whether topics have appeared since the group last planned is not known: Kafka did not answer",
    )
    other = MemoryStore("other://")
    other.groups["lake"] = {EU: 1}
    with pytest.raises(KafkaUnavailableError):
        copied(by_pattern, StoreSource(other, "lake"), kafka=Away())
    assert by_topic(copied(by_pattern, StoreSource(other, "lake"), kafka=Away(), topic="orders-eu").given.offsets) == {
        "orders-eu": 1
    }


def test_a_topic_that_was_deleted_is_named_with_what_to_do(by_pattern: World) -> None:
    by_pattern.run(claim("r1"))
    by_pattern.kafka.delete("orders-us")
    by_pattern.kafka.produce(EU, 2)
    with pytest.raises(MissingPartitionError, match=r"orders-us-0: gone from Kafka \(watermark 5\)") as raised:
        by_pattern.plan(claim("r2"))
    pattern = "(?!(?:orders-us)$)(?:orders-.*)"
    assert "leave it out of the group's topics_pattern" in str(raised.value)
    configure(by_pattern, pattern)
    assert read(by_pattern.run(claim("r3"))) == {"orders-eu": (5, 7)}


def test_a_topic_that_leaves_by_the_pattern_is_named_once_and_continues_from_its_own_watermark(
    by_pattern: World, caplog: pytest.LogCaptureFixture
) -> None:
    by_pattern.run(claim("r1"))
    by_pattern.kafka.produce(US, 4)
    configure(by_pattern, "orders-eu")
    with caplog.at_level(logging.WARNING):
        by_pattern.run(claim("r2"))
    assert "no longer matches orders-us" in caplog.text
    assert "orders-us-0 at 5" in caplog.text
    caplog.clear()
    by_pattern.run(claim("r3"))
    assert "no longer matches" not in caplog.text
    by_pattern.kafka.produce(US, 1)
    configure(by_pattern, "orders-.*")
    assert read(by_pattern.run(claim("r4"))) == {"orders-us": (5, 10)}


def test_a_typo_that_matches_nothing_is_an_error_and_no_watermark_changes(by_pattern: World) -> None:
    by_pattern.run(claim("r1"))
    before = by_pattern.ledger.load("lake").position
    configure(by_pattern, "odrers-.*")
    with pytest.raises(MissingPartitionError, match=r"odrers-\.\*.*has read orders-eu, orders-us"):
        by_pattern.plan(claim("r2"))
    assert by_pattern.ledger.load("lake").position == before
    assert by_pattern.ledger.group("lake").topics == ("orders-eu", "orders-us")
    by_pattern.kafka.produce(US, 1)
    configure(by_pattern, "orders-.*")
    assert read(by_pattern.run(claim("r3"))) == {"orders-us": (5, 6)}


def test_a_first_run_whose_pattern_matches_nothing_is_refused(world: World) -> None:
    configure(world, "nothing-.*")
    with pytest.raises(MissingPartitionError, match="lists no topic whose whole name matches topics_pattern='nothing-"):
        world.plan(claim("r1"))
    assert world.ledger.load("lake").version == 0


def test_a_topic_that_is_deleted_and_made_again_is_another_topic(by_pattern: World) -> None:
    by_pattern.run(claim("r1"))
    by_pattern.kafka.recreate("orders-us")
    by_pattern.kafka.produce(US, 9)
    with pytest.raises(TopicRecreatedError, match="kafka-offsets reset lake --topic orders-us --to earliest"):
        by_pattern.plan(claim("r2"))
    stored = by_pattern.ledger.group("lake")
    by_pattern.service.reset(stored, "earliest", "ada", "why", topics=["orders-us"])
    assert read(by_pattern.run(claim("r3"))) == {"orders-us": (0, 9)}


def test_a_window_of_a_topic_that_left_is_replayed_and_not_adopted(by_pattern: World) -> None:
    first = by_pattern.run(claim("r1"))
    by_pattern.kafka.produce(US, 1)
    by_pattern.plan(claim("r2"))
    by_pattern.die(claim("r2"))
    configure(by_pattern, "orders-eu")
    with pytest.raises(UnreadTopicError, match="records of orders-us"):
        by_pattern.plan(claim("r3"))
    assert by_pattern.plan(claim("replay"), Windows((1,))).window.ranges == first.ranges


def test_commands_and_sensors_look_at_the_topics_of_the_moment(by_pattern: World) -> None:
    by_pattern.run(claim("r1"))
    by_pattern.kafka.create("orders-asia")
    by_pattern.kafka.produce(tp(0, "orders-asia"), 3)
    asked = [LagAtMost(by_pattern.group, 2), TimePassed(replace(by_pattern.group), by_pattern.now)]
    lag, _ = watch.ask(asked, lambda: by_pattern.ledger, lambda: by_pattern.kafka, now=by_pattern.now)
    assert not isinstance(lag, Exception)
    assert lag.facts["lag"] == 3
    stored = by_pattern.ledger.group("lake")
    found = freshness.look([stored], by_pattern.ledger, lambda _: by_pattern.kafka, by_pattern.now)["lake"]
    assert found.lag == 3
    by_pattern.kafka.delete("orders-us")
    found = freshness.look([stored], by_pattern.ledger, lambda _: by_pattern.kafka, by_pattern.now)["lake"]
    assert found.partitions[US].verdict is Verdict.MISSING
    assert found.verdict is GroupVerdict.LOST


class Lake(RuleBasedStateMachine):
    """Topics that come, go and are made again, and a person who edits the pattern."""

    TOPICS = ("a1", "a2", "b1", "__own")
    PATTERNS = (".*", "a.*", "b.*", "a1|b1", "nothing")

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory(dir=IN_MEMORY)
        self.world = World(Path(self.folder.name))
        self.world.kafka.delete("orders")
        configure(self.world, ".*", max_offsets=7)
        self.numbers = count(1)
        self.seen: dict[str, Window] = {}
        for topic in self.TOPICS:
            self.appear(topic, 3)

    def teardown(self) -> None:
        self.world.close()
        self.folder.cleanup()

    @rule(topic=st.sampled_from(TOPICS), number=st.integers(0, 6))
    def appear(self, topic: str, number: int) -> None:
        if topic not in self.world.kafka.topic_ids([topic]):
            self.world.kafka.create(topic)
        self.world.kafka.produce(tp(0, topic), number)

    @rule(topic=st.sampled_from(TOPICS))
    def vanish(self, topic: str) -> None:
        if topic in self.world.kafka.topic_ids([topic]):
            self.world.kafka.delete(topic)

    @rule(pattern=st.sampled_from(PATTERNS))
    def edit(self, pattern: str) -> None:
        configure(self.world, pattern, max_offsets=7)
        self.run(True)

    @rule(is_good=st.booleans())
    def run(self, is_good: bool) -> None:
        run = claim(f"run-{next(self.numbers)}")
        before = self.world.ledger.load("lake").position
        try:
            window = self.world.plan(run).window
        except (MissingPartitionError, TopicRecreatedError, UnreadTopicError):
            assert self.world.ledger.load("lake").position == before, "a refused plan moved something"
        else:
            known = self.seen.setdefault(window.id, window)
            assert window.ranges == known.ranges
            if is_good:
                self.world.do(window, run)
        self.world.die(run)

    @invariant()
    def every_offset_has_one_owner_and_none_is_skipped(self) -> None:
        windows = [row.window for row in reversed(self.world.ledger.windows("lake", limit=1000))]
        owners: Counter[tuple[str, TopicPartition, int]] = Counter()
        at: dict[tuple[str, TopicPartition], int] = {}
        for window in windows:
            for p, r in window.ranges.items():
                topic = window.topic_ids[p.topic]
                owners.update((topic, p, offset) for offset in range(r.start, r.end))
                assert r.start == at.get((topic, p), 0), f"{window.id} does not start where the one before ends"
                at[topic, p] = r.end
            assert "__own" not in topics_of(window.ranges)
        assert set(owners.values()) <= {1}
        assert sum(w.state is State.PLANNED for w in windows) <= 1


TestLake = Lake.TestCase
TestLake.settings = settings(
    max_examples=min(20, settings.default.max_examples),
    stateful_step_count=min(25, settings.default.stateful_step_count),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_a_rerun_that_began_before_a_topic_appeared_does_not_forget_it(by_pattern: World) -> None:
    by_pattern.run(claim("r1"))
    stale = by_pattern.group.having_matched(["orders-eu"])
    by_pattern.ledger.define(replace(stale, expect_gaps=True), claim("r1"))
    stored = by_pattern.ledger.group("lake")
    assert (stored.topics, stored.expect_gaps) == (("orders-eu", "orders-us"), True)
