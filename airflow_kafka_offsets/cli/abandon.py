"""``kafka-offsets abandon``: give an unfinished window up."""

from __future__ import annotations

from argparse import Namespace

from airflow_kafka_offsets.cli import airflow_runs
from airflow_kafka_offsets.cli.documents import Document, ranges_document, window_detail
from airflow_kafka_offsets.cli.exit_codes import ExitCode
from airflow_kafka_offsets.cli.places import open_ledger, open_service, person
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.tables import ranges_table, run_name, time
from airflow_kafka_offsets.core.errors import counted


def abandon(args: Namespace) -> Answer:
    """Abandon a window, or say what that would mean."""
    who, ledger = person(args), open_ledger(args)
    row = ledger.window(args.window_id)
    detail = window_detail(row, ledger.attempts(args.window_id))
    service = open_service(args, ledger, ledger.group(row.held.window.group))
    found = service.preview_abandon(args.window_id)
    if args.yes:
        found = service.abandon(args.window_id, who, args.why, leave_gap=args.leave_gap)
    document = {
        "done": args.yes,
        "who": who,
        "why": args.why,
        "window": detail,
        "skipped": ranges_document(found.skipped),
        "holder_is_over": airflow_runs.is_over(row.held.holder),
    }
    text, code = (_done_text, ExitCode.OK) if args.yes else (_preview_text, ExitCode.UNCONFIRMED)
    return Answer(document, lambda: text(document), code)


def _preview_text(document: Document) -> str:
    window = document["window"]
    parts = heading("abandon", document)
    if document["skipped"]:
        parts.append(
            f"Later windows start where it ends, so its offsets can't be planned again. {_gap(document)}\n\n{_output(window)}\n\n"
            "Nothing was changed. To do it: the same command with --yes --leave-gap"
        )
    else:
        parts.append(
            f"The next run would plan these offsets again under another id. {_output(window)}\n\n"
            "Nothing was changed. To do it: the same command with --yes"
        )
    return "\n\n".join(parts)


def heading(verb: str, document: Document) -> list[str]:
    """Say what an act on an open window is about, and that its job may be at work."""
    window = document["window"]
    parts = [
        f"This would {verb} window {window['id']} ({window['state']}, span {window['span']}, "
        f"{counted(window['attempts'], 'attempt')}, held by {run_name(window['held_by'])}):",
        ranges_table([r for r in window["ranges"] if r["span"]]) if window["span"] else "It is empty.",
    ]
    if running := [a for a in window["history"] if a["outcome"] == "running"]:
        parts.append(f"Its last attempt runs since {time(running[-1]['started_at'])}, as far as the ledger knows.")
    return [*parts, _holder_text(document)]


def _holder_text(document: Document) -> str:
    holder = run_name(document["window"]["held_by"])
    match document["holder_is_over"]:
        case True:
            return (
                f"Airflow says that {holder} is over. A driver in a cluster may go on after it: make sure that none does, or "
                "it goes on writing under this id."
            )
        case False:
            return (
                f"Airflow says that {holder} is still at work on it, or will be: stop it first (mark its task as failed), and make "
                "sure that its job is over, or it goes on writing under this id."
            )
        case _:
            return (
                f"{holder} may still be at work on it, and no Airflow could be asked from here: look at that run, stop it "
                "first, and make sure that its job is over, or it goes on writing under this id."
            )


def _gap(document: Document) -> str:
    return (
        "Nobody owns these offsets then (recorded as a gap); a replay of them reads them as long as Kafka holds them:\n\n"
        + ranges_table(document["skipped"])
    )


def _output(window: Document) -> str:
    return (
        f"What was written under {window['id']} has to go, or records count twice. If Kafka does not hold these offsets any more, "
        "and its job has read all of them, that is the only copy. To keep it, do not abandon the window: "
        f"kafka-offsets commit {window['id']} --why '...'"
    )


def _done_text(document: Document) -> str:
    window = document["window"]
    done = f"Window {window['id']} is abandoned, by {document['who']}. {_holder_text(document)}\n\n"
    if document["skipped"]:
        return done + f"{_gap(document)}\n\nRemove what was written under this id, or records count twice."
    return done + "Remove what was written under this id: the next run plans its offsets again under another one."
