"""Offsets that come from Kafka's own ``kafka-consumer-groups``, and offsets that it takes from us; on a real broker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan import ownership
from tests.cli.conftest import Done, Lake, in_a_process
from tests.lab.kafka_tools import kafka_consumer_groups
from tests.lab.topics import create_topic, produce
from tests.lab.waiting import run_to_end

if TYPE_CHECKING:
    from tests.lab.kafka import KafkaBroker


@pytest.fixture
def long(kafka: KafkaBroker, topic: str) -> str:
    """A topic with a name so long that the tool puts it into quotes; three partitions with 50 records each."""
    name = f"{topic}.orders-of-the-whole-company_v1"
    create_topic(kafka, name, 3)
    for partition in range(3):
        produce(kafka, name, 50, partition=partition)
    return name


@pytest.fixture
def lake(kafka: KafkaBroker, tmp_path: Path) -> Lake:
    return Lake(tmp_path / "ledger.db", KafkaLog(kafka.client_config(), 10))


@pytest.fixture
def consumers(kafka: KafkaBroker, long: str, tmp_path: Path) -> str:
    """A consumer group of the name ``loader-<topic>`` that has read 7, 0 and 50 records."""
    (tmp_path / "committed.csv").write_text(f"{long},0,7\n{long},1,0\n{long},2,50\n")
    from_file = ("--from-file", str(tmp_path / "committed.csv"))
    kafka_consumer_groups(kafka, "--reset-offsets", "--group", f"loader-{long}", *from_file, "--execute")
    return f"loader-{long}"


def run(lake: Lake, kafka: KafkaBroker, *arguments: str) -> Done:
    where = ("--ledger", lake.url, "--bootstrap-servers", kafka.bootstrap_servers)
    return in_a_process(*arguments, *where)


def watermark(lake: Lake, group: str) -> dict[int, int]:
    position = ownership.watermark(lake.ledger.load(group))
    assert position is not None
    return {tp.partition: offset for tp, offset in position.offsets.items()}


def exported(kafka: KafkaBroker, *arguments: str) -> str:
    return kafka_consumer_groups(kafka, "--reset-offsets", "--to-current", "--dry-run", "--export", *arguments)


def test_their_export_is_our_import(kafka: KafkaBroker, consumers: str, long: str, lake: Lake, tmp_path: Path) -> None:
    text = exported(kafka, "--group", consumers, "--all-topics")
    assert f'"{long}",0,7' in text
    (tmp_path / "theirs.csv").write_text(text)
    place = ("--from", f"csv:{tmp_path / 'theirs.csv'}")
    assert run(lake, kafka, "import", "lake.real", *place, "--why", "moving over", "--yes").code == 0
    assert watermark(lake, "lake.real") == {0: 7, 1: 0, 2: 50}
    window = lake.commit(KafkaGroup("lake.real", topics=[long]), 1)
    assert {tp.partition: (r.start, r.end) for tp, r in window.ranges.items()} == {0: (7, 50), 1: (0, 50), 2: (50, 50)}


def test_their_export_through_a_pipe_of_several_groups(
    kafka: KafkaBroker, consumers: str, long: str, lake: Lake
) -> None:
    other = f"other-{long}"
    kafka_consumer_groups(kafka, "--reset-offsets", "--group", other, "--topic", long, "--to-earliest", "--execute")
    text = exported(kafka, "--group", consumers, "--group", other, "--all-topics")
    program = Path(sys.executable).parent / "kafka-offsets"
    command = [program, "import", "lake.real", "--from", "csv:-", "--as", consumers, "--why", "w", "--yes"]
    where = ["--ledger", lake.url, "--bootstrap-servers", kafka.bootstrap_servers]
    run_to_end([*command, *where], text_in=text).check_returncode()
    assert watermark(lake, "lake.real") == {0: 7, 1: 0, 2: 50}


def test_the_consumer_group_itself(kafka: KafkaBroker, consumers: str, long: str, lake: Lake) -> None:
    place = ("--from", "kafka://", "--as", consumers, "--topic", long)
    assert run(lake, kafka, "import", "lake.real", *place, "--why", "w", "--yes").code == 0
    assert watermark(lake, "lake.real") == {0: 7, 1: 0, 2: 50}


def test_our_export_is_their_from_file(
    kafka: KafkaBroker, consumers: str, long: str, lake: Lake, tmp_path: Path
) -> None:
    group = KafkaGroup("lake.real", topics=[long], max_offsets=60)
    lake.commit(group, 1)
    ours = watermark(lake, "lake.real")
    assert sum(ours.values()) == 60
    file = tmp_path / "ours.csv"
    assert run(lake, kafka, "export", "lake.real", "--to", str(file), "--why", "w", "--yes").code == 0
    from_file = ("--from-file", str(file))
    kafka_consumer_groups(kafka, "--reset-offsets", "--group", consumers, *from_file, "--execute")
    partitions = [TopicPartition(long, partition) for partition in range(3)]
    committed = lake.log.committed(consumers, partitions)
    assert {tp.partition: offset for tp, offset in committed.items()} == ours
    assert run(lake, kafka, "export", "lake.real").out == file.read_text()
