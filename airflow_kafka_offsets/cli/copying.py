"""``kafka-offsets copy``: bring offsets from one place into an offset store."""

from __future__ import annotations

from argparse import Namespace

from airflow_kafka_offsets.cli.documents import Document
from airflow_kafka_offsets.cli.exit_codes import ExitCode
from airflow_kafka_offsets.cli.places import asked_of_place, open_ledger, open_target, person
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.tables import table
from airflow_kafka_offsets.core.errors import counted
from airflow_kafka_offsets.service.move import Copy, Moving


def copy(args: Namespace) -> Answer:
    """Advance an offset store to what a place holds, or say what that would change."""
    who, ledger = person(args), open_ledger(args)
    group, moving = ledger.group(args.group), Moving(ledger)
    store = open_target(args, args.to, group)
    found = moving.plan_copy(group, asked_of_place(args, ledger, group), store)
    is_needed = bool(found.moves)
    unlike = moving.carry_out_copy(found, store, who, args.why) if is_needed and args.yes else {}
    document = {
        "group": group.name,
        "done": is_needed and args.yes,
        "verified": not unlike if is_needed and args.yes else None,
        "who": who,
        "why": args.why,
        **_copy_document(found),
        "unlike": [
            {"topic": tp.topic, "partition": tp.partition, "written": written, "found": there}
            for tp, (written, there) in unlike.items()
        ],
    }
    if unlike:
        error = (
            f"{found.store} does not hold what was written to it: somebody else writes there at this moment, or it lost a "
            f"part. Compare: kafka-offsets verify {group.name} --store '{found.store}'"
        )
        return Answer(document, lambda: _text(document), ExitCode.REFUSED, error)
    code = ExitCode.UNCONFIRMED if is_needed and not args.yes else ExitCode.OK
    return Answer(document, lambda: _text(document), code)


def _copy_document(found: Copy) -> Document:
    given = found.given
    return {
        "from": given.asked.source.name,
        "to": found.store,
        "meaning": given.asked.meaning.value,
        "notes": list(given.notes),
        "same": len(given.offsets) - len(found.moves),
        "moves": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "found": given.found[tp],
                "meaning": given.asked.meaning.value,
                "from": old,
                "to": new,
            }
            for tp, (old, new) in found.moves.items()
        ],
        "only_in_target": [
            {"topic": tp.topic, "partition": tp.partition, "offset": offset}
            for tp, offset in sorted(found.held.items())
            if tp not in given.offsets
        ],
    }


def _text(document: Document) -> str:
    if not document["moves"]:
        return f"{document['to']} holds what {document['from']} does already. Nothing was changed."
    is_done = document["done"]
    verb = "has taken over" if is_done else "would take over"
    headers = ("topic", "partition", "found", "meaning", "from", "to")
    rows = ([m[header] for header in headers] for m in document["moves"])
    parts = [
        f"{document['to']} {verb} from {document['from']} for group {document['group']}, as next offsets:",
        table(headers, rows),
        *(f"Note: {note}." for note in document["notes"]),
    ]
    if document["same"]:
        parts.append(f"{counted(document['same'], 'partition')} more the same in both.")
    if rest := document["only_in_target"]:
        parts.append(f"{counted(len(rest), 'partition')} of these topics only in {document['to']}: left as it is.")
    if document["verified"]:
        parts.append("Read back: it holds exactly that.")
    if not is_done:
        parts.append("Nothing was changed. To do it: the same command with --yes")
    return "\n\n".join(parts)
