"""Each situation of docs/design.md, Planning on a real broker: what the next plan says, and how the error reads."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.errors import (
    AtRiskError,
    BadInputError,
    DataLossError,
    KafkaUnavailableError,
    LogTruncatedError,
    MissingPartitionError,
    TopicRecreatedError,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.window import Claim, Outcome, Window
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service.windows import WindowService
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import free_port
from tests.lab.topics import (
    abort_transaction,
    add_partitions,
    commit_transaction,
    create_topic,
    delete_records,
    delete_topic,
    open_transaction,
    produce,
)

pytestmark = pytest.mark.kafka


class Runs:
    """A group on one topic whose runs follow one another: each plans, and commits if it is told to."""

    def __init__(self, service: WindowService, **group: object) -> None:
        self.service = service
        self.group = group
        self._numbers = itertools.count(1)

    def plan(self, **changes: object) -> Window:
        self.claim = Claim("dag", f"run-{next(self._numbers)}", "load")
        group = KafkaGroup(**{"name": "g", **self.group, **changes})
        [planned] = self.service.plan(group, self.claim, lambda _: True)
        return planned.window

    def read(self, **changes: object) -> Window:
        window = self.plan(**changes)
        attempt = self.service.start_attempt(window, self.claim)
        self.service.end_attempt(attempt, Outcome.SUCCEEDED)
        self.service.commit(window.id, self.claim, attempt)
        return window


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(f"sqlite:///{tmp_path}/ledger.db", create=True)


@pytest.fixture
def runs(kafka: KafkaBroker, topic: str, ledger: Ledger) -> Runs:
    return Runs(WindowService(ledger, KafkaLog(kafka.client_config(), 15)), topics=[topic])


def ranges(window: Window) -> dict[int, tuple[int, int]]:
    return {tp.partition: (r.start, r.end) for tp, r in window.ranges.items()}


def test_a_window_ends_where_the_next_one_starts(kafka: KafkaBroker, topic: str, runs: Runs) -> None:
    create_topic(kafka, topic, 2)
    produce(kafka, topic, 10)
    assert ranges(runs.read()) == {0: (0, 10), 1: (0, 0)}
    produce(kafka, topic, 5, partition=1)
    assert ranges(runs.read()) == {0: (10, 10), 1: (0, 5)}


def test_records_that_are_about_to_expire_are_warned_about_or_not_planned(
    kafka: KafkaBroker, topic: str, runs: Runs, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(kafka, topic, config={"retention.ms": "3600000"})
    now = time.time()
    for minutes in (58, 57):
        produce(kafka, topic, 10, timestamp_ms=int((now - minutes * 60) * 1000))
        if minutes == 58:
            runs.read()
    before = ledger.load("g")
    with pytest.raises(AtRiskError, match=rf"{topic}-0: retention may remove offsets \[10, 20\) in .*on_at_risk="):
        runs.plan(on_at_risk="fail")
    assert ledger.load("g").position == before.position
    assert ledger.load("g").open == ()
    caplog.clear()
    assert ranges(runs.plan()) == {0: (10, 20)}
    assert (
        f"retention may remove records of this window before a job has read them: {topic}-0 offsets [10, 20)"
        in caplog.text
    )


def test_a_recreated_topic_is_an_error_even_if_its_offsets_look_plausible(
    kafka: KafkaBroker, topic: str, runs: Runs
) -> None:
    first_id = create_topic(kafka, topic)
    produce(kafka, topic, 10)
    runs.read()
    delete_topic(kafka, topic)
    second_id = create_topic(kafka, topic)
    produce(kafka, topic, 50)
    with pytest.raises(TopicRecreatedError, match=f"{topic}-0: topic {topic} was recreated") as error:
        runs.plan()
    assert f"(id {first_id}, now {second_id}" in str(error.value)
    assert "watermark 10" in str(error.value)
    assert f"kafka-offsets reset g --topic {topic} --to earliest" in str(error.value)
    # What the message says to type helps.
    group = KafkaGroup("g", topics=[topic])
    runs.service.reset(group, "earliest", "me", "recreated", topics=[topic])
    assert ranges(runs.read()) == {0: (0, 50)}


def test_a_planned_window_of_a_recreated_topic_is_not_handed_out_again(
    kafka: KafkaBroker, topic: str, runs: Runs
) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 10)
    runs.plan()
    delete_topic(kafka, topic)
    create_topic(kafka, topic)
    produce(kafka, topic, 50)
    with pytest.raises(TopicRecreatedError, match="kafka-offsets abandon g-000001"):
        runs.plan()


def test_records_deleted_past_the_watermark_are_an_error_or_a_recorded_gap(
    kafka: KafkaBroker, topic: str, runs: Runs
) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 100)
    runs.read(max_offsets=20)
    delete_records(kafka, topic, 50)
    with pytest.raises(
        DataLossError,
        match=rf"{topic}-0: offsets \[20, 50\) expired before they were read",
    ) as error:
        runs.plan()
    assert list(error.value.partitions) == [TopicPartition(topic, 0)]
    window = runs.read(on_data_loss="skip")
    assert ranges(window) == {0: (50, 100)}
    lost = runs.service.ledger.window(window.id).window.lost
    assert {tp.partition: (r.start, r.end) for tp, r in lost.items()} == {0: (20, 50)}


def test_a_new_partition_starts_at_its_beginning(kafka: KafkaBroker, topic: str, runs: Runs) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 10)
    assert ranges(runs.read(starting_offsets="latest")) == {0: (10, 10)}
    add_partitions(kafka, topic, 2)
    produce(kafka, topic, 7, partition=1)
    assert ranges(runs.read(starting_offsets="latest")) == {0: (10, 10), 1: (0, 7)}


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("own-kafka")) as broker:
        yield broker


@pytest.fixture
def broker(own_broker: KafkaBroker) -> KafkaBroker:
    """Give the broker that tests stop: started again if one of them failed before it did so."""
    own_broker.revive()
    return own_broker


def test_a_log_that_ends_before_the_watermark_is_an_error_whatever_the_policy(
    broker: KafkaBroker, topic: str, ledger: Ledger
) -> None:
    create_topic(broker, topic)
    produce(broker, topic, 100)
    kafka = KafkaLog(broker.client_config(), 15)
    runs = Runs(WindowService(ledger, kafka), topics=[topic])
    runs.read()
    truncate(broker, topic)
    for policy in ("skip", "fail"):
        with pytest.raises(
            LogTruncatedError, match=rf"{topic}-0: the log ends at 0, before the watermark 100"
        ) as error:
            runs.plan(on_data_loss=policy)
        assert f'kafka-offsets reset g --to \'{{"{topic}":{{"0":0}}}}\'' in str(error.value)
        runs.service = WindowService(ledger, kafka, sleep=lambda _: None)  # it has waited once for the leader


def test_a_log_that_was_cut_back_and_has_grown_past_the_watermark_is_an_error(
    broker: KafkaBroker, topic: str, ledger: Ledger
) -> None:
    create_topic(broker, topic)
    produce(broker, topic, 60)
    produce(broker, topic, 40, first=60)
    runs = Runs(WindowService(ledger, KafkaLog(broker.client_config(), 30)), topics=[topic])
    assert ranges(runs.read()) == {0: (0, 100)}
    truncate(broker, topic, 60)
    produce(broker, topic, 70, first=1000)
    stay = f'{{"{topic}":{{"0":100}}}}'
    for policy in ("skip", "fail"):
        with pytest.raises(LogTruncatedError, match=rf"{topic}-0: offsets \[60, 100\) are other records now") as error:
            runs.plan(on_data_loss=policy)
        assert f"kafka-offsets reset g --to '{stay}'" in str(error.value)
    runs.service.reset(KafkaGroup("g", topics=[topic]), stay, "me", "they are not needed")
    assert ranges(runs.read()) == {0: (100, 130)}


def test_a_restart_that_loses_nothing_changes_nothing(broker: KafkaBroker, topic: str, ledger: Ledger) -> None:
    create_topic(broker, topic)
    produce(broker, topic, 100)
    kafka = KafkaLog(broker.client_config(), 30)
    runs = Runs(WindowService(ledger, kafka), topics=[topic])
    window = runs.read()
    before = window.leader_epochs[TopicPartition(topic, 0)]
    broker.stop()
    broker.start()
    produce(broker, topic, 30)
    later = runs.read()
    assert ranges(later) == {0: (100, 130)}
    # Otherwise nothing was asked.
    assert later.leader_epochs[TopicPartition(topic, 0)] > before


def truncate(broker: KafkaBroker, topic: str, end: int = 0) -> None:
    """Take a partition's data away from an offset on, as a disk that was replaced does: the topic and its id stay."""
    broker.stop()
    (log,) = [path for path in broker.folder.rglob(f"{topic}-0") if path.is_dir()]
    for segment in log.iterdir():
        if end and segment.suffix == ".log":
            cut(segment, end)
        elif segment.name != "partition.metadata" and not (end and segment.name == "leader-epoch-checkpoint"):
            segment.unlink()
    for checkpoint in log.parent.glob("*checkpoint*"):
        checkpoint.unlink()
    (log.parent / ".kafka_cleanshutdown").unlink(missing_ok=True)
    broker.start()


def cut(segment: Path, end: int) -> None:
    """Cut a segment off where the batch of an offset begins."""
    data = segment.read_bytes()
    place = 0
    while int.from_bytes(data[place : place + 8], "big") < end:  # a batch begins with its first offset and its length
        place += 12 + int.from_bytes(data[place + 8 : place + 12], "big")
    segment.write_bytes(data[:place])


def test_a_missing_topic_is_an_error(kafka: KafkaBroker, topic: str, runs: Runs) -> None:
    with pytest.raises(MissingPartitionError, match=f"Kafka has no topic {topic}"):
        runs.plan()
    create_topic(kafka, topic)
    produce(kafka, topic, 10)
    runs.read()
    delete_topic(kafka, topic)
    with pytest.raises(MissingPartitionError, match=rf"{topic}-0: gone from Kafka \(watermark 10\)"):
        runs.plan()


def test_an_open_transaction_ends_the_window_at_the_last_stable_offset(
    kafka: KafkaBroker, topic: str, runs: Runs
) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 10)
    transaction = open_transaction(kafka, topic, 5)
    produce(kafka, topic, 20)
    assert ranges(runs.read()) == {0: (0, 10)}
    assert ranges(runs.read(name="dirty", isolation_level="read_uncommitted")) == {0: (0, 35)}
    transaction.commit()
    assert ranges(runs.read()) == {0: (10, 36)}


def test_aborted_and_committed_transactions_are_offsets_like_others(kafka: KafkaBroker, topic: str, runs: Runs) -> None:
    create_topic(kafka, topic)
    abort_transaction(kafka, topic, 10)
    commit_transaction(kafka, topic, 10)
    assert ranges(runs.read()) == {0: (0, 22)}


def test_a_compacted_topic_is_planned_by_its_offsets(kafka: KafkaBroker, topic: str, runs: Runs) -> None:
    create_topic(kafka, topic, config={"cleanup.policy": "compact"})
    for number in range(3):
        produce(kafka, topic, 100, key=b"one", first=number)
    assert ranges(runs.read()) == {0: (0, 300)}


@pytest.mark.parametrize(
    ("group", "says"),
    [
        ({"starting_offsets": '{"nope":{"0":1}}'}, "starting_offsets: Kafka has no partition nope-0"),
        ({"starting_offsets": '{"TOPIC":{"0":1,"7":1}}'}, "no partition .*-7"),
        (
            {"starting_offsets": '{"TOPIC":{"0":999}}'},
            r"999 \(beginning offset 0, end offset 10\)",
        ),
        ({"topics": ["no-such-topic"]}, "Kafka has no topic no-such-topic"),
    ],
)
def test_input_that_does_not_fit_the_log_changes_nothing(
    kafka: KafkaBroker, topic: str, runs: Runs, ledger: Ledger, group: dict[str, object], says: str
) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 10)
    if isinstance(start := group.get("starting_offsets"), str):
        group = {"starting_offsets": start.replace("TOPIC", topic)}
    with pytest.raises((BadInputError, MissingPartitionError), match=says):
        runs.plan(**group)
    assert not ledger.groups()


def test_an_unreachable_broker_changes_nothing(topic: str, ledger: Ledger) -> None:
    nobody = KafkaLog({"bootstrap.servers": f"127.0.0.1:{free_port()}"}, 2)
    with pytest.raises(KafkaUnavailableError):
        Runs(WindowService(ledger, nobody), topics=[topic]).plan()
    assert not ledger.groups()
