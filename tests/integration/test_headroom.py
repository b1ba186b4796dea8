"""Lag in time and headroom on real brokers. On one that removes within seconds, each prediction against what then happened."""

from __future__ import annotations

import random
import time
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.lag.lag import GroupLag, PartitionLag
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import GroupState, Position
from airflow_kafka_offsets.service import freshness
from tests.lab.kafka import KafkaBroker, SecureKafkaBroker
from tests.lab.processes import wait_until
from tests.lab.topics import create_topic, end_offset, produce

RETENTIONS = (8_000, 30_000, 120_000)
"""Milliseconds: on a busy machine, the shortest may be over before anything is predicted."""
LATE = 1_200_000
"""How old the records are that an open transaction hides: it counts as one that hangs after 15 minutes."""
EXPIRE = ["steady", "disorder", "append", "idle", "compacted-too", "hanging"]
"""The topics from which records go by their age."""
FEWEST = 4
BYTES = 3_000_000
"""What "small" keeps, before the segment that may be more than that."""
RECORD = 20_000
"""The bytes of its records."""
SEGMENT = 60
"""More offsets than one of its segments has."""
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


@dataclass(frozen=True)
class Story:
    """What was predicted at one moment, and what retention then removed.

    Attributes:
        retention: how long records stay, in milliseconds.
        at: the moment.
        written: the timestamps of the records, by topic, in milliseconds, where the producer sets them.
        predicted: for each topic and watermark.
        removed_at: when that watermark was first seen to be gone; missing: it never was.
        by_size: what was predicted for the last record of "small", and then written, by the bytes of what was written.
    """

    retention: int
    at: datetime
    written: dict[str, list[int]]
    predicted: dict[tuple[str, int], PartitionLag]
    removed_at: dict[tuple[str, int], datetime]
    by_size: dict[int, Pushed]


@dataclass(frozen=True)
class Pushed:
    """A record that newer ones push out of a log that is limited in size.

    Attributes:
        predicted: for it.
        held_for: the seconds since the first record of the log was written, at most.
        kept_after: a number of newer records.
        was_kept: whether it was still there after these.
        gone_after: a larger number of them, after which it was gone.
    """

    predicted: PartitionLag
    held_for: float
    kept_after: int
    was_kept: bool
    gone_after: int


def _topics(retention: int) -> dict[str, dict[str, str]]:
    small = {"retention.ms": str(retention), "segment.ms": "1000"}
    return {
        "steady": small,
        "disorder": small,
        "append": {**small, "message.timestamp.type": "LogAppendTime"},
        "idle": small,
        "compacted-too": {**small, "cleanup.policy": "compact,delete"},
        "kept": {**small, "retention.ms": "-1"},
        "compacted": {**small, "cleanup.policy": "compact"},
        "hanging": {**small, "retention.ms": str(retention + LATE)},
        "small": {"retention.ms": "-1", "retention.bytes": str(BYTES), "segment.bytes": "1048576"},
    }


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Write for some seconds, predict, and watch until all that can expire has expired."""
    quick = {
        "log.retention.check.interval.ms": "200",
        "log.initial.task.delay.ms": "0",
        "log.segment.delete.delay.ms": "0",
    }
    for retention in RETENTIONS:
        with KafkaBroker(tmp_path_factory.mktemp("kafka"), properties=quick) as kafka:
            told = _told(kafka, retention)
        if told is not None:
            return told
    pytest.fail(f"even {RETENTIONS[-1]} ms of retention were over before the first look at Kafka")


def _told(kafka: KafkaBroker, retention: int) -> Story | None:
    """Return what happened; None: the first records' time was over before anything was predicted."""
    topics = _topics(retention)
    for topic, config in topics.items():
        create_topic(kafka, topic, config=config)
    log = KafkaLog(kafka.client_config(), 20)
    began, since = time.monotonic(), datetime.now(UTC)
    hanging = _hang(kafka)
    written = _write(kafka)
    small = TopicPartition("small", 0)
    wait_until(
        lambda: log.bounds([small], UNCOMMITTED)[small].beginning > 0,
        what="retention by size has removed something",
    )
    ends = {topic: end_offset(kafka, topic) for topic in topics}
    marks = [(topic, mark) for topic, end in ends.items() for mark in range(end // 20, end, max(1, end // 8))]
    at = datetime.now(UTC)
    # What retention removes while we write, because the machine is slow, has no headroom. Of "small" it is expected.
    predicted = {of: found for of, found in _predict(log, marks, at).items() if not found.lost or of[0] == "small"}
    is_late = time.monotonic() - began > retention / 1000
    if is_late and min(sum(name == topic for name, _ in predicted) for topic in EXPIRE) < FEWEST:
        return None
    removed_at: dict[tuple[str, int], datetime] = {}
    partitions = [TopicPartition(topic, 0) for topic in topics]

    def all_is_gone() -> bool:
        bounds = log.bounds(partitions, UNCOMMITTED)
        now = datetime.now(UTC)
        for topic, mark in marks:
            if bounds[TopicPartition(topic, 0)].beginning > mark:
                removed_at.setdefault((topic, mark), now)
        return all(of in removed_at for of in marks if of[0] in EXPIRE)

    wait_until(all_is_gone, what="retention has removed what was written")
    hanging.abort_transaction(10)
    by_size = {size: _push(kafka, log, since, size) for size in (RECORD, 2 * RECORD)}
    return Story(retention, at, written, predicted, removed_at, by_size)


def _push(kafka: KafkaBroker, log: KafkaLog, since: datetime, size: int) -> Pushed:
    """Predict when the last record of "small" goes, and write records of a size until it is gone."""
    small = TopicPartition("small", 0)

    def has_settled() -> bool:
        bounds = log.bounds([small], UNCOMMITTED)[small]
        return (bounds.end - bounds.beginning) * RECORD <= BYTES + 1_048_576

    wait_until(has_settled, what="retention by size has removed what it can")
    last, at = end_offset(kafka, "small") - 1, datetime.now(UTC)
    predicted = _predict(log, [("small", last)], at)["small", last]
    offsets = predicted.headroom_offsets or 0
    kept_after, gone_after = ((offsets + by) * RECORD // size for by in (-SEGMENT, SEGMENT))
    produce(kafka, "small", kept_after, padding=size)
    if size == RECORD:  # or the bytes of the log are not known from its offsets
        wait_until(has_settled, what="retention by size has removed what it can")
    was_kept = log.bounds([small], UNCOMMITTED)[small].beginning <= last
    produce(kafka, "small", gone_after - kept_after, padding=size)
    wait_until(
        lambda: log.bounds([small], UNCOMMITTED)[small].beginning > last,
        what=f"offset {last} is gone after {gone_after} newer ones of {size} bytes, as the {offsets} predicted ones tell",
    )
    return Pushed(predicted, (at - since).total_seconds(), kept_after, was_kept, gone_after)


def _hang(kafka: KafkaBroker) -> Producer:
    """Write records in a transaction that stays open."""
    producer = Producer({**kafka.client_config(), "transactional.id": "hanging", "transaction.timeout.ms": 300_000})
    producer.init_transactions(20)
    producer.begin_transaction()
    for _ in range(40):
        producer.produce("hanging", b"never committed", timestamp=int(time.time() * 1000) - LATE)
    assert not producer.flush(20)
    return producer


def _write(kafka: KafkaBroker) -> dict[str, list[int]]:
    """Write records for some seconds; return the times that the producer gave them."""
    chance = random.Random(7)
    written: dict[str, list[int]] = {"steady": [], "disorder": [], "idle": [], "kept": []}

    def send(topic: str, at: int, number: int = 5, **more: object) -> None:
        produce(kafka, topic, number, timestamp_ms=at, **more)  # type: ignore[arg-type]
        if topic in written:
            written[topic] += [at] * number

    send("small", int(time.time() * 1000), 250, padding=RECORD)  # more than it keeps, however few seconds bring
    until = time.monotonic() + 5
    while time.monotonic() < until:
        now = int(time.time() * 1000)
        send("steady", now)
        for _ in range(3):
            send("disorder", now - chance.randrange(4000), 2)
        send("append", now - 100_000_000)
        for number in range(3):
            send("compacted-too", now, 1, key=b"%d" % number)
            send("compacted", now, 1, key=b"%d" % number)
        send("kept", now)
        send("small", now, 10, padding=RECORD)
    send("idle", int(time.time() * 1000), 20)
    return written


def _predict(log: KafkaLog, marks: list[tuple[str, int]], at: datetime) -> dict[tuple[str, int], PartitionLag]:
    """Look at groups whose watermarks are there, all at one moment: retention does not wait for the next look."""
    ids = log.topic_ids(sorted({topic for topic, _ in marks}))
    named = {f"{topic}.{mark}": (topic, mark) for topic, mark in marks}
    groups = [KafkaGroup(name, topics=[topic]) for name, (topic, _) in named.items()]
    states = {
        name: GroupState(1, Position({TopicPartition(topic, 0): mark}, {topic: ids[topic]}))
        for name, (topic, mark) in named.items()
    }
    found = freshness.look(groups, _Given(states), lambda _: log, at, states=states)  # type: ignore[arg-type]
    return {(topic, mark): found[name].partitions[TopicPartition(topic, 0)] for name, (topic, mark) in named.items()}


@dataclass(frozen=True)
class _Given:
    """A ledger of groups that never move, without commits."""

    states: dict[str, GroupState]

    def one_connection(self) -> object:
        """Return a context that does nothing."""
        return nullcontext()

    def load_all(self, names: list[str]) -> dict[str, GroupState]:
        """Return the states."""
        return {name: self.states[name] for name in names}

    def recent_commits(self, wanted: dict[str, int]) -> dict[str, object]:
        """Return none."""
        return {}


@pytest.mark.kafka
@pytest.mark.parametrize("topic", EXPIRE)
def test_nothing_is_removed_before_its_headroom_is_over(story: Story, topic: str) -> None:
    marks = [mark for name, mark in story.predicted if name == topic]
    assert len(marks) >= FEWEST
    for mark in marks:
        headroom = story.predicted[topic, mark].headroom_seconds
        assert headroom is not None
        assert story.removed_at[topic, mark] >= story.at + timedelta(seconds=headroom), mark


@pytest.mark.kafka
@pytest.mark.parametrize("topic", ["steady", "disorder", "idle"])
def test_headroom_is_what_the_newest_record_up_to_the_watermark_has_left(story: Story, topic: str) -> None:
    now_ms = story.at.timestamp() * 1000
    for (name, mark), found in story.predicted.items():
        if name == topic:
            left = max(story.written[topic][: mark + 1]) + story.retention - now_ms
            assert found.headroom_seconds == pytest.approx(max(0.0, left) / 1000, abs=1.01), mark
            assert found.headroom_seconds <= max(0.0, left) / 1000 + 0.001, mark


@pytest.mark.kafka
@pytest.mark.parametrize("topic", ["steady", "disorder", "idle", "kept"])
def test_lag_in_time_is_never_too_small_and_hardly_too_large(story: Story, topic: str) -> None:
    now_ms = story.at.timestamp() * 1000
    found = {mark: lag.lag_seconds for (name, mark), lag in story.predicted.items() if name == topic}
    assert len(found) >= FEWEST
    for mark, told in found.items():
        # What is older than a record before it counts as being as young as that one.
        waits = (now_ms - max(story.written[topic][: mark + 1])) / 1000
        assert told is not None
        assert waits - 0.001 <= told <= waits + max(1.0, 0.02 * waits) + 0.001, mark


@pytest.mark.kafka
@pytest.mark.parametrize("topic", ["kept", "compacted"])
def test_what_retention_never_removes_has_no_headroom_and_an_age(story: Story, topic: str) -> None:
    found = [lag for (name, _), lag in story.predicted.items() if name == topic]
    assert found
    assert all(lag.headroom_seconds is None and lag.lag_seconds is not None for lag in found)
    assert not [mark for name, mark in story.removed_at if name == topic and name == "kept"]


@pytest.mark.kafka
def test_by_size_the_headroom_is_an_estimate_that_grows_with_the_watermark(story: Story) -> None:
    found = {mark: lag for (name, mark), lag in story.predicted.items() if name == "small"}
    gone = [mark for mark, lag in found.items() if lag.lost]
    guessed = {mark: lag for mark, lag in found.items() if lag.headroom_seconds is not None}
    assert gone
    assert guessed
    assert all(lag.estimate is not None and "retention.bytes" in lag.estimate for lag in guessed.values())
    in_order = [lag.headroom_seconds or 0.0 for _, lag in sorted(guessed.items())]
    assert in_order == sorted(in_order)


@pytest.mark.kafka
def test_by_size_a_record_goes_when_as_many_offsets_as_predicted_arrived_give_or_take_a_segment(story: Story) -> None:
    pushed = story.by_size[RECORD]
    offsets = pushed.predicted.headroom_offsets
    assert offsets is not None
    assert (pushed.kept_after, pushed.gone_after) == (offsets - SEGMENT, offsets + SEGMENT)
    assert pushed.kept_after > 0
    assert pushed.was_kept


@pytest.mark.kafka
def test_by_size_the_headroom_is_no_bound_because_larger_records_take_it_sooner(story: Story) -> None:
    pushed = story.by_size[2 * RECORD]
    assert pushed.gone_after < (pushed.predicted.headroom_offsets or 0)


@pytest.mark.kafka
def test_by_size_a_log_that_holds_seconds_is_not_taken_for_one_of_an_hour(story: Story) -> None:
    for pushed in story.by_size.values():
        assert pushed.predicted.headroom_seconds is not None
        assert pushed.predicted.headroom_seconds <= pushed.held_for


@pytest.mark.kafka
def test_what_an_open_transaction_hides_is_no_lag_and_yet_retention_removes_it(story: Story) -> None:
    found = {mark: lag for (name, mark), lag in story.predicted.items() if name == "hanging"}
    assert {lag.lag for lag in found.values()} == {0}
    assert {lag.hidden_to for lag in found.values()} == {40}
    assert {("hanging", mark) for mark in found} <= story.removed_at.keys()


def test_without_the_right_to_the_configuration_lag_in_time_is_known_and_headroom_is_not(
    kafka_sasl: SecureKafkaBroker, topic: str
) -> None:
    create_topic(kafka_sasl, topic, config={"retention.ms": str(24 * 3_600_000)})
    at = datetime.now(UTC)
    produce(kafka_sasl, topic, 7, timestamp_ms=int(at.timestamp() * 1000) - 3_600_000)
    log = KafkaLog(kafka_sasl.client_config("bob"), 30)
    group, tp = KafkaGroup(topic, topics=[topic]), TopicPartition(topic, 0)

    def looked() -> GroupLag:
        states = {topic: GroupState(1, Position({tp: 3}, log.topic_ids([topic])))}
        return freshness.look([group], _Given(states), lambda _: log, at, states=states)[topic]  # type: ignore[arg-type]

    kafka_sasl.allow("bob", AclOperation.DESCRIBE, topic=topic)
    found = looked()
    assert (found.error, found.lag, found.headroom_seconds) == (None, 4, None)
    assert found.lag_seconds is not None
    assert 3_599.999 <= found.lag_seconds <= 3_672.001
    assert found.notes == (
        f"this user may not read the configuration of {topic}: grant the ACL DescribeConfigs on Topic, or if Kafka does "
        "not support that, set KafkaGroup(retention=...)",
    )
    kafka_sasl.allow("bob", AclOperation.DESCRIBE_CONFIGS, topic=topic)
    found = looked()
    assert (found.error, found.notes) == (None, ())
    assert found.lag_seconds is not None
    assert found.headroom_seconds == pytest.approx(24 * 3_600 - found.lag_seconds)
