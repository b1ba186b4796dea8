"""``kafka-offsets freeze-schemas``: ask the schema registry again for what is frozen with windows."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.cli import airflow_runs
from airflow_kafka_offsets.cli.acts import act_answer, signed
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.sources import open_ledger, person
from airflow_kafka_offsets.cli.tables import table
from airflow_kafka_offsets.core.errors import counted, name_some
from airflow_kafka_offsets.core.plan.request import name_windows, parse_windows
from airflow_kafka_offsets.core.schemas import Change
from airflow_kafka_offsets.documents import Document
from airflow_kafka_offsets.service.freezing import Freezing, Refreeze


def freeze_schemas(args: Namespace) -> Answer:
    """Freeze the schemas of windows again, or say what that would change."""
    seqs = parse_windows(args.group, args.windows)  # before anything is opened
    who, ledger = person(args), open_ledger(args)
    group = ledger.group(args.group)
    freezing = Freezing(ledger, wiring.registry_of(group), airflow_runs.is_over)
    if args.yes:
        found = freezing.freeze(group, seqs, who, args.why, drop=args.drop)
    else:
        found = freezing.preview(group, seqs, drop=args.drop)
    document = {
        "group": group.name,
        **signed(args, who, is_needed=bool(found)),
        "windows": [_document(one) for one in found],
    }
    already = None if found else f"What is frozen with {name_windows(seqs)} is what the registry has"
    return act_answer(document, lambda: _told(document, drop=args.drop), already=already)


def _document(found: Refreeze) -> Document:
    window = found.held.window
    return {
        "id": window.id,
        "seq": window.seq,
        "held_by": found.held.holder,
        "holder_is_over": found.holder_is_over,
        "changes": [_change_document(change) for change in found.changes],
    }


def _change_document(change: Change) -> Document:
    before, after = change.before, change.after
    return {
        "subject": change.name,
        "kind_before": before and before.kind,
        "kind": after and after.kind,
        "latest_before": before and before.latest,
        "latest": after and after.latest,
        "added": change.added,
        "dropped": change.dropped,
    }


def _told(document: Document, *, drop: bool) -> Iterator[str]:
    windows, done = document["windows"], document["done"]
    which = name_windows(window["seq"] for window in windows)
    number = counted(len(windows), "window")
    if done:
        yield f"The schemas of {number} of group {document['group']} are frozen again, by {document['who']}:"
    else:
        yield f"This would freeze the schemas of {number} of group {document['group']} again:"
    yield table(("windows", "subject", "kind", "latest", "added", "dropped"), _rows(windows), added="ids added")
    unknown = [window for window in windows if window["holder_is_over"] is None]
    if unknown and not done:
        holders = dict.fromkeys(str(window["held_by"]) for window in unknown)
        yield (
            f"No Airflow could be asked from here whether {name_some(holders, ', ')} may still be at work. Make sure that no job is: it "
            "would decode with the schemas of before, and the ledger would not tell"
        )
    if not done and not drop:
        yield "Ids that the registry no longer has stay. With --drop, they leave."
    yield (
        f"A run of these windows decodes with these schemas from then on. What earlier runs wrote stays as it is: to write it again, clear "
        f"their tasks, or replay windows {which}."
    )


def _rows(windows: list[Document]) -> Iterator[Mapping[str, Any]]:
    """Return a row for each subject that changes, of windows with the same changes together."""
    for changes, several in groupby(windows, key=itemgetter("changes")):
        which = name_windows(window["seq"] for window in several)
        for change in changes:
            yield {
                "windows": which,
                "subject": change["subject"],
                "kind": _now(change["kind_before"], change["kind"], "not there"),
                "latest": _now(change["latest_before"], change["latest"], "-"),
                "added": name_some(change["added"], ", ") or "-",
                "dropped": name_some(change["dropped"], ", ") or "-",
            }


def _now(before: object, after: object, nothing: str) -> str:
    old, new = (nothing if one is None else str(one) for one in (before, after))
    return new if old == new else f"{old}, now {new}"
