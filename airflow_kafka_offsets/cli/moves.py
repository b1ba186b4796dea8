"""Offsets that go from one source to another: import, export, copy and verify."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_kafka_offsets.cli.acts import act_answer, already_there, consequences, consequences_document, signed
from airflow_kafka_offsets.cli.running import Answer, ExitCode
from airflow_kafka_offsets.cli.sources import (
    open_ledger,
    open_log,
    open_own_store,
    open_target,
    person,
    requested_source,
)
from airflow_kafka_offsets.cli.tables import ranges_table, table
from airflow_kafka_offsets.core.errors import BadInputError, counted, name_some, publish_again, verify_command
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import watermark
from airflow_kafka_offsets.core.source.offsets import Meaning
from airflow_kafka_offsets.core.source.offsets_csv import dump_csv
from airflow_kafka_offsets.core.source.verifying import Difference, OlderLedger, committing
from airflow_kafka_offsets.documents import Document, ranges_document
from airflow_kafka_offsets.service.move import Copy, Export, Import, Moving
from airflow_kafka_offsets.wiring import storage

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger


_NUMBERS = {Meaning.NEXT: "next offsets", Meaning.LAST_READ: "last offsets read"}


def import_offsets(args: Namespace) -> Answer:
    """Set the watermark of a group to the offsets of a source."""
    who, ledger = person(args), open_ledger(args)
    moving = Moving(ledger)
    group = moving.group_or_none(args.group) or _new_group(args)
    planned = moving.plan_import(
        args.group,
        requested_source(args, ledger, group),
        lambda group: open_log(args, group),
        kafka_conn_id=args.kafka_conn_id,
        skip_lost=args.skip_lost,
        leave_gap=args.leave_gap,
    )
    is_needed = planned.reset is None or planned.reset.changes_something
    if is_needed and args.yes:
        store = open_own_store(args, planned.group)
        moving.carry_out_import(planned, who, args.why, supersede=args.supersede, store=store)
    document = {
        "group": planned.group.name,
        "needed": is_needed,
        **signed(args, who, is_needed=is_needed),
        **_import_document(planned, ledger),
    }
    already = already_there(f"Group {planned.group.name} is already where {document['from']} is", planned.unchecked)
    return act_answer(document, lambda: _import_text(document, planned), already=None if is_needed else already)


def _new_group(args: Namespace) -> KafkaGroup:
    # Only its name and its Kafka count here. A source that needs topics insists on --topic.
    conn_id = args.kafka_conn_id or "kafka_default"
    return KafkaGroup(args.group, topics=args.topic or ["unnamed"], kafka_conn_id=conn_id)


def _import_document(planned: Import, ledger: Ledger) -> Document:
    imported, meaning = planned.imported, planned.imported.meaning.value
    before: Mapping[TopicPartition, int | None] = planned.state.position.offsets if planned.state.position else {}
    if planned.reset is not None:  # an earlier topic of the name had another watermark
        before = {**before, **{tp: old for tp, (old, _) in planned.reset.moves.items()}}
    beginnings = imported.unnamed if planned.reset is None else ()
    return {
        "from": planned.selection.source.name,
        "meaning": meaning,
        "founded": planned.reset is None,
        "topics": list(planned.group.topics),
        "kafka_conn_id": planned.group.kafka_conn_id,
        "notes": list(planned.notes),
        "left_open": [
            {"id": record.id, "state": record.state.value, "held_by": record.holder} for record in planned.left_open
        ],
        "partitions": [
            {
                **tp._asdict(),
                "found": imported.numbers.get(tp),
                "meaning": meaning if tp in imported.numbers else None,
                "watermark": before.get(tp),
                "to": planned.position.offsets[tp],
                "end": planned.log.bounds[tp].end,
            }
            for tp in sorted({*imported.target, *beginnings})
        ],
        "not_named": [tp._asdict() for tp in imported.unnamed],
        "lost": ranges_document(imported.lost),
        **consequences_document(planned.reset, planned.unchecked, ledger),
    }


def _import_text(document: Document, planned: Import) -> Iterator[str]:
    verb = "continues" if document["done"] else "would continue"
    new = " (new)" if document["founded"] else ""
    yield f"Group {document['group']}{new} {verb} from {document['from']}, whose numbers are the {_NUMBERS[document['meaning']]}:"
    yield table(("topic", "partition", "found", "meaning", "watermark", "to", "end"), document["partitions"])
    yield from _notes(document)
    if not_named := document["not_named"]:
        names = name_some([f"{p['topic']}-{p['partition']}" for p in not_named], ", ")
        where = "begin at their beginning offset" if document["founded"] else "stay"
        yield f"Not in the source: {names}, which {where}."
    if document["lost"]:
        yield "Lost to retention (recorded):\n\n" + ranges_table(document["lost"])
    yield from consequences(document, planned.reset, planned.unchecked)


def _notes(document: Document) -> list[str]:
    return [f"Note: {note}." for note in document["notes"]]


def export(args: Namespace) -> Answer:
    """Print next offsets, or write them into a file."""
    file = args.to.removeprefix("csv:")
    is_file = file != "-"
    if is_file and not args.why:
        raise BadInputError("An export into a file needs --why")
    who = person(args) if is_file else ""
    ledger = open_ledger(args)
    group, moving = ledger.group(args.group), Moving(ledger)
    exported = moving.plan_export(group, requested_source(args, ledger, group), partial(open_log, args))
    csv = dump_csv(exported.offsets)
    if is_file:
        storage.check_new_csv(file)
        if args.yes:
            with storage.new_csv(file) as new_file:  # before the record: without a file there is no export
                moving.record_export(group.name, exported, file, who, args.why)
                new_file.write(csv)
    document = {"group": group.name, "done": is_file and args.yes, "to": file, **_export_document(exported)}
    notes = "\n".join(_notes(document)) or None
    if not is_file:
        return Answer(document, lambda: csv.removesuffix("\n"), error=notes)
    return replace(act_answer(document, lambda: [_export_text(document)]), error=notes)


def _export_document(exported: Export) -> Document:
    meaning = exported.selection.meaning.value
    return {
        "from": exported.selection.source.name,
        "meaning": meaning,
        "notes": list(exported.notes),
        "offsets": [
            {**tp._asdict(), "found": exported.stored[tp], "meaning": meaning, "to": offset}
            for tp, offset in exported.offsets.items()
        ],
    }


def _export_text(document: Document) -> str:
    offsets = f"the next offsets of {counted(len(document['offsets']), 'partition')} from {document['from']}"
    if document["done"]:
        return f"{document['to']} has {offsets}."
    return f"This would write {offsets} to {document['to']}."


def copy(args: Namespace) -> Answer:
    """Advance an offset store to what a source holds."""
    who, ledger = person(args), open_ledger(args)
    group, moving = ledger.group(args.group), Moving(ledger)
    store = open_target(args, args.to, group)
    planned = moving.plan_copy(group, requested_source(args, ledger, group), store, partial(open_log, args))
    is_needed = bool(planned.moves)
    differing = moving.carry_out_copy(planned, store, who, args.why) if is_needed and args.yes else {}
    document = {
        "group": group.name,
        **signed(args, who, is_needed=is_needed),
        "verified": not differing if is_needed and args.yes else None,
        **_copy_document(planned),
        "unlike": [{**tp._asdict(), "written": new, "found": held} for tp, (held, new) in differing.items()],
    }
    already = None if is_needed else f"{planned.store} already holds what {document['from']} holds"
    answer = act_answer(document, lambda: _copy_text(document), already=already)
    if differing:
        error = (
            f"{planned.store} does not hold what was written to it. Compare:{verify_command(group.name, planned.store)}"
        )
        return replace(answer, code=ExitCode.REFUSED, error=error)
    return answer if is_needed else replace(answer, error="\n".join(_notes(document)) or None)


def _copy_document(planned: Copy) -> Document:
    exported, meaning = planned.given, planned.given.selection.meaning.value
    return {
        "from": exported.selection.source.name,
        "to": planned.store,
        "meaning": meaning,
        "notes": list(exported.notes),
        "same": len(exported.offsets) - len(planned.moves),
        "moves": [
            {**tp._asdict(), "found": exported.stored[tp], "meaning": meaning, "from": old, "to": new}
            for tp, (old, new) in planned.moves.items()
        ],
        "only_in_target": [
            {**tp._asdict(), "offset": offset}
            for tp, offset in sorted(planned.held.items())
            if tp not in exported.offsets
        ],
    }


def _copy_text(document: Document) -> Iterator[str]:
    verb = "has taken over" if document["done"] else "would take over"
    yield f"{document['to']} {verb} these next offsets of group {document['group']} from {document['from']}:"
    yield table(("topic", "partition", "found", "meaning", "from", "to"), document["moves"])
    yield from _notes(document)
    if document["same"]:
        yield f"The same in both: {counted(document['same'], 'partition')}."
    if rest := document["only_in_target"]:
        yield f"Only in {document['to']}, and not changed: {counted(len(rest), 'partition')}."
    if document["verified"]:
        yield "Read back: the store holds these offsets."


def verify(args: Namespace) -> Answer:
    """Compare ledger, offset store and Kafka, and name the partitions that differ."""
    ledger = open_ledger(args)
    group = ledger.group(args.group)
    store = open_target(args, args.store, group) if args.store else open_own_store(args, group)
    moving = Moving(ledger)
    differences = moving.verify(group, store, open_log(args, group))
    older = moving.older_ledger(group, store, differences) if store else None
    state = ledger.load(group.name)
    position = watermark(state)
    refused = moving.refusal(group.name, store)
    document = {
        "group": group.name,
        "store": store.name if store else None,
        "same": not differences,
        "refused": refused,
        "partitions": len(position.offsets) if position else 0,
        "committing": list(committing(state)),
        "never_committed": older.window_id if older else None,
        "differences": [_difference(difference) for difference in differences],
    }
    code = ExitCode.REFUSED if differences or refused else ExitCode.OK
    return Answer(document, lambda: "\n\n".join(_verify_text(document, differences, older)), code)


def _difference(difference: Difference) -> Document:
    return {
        **difference.tp._asdict(),
        "watermark": difference.watermark,
        "store": difference.store,
        "beginning": difference.bounds.beginning if difference.bounds else None,
        "end": difference.bounds.end if difference.bounds else None,
        "problems": list(difference.problems),
    }


def _verify_text(document: Document, differences: Sequence[Difference], older: OlderLedger | None) -> Iterator[str]:
    compared = "The ledger and Kafka" if document["store"] is None else f"The ledger, {document['store']} and Kafka"
    group = document["group"]
    if document["refused"]:
        yield f"No commit is possible: {document['refused']}"
    if not differences:
        yield f"{compared} agree on group {group}: {counted(document['partitions'], 'partition')}."
    else:
        keys = ("topic", "partition", "watermark", "store", "beginning", "end", "problem")
        rows = ({**row, "problem": ", ".join(row["problems"])} for row in document["differences"])
        yield f"{compared} differ on {counted(len(differences), 'partition')} of group {group}:"
        yield table(keys, rows)
    if open_commits := ", ".join(document["committing"]):
        yield f"The commit of {open_commits} is under way: the store may have it already."
    if ways := "\n".join(_ways_out(document, differences, older)):
        yield ways


def _ways_out(document: Document, differences: Sequence[Difference], older: OlderLedger | None) -> Iterator[str]:
    group, store = document["group"], document["store"]
    if any(difference.can_be_copied for difference in differences):
        copy_it = publish_again(group, store)
        if older is not None and (older.window_id or not document["committing"]):
            yield older.advice
        elif open_commits := document["committing"]:
            yield f"If the store is wrong:{copy_it}"
            yield f"To finish the commit of {open_commits[0]}, let its task retry."
        else:
            yield f"If the ledger is right:{copy_it}"
            if not any(difference.is_ahead for difference in differences):
                yield f"If the store is right:\n    kafka-offsets import {group} --from '{store}' --why '...'"
    if any(difference.in_kafka for difference in differences):
        yield f"To see what Kafka no longer holds:\n    kafka-offsets plan {group}"
