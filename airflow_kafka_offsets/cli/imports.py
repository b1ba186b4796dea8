"""``kafka-offsets import``: let a group go on from the offsets that another source holds."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from airflow_kafka_offsets.cli.acts import act_answer, already_there, consequences, consequences_document, signed
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.sources import open_ledger, open_log, open_own_store, person, requested_source
from airflow_kafka_offsets.cli.tables import ranges_table, table
from airflow_kafka_offsets.core.errors import name_some
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.source.offsets import Meaning
from airflow_kafka_offsets.documents import Document, ranges_document
from airflow_kafka_offsets.service.move import Import, Moving

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger


def import_offsets(args: Namespace) -> Answer:
    """Set the watermark of a group, or say what that would mean."""
    who, ledger = person(args), open_ledger(args)
    moving = Moving(ledger)
    group = moving.known(args.group) or _to_be_founded(args)
    found = moving.plan_import(
        args.group,
        requested_source(args, ledger, group),
        lambda group: open_log(args, group),
        kafka_conn_id=args.kafka_conn_id,
        skip_lost=args.skip_lost,
    )
    is_needed = found.reset is None or found.reset.changes_something
    if is_needed and args.yes:
        store = open_own_store(args, found.group)
        moving.carry_out_import(found, who, args.why, supersede=args.supersede, store=store)
    document = {
        "group": found.group.name,
        "needed": is_needed,
        **signed(args, who, is_needed=is_needed),
        **_import_document(found, ledger),
    }
    already = already_there(f"Group {found.group.name} is already where {document['from']} is", found.unchecked)
    return act_answer(document, lambda: _told(document, found), already=None if is_needed else already)


def _to_be_founded(args: Namespace) -> KafkaGroup:
    # Only its name and its Kafka count here: a source that is asked for topics by name insists on --topic.
    conn_id = args.kafka_conn_id or "kafka_default"
    return KafkaGroup(args.group, topics=args.topic or ["not-said"], kafka_conn_id=conn_id)


def _import_document(found: Import, ledger: Ledger) -> Document:
    before: Mapping[TopicPartition, int | None] = found.state.position.offsets if found.state.position else {}
    if found.reset is not None:  # what was known of an earlier topic of the name is no watermark of this one
        before = {**before, **{tp: old for tp, (old, _) in found.reset.moves.items()}}
    beginnings = found.imported.unnamed if found.reset is None else ()
    named = sorted({*found.imported.target, *beginnings})
    return {
        "from": found.asked.source.name,
        "meaning": found.imported.meaning.value,
        "founded": found.reset is None,
        "topics": list(found.group.topics),
        "kafka_conn_id": found.group.kafka_conn_id,
        "notes": list(found.notes),
        "left_open": [{"id": held.id, "state": held.state.value, "held_by": held.holder} for held in found.left_open],
        "partitions": [
            {
                **tp._asdict(),
                "found": found.imported.found.get(tp),
                "meaning": found.imported.meaning.value if tp in found.imported.found else None,
                "watermark": before.get(tp),
                "to": found.position.offsets[tp],
                "end": found.log.bounds[tp].end,
            }
            for tp in named
        ],
        "not_named": [tp._asdict() for tp in found.imported.unnamed],
        "lost": ranges_document(found.imported.lost),
        **consequences_document(found.reset, found.unchecked, ledger),
    }


def _told(document: Document, found: Import) -> Iterator[str]:
    verb = "continues" if document["done"] else "would continue"
    new = ", which is new to the ledger," if document["founded"] else ""
    yield f"Group {document['group']}{new} {verb} from {document['from']}. {_meaning(document)}"
    yield table(("topic", "partition", "found", "meaning", "watermark", "to", "end"), document["partitions"])
    yield from (f"Note: {note}." for note in document["notes"])
    if not_named := document["not_named"]:
        names = name_some([f"{p['topic']}-{p['partition']}" for p in not_named], ", ")
        where = "they begin at their beginning offset" if document["founded"] else "they stay where they are"
        yield f"The source does not name {names}: {where}."
    if document["lost"]:
        yield "Lost to retention, and recorded as lost:\n\n" + ranges_table(document["lost"])
    yield from consequences(document, found.reset, found.unchecked)


def _meaning(document: Document) -> str:
    if document["meaning"] == Meaning.NEXT:
        return "Its numbers are taken as the next offsets to read, and stay as they are:"
    return "Its numbers are taken as the last offsets that were read. The next offset is one higher:"
