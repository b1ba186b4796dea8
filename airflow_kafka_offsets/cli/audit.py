"""``kafka-offsets audit``: does a table hold each record of the group's windows, once?"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Sequence

from airflow_kafka_offsets.cli.running import Answer, ExitCode
from airflow_kafka_offsets.cli.sources import open_ledger
from airflow_kafka_offsets.cli.tables import RANGE, partitions_table, ranges_table
from airflow_kafka_offsets.core.errors import BadInputError, counted, name_some
from airflow_kafka_offsets.core.plan.ownership import Owner
from airflow_kafka_offsets.core.plan.request import (
    ENDING_OFFSETS,
    STARTING_OFFSETS,
    WINDOWS,
    parse_windows,
    trigger_command,
)
from airflow_kafka_offsets.core.source.audit import Audit, Finding
from airflow_kafka_offsets.core.source.islands import Piece, load_islands
from airflow_kafka_offsets.core.spark_json import by_topic
from airflow_kafka_offsets.core.window_id import name_window, name_windows, parse_window_id
from airflow_kafka_offsets.documents import Document, range_document
from airflow_kafka_offsets.service.audit import audit_table
from airflow_kafka_offsets.wiring import storage


def audit(args: Namespace) -> Answer:
    """Compare, and name what is missing and what is doubled."""
    seqs = parse_windows(args.group, args.windows) if args.windows else []
    table = load_islands(text for place in args.table for text in storage.read_csvs(place))
    ledger = open_ledger(args)
    group = ledger.group(args.group)
    if not table:
        raise BadInputError(f"{', '.join(args.table)} has no line")
    result, state = audit_table(ledger, group, table, seqs), ledger.load(group.name)
    first = ledger.pruned(group.name).first
    document = {
        "group": group.name,
        "right": result.is_right,
        "windows": result.windows,
        "found": result.present,
        "without_record": result.without_record,
        "missing": [_document(finding) for finding in result.missing],
        "doubled": [_document(finding) for finding in result.doubled],
        "untold": [_document(finding) for finding in result.unknown],
        "at_join": [_range(piece) for piece in result.at_join],
        "outside": [_range(piece) for piece in result.outside],
        "left_out": list(result.other_topics),
        "open": [held.id for held in state.open],
        "pruned_before": first if first > 1 and not seqs else None,
    }
    code = ExitCode.OK if result.is_right else ExitCode.REFUSED
    return Answer(document, lambda: _text(document, _ways_out(result, group.name, state.owner)), code)


def _document(finding: Finding) -> Document:
    return {
        "window": finding.window_id,
        "span": finding.span,
        "records": finding.records,
        "found": finding.present,
        "missing": finding.missing,
        "not_there": [_range(piece) for piece in finding.holes],
        "more_than_once": [_range(piece) for piece in finding.doubled],
    }


def _range(piece: Piece) -> Document:
    return {**range_document(piece.tp, piece.offsets), "copies": piece.copies}


def _text(document: Document, ways: Sequence[str]) -> str:
    windows = f"{counted(document['windows'], 'committed window')} of group {document['group']}"
    if not document["right"]:
        verdict = f"The table differs from {windows}."
    elif document["untold"]:
        verdict = f"Nothing of {windows} is doubled, or known to be missing."
    else:
        verdict = f"The table has each record of {windows} once: {document['found']}."
    parts = [verdict, *_wrong(document), *_notes(document), "\n".join(ways)]
    return "\n\n".join(filter(None, parts))


def _wrong(document: Document) -> Iterable[str]:
    if missing := document["missing"]:
        number = counted(sum(finding["missing"] for finding in missing), "record")
        is_exact = all(finding["missing"] == finding["span"] - finding["found"] for finding in missing)
        where = "at" if is_exact else "among"  # the others hold no record
        yield f"Missing: {number} of {_names(missing)}, {where} these offsets:\n\n" + _table(missing, "not_there")
    if join := document["at_join"]:
        yield f"Missing before the group's first window, in {counted(len(join), 'partition')}:\n\n" + ranges_table(join)
    if doubled := document["doubled"]:
        yield f"More than once: offsets of {_names(doubled)}:\n\n" + _table(doubled, "more_than_once")
    if doubled := [piece for piece in document["outside"] if piece["copies"] > 1]:
        yield "More than once, of no committed window:\n\n" + partitions_table((*RANGE, "copies"), doubled)


def _table(findings: Sequence[Document], which: str) -> str:
    ranges = [{"window": finding["window"], **piece} for finding in findings for piece in finding[which]]
    copies = ("copies",) if which == "more_than_once" else ()
    return partitions_table(("window", *RANGE, *copies), ranges)


def _names(findings: Sequence[Document]) -> str:
    return name_some([finding["window"] for finding in findings], ", ")


def _notes(document: Document) -> Iterable[str]:
    if document["without_record"]:
        yield f"{counted(document['without_record'], 'offset')} held no record, by the counts of the jobs."
    if untold := document["untold"]:
        yield f"Records of {_names(untold)} may be missing: the jobs reported no count, and the group expects gaps."
    if outside := document["outside"]:
        which = name_some([f"{p['topic']}-{p['partition']}: [{p['start']}, {p['end']})" for p in outside])
        span = sum(piece["span"] for piece in outside)
        is_open = f" Still open: {name_some(document['open'], ', ')}." if document["open"] else ""
        yield (
            f"Outside the committed windows: {counted(span, 'offset')}, {which}.{is_open} "
            "Remove what an abandoned window wrote, but keep what a reset told you to keep."
        )
    if before := document["pruned_before"]:
        yield f"Not compared: windows before {name_window(document['group'], before)}, which were pruned."
    if left_out := document["left_out"]:
        yield f"Left out: what {name_some(left_out, ', ')} read of an earlier topic of the same name."


def _ways_out(result: Audit, group: str, owner: Owner | None) -> list[str]:
    dag = owner.dag_id if owner is not None else None
    return [*_replay_of_windows(result, group, dag), *_replay_of_join(result, group, dag)]


def _replay_of_windows(result: Audit, group: str, dag: str | None) -> list[str]:
    wrong = {finding.window_id for finding in (*result.missing, *result.doubled)}
    if not wrong:
        return []
    gone = sorted(wrong.intersection(result.other_topics))
    seqs = name_windows(sorted(parse_window_id(name)[1] for name in wrong.difference(gone)))
    again = f"To replace their output:{trigger_command(group, {WINDOWS: seqs}, dag)}"
    no_replay = (
        f"No replay of {name_some(gone, ', ')}, as a topic was recreated: read what is missing with a group of another name, "
        "and remove by hand what is there twice."
    )
    return [
        *([again] if seqs else []),
        *([no_replay] if gone else []),
        f"To find windows whose rows may be there twice after that:\n    kafka-offsets windows {group} --state abandoned --state superseded",
    ]


def _replay_of_join(result: Audit, group: str, dag: str | None) -> list[str]:
    if not result.at_join:
        return []
    starts = by_topic({piece.tp: piece.offsets.start for piece in result.at_join})
    ends = by_topic({piece.tp: piece.offsets.end for piece in result.at_join})
    command = trigger_command(group, {STARTING_OFFSETS: starts, ENDING_OFFSETS: ends}, dag)
    return [
        f"To read what is missing before the first window:{command}",
        f"If nothing should be there, name the windows to compare:\n    kafka-offsets audit {group} --table ... --windows FIRST-LAST",
    ]
