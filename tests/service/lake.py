"""A sink in memory that keeps the notes of its windows, and refuses what the sinks of the job side refuse."""

from __future__ import annotations

from collections import Counter
from typing import Any

from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.launch.job_files import handoff_of
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.spark.label import label_of
from airflow_kafka_offsets.task.work import ready
from tests.service.world import World


class Lake:
    """A sink that replaces its output by window id, and keeps each window's note; what the job side's sinks do."""

    def __init__(self) -> None:
        self.outputs: dict[str, tuple[dict[str, Any], list[tuple[TopicPartition, int]]]] = {}
        self.marks: dict[str, str] = {}

    def write(self, world: World, planned: Planned) -> None:
        """Write what a window reads, or refuse."""
        planned = ready(world.service, world.group, planned)
        label = label_of(handoff_of(planned, {}, world.group, None))
        if label.must_mark("lake", self.marks.get(label.group)):
            self.marks[label.group] = label.ledgers[0]
        if label.window_id in self.outputs:
            label.refuse_other("lake", self.outputs[label.window_id][0])
        records = [
            (partition, offset) for partition, r in planned.window.ranges.items() for offset in range(r.start, r.end)
        ]
        self.outputs[label.window_id] = label.note, records

    @property
    def records(self) -> Counter[tuple[TopicPartition, int]]:
        """How often each record is in the output."""
        return Counter(record for _, records in self.outputs.values() for record in records)
