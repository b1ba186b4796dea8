"""What a replay of some windows would do, for the dialog of the page. It writes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError, IllegalStepError, KafkaAnswerError, NotYetError, counted
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.plan.replay import check_replayable, has_replay
from airflow_kafka_offsets.core.plan.request import WINDOWS, conf_of, parse_windows, trigger_command
from airflow_kafka_offsets.core.window import Window, WindowRecord
from airflow_kafka_offsets.core.window_id import name_window, name_windows
from airflow_kafka_offsets.documents import Document, replay_document
from airflow_kafka_offsets.page import now
from airflow_kafka_offsets.page.access import Reader
from airflow_kafka_offsets.service.pictures import RANGES_AT_ONCE, GroupLine
from airflow_kafka_offsets.service.windows import WindowService
from airflow_kafka_offsets.wiring import late

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Row:
    """A window that was chosen.

    Attributes:
        refused: why a replay can't run it; None if it can.
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
        note: why a run would not start, or wait; None if it starts at once.
    """

    dag_id: str
    may_run: bool
    note: str | None


@dataclass(frozen=True, slots=True)
class Preview:
    """What a replay would do.

    Attributes:
        dags: those that have, or had, windows of the group.
        chosen: the DAG that is offered first; None if the user may run none of them.
        unknown: why Kafka did not answer; None if it did.
        again: the windows that can run, as the ledger has them.
        owner: the DAG of the group; None if the user may not read it, or no task has planned live.
    """

    group: str
    rows: Sequence[Row]
    dags: Sequence[Dag]
    chosen: str | None
    unknown: str | None = None
    again: Sequence[Window] = ()
    owner: str | None = None

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
        """The conf of the run."""
        return conf_of(self.group, {WINDOWS: self.windows})

    @property
    def command(self) -> str:
        """What someone who may run a DAG can type instead."""
        return trigger_command(self.group, {WINDOWS: self.windows}, self.owner).strip()

    @property
    def body(self) -> str:
        """What Airflow's REST API gets, as JSON."""
        note = f"Replay of {self.group}, windows {self.windows}"
        return json.dumps({"logical_date": None, "conf": self.conf, "note": note[:1000]})


def preview(ledger: Ledger, line: GroupLine, windows: str, reader: Reader) -> Preview:
    """Preview a replay.

    Args:
        ledger: where the windows are.
        line: the group.
        windows: as in the conf of a replay: ``12-15,18``.
        reader: who asks.

    Raises:
        BadInputError: `windows` names none, or too many.
        UnknownWindowError: some of them have left the ledger.
    """
    group = line.group
    seqs = parse_windows(group.name, windows)
    _check_number(ledger, group.name, len(seqs))
    records = ledger.windows(group.name, seqs=seqs, limit=len(seqs))
    ledger.pruned(group.name).check_windows(seqs)
    readable = reader.readable({record.holder.dag_id for record in records} | line.outline.dag_ids)
    # For this user, there is no window of a DAG that they may not read.
    visible = {record.seq: record for record in records if record.holder.dag_id in readable}
    refused, unknown = _refused(ledger, group, [record.window for record in visible.values()])
    dags = [Dag(dag_id, *reader.state_of(dag_id)) for dag_id in sorted(readable)]
    holders = [record.holder.dag_id for record in visible.values()]
    owner = line.outline.owner
    return Preview(
        group=group.name,
        rows=[_row(group.name, seq, visible.get(seq), refused) for seq in sorted(seqs)],
        dags=dags,
        # The DAG that ran most of the windows.
        chosen=max((dag.dag_id for dag in dags if dag.may_run), key=holders.count, default=None),
        unknown=unknown,
        again=[visible[seq].window for seq in sorted(visible) if visible[seq].id not in refused],
        owner=owner.dag_id if owner and owner.dag_id in readable else None,
    )


def _check_number(ledger: Ledger, group: str, number: int) -> None:
    position = ledger.position(group)
    most = max(1, RANGES_AT_ONCE // max(1, len(position.offsets) if position else 1))
    if number > most:
        raise BadInputError(f"A preview reads at most {counted(most, 'window')} of group {group}: select fewer")


def _refused(ledger: Ledger, group: KafkaGroup, windows: Sequence[Window]) -> tuple[dict[str, str], str | None]:
    """Return why windows can't run again, by id; and the reason why Kafka did not answer, or None if it did."""
    refused: dict[str, str] = {}
    for window in windows:
        try:
            check_replayable(window)
        except IllegalStepError as exc:
            refused[window.id] = str(exc)
        else:
            if not has_replay(window):
                refused[window.id] = f"Window {window.id} has no offsets"
    service = WindowService(ledger, late(lambda: now.open_log(group)))
    try:
        unreadable = service.unreadable([window for window in windows if window.id not in refused])
    except (KafkaAnswerError, NotYetError) as exc:  # also: there is no such connection
        return refused, f"Kafka did not show whether it holds these records: {exc}"
    return refused | {window_id: str(error) for window_id, error in unreadable.items()}, None


def _row(group: str, seq: int, record: WindowRecord | None, refused: Mapping[str, str]) -> Row:
    id_, number = name_window(group, seq), f"{seq:06d}"
    if record is None:
        return Row(id_, seq, number, 0, None, None, "There is no such window that you may see")
    return Row(id_, seq, number, record.span, record.records, record.committed_at, refused.get(id_))


def document(preview: Preview) -> Document:
    """Return a preview for programs: the document of ``kafka-offsets plan``, and the page's own fields."""
    return replay_document(preview.group, preview.again, []) | {
        "refused": [{"id": row.id, "why": row.refused} for row in preview.rows if row.refused is not None],
        "not_known": preview.unknown,
        "dags": [{"dag_id": dag.dag_id, "may_run": dag.may_run, "note": dag.note} for dag in preview.dags],
        "conf": preview.conf,
    }
