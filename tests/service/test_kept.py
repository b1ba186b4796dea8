"""What a reset told people to keep is never read a second time without a word.

Topics leave the group and come back, are recreated and brought back, and people reset and replay there. The model knows each record that
was kept, and only from what each reset said before it was done. For many thousand sequences, by hand::

    KEPT_EXAMPLES=5000 python -m pytest -q tests/service/test_kept.py
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from airflow_kafka_offsets.core.errors import MAX_NAMED, ConfirmationError, KafkaOffsetsError
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.kept import Kept, kept_parts
from airflow_kafka_offsets.core.plan.request import Live, Ranges, Request
from airflow_kafka_offsets.core.plan.reset import Reset
from airflow_kafka_offsets.core.ranges import OffsetRanges
from airflow_kafka_offsets.core.window import Claim, State, Window
from airflow_kafka_offsets.service.move import Asked, Moving
from airflow_kafka_offsets.service.sources import StoreSource
from tests.core.examples import claim, ranges, tp
from tests.lab.memory import IN_MEMORY
from tests.service.world import World
from tests.stores.memory import MemoryStore

BOTH = ["orders", "clicks"]
TOPICS = st.sampled_from(BOTH)
OFFSETS = st.integers(0, 20)

Record = tuple[str, str, int, int]
"""The name and the id of a topic, a partition and an offset."""


def _records(window: Window, owned: OffsetRanges) -> Iterator[Record]:
    for partition, offsets in owned.items():
        for offset in range(offsets.start, offsets.end):
            yield (partition.topic, window.topic_ids[partition.topic], partition.partition, offset)


def _of(parts: Sequence[Kept]) -> dict[Record, str]:
    return {
        (part.tp.topic, part.topic_id, part.tp.partition, offset): part.window_id
        for part in parts
        for offset in range(part.offsets.start, part.offsets.end)
    }


class KeptOutput(RuleBasedStateMachine):
    """One group on two topics, and the records whose output people keep: of which window each is."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory(dir=IN_MEMORY)
        self.world = World(Path(self.folder.name), topics=BOTH)
        self.world.kafka.create("clicks", 1)
        self.kept: dict[Record, str] = {}
        self.number = 0

    def teardown(self) -> None:
        self.world.close()
        self.folder.cleanup()

    @initialize()
    def begin(self) -> None:
        self.produce(6)
        self.run()

    @rule(number=st.integers(1, 8))
    def produce(self, number: int) -> None:
        for partition in self.world.kafka.snapshot(BOTH, IsolationLevel.READ_COMMITTED).bounds:
            self.world.kafka.produce(partition, number, at=self.world.now)

    @rule()
    def run(self) -> None:
        self._run(Live())

    @rule(topic=TOPICS, start=OFFSETS, span=st.integers(1, 10))
    def replay(self, topic: str, start: int, span: int) -> None:
        """Let a replay ask for offsets below the watermark."""
        position = self.world.ledger.position("lake")
        assert position is not None
        end = min(start + span, position.offsets.get(tp(0, topic), 0))
        if start < end:
            self._run(Ranges(ranges({tp(0, topic): (start, end)})))

    def _run(self, request: Request) -> None:
        self.number += 1
        run: Claim = claim(f"run-{self.number}")
        try:
            self.world.run_all(run, request)
        except KafkaOffsetsError:
            self.world.die(run)

    @rule(topics=st.sampled_from([BOTH, BOTH, ["orders"], ["clicks"]]))
    def define(self, topics: list[str]) -> None:
        self.world.configure(topics=topics)
        self.run()

    @rule(topic=TOPICS, which=st.integers(0, 3))
    def fail_over(self, topic: str, which: int) -> None:
        """Let the connection lead to another cluster, or back to one where the group has been."""
        earlier = self.world.kafka.earlier_ids(topic)
        if which < len(earlier):
            self.world.kafka.bring_back(topic, earlier[which])
        else:
            self.world.kafka.recreate(topic, 2 if topic == "orders" else 1)

    @rule(to=st.sampled_from(["earliest", "latest"]), topics=st.sampled_from([(), *([topic] for topic in BOTH)]))
    def reset(self, to: str, topics: Sequence[str]) -> None:
        self._reset(to, topics=topics)

    @rule(topic=TOPICS, offset=OFFSETS)
    def reset_to_offsets(self, topic: str, offset: int) -> None:
        self._reset(json.dumps({topic: {p.partition: offset for p in self._log(topic)}}))

    @rule(seq=st.integers(1, 9))
    def reset_to_a_window(self, seq: int) -> None:
        self._reset("", to_window=f"lake-{seq:06d}")

    @rule(topic=TOPICS, offset=OFFSETS)
    def import_offsets(self, topic: str, offset: int) -> None:
        store, moving = MemoryStore(), Moving(self.world.ledger, lambda: self.world.now)
        store.groups["lake"] = dict.fromkeys(self._log(topic), offset)
        try:
            found = moving.plan_import(
                "lake", Asked(StoreSource(store, "lake"), "lake"), lambda _: self.world.kafka, skip_lost=True
            )
        except KafkaOffsetsError:
            return
        assert found.reset is not None
        self._check_asks(found.reset, lambda: moving.carry_out_import(found, "ada", "why"))
        moving.carry_out_import(found, "ada", "why", supersede=True)
        self._follow(found.reset)

    @rule(topic=TOPICS, is_recreated=st.booleans(), start=OFFSETS)
    def supersede_while_a_topic_is_away(self, topic: str, is_recreated: bool, start: int) -> None:
        """Let one topic leave, read the other one again from its beginning, let the first one come back to where it stood, and replay there."""
        [other] = set(BOTH) - {topic}
        self.define(BOTH)
        self.produce(3)
        self.run()
        known = self.world.kafka.topic_ids([topic])[topic]
        stood = {p.partition: bounds.end for p, bounds in self._log(topic).items()}
        if is_recreated:
            self.world.kafka.recreate(topic, 1)
            self._reset("earliest", topics=[topic])
        else:
            self.define([other])
        self._reset("earliest", topics=[other])
        self.run()
        self.world.configure(topics=BOTH)
        if is_recreated:
            self.world.kafka.bring_back(topic, known)
            self._reset(json.dumps({topic: stood}))
        self.replay(topic, start, 5)

    @rule(which=st.integers(0, 200))
    def reset_to_what_is_kept(self, which: int) -> None:
        if kept := sorted(self.kept):
            topic, _, partition, offset = kept[which % len(kept)]
            self._reset(json.dumps({topic: {partition: offset}}))

    def _log(self, topic: str) -> Mapping[TopicPartition, Bounds]:
        return self.world.kafka.snapshot([topic], IsolationLevel.READ_COMMITTED).bounds

    def _reset(self, to: str, *, topics: Sequence[str] = (), to_window: str | None = None) -> None:
        service = self.world.service

        def reset(*, supersede: bool) -> Reset:
            return service.reset(
                self.world.group, to, "ada", "why", topics=topics, to_window=to_window, supersede=supersede
            )

        try:
            found = service.preview_reset(self.world.group, to, topics=topics, to_window=to_window)
        except KafkaOffsetsError:
            return
        self._check_asks(found, lambda: reset(supersede=False))
        self._follow(reset(supersede=True))

    def _check_asks(self, found: Reset, do: Callable[[], object]) -> None:
        """A reset that reads something again is not done without a word, and the word names it."""
        if found.taken:
            with pytest.raises(ConfirmationError) as asked:
                do()
            named = [str(part) for part in found.taken]
            assert all(name in str(asked.value) for name in named[:MAX_NAMED])

    def _follow(self, done: Reset) -> None:
        position = self.world.ledger.position("lake")
        assert position is not None
        read_again = {
            record: window_id
            for record, window_id in self.kept.items()
            if position.topic_ids.get(record[0]) == record[1]
            and record[3] >= position.offsets.get(TopicPartition(record[0], record[2]), 0)
        }
        assert _of(done.taken) == read_again
        new = {
            record: window.id
            for window in done.superseded
            for record in _records(window, done.unread.get(window.id, ranges({})))
        }
        self.kept = {record: id_ for record, id_ in self.kept.items() if record not in read_again} | new

    # The laws.

    @invariant()
    def the_acts_tell_what_is_kept(self) -> None:
        """What was kept before an act was taken by it, or is kept after it."""
        assert _of(kept_parts(act.details for act in self.world.ledger.acts("lake"))) == self.kept

    @invariant()
    def what_is_kept_was_read_and_has_no_owner(self) -> None:
        read: dict[Record, set[str]] = defaultdict(set)
        for window in (row.held.window for row in self.world.ledger.windows("lake", limit=1000)):
            twice = self.kept.keys() & _records(window, window.ranges) if window.state.owns else ()
            assert not twice, f"{window.id} owns what was kept of other windows"
            if window.state is State.SUPERSEDED:
                for record in _records(window, window.ranges):
                    read[record].add(window.id)
        assert all(id_ in read[record] for record, id_ in self.kept.items()), "kept, and never read by that window"


TestKeptOutput = KeptOutput.TestCase
TestKeptOutput.settings = settings(
    max_examples=int(os.environ.get("KEPT_EXAMPLES") or min(30, settings.default.max_examples)),
    stateful_step_count=min(25, settings.default.stateful_step_count),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def test_the_parts_of_several_windows_are_taken_one_after_the_other() -> None:
    """The topic was away twice, each time in another way."""
    machine = KeptOutput()
    try:
        machine.begin()
        machine.supersede_while_a_topic_is_away("clicks", is_recreated=False, start=4)
        machine.supersede_while_a_topic_is_away("clicks", is_recreated=True, start=4)
        numbers = []
        for offset in (11, 9, 4, 0):
            machine.the_acts_tell_what_is_kept()
            numbers.append((len(machine.kept), len(set(machine.kept.values()))))
            machine.reset_to_offsets("clicks", offset)
        assert numbers == [(12, 3), (11, 3), (9, 2), (4, 1)]
        assert not machine.kept
    finally:
        machine.teardown()
