"""``kafka-offsets abandon``: give an unfinished window up."""

from __future__ import annotations

from argparse import Namespace

from airflow_kafka_offsets.cli.documents import Document, window_detail
from airflow_kafka_offsets.cli.exit_codes import ExitCode
from airflow_kafka_offsets.cli.places import open_ledger, person
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.tables import ranges_table, run_name, time
from airflow_kafka_offsets.core.errors import IllegalStepError, counted
from airflow_kafka_offsets.core.window import OWNING, Lane, State, Window
from airflow_kafka_offsets.ports import Ledger
from airflow_kafka_offsets.service import WindowService


def abandon(args: Namespace) -> Answer:
    """Abandon a window, or say what that would mean."""
    who, ledger = person(args), open_ledger(args)
    row = ledger.window(args.window_id)
    detail = window_detail(row, ledger.attempts(args.window_id))
    if args.yes:
        # Kafka is not asked: a window can be given up while it is down.
        WindowService(ledger, None).abandon(args.window_id, who, args.why)  # type: ignore[arg-type]
        return Answer(_document(detail, who, args.why, is_done=True), lambda: _done_text(detail, who))
    _check(ledger, row.held.window)
    document = _document(detail, who, args.why, is_done=False)
    return Answer(document, lambda: _preview_text(detail), ExitCode.UNCONFIRMED)


def _check(ledger: Ledger, window: Window) -> None:
    window.to(State.ABANDONED)
    if window.lane is Lane.BACKFILL:  # no other starts where it ends
        return
    [newest] = ledger.windows(window.group, states=tuple(OWNING), lane=window.lane, limit=1)
    if newest.held.window.seq > window.seq:
        raise IllegalStepError(
            f"Window {window.id} can't be abandoned: window {newest.held.window.id} starts where it ends, or later"
        )


def _document(detail: Document, who: str, why: str, *, is_done: bool) -> Document:
    return {"done": is_done, "who": who, "why": why, "window": detail}


def _preview_text(window: Document) -> str:
    parts = [
        f"This would abandon window {window['id']} ({window['state']}, span {window['span']}, "
        f"{counted(window['attempts'], 'attempt')}, held by {run_name(window['held_by'])}):",
        ranges_table([r for r in window["ranges"] if r["span"]]) if window["span"] else "It is empty.",
    ]
    if running := [a for a in window["history"] if a["outcome"] == "running"]:
        parts.append(
            f"Its last attempt runs since {time(running[-1]['started_at'])}, as far as the ledger knows: make sure that "
            "its job is over, or it goes on writing under this id."
        )
    parts.append(
        f"The next run would plan these offsets anew under another id. What was written under {window['id']} has to go, "
        "or records count twice.\nNothing was changed. To do it: the same command with --yes"
    )
    return "\n\n".join(parts)


def _done_text(window: Document, who: str) -> str:
    return (
        f"Window {window['id']} is abandoned, by {who}. Remove what was written under this id: the next run plans its "
        "offsets anew under another one."
    )
