"""``kafka-offsets windows``: the windows of a group, or some of them in detail."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.sources import open_ledger
from airflow_kafka_offsets.cli.tables import ranges_table, table, time
from airflow_kafka_offsets.core.errors import BadInputError, counted, name_some
from airflow_kafka_offsets.core.plan.request import parse_windows
from airflow_kafka_offsets.core.window import State, WindowRecord, condition
from airflow_kafka_offsets.core.window_id import name_window, parse_window_id
from airflow_kafka_offsets.documents import Document, window_document, window_with_schemas

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger


_COLUMNS = ("id", "state", "lane", "planned_until", "span", "records", "attempts", "held_by")
_VERSION = "bundle_version"


def windows(args: Namespace) -> Answer:
    """List the windows of a group, newest first, or show some in detail."""
    group = args.group
    seqs = parse_windows(group, args.ids) if args.ids else []  # before anything is opened
    ledger = open_ledger(args)
    if not seqs and _is_window(ledger, group):
        group, seq = parse_window_id(group)
        seqs = [seq]
    ledger.group(group)
    return _details(ledger, group, seqs) if seqs else _list(ledger, group, args)


def _list(ledger: Ledger, group: str, args: Namespace) -> Answer:
    states = [State(state) for state in args.state or ()]
    shown = [window_document(window) for window in ledger.summaries(group, states=states, limit=args.limit)]
    first = ledger.pruned(group).first
    document = {"group": group, "pruned_before": first if first > 1 else None, "windows": shown}
    return Answer(document, lambda: _list_text(document, args.limit))


def _list_text(document: Document, limit: int) -> str:
    group, shown, before = document["group"], document["windows"], document["pruned_before"]
    rows = [{**window, "state": condition(window["state"], window["rerun"])} for window in shown]
    parts = [
        table(_with_version(_COLUMNS, rows), rows, held_by="last run")
        if shown
        else f"Group {group} has no such windows."
    ]
    if len(shown) == limit:
        parts.append(f"The newest {limit}; --limit shows more.")
    if before is not None:
        parts.append(f"Pruned before {name_window(group, before)}.")
    return "\n\n".join(parts)


def _with_version(columns: Sequence[str], documents: Iterable[Document]) -> list[str]:
    """Return the columns of a table. Runs of a local bundle have no version, so they need no column for it."""
    return [*columns, *([_VERSION] if any(document[_VERSION] for document in documents) else [])]


def _is_window(ledger: Ledger, name: str) -> bool:
    # The name of a group may look like a window's: the group comes first.
    if name in {group.name for group in ledger.groups()}:
        return False
    try:
        parse_window_id(name)
    except BadInputError:
        return False
    return True


def _details(ledger: Ledger, group: str, seqs: Sequence[int]) -> Answer:
    rows = {row.seq: row for row in ledger.windows(group, seqs=seqs, limit=len(seqs))}
    if missing := sorted(set(seqs) - rows.keys()):
        raise ledger.absent(group, missing)
    details = [_detail(ledger, rows[seq]) for seq in sorted(rows)]
    return Answer({"group": group, "windows": details}, lambda: "\n\n\n".join(map(_detail_text, details)))


def _detail(ledger: Ledger, row: WindowRecord) -> Document:
    window = row.window
    frozen = None if window.schemas is None else ledger.schemas(window.schemas)
    return window_with_schemas(row, ledger.attempts(window.id), frozen)


def _detail_text(window: Document) -> str:
    facts = [
        ("window", window["id"]),
        ("state", f"{condition(window['state'], window['rerun'])}, {window['lane']} lane, {window['isolation_level']}"),
        ("planned_until", time(window["planned_until"])),
        ("planned", time(window["planned_at"])),
        ("committed", time(window["committed_at"]) if window["committed_at"] else "-"),
        ("held by" if State(window["state"]).is_open else "last run", window["held_by"]),
        ("span", _span_text(window)),
        ("unread", "-" if window["unread"] is None else f"{window['unread']} when it was cut"),
        ("records", "-" if window["records"] is None else window["records"]),
    ]
    parts = ["\n".join(f"{name + ':':<11}{value}" for name, value in facts), ranges_table(window["ranges"])]
    if window["schemas"]:
        parts.append("Frozen schemas:\n\n" + _schemas(window["schemas"]))
    if window["lost"]:
        parts.append("Lost to retention before this window:\n\n" + ranges_table(window["lost"]))
    parts.append(_history(window["history"]) if window["history"] else "No attempts.")
    return "\n\n".join(parts)


def _schemas(frozen: Document) -> str:
    rows = [
        {"subject": name, **(subject or {"kind": "not there", "latest": "-", "ids": []})}
        for name, subject in frozen.items()
    ]
    shown = [{**row, "ids": name_some(row["ids"], ", ") or "-"} for row in rows]
    return table(("subject", "kind", "latest", "ids"), shown)


def _span_text(window: Document) -> str:
    capped = "; capped" if window["is_capped"] else ""
    return f"{window['span']} in {counted(window['partitions'], 'partition')}{capped}"


def _history(attempts: Sequence[Document]) -> str:
    keys = _with_version(("number", "run", "try_number", "outcome", "records", "started_at", "ended_at"), attempts)
    headers = {"number": "attempt", "try_number": "try", "started_at": "started", "ended_at": "ended"}
    return table(keys, attempts, **headers)
