"""``kafka-offsets verify``: do the ledger, the offset store and Kafka agree?"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from airflow_kafka_offsets.cli.exit_codes import ExitCode
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.sources import open_ledger, open_log, open_own_store, open_target
from airflow_kafka_offsets.cli.tables import table
from airflow_kafka_offsets.core.errors import counted
from airflow_kafka_offsets.core.plan.ownership import watermark
from airflow_kafka_offsets.core.plan.planning import Verdict
from airflow_kafka_offsets.core.source.verifying import Difference, committing
from airflow_kafka_offsets.documents import Document
from airflow_kafka_offsets.service.move import Moving


def verify(args: Namespace) -> Answer:
    """Compare, and name the partitions that differ."""
    ledger = open_ledger(args)
    group = ledger.group(args.group)
    store = open_target(args, args.store, group) if args.store else open_own_store(args, group)
    found = Moving(ledger).verify(group, store, open_log(args, group))
    state = ledger.load(group.name)
    position = watermark(state)
    document = {
        "group": group.name,
        "store": store.name if store else None,
        "same": not found,
        "partitions": len(position.offsets) if position else 0,
        "committing": list(committing(state)),
        "differences": [_difference(difference) for difference in found],
    }
    ways = _ways_out(document, found)
    return Answer(document, lambda: _text(document, ways), ExitCode.REFUSED if found else ExitCode.OK)


def _difference(found: Difference) -> Document:
    return {
        **found.tp._asdict(),
        "watermark": found.watermark,
        "store": found.store,
        "beginning": found.bounds.beginning if found.bounds else None,
        "end": found.bounds.end if found.bounds else None,
        "problems": list(found.problems),
    }


def _text(document: Document, ways: Sequence[str]) -> str:
    compared = "The ledger and Kafka" if document["store"] is None else f"The ledger, {document['store']} and Kafka"
    group, differences = document["group"], document["differences"]
    if differences:
        keys = ("topic", "partition", "watermark", "store", "beginning", "end", "problem")
        rows = ({**difference, "problem": ", ".join(difference["problems"])} for difference in differences)
        parts = [f"{compared} differ on {counted(len(differences), 'partition')} of group {group}:", table(keys, rows)]
    else:
        parts = [f"{compared} agree on group {group}: {counted(document['partitions'], 'partition')}."]
    if under_way := ", ".join(document["committing"]):
        parts.append(f"The commit of {under_way} is under way: the store may already have followed it.")
    if ways:
        parts.append("\n".join(ways))
    return "\n\n".join(parts)


def _ways_out(document: Document, found: Sequence[Difference]) -> list[str]:
    group = document["group"]
    copy = f"kafka-offsets copy {group} --from ledger --to '{document['store']}' --why '...'"
    ways = []
    # Offsets of an earlier topic mean nothing in today's: neither place has the right ones.
    if any(difference.in_store and Verdict.RECREATED.value not in difference.in_kafka for difference in found):
        if under_way := document["committing"]:
            ways.append(f"The job of {under_way[0]} is done: let its task retry, which finishes the commit.")
            ways.append(f"If the store is wrong: {copy}, and after that the retry")
        else:
            ways.append(f"If the ledger is right: {copy}")
            ways.append(f"If the store is right: kafka-offsets import {group} --from '{document['store']}' --why '...'")
    if any(difference.in_kafka for difference in found):
        ways.append(f"To see what Kafka no longer holds: kafka-offsets plan {group}")
    return ways
