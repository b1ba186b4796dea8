"""``kafka-offsets commit``: say of a window that its job has read all of it."""

from __future__ import annotations

from argparse import Namespace

from airflow_kafka_offsets.cli import airflow_runs
from airflow_kafka_offsets.cli.abandon import heading
from airflow_kafka_offsets.cli.documents import Document, window_detail
from airflow_kafka_offsets.cli.exit_codes import ExitCode
from airflow_kafka_offsets.cli.places import open_ledger, open_service, person
from airflow_kafka_offsets.cli.running import Answer


def commit(args: Namespace) -> Answer:
    """Commit a window on a person's word, or say what that would mean."""
    who, ledger = person(args), open_ledger(args)
    row = ledger.window(args.window_id)
    detail = window_detail(row, ledger.attempts(args.window_id))
    document: Document = {
        "done": args.yes,
        "who": who,
        "why": args.why,
        "window": detail,
        "holder_is_over": airflow_runs.is_over(row.held.holder),
    }
    service = open_service(args, ledger, ledger.group(row.held.window.group))
    if args.yes:
        service.commit_by_hand(args.window_id, who, args.why)
        return Answer(document, lambda: f"Window {detail['id']} is committed, by {who}.")
    service.check_commit_by_hand(args.window_id)
    return Answer(document, lambda: _preview_text(document), ExitCode.UNCONFIRMED)


def _preview_text(document: Document) -> str:
    parts = [
        *heading("commit", document),
        "Nothing proves that its job read all of it: look into the job's own log and at what it wrote. What is missing there is "
        "never read again, unless somebody replays the window while Kafka still holds it.\n"
        "Nothing was changed. To do it: the same command with --yes",
    ]
    return "\n\n".join(parts)
