"""``kafka-offsets commit``: say of a window that its job has read all of it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from airflow_kafka_offsets.cli.abandon import asked, heading
from airflow_kafka_offsets.cli.acts import act_answer
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.documents import Document


def commit(args: Namespace) -> Answer:
    """Commit a window on a person's word, or say what that would mean."""
    service, document = asked(args)
    if args.yes:
        service.commit_by_hand(args.window_id, document["who"], args.why)
    else:
        service.check_commit_by_hand(args.window_id)
    return act_answer(document, lambda: _told(document))


def _told(document: Document) -> Iterator[str]:
    if document["done"]:
        yield f"Window {document['window']['id']} is committed, by {document['who']}."
        return
    yield from heading("commit", document)
    yield (
        "Nothing proves that its job has read all of it. Look into the job's own log, and at what it wrote. What is missing there is "
        "never read again, unless someone replays the window while Kafka still holds it."
    )
