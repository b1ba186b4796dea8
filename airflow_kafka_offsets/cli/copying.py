"""``kafka-offsets copy``: bring offsets from one source into an offset store."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from airflow_kafka_offsets.cli.acts import act_answer, signed
from airflow_kafka_offsets.cli.exit_codes import ExitCode
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.sources import open_ledger, open_log, open_target, person, requested_source
from airflow_kafka_offsets.cli.tables import table
from airflow_kafka_offsets.core.errors import counted
from airflow_kafka_offsets.documents import Document
from airflow_kafka_offsets.service.move import Copy, Moving


def copy(args: Namespace) -> Answer:
    """Advance an offset store to what a source holds, or say what that would change."""
    who, ledger = person(args), open_ledger(args)
    group, moving = ledger.group(args.group), Moving(ledger)
    store = open_target(args, args.to, group)
    found = moving.plan_copy(group, requested_source(args, ledger, group), store, partial(open_log, args))
    is_needed = bool(found.moves)
    differing = moving.carry_out_copy(found, store, who, args.why) if is_needed and args.yes else {}
    document = {
        "group": group.name,
        **signed(args, who, is_needed=is_needed),
        "verified": not differing if is_needed and args.yes else None,
        **_copy_document(found),
        "unlike": [{**tp._asdict(), "written": written, "found": there} for tp, (there, written) in differing.items()],
    }
    already = None if is_needed else f"{found.store} already holds what {document['from']} holds"
    answer = act_answer(document, lambda: _told(document), already=already)
    if not differing:
        notes = "\n".join(f"Note: {note}." for note in document["notes"]) or None
        return answer if is_needed else replace(answer, error=notes)
    error = (
        f"{found.store} does not hold what was written to it. Someone else writes there at this moment, or it lost a "
        f"part. Compare: kafka-offsets verify {group.name} --store '{found.store}'"
    )
    return replace(answer, code=ExitCode.REFUSED, error=error)


def _copy_document(found: Copy) -> Document:
    given, meaning = found.given, found.given.asked.meaning.value
    return {
        "from": given.asked.source.name,
        "to": found.store,
        "meaning": meaning,
        "notes": list(given.notes),
        "same": len(given.offsets) - len(found.moves),
        "moves": [
            {**tp._asdict(), "found": given.found[tp], "meaning": meaning, "from": old, "to": new}
            for tp, (old, new) in found.moves.items()
        ],
        "only_in_target": [
            {**tp._asdict(), "offset": offset} for tp, offset in sorted(found.held.items()) if tp not in given.offsets
        ],
    }


def _told(document: Document) -> Iterator[str]:
    verb = "has taken over" if document["done"] else "would take over"
    yield f"{document['to']} {verb} these next offsets of group {document['group']} from {document['from']}:"
    yield table(("topic", "partition", "found", "meaning", "from", "to"), document["moves"])
    yield from (f"Note: {note}." for note in document["notes"])
    if document["same"]:
        yield f"Already the same in both: {counted(document['same'], 'partition')}."
    if rest := document["only_in_target"]:
        yield f"Only in {document['to']}, and not changed: {counted(len(rest), 'partition')} of these topics."
    if document["verified"]:
        yield "The store was read back: it holds exactly these offsets."
