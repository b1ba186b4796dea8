"""A group of 20,000 partitions: tables stay readable, programs get everything."""

from __future__ import annotations

import pytest

from airflow_kafka_offsets.cli.tables import MAX_ROWS
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import TopicPartition
from tests.cli.conftest import Cli, Kafka, Lake, cells

TOPICS = [f"topic-{n:02d}" for n in range(40)]
PER_TOPIC = 500
BUSY = TopicPartition("topic-39", 499)


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A committed window of all partitions, and one that a run works on; one partition is far behind."""
    log = Kafka()
    for topic in TOPICS:
        log.create(topic, PER_TOPIC)
        for partition in range(PER_TOPIC):
            log.produce(TopicPartition(topic, partition))
    lake = Lake(tmp_path_factory.mktemp("lake") / "ledger.db", log)
    group = KafkaGroup("large", topics=TOPICS, max_offsets=30_000)
    lake.commit(group, 1)
    log.produce(BUSY, 5000)
    lake.plan(group, 2)
    log.produce(BUSY, 7)
    return lake


@pytest.mark.parametrize("arguments", [("status", "large"), ("plan", "large"), ("windows", "large-000002")])
@pytest.mark.slow
def test_a_table_has_the_partitions_that_matter_most(cli: Cli, arguments: tuple[str, ...]) -> None:
    done = cli(*arguments)
    assert done.code == 0
    assert len(done.out.splitlines()) < MAX_ROWS + 30
    assert f"The {MAX_ROWS} of 20000 partitions that matter most; --output json has all." in done.out
    assert any(cells(line)[:2] == ["topic-39", "499"] for line in done.out.splitlines())


@pytest.mark.slow
def test_programs_get_all_of_them(cli: Cli) -> None:
    [group] = cli("status", "large", "-o", "json").json["groups"]
    assert (len(group["partitions"]), group["lag"]) == (20_000, 5007)
    [window] = cli("windows", "large-000002", "-o", "json").json["windows"]
    assert (len(window["ranges"]), window["span"]) == (20_000, 5000)


@pytest.mark.slow
def test_windows_are_listed_in_short(cli: Cli) -> None:
    listed = cli("windows", "large")
    assert [cells(line)[0] for line in listed.out.splitlines()[2:]] == ["large-000002", "large-000001"]
