"""Checks whether a table holds what a group's windows read. Asks the ledger only, writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import IllegalStepError, UnknownGroupError, name_some
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import first_ids
from airflow_kafka_offsets.core.run import records_read
from airflow_kafka_offsets.core.source.audit import Audit, Auditor
from airflow_kafka_offsets.core.source.islands import Islands
from airflow_kafka_offsets.core.window import State, Window, WindowRecord
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.service.replay import rows

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger


def audit_table(ledger: Ledger, group: KafkaGroup, table: Islands, seqs: Sequence[int] = ()) -> Audit:
    """Compare the committed windows of a group with what a table has.

    Args:
        ledger: the ledger.
        group: the group's definition.
        table: what the table has of its topics.
        seqs: only these windows, or none for all that are committed.

    Raises:
        UnknownGroupError: the group has not planned yet.
        UnknownWindowError: there is no such window.
        IllegalStepError: one of them is not committed.
    """
    position = ledger.load(group.name).position
    if position is None:
        raise UnknownGroupError(f"Group {group.name} has not planned yet")
    if seqs:
        _check_committed(ledger, group.name, seqs)
    ids = first_ids(position.topic_ids, (act.details for act in ledger.moves(group.name)))
    floors = ledger.pruned(group.name).floors_of(position.topic_ids)
    auditor = Auditor(table, position.topic_ids, group.expect_gaps, is_whole=not seqs, floors=floors)
    found = rows(ledger, group.name, states=(State.COMMITTED,), seqs=seqs)
    return auditor.audit(_with_records(ledger, found, ids))


def _check_committed(ledger: Ledger, group: str, seqs: Sequence[int]) -> None:
    states = {row.seq: row.state for row in rows(ledger, group, seqs=seqs)}
    if unknown := [seq for seq in seqs if seq not in states]:
        raise ledger.absent(group, unknown)
    others = sorted((seq, state) for seq, state in states.items() if state is not State.COMMITTED)
    if uncommitted := [f"{name_window(group, seq)} ({state})" for seq, state in others]:
        raise IllegalStepError(f"Only committed windows can be audited, not {name_some(uncommitted, ', ')}")


def _with_records(
    ledger: Ledger, found: Iterator[WindowRecord], ids: Mapping[str, str]
) -> Iterator[tuple[Window, int | None]]:
    for row in found:
        window = row.window
        # The last run may have reported no count, for example if it found an append done. An earlier run may have reported one.
        is_untold = row.records is None and row.attempts > 1
        yield window.identified(ids), records_read(ledger.attempts(window.id)) if is_untold else row.records
