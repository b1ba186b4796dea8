"""What a replay of some windows would do, for the dialog of the page. It writes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError, IllegalStepError, KafkaAnswerError, NotYetError, counted
from airflow_kafka_offsets.core.plan.pruning import absent
from airflow_kafka_offsets.core.plan.replay import check_replayable
from airflow_kafka_offsets.core.plan.request import GROUP, SCOPED, WINDOWS, name_windows, parse_windows
from airflow_kafka_offsets.core.window import Window, WindowRecord
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.documents import Document, replay_document
from airflow_kafka_offsets.page import now
from airflow_kafka_offsets.page.access import Reader
from airflow_kafka_offsets.service.pictures import RANGES_AT_ONCE, GroupLine
from airflow_kafka_offsets.service.windows import WindowService
from airflow_kafka_offsets.wiring.late import late

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Row:
    """A window that was chosen.

    Attributes:
        refused: why a replay can't run it; None: it can.
    """

    id: str
    seq: int
    number: str
    span: int
    records: int | None
    committed_at: datetime | None
    refused: str | None


@dataclass(frozen=True, slots=True)
class Dag:
    """A DAG that may run a replay.

    Attributes:
        note: what to know before; None: nothing.
    """

    dag_id: str
    may_run: bool
    note: str | None


@dataclass(frozen=True, slots=True)
class Preview:
    """What a replay would do.

    Attributes:
        dags: those that have, or had, windows of the group.
        chosen: the DAG that is offered first; None: the user may run none of them.
        unknown: what no one could find out; None: nothing.
        again: the windows that can run, as the ledger has them.
    """

    group: str
    rows: Sequence[Row]
    dags: Sequence[Dag]
    chosen: str | None
    unknown: str | None = None
    again: Sequence[Window] = ()

    @property
    def can_run(self) -> list[Row]:
        """The windows that can run."""
        return [row for row in self.rows if row.refused is None]

    @property
    def offsets(self) -> int:
        """How many offsets these have."""
        return sum(row.span for row in self.can_run)

    @property
    def windows(self) -> str:
        """The windows that can run, as a conf names them."""
        return name_windows(row.seq for row in self.can_run)

    @property
    def conf(self) -> dict[str, Any]:
        """The conf of the run. No param of the DAG can change what it means."""
        return {SCOPED: {GROUP: self.group, WINDOWS: self.windows}}

    @property
    def command(self) -> str:
        """What someone who may run a DAG can type instead."""
        return f"airflow dags trigger DAG --conf '{json.dumps(self.conf)}'"

    @property
    def body(self) -> str:
        """What Airflow's REST API gets, as JSON."""
        note = f"Replay of {self.group}, windows {self.windows}, from the page Kafka windows"
        return json.dumps({"logical_date": None, "conf": self.conf, "note": note[:1000]})


def preview(ledger: Ledger, line: GroupLine, windows: str, reader: Reader) -> Preview:
    """Work out what a replay would do.

    Args:
        ledger: where the windows are.
        line: the group.
        windows: as in the conf of a replay: ``12-15,18``.
        reader: who asks.

    Raises:
        BadInputError: it names no windows, or too many.
        PrunedWindowError: some of them were pruned.
    """
    name = line.group.name
    seqs = parse_windows(name, windows)
    position = ledger.position(name)
    most = max(1, RANGES_AT_ONCE // max(1, len(position.offsets) if position else 1))
    if len(seqs) > most:
        raise BadInputError(
            f"A preview reads at most {counted(most, 'window')} of group {name} at once, as each has a range for each partition. "
            "Select fewer, or run the DAG with the conf that names the windows"
        )
    found = {row.window.seq: row for row in ledger.windows(name, seqs=seqs, limit=len(seqs))}
    pruned = ledger.pruned(name)
    if gone := [seq for seq in seqs if seq < pruned.before]:
        raise absent(name, gone, pruned)
    readable = reader.readable({row.holder.dag_id for row in found.values()} | line.outline.dag_ids)
    rows = [row for row in found.values() if row.holder.dag_id in readable]
    refused = {row.window.id: why for row in rows if (why := _refused(row)) is not None}
    unknown = None
    try:
        left = [row.window for row in rows if row.window.id not in refused]
        service = WindowService(ledger, late(lambda: now.open_log(line.group)))
        refused |= {window_id: str(exc) for window_id, exc in service.unreadable(left).items()}
    except (KafkaAnswerError, NotYetError) as exc:  # also: there is no such connection
        unknown = f"Whether Kafka still holds these records is not known: {exc}"
    dags = [_dag(dag_id, reader) for dag_id in sorted(readable)]
    # A window of a DAG that may not be read is no window for this user.
    seen = {row.window.seq for row in rows}
    shown = [*_rows(rows, refused), *(_unseen(name, seq) for seq in seqs if seq not in seen)]
    again = [row.window for row in rows if row.window.id not in refused]
    again.sort(key=lambda window: window.seq)
    return Preview(name, sorted(shown, key=lambda row: row.seq), dags, _chosen(dags, rows), unknown, again)


def _refused(row: WindowRecord) -> str | None:
    try:
        check_replayable(row.window)
    except IllegalStepError as exc:
        return str(exc)
    return None if row.window.span else f"Window {row.window.id} has no offsets"


def _rows(rows: Sequence[WindowRecord], refused: Mapping[str, str]) -> list[Row]:
    return [
        Row(
            id=row.window.id,
            seq=row.window.seq,
            number=f"{row.window.seq:06d}",
            span=row.window.span,
            records=row.records,
            committed_at=row.committed_at,
            refused=refused.get(row.window.id),
        )
        for row in rows
    ]


def _unseen(group: str, seq: int) -> Row:
    return Row(name_window(group, seq), seq, f"{seq:06d}", 0, None, None, "There is no such window that you may see")


def _dag(dag_id: str, reader: Reader) -> Dag:
    may_run, note = reader.state_of(dag_id)
    return Dag(dag_id, may_run, note)


def _chosen(dags: Sequence[Dag], rows: Sequence[WindowRecord]) -> str | None:
    """Choose the DAG that ran most of the windows, of those that the user may run."""
    held = [row.holder.dag_id for row in rows]
    may_run = [dag.dag_id for dag in dags if dag.may_run]
    return max(may_run, key=held.count, default=None)


def document(found: Preview) -> Document:
    """Return a preview for programs: what ``kafka-offsets plan`` gives of a replay, and what only the page knows."""
    return replay_document(found.group, found.again, []) | {
        "refused": [{"id": row.id, "why": row.refused} for row in found.rows if row.refused is not None],
        "not_known": found.unknown,
        "dags": [{"dag_id": dag.dag_id, "may_run": dag.may_run, "note": dag.note} for dag in found.dags],
        "conf": found.conf,
    }
