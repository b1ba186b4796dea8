"""``kafka-offsets export``: next offsets as the CSV that kafka-consumer-groups reads."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from functools import partial

from airflow_kafka_offsets.cli.acts import act_answer
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.sources import open_ledger, open_log, person, requested_source
from airflow_kafka_offsets.core.errors import BadInputError, counted
from airflow_kafka_offsets.core.source.offsets_csv import dump_csv
from airflow_kafka_offsets.documents import Document
from airflow_kafka_offsets.service.move import Export, Moving
from airflow_kafka_offsets.wiring import storage


def export(args: Namespace) -> Answer:
    """Print next offsets, or write them into a file."""
    file = args.to.removeprefix("csv:")
    is_file = file != "-"
    if is_file and not args.why:
        raise BadInputError("An export into a file is recorded: say why with --why")
    who = person(args) if is_file else ""
    ledger = open_ledger(args)
    group, moving = ledger.group(args.group), Moving(ledger)
    found = moving.plan_export(group, requested_source(args, ledger, group), partial(open_log, args))
    csv = dump_csv(found.offsets)
    if is_file:
        storage.check_new_csv(file)
        if args.yes:
            with storage.new_csv(file) as written:  # before the record: what can't be made is no export
                moving.record_export(group.name, found, file, who, args.why)
                written.write(csv)
    document = {"group": group.name, "done": is_file and args.yes, "to": file, **_document(found)}
    notes = "\n".join(f"Note: {note}." for note in found.notes) or None
    if not is_file:
        return Answer(document, lambda: csv.removesuffix("\n"), error=notes)
    return replace(act_answer(document, lambda: [_told(document)]), error=notes)


def _document(found: Export) -> Document:
    meaning = found.asked.meaning.value
    return {
        "from": found.asked.source.name,
        "meaning": meaning,
        "notes": list(found.notes),
        "offsets": [
            {**tp._asdict(), "found": found.found[tp], "meaning": meaning, "to": offset}
            for tp, offset in found.offsets.items()
        ],
    }


def _told(document: Document) -> str:
    what = f"the next offsets of {counted(len(document['offsets']), 'partition')} from {document['from']}"
    if document["done"]:
        return f"{document['to']} holds {what}, as kafka-consumer-groups --from-file reads them."
    return f"This would write {what} to {document['to']}."
