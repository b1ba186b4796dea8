"""``kafka-offsets take-over``: give a group to another DAG or task."""

from __future__ import annotations

from argparse import Namespace

from airflow_kafka_offsets.cli.documents import Document, owner_document, window_document
from airflow_kafka_offsets.cli.exit_codes import ExitCode
from airflow_kafka_offsets.cli.places import open_ledger, open_service, person
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.tables import owner_name, run_name, table
from airflow_kafka_offsets.core.plan.ownership import Owner


def take_over(args: Namespace) -> Answer:
    """Give a group to a DAG and task, or say what that would mean."""
    owner = Owner(args.dag, args.task)  # before anything is opened
    who, ledger = person(args), open_ledger(args)
    group = ledger.group(args.group)
    state = ledger.load(group.name)
    is_needed = state.owner != owner
    document = {
        "group": group.name,
        "done": is_needed and args.yes,
        "who": who,
        "why": args.why,
        "from": owner_document(state.owner),
        "to": owner_document(owner),
        "topics": list(group.topics),
        "open_windows": [window_document(ledger.window(held.window.id)) for held in state.open],
    }
    if is_needed and args.yes:
        open_service(args, ledger, group).take_over(group.name, owner, who, args.why)
    code = ExitCode.UNCONFIRMED if is_needed and not args.yes else ExitCode.OK
    return Answer(document, lambda: _text(document, is_needed=is_needed), code)


def _text(document: Document, *, is_needed: bool) -> str:
    group, to = document["group"], owner_name(document["to"])
    if not is_needed:
        return f"Group {group} belongs to {to} already. Nothing was changed."
    verb = "belongs" if document["done"] else "would belong"
    before = (
        f"no longer to {owner_name(document['from'])}, whose runs"
        if document["from"]
        else "was nobody's yet: all others"
    )
    parts = [
        f"Group {group} {verb} to {to}, and {before} get no live window from then on. Make sure that both write the same output: "
        "whatever comes next is written by the new one."
    ]
    if windows := document["open_windows"]:
        rows = ([w["id"], w["state"], w["span"], run_name(w["held_by"])] for w in windows)
        parts.append(
            "It takes these windows over as they are, each when the run that has it is over:\n\n"
            + table(("id", "state", "span", "held by"), rows)
        )
    if not document["done"]:
        parts.append("Nothing was changed. To do it: the same command with --yes")
    return "\n\n".join(parts)
