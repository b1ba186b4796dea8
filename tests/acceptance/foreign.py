"""A launcher that is not ours: a plain consumer that is given a window as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

from airflow_kafka_offsets.wiring import connections


def consume_to_parquet(window: dict[str, Any], lake: Path) -> int:
    """Read a planned window and write its directory; return how many records there were."""
    starts, ends = json.loads(window["starting_offsets"]), json.loads(window["ending_offsets"])
    rows: list[tuple[int, int]] = []
    consumer = Consumer(
        {**connections.kafka_extra("kafka_default"), "group.id": "foreign", "enable.auto.commit": False}
    )
    for topic, partitions in starts.items():
        for partition, start in partitions.items():
            consumer.assign([TopicPartition(topic, int(partition), start)])
            while not rows or rows[-1] != (int(partition), ends[topic][partition] - 1):
                message = consumer.poll(10)
                assert message is not None, f"no record of {topic}-{partition} within 10 s"
                assert not message.error(), message.error()
                rows.append((message.partition(), message.offset()))
    consumer.close()
    directory = lake / f"window_id={window['window_id']}"
    directory.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table({"partition": [r[0] for r in rows], "offset": [r[1] for r in rows]}), directory / "0.parquet"
    )
    return len(rows)
