"""``kafka-offsets abandon``: give an unfinished window up."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from airflow_kafka_offsets.cli import airflow_runs
from airflow_kafka_offsets.cli.acts import act_answer, gap, signed
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.sources import open_ledger, open_service, person
from airflow_kafka_offsets.cli.tables import open_text, ranges_table, time
from airflow_kafka_offsets.core.window import Lane
from airflow_kafka_offsets.documents import Document, ranges_document, window_detail
from airflow_kafka_offsets.service.windows import WindowService


def abandon(args: Namespace) -> Answer:
    """Abandon a window, or say what that would mean."""
    service, document = asked(args)
    found = service.preview_abandon(args.window_id)
    if args.yes:
        found = service.abandon(args.window_id, document["who"], args.why, leave_gap=args.leave_gap)
    document["skipped"] = ranges_document(found.skipped)
    told = _done if args.yes else _preview
    return act_answer(document, lambda: told(document), confirm=["--leave-gap"] if found.skipped else [])


def asked(args: Namespace) -> tuple[WindowService, Document]:
    """Return the use cases, and what is known of the window that a command acts on."""
    who, ledger = person(args), open_ledger(args)
    row = ledger.window(args.window_id)
    document = {
        **signed(args, who),
        "window": window_detail(row, ledger.attempts(args.window_id)),
        "holder_is_over": airflow_runs.is_over(row.holder),
    }
    return open_service(args, ledger, ledger.group(row.window.group)), document


def heading(verb: str, document: Document) -> Iterator[str]:
    """Say what an act on an open window is about, and that its job may be at work."""
    window = document["window"]
    yield f"This would {verb} window {open_text(window)}:"
    yield ranges_table([r for r in window["ranges"] if r["span"]]) if window["span"] else "It is empty."
    if running := [a for a in window["history"] if a["outcome"] == "running"]:
        yield f"Its last attempt has been running since {time(running[-1]['started_at'])}, as far as the ledger knows."
    yield _holder_text(document)


def _holder_text(document: Document) -> str:
    holder = document["window"]["held_by"]
    match document["holder_is_over"]:
        case True:
            known = f"Airflow says that {holder} is over. A driver in a cluster may still be at work: make sure that none is"
        case False:
            known = (
                f"Airflow says that {holder} is still at work on it, or will be. Stop it first (mark its task as failed), and make "
                "sure that its job is over"
            )
        case _:
            known = (
                f"{holder} may still be at work on it, and no Airflow could be asked from here. Look at that run, stop it first, and "
                "make sure that its job is over"
            )
    return f"{known}. Otherwise, it continues to write under this id."


def _preview(document: Document) -> Iterator[str]:
    yield from heading("abandon", document)
    id_ = document["window"]["id"]
    output = (
        f"Remove what was written under {id_}, or records count twice. If Kafka no longer holds these offsets, and the job has read "
        f"all of them, that is the only copy. To keep it, do not abandon the window: kafka-offsets commit {id_} --why '...'"
    )
    if document["skipped"]:
        yield f"Later windows start where it ends, so its offsets can't be planned again. {gap(document)}"
        yield output
    else:
        yield f"{_who_plans(document).capitalize()} would plan these offsets again, under another id. {output}"


def _done(document: Document) -> Iterator[str]:
    yield f"Window {document['window']['id']} is abandoned, by {document['who']}. {_holder_text(document)}"
    if document["skipped"]:
        yield gap(document)
        yield "Remove what was written under this id, or records count twice."
    else:
        yield f"Remove what was written under this id: {_who_plans(document)} plans its offsets again, under another one."


def _who_plans(document: Document) -> str:
    return "only a replay" if document["window"]["lane"] == Lane.BACKFILL else "the next run"
