"""From a real Structured Streaming query to the first window: no record twice, none missing."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.adapters.sources.checkpoint import CheckpointDirectory
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.window import Claim, Window
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service.windows import WindowService
from tests.cli.conftest import in_a_process
from tests.lab.topics import create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.lab.kafka import KafkaBroker
    from tests.spark.conftest import MakeWindow

Records = Counter[tuple[str, int, int]]


@pytest.fixture
def topics(kafka: KafkaBroker, topic: str) -> list[str]:
    """Two topics with two partitions and 40 and 20 records."""
    names = [topic, f"{topic}.more"]
    for name in names:
        create_topic(kafka, name, 2)
    produce(kafka, names[0], 30, partition=0)
    produce(kafka, names[0], 10, partition=1)
    produce(kafka, names[1], 20, partition=1)
    return names


@pytest.fixture
def stream(spark: SparkSession, kafka: KafkaBroker) -> Callable[..., DataFrame]:
    """Return a function that reads topics as a stream, from the beginning."""

    def read(*names: str, **options: str) -> DataFrame:
        usual = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "startingOffsets": "earliest"}
        reader = spark.readStream.format("kafka").option("subscribe", ",".join(names))
        return reader.options(**usual, **options).load().select("topic", "partition", "offset")

    return read


@pytest.fixture(scope="module", autouse=True)
def _spark_ends_quietly() -> None:
    # The threads that Spark calls us on end after pytest has closed its log, and would say goodbye to it.
    logging.getLogger("py4j.clientserver").setLevel(logging.WARNING)


class Query:
    """A query that writes its records to a list, and dies in a batch if asked to."""

    def __init__(self, frame: DataFrame, checkpoint: Path) -> None:
        self.read: Records = Counter()
        self._frame = frame
        self._checkpoint = checkpoint

    def run(self, *, die_in: int | None = None) -> None:
        """Read all records."""

        def write(frame: DataFrame, batch: int) -> None:
            if batch == die_in:
                raise RuntimeError("killed in the middle of a batch")
            self.read.update((row.topic, row.partition, row.offset) for row in frame.collect())

        writer = self._frame.writeStream.option("checkpointLocation", str(self._checkpoint))
        query = writer.trigger(availableNow=True).foreachBatch(write).start()
        with contextlib.suppress(StreamingQueryException):
            query.awaitTermination(120)
        died = str(query.exception() or "")
        assert ("killed in the middle of a batch" in died) is (die_in is not None), died


def first_window(kafka: KafkaBroker, tmp_path: Path, names: list[str], *arguments: str) -> Window:
    """Import the checkpoint as a person does, and plan as the DAG does."""
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    ledger = Ledger(url, create=True)
    place = ("--from", f"checkpoint:{tmp_path / 'checkpoint'}", "--why", "the stream becomes a batch job", "--yes")
    where = ("--ledger", url, "--bootstrap-servers", kafka.bootstrap_servers)
    done = in_a_process("import", "lake.moved", *place, *where, *arguments)
    assert done.code == 0, done.err
    service = WindowService(ledger, KafkaLog(kafka.client_config(), 10))
    group = KafkaGroup("lake.moved", topics=names, starting_offsets="latest")
    return service.plan(group, Claim("d", "r", "t"), is_over=lambda claim: True)[0].window


def read(make_window: MakeWindow, window: Window) -> Records:
    """Let Spark read a window."""
    by_topic: dict[str, Any] = {}
    for tp, r in window.ranges.without_empty().items():
        by_topic.setdefault(tp.topic, {})[tp.partition] = (r.start, r.end)
    rows = make_window(by_topic).read().select("topic", "partition", "offset").collect()
    return Counter((row.topic, row.partition, row.offset) for row in rows)


def all_records(**ends: int) -> Records:
    return Counter(
        (topic, int(p), n) for key, end in ends.items() for topic, p in [key.rsplit("/", 1)] for n in range(end)
    )


def test_the_first_window_goes_on_where_the_query_ended(
    kafka: KafkaBroker, topics: list[str], stream: Callable[..., DataFrame], make_window: MakeWindow, tmp_path: Path
) -> None:
    query = Query(stream(*topics, maxOffsetsPerTrigger="25"), tmp_path / "checkpoint")
    query.run()
    assert len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) > 1
    produce(kafka, topics[0], 7, partition=1)
    produce(kafka, topics[1], 3, partition=0)
    window = first_window(kafka, tmp_path, topics)
    assert {str(tp): r.start for tp, r in window.ranges.items()} == {
        f"{topics[0]}-0": 30,
        f"{topics[0]}-1": 10,
        f"{topics[1]}-0": 0,
        f"{topics[1]}-1": 20,
    }
    ends = {f"{topics[0]}/0": 30, f"{topics[0]}/1": 17, f"{topics[1]}/0": 3, f"{topics[1]}/1": 20}
    assert query.read + read(make_window, window) == all_records(**ends)


def test_a_batch_that_died_before_its_commit_is_read_again(
    kafka: KafkaBroker, topics: list[str], stream: Callable[..., DataFrame], make_window: MakeWindow, tmp_path: Path
) -> None:
    query = Query(stream(topics[0], maxOffsetsPerTrigger="8"), tmp_path / "checkpoint")
    query.run(die_in=2)
    found = CheckpointDirectory(tmp_path / "checkpoint", "x").read()
    assert found.notes[0].startswith("batch 2 was planned but not committed")
    assert sum(found.offsets.values()) == sum(query.read.values()) == 16
    window = first_window(kafka, tmp_path, topics[:1])
    assert query.read + read(make_window, window) == all_records(**{f"{topics[0]}/0": 30, f"{topics[0]}/1": 10})


def test_a_query_that_never_committed_has_no_position(
    topics: list[str], stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    Query(stream(topics[0]), tmp_path / "checkpoint").run(die_in=0)
    with pytest.raises(BadInputError, match=r"no committed batch \(batch 0 was planned only\)"):
        CheckpointDirectory(tmp_path / "checkpoint", "x").read()


def test_of_several_sources_those_of_kafka_count(
    spark: SparkSession, topics: list[str], stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "one.csv").write_text("files,0,0\n")
    files = spark.readStream.schema("topic string, partition int, offset long").csv(str(tmp_path / "files"))
    union = stream(topics[0]).union(files).union(stream(topics[1]))
    Query(union, tmp_path / "checkpoint").run()
    found = CheckpointDirectory(tmp_path / "checkpoint", "x").read()
    assert {str(tp): offset for tp, offset in found.offsets.items()} == {
        f"{topics[0]}-0": 30,
        f"{topics[0]}-1": 10,
        f"{topics[1]}-0": 0,
        f"{topics[1]}-1": 20,
    }
    assert found.notes == ("""source 1 does not read Kafka: '{"logOffset":0}'""",)


def test_sources_that_have_come_to_different_places_in_one_topic(
    topics: list[str], stream: Callable[..., DataFrame], tmp_path: Path
) -> None:
    slow, quick = stream(topics[0], maxOffsetsPerTrigger="4"), stream(topics[0], maxOffsetsPerTrigger="20")
    Query(slow.union(quick), tmp_path / "checkpoint").run(die_in=1)
    with pytest.raises(BadInputError, match=rf"sources 0 and 1 differ for {topics[0]}-0"):
        CheckpointDirectory(tmp_path / "checkpoint", "x").read()
    ends = [sum(CheckpointDirectory(tmp_path / "checkpoint", "x", n).read().offsets.values()) for n in ("0", "1")]
    assert ends == [4, 20]
