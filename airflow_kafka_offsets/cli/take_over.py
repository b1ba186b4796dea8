"""``kafka-offsets take-over``: give a group to another DAG or task."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

from airflow_kafka_offsets.cli.acts import act_answer, signed
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.sources import open_ledger, open_service, person
from airflow_kafka_offsets.cli.tables import table
from airflow_kafka_offsets.core.plan.ownership import Owner
from airflow_kafka_offsets.documents import Document, window_document


def take_over(args: Namespace) -> Answer:
    """Give a group to a DAG and task, or say what that would mean."""
    owner = Owner(args.dag, args.task)  # before anything is opened
    who, ledger = person(args), open_ledger(args)
    group = ledger.group(args.group)
    state = ledger.load(group.name)
    is_needed = state.owner != owner
    document = {
        "group": group.name,
        **signed(args, who, is_needed=is_needed),
        "from": state.owner,
        "to": owner,
        "topics": list(group.topics),
        "open_windows": [window_document(ledger.window(held.id)) for held in state.open],
    }
    if is_needed and args.yes:
        open_service(args, ledger, group).take_over(group.name, owner, who, args.why)
    already = None if is_needed else f"Group {group.name} already belongs to {owner}"
    return act_answer(document, lambda: _told(document), already=already)


def _told(document: Document) -> Iterator[str]:
    verb, no_longer = (
        ("belongs", "no longer belongs") if document["done"] else ("would belong", "would no longer belong")
    )
    before = f"It {no_longer} to {document['from']}" if document["from"] else "So far it belongs to no one"
    yield (
        f"Group {document['group']} {verb} to {document['to']}. {before}: runs of other tasks get no live window from then on. Make "
        "sure that both write the same output: the new task writes whatever comes next."
    )
    if windows := document["open_windows"]:
        yield "It adopts these windows as they are, each after the run that has it is over:"
        yield table(("id", "state", "span", "held_by"), windows)
