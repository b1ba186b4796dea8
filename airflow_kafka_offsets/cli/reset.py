"""``kafka-offsets reset``: move the watermark of a group."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from airflow_kafka_offsets.cli.documents import Document, claim_document, moment, ranges_document
from airflow_kafka_offsets.cli.exit_codes import ExitCode
from airflow_kafka_offsets.cli.places import open_ledger, open_service, person
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.tables import ranges_table, run_name, table, time
from airflow_kafka_offsets.core.errors import BadInputError, counted
from airflow_kafka_offsets.core.plan.request import parse_seq
from airflow_kafka_offsets.core.plan.reset import Reset, nobody_reads
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.ports import Ledger


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
        "done": is_needed and args.yes,
        "who": who,
        "why": args.why,
        **_reset_document(found, ledger),
    }
    code = ExitCode.UNCONFIRMED if is_needed and not args.yes else ExitCode.OK
    return Answer(document, lambda: _text(document, found), code)


def _target(args: Namespace) -> tuple[str, dict[str, Any]]:
    if bool(args.to) == bool(args.to_window):
        raise BadInputError("Say where to: either --to (earliest, latest, a time, JSON) or --to-window")
    to_window = name_window(args.group, parse_seq(args.group, args.to_window)) if args.to_window else None
    return args.to or "", {"topics": args.topic or (), "to_window": to_window}


def _reset_document(found: Reset, ledger: Ledger) -> Document:
    return {
        "moves": [
            {"topic": tp.topic, "partition": tp.partition, "from": old, "to": new}
            for tp, (old, new) in found.moves.items()
        ],
        "skipped": ranges_document(found.skipped),
        "replaced": ranges_document(found.replaced),
        "superseded": superseded_document(found, ledger),
        "unread": unread_document(found),
    }


def unread_document(found: Reset) -> list[Document]:
    """Return what nobody owns any more of topics that the group no longer reads."""
    return [{"window": id_, **one} for id_, ranges in found.unread.items() for one in ranges_document(ranges)]


def superseded_document(found: Reset, ledger: Ledger) -> list[Document]:
    """Return the windows that lose their offsets."""
    if not found.superseded:
        return []
    group, first, last = found.superseded[0].group, found.superseded[0].seq, found.superseded[-1].seq
    seqs = {window.seq for window in found.superseded}
    rows = ledger.windows(group, before=last + 1, limit=last - first + 1)
    return [
        {
            "id": row.held.window.id,
            "until": moment(row.held.window.until),
            "span": row.held.window.span,
            "held_by": claim_document(row.held.holder),
        }
        for row in reversed(rows)
        if row.held.window.seq in seqs
    ]


def _text(document: Document, found: Reset) -> str:
    if not document["needed"]:
        return f"The watermark of group {document['group']} is there already. Nothing was changed."
    is_done = document["done"]
    verb = "has moved" if is_done else "would move"
    if document["moves"]:
        parts = [f"The watermark of group {document['group']} {verb}:", _moves(document)]
    else:
        parts = [f"The watermark of group {document['group']} stays where it is."]
    if document["replaced"]:
        parts.append(replaced_text(document))
    if document["skipped"]:
        parts.append("Nobody owns these offsets then (recorded as a gap):\n\n" + ranges_table(document["skipped"]))
    if document["superseded"]:
        parts.append(superseded_text(document, found))
    if not is_done:
        flags = "--yes --supersede" if document["superseded"] else "--yes"
        parts.append(f"Nothing was changed. To do it: the same command with {flags}")
    return "\n\n".join(parts)


def _moves(document: Document) -> str:
    headers = ("topic", "partition", "from", "to", "change")
    rows = (
        [m["topic"], m["partition"], m["from"], m["to"], None if m["from"] is None else m["to"] - m["from"]]
        for m in document["moves"]
    )
    return table(headers, rows)


def replaced_text(document: Document) -> str:
    """Say what happens to offsets that belong to other records now."""
    what = "Kafka gave these offsets to other records after they were read. Nobody reads the new ones then (recorded)"
    return f"{what}:\n\n{ranges_table(document['replaced'])}"


def superseded_text(document: Document, found: Reset) -> str:
    """Say of these windows what that means, and what is usually meant."""
    windows = document["superseded"]
    is_done = document["done"]
    have, their, old, new = (
        ("has", "its", "id", "a new id") if len(windows) == 1 else ("have", "their", "ids", "new ids")
    )
    lose = f"{have} lost" if is_done else "would lose"
    rows = ([w["id"], time(w["until"]), w["span"], run_name(w["held_by"])] for w in windows)
    text = (
        f"{counted(len(windows), 'committed window')} {lose} {their} offsets, which are then read again under {new}. "
        f"What was written under the old {old} has to go, or records count twice:\n\n"
        + table(("id", "until", "span", "run"), rows)
    )
    if document["unread"]:
        text += "\n\n" + "\n\n".join([*nobody_reads(found), ranges_table(document["unread"])])
    if is_done:
        return text
    return text + (
        "\n\nUsually a replay is meant: to run these windows again under their own ids, which replaces their output, "
        "clear the runs above in Airflow instead. The watermark stays then."
    )
