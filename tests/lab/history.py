"""Ledgers with a long history, written through the schema: what years of schedules leave, in a minute."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Table, func, insert, literal, select

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Lane, Outcome, Scope, State
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.ledger.documents import dump_position, dump_ranges
from airflow_kafka_offsets.ledger.engine import writing
from airflow_kafka_offsets.ledger.packing import pack
from airflow_kafka_offsets.ledger.tables import acts, attempts, claim_windows, claims, groups, windows

FIRST_CUT = datetime(2020, 1, 1, tzinfo=UTC)
CHUNK = 5_000


@dataclass(frozen=True)
class History:
    """The windows of one group: committed, one after the other, each with one attempt of a run of its own.

    Attributes:
        group: the definition.
        partitions: the partitions of each topic.
        topic_ids: the id of each topic.
        windows: how many.
        span: how many offsets each reads of each partition.
        every: the time between two cuts.
        acts: how many things people did: exports, each of which names one window.
    """

    group: KafkaGroup
    partitions: Mapping[str, int]
    topic_ids: Mapping[str, str]
    windows: int
    span: int = 1
    every: timedelta = timedelta(minutes=1)
    acts: int = 0

    @property
    def until(self) -> datetime:
        """The planned-until time of the newest window."""
        return self.cut(self.windows)

    def cut(self, seq: int) -> datetime:
        """Return the planned-until time of a window."""
        return FIRST_CUT + seq * self.every

    def ranges(self, seq: int) -> OffsetRanges:
        """Return what a window reads."""
        start = (seq - 1) * self.span
        return OffsetRanges((tp, OffsetRange(start, start + self.span)) for tp in self._topic_partitions())

    def document(self, seq: int) -> dict[str, str | bytes | None]:
        """Return how the ranges of a window are stored."""
        ranges, packed = pack(dump_ranges(self.ranges(seq), self.topic_ids))
        return {"ranges": ranges, "packed": packed}

    def _topic_partitions(self) -> Iterator[TopicPartition]:
        for topic, number in self.partitions.items():
            yield from (TopicPartition(topic, partition) for partition in range(number))

    @property
    def origin(self) -> Position:
        """Where the first window starts."""
        return Position(dict.fromkeys(self._topic_partitions(), 0), self.topic_ids)


# What repeats the windows. The database copies it: to send each row cost as much again.
_COPIED: dict[Table, dict[str, ColumnElement[Any]]] = {
    claim_windows: {"claim_id": windows.c.holder, "group_id": windows.c.group_id, "seq": windows.c.seq},
    attempts: {
        "group_id": windows.c.group_id,
        "seq": windows.c.seq,
        "claim_id": windows.c.holder,
        "try_number": literal(1),
        "series": literal("0"),
        "outcome": literal(Outcome.SUCCEEDED, attempts.c.outcome.type),
        "records": windows.c.span,
        "started_at": windows.c.planned_at,
        "ended_at": windows.c.planned_at,
    },
}


def write(engine: Engine, histories: Iterable[History]) -> None:
    """Write groups and all of their windows into a ledger whose tables are there."""
    for history in histories:
        # Each in a session of its own: PostgreSQL keeps a session's plans of its checks of foreign keys. Those that it made while
        # the tables were almost empty read all of a table for each row of a long history.
        with writing(engine) as connection:
            _write(connection, history)
            follow_ids(connection)


def _write(connection: Connection, history: History) -> None:
    group_id, first = (
        connection.execute(select(func.coalesce(func.max(table.c.id), 0))).scalar_one() for table in (groups, claims)
    )
    group_id += 1
    connection.execute(insert(groups).values(id=group_id, **_group_values(history)))
    for table, rows in _rows(history, group_id, first).items():
        _insert(connection, table, rows)
    for table, values in _COPIED.items():
        of_windows = select(*values.values()).where(windows.c.group_id == group_id).order_by(windows.c.seq)
        connection.execute(insert(table).from_select(list(values), of_windows))


def follow_ids(connection: Connection) -> None:
    """Let the next rows get larger ids than those that were given by hand: PostgreSQL counts by itself."""
    if connection.dialect.name == "postgresql":
        for table in (groups, claims, attempts, acts):
            sequence = func.pg_get_serial_sequence(table.name, "id")
            connection.execute(select(func.setval(sequence, select(func.max(table.c.id)).scalar_subquery())))


def _group_values(history: History) -> dict[str, Any]:
    return {
        "name": history.group.name,
        "version": history.windows + 1,
        "next_seq": history.windows + 1,
        "origin_seq": 1,
        "first_seq": 1,
        "origin": dump_position(history.origin),
        "definition": json.dumps(history.group.to_json()),
        "created_at": FIRST_CUT,
        "owner_dag_id": "bench",
        "owner_task_id": "load",
    }


def _rows(history: History, group_id: int, first: int) -> dict[Table, Iterator[dict[str, Any]]]:
    """Return the rows of one group that are not copied, in an order that its foreign keys allow; the id of its first claim is first + 1."""
    seqs = range(1, history.windows + 1)
    number = len(history.origin.offsets)
    return {
        claims: (
            {"id": first + seq, "dag_id": "bench", "run_id": f"{history.group.name} {seq}", "task_id": "load"}
            | {"map_index": -1, "scope": Scope.TASK}
            for seq in seqs
        ),
        windows: (
            {
                "group_id": group_id,
                "seq": seq,
                "lane": Lane.LIVE,
                "state": State.COMMITTED,
                "holder": first + seq,
                "holds": 1,
                "planned_until": history.cut(seq),
                "isolation_level": IsolationLevel.READ_COMMITTED,
                "span": history.span * number,
                **history.document(seq),
                "is_capped": False,
                "partitions": number,
                "unread": history.span * number,
                "planned_at": history.cut(seq),
                "committed_at": history.cut(seq),
            }
            for seq in seqs
        ),
        acts: (
            {"group_id": group_id, "kind": "export", "who": "ada", "why": "nightly", "at": history.cut(number)}
            | {"details": json.dumps({"window": name_window(history.group.name, 1 + number % history.windows)})}
            for number in range(history.acts)
        ),
    }


def _insert(connection: Connection, table: Table, rows: Iterator[dict[str, Any]]) -> None:
    while chunk := list(islice(rows, CHUNK)):
        connection.execute(insert(table), chunk)
