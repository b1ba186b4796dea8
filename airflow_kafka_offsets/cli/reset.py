"""``kafka-offsets reset``: move the watermark of a group."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from airflow_kafka_offsets.cli.acts import act_answer, already_there, consequences, consequences_document, signed
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.sources import open_ledger, open_service, person
from airflow_kafka_offsets.cli.tables import table
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.plan.request import parse_seq
from airflow_kafka_offsets.core.plan.reset import Reset
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.documents import Document


def reset(args: Namespace) -> Answer:
    """Move the watermark, or say what that would mean."""
    to, where = _target(args)
    who, ledger = person(args), open_ledger(args)
    group = ledger.group(args.group)
    service = open_service(args, ledger, group)
    found = service.preview_reset(group, to, **where)
    is_needed = found.changes_something
    if is_needed and args.yes:
        found = service.reset(group, to, who, args.why, **where, supersede=args.supersede)
    document = {
        "group": group.name,
        "needed": is_needed,
        **signed(args, who, is_needed=is_needed),
        "moves": [{**tp._asdict(), "from": old, "to": new} for tp, (old, new) in found.moves.items()],
        **consequences_document(found, found.unchecked, ledger),
    }
    already = already_there(f"The watermark of group {group.name} is already there", found.unchecked)
    return act_answer(document, lambda: _told(document, found), already=None if is_needed else already)


def _target(args: Namespace) -> tuple[str, dict[str, Any]]:
    if bool(args.to) == bool(args.to_window):
        raise BadInputError("Name the new position: either --to (earliest, latest, a time, JSON) or --to-window")
    to_window = name_window(args.group, parse_seq(args.group, args.to_window)) if args.to_window else None
    return args.to or "", {"topics": args.topic or (), "to_window": to_window}


def _told(document: Document, found: Reset) -> Iterator[str]:
    if document["moves"]:
        verb = "has moved" if document["done"] else "would move"
        yield f"The watermark of group {document['group']} {verb}:"
        moves = ({**m, "change": None if m["from"] is None else m["to"] - m["from"]} for m in document["moves"])
        yield table(("topic", "partition", "from", "to", "change"), moves)
    else:
        yield f"The watermark of group {document['group']} stays where it is."
    yield from consequences(document, found, found.unchecked)
