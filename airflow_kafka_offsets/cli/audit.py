"""``kafka-offsets audit``: does a table hold each record of the group's windows, once?"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Sequence

from airflow_kafka_offsets.cli.running import Answer, ExitCode
from airflow_kafka_offsets.cli.sources import open_ledger
from airflow_kafka_offsets.cli.tables import partitions_table, ranges_table
from airflow_kafka_offsets.core.errors import BadInputError, counted, name_some
from airflow_kafka_offsets.core.plan.ownership import Owner
from airflow_kafka_offsets.core.plan.request import name_windows, parse_windows
from airflow_kafka_offsets.core.source.audit import Audit, Finding
from airflow_kafka_offsets.core.source.islands import Piece, load_islands
from airflow_kafka_offsets.core.spark_json import dump_offsets
from airflow_kafka_offsets.core.window_id import name_window, parse_window_id
from airflow_kafka_offsets.documents import Document, range_document
from airflow_kafka_offsets.service.audit import audit_table
from airflow_kafka_offsets.wiring import sources


def audit(args: Namespace) -> Answer:
    """Compare, and name what is missing and what is doubled."""
    seqs = parse_windows(args.group, args.windows) if args.windows else []
    table = load_islands(text for place in args.table for text in sources.read_csvs(place))
    ledger = open_ledger(args)
    group = ledger.group(args.group)
    if not table:
        raise BadInputError(
            f"{', '.join(args.table)}: there is no line, so the table has nothing of group {group.name}"
        )
    found, state = audit_table(ledger, group, table, seqs), ledger.load(group.name)
    before = ledger.pruned(group.name).before
    document = {
        "group": group.name,
        "right": found.is_right,
        "windows": found.windows,
        "found": found.found,
        "without_record": found.without_record,
        "missing": [_document(finding) for finding in found.missing],
        "doubled": [_document(finding) for finding in found.doubled],
        "untold": [_document(finding) for finding in found.unknown],
        "at_join": [_range(piece) for piece in found.at_join],
        "outside": [_range(piece) for piece in found.outside],
        "left_out": list(found.other_topics),
        "open": [held.id for held in state.open],
        "pruned_before": before if before > 1 and not seqs else None,
    }
    code = ExitCode.OK if found.is_right else ExitCode.REFUSED
    return Answer(document, lambda: _text(document, _ways_out(found, group.name, state.owner)), code)


def _document(finding: Finding) -> Document:
    return {
        "window": finding.window_id,
        "span": finding.span,
        "records": finding.records,
        "found": finding.found,
        "missing": finding.missing,
        "not_there": [_range(piece) for piece in finding.holes],
        "more_than_once": [_range(piece) for piece in finding.doubled],
    }


def _range(piece: Piece) -> Document:
    return {**range_document(piece.tp, piece.offsets), "copies": piece.copies}


def _text(document: Document, ways: Sequence[str]) -> str:
    windows = counted(document["windows"], "committed window")
    if document["right"]:
        verdict = f"The table has each record of {windows} of group {document['group']} once: {document['found']}."
        if document["untold"]:
            verdict = (
                f"Of {windows} of group {document['group']}, nothing is known to be missing, and nothing is doubled."
            )
    else:
        verdict = f"The table differs from {windows} of group {document['group']}."
    parts = [verdict, *_wrong(document), *_notes(document), "\n".join(ways)]
    return "\n\n".join(filter(None, parts))


def _wrong(document: Document) -> Iterable[str]:
    if missing := document["missing"]:
        number = counted(sum(finding["missing"] for finding in missing), "record")
        yield f"Missing: {number} of {_names(missing)}. {_where(missing)}\n\n" + _table(missing, "not_there")
    if join := document["at_join"]:
        yield (
            f"Missing before the group's first window: the table ends before that window begins, in {counted(len(join), 'partition')}:\n\n"
            + ranges_table(join)
        )
    if doubled := document["doubled"]:
        yield f"More than once: offsets of {_names(doubled)}:\n\n" + _table(doubled, "more_than_once")
    if doubled := [piece for piece in document["outside"] if piece["copies"] > 1]:
        keys = ("topic", "partition", "start", "end", "span", "copies")
        yield "More than once, and of no committed window:\n\n" + partitions_table(keys, doubled)


def _where(missing: Sequence[Document]) -> str:
    is_exact = all(finding["missing"] == finding["span"] - finding["found"] for finding in missing)
    if is_exact:
        return "The table does not have these offsets:"
    return "The table does not have these offsets; some of them held no record, and the ledger does not know which:"


def _table(findings: Sequence[Document], which: str) -> str:
    ranges = [{"window": finding["window"], **piece} for finding in findings for piece in finding[which]]
    copies = ("copies",) if which == "more_than_once" else ()
    return partitions_table(("window", "topic", "partition", "start", "end", "span", *copies), ranges)


def _names(findings: Sequence[Document]) -> str:
    return name_some([finding["window"] for finding in findings], ", ")


def _notes(document: Document) -> Iterable[str]:
    if document["without_record"]:
        yield f"{counted(document['without_record'], 'offset')} held no record, by the counts of the jobs."
    if untold := document["untold"]:
        yield (
            f"No one can tell whether a record of {_names(untold)} is missing: the table does not have all of their offsets, the "
            "jobs reported no count, and the group expects offsets without a record."
        )
    if outside := document["outside"]:
        which = name_some([f"{p['topic']}-{p['partition']}: [{p['start']}, {p['end']})" for p in outside])
        span = sum(piece["span"] for piece in outside)
        is_open = f" Still open: {name_some(document['open'], ', ')}." if document["open"] else ""
        yield (
            f"Outside the committed windows, the table has {counted(span, 'offset')}: {which}.{is_open} "
            "Remove what an abandoned window wrote, but keep what a reset told you to keep."
        )
    if before := document["pruned_before"]:
        yield (
            f"Not compared: what the table has of windows before {name_window(document['group'], before)}. They were pruned from the ledger."
        )
    if left_out := document["left_out"]:
        yield (
            f"Left out: what {name_some(left_out, ', ')} read of an earlier topic of the same name, whose offsets mean something "
            "else. If the table has its records too, let the query leave them out."
        )


def _ways_out(found: Audit, group: str, owner: Owner | None) -> list[str]:
    dag = owner.dag_id if owner is not None else "DAG"
    return [*_replay_of_windows(found, group, dag), *_replay_of_join(found, group, dag)]


def _replay_of_windows(found: Audit, group: str, dag: str) -> list[str]:
    wrong = {finding.window_id for finding in (*found.missing, *found.doubled)}
    if not wrong:
        return []
    gone = sorted(wrong.intersection(found.other_topics))
    seqs = name_windows(sorted(parse_window_id(name)[1] for name in wrong.difference(gone)))
    again = (
        "To write these windows again, which replaces what they wrote: "
        f"""airflow dags trigger {dag} --conf '{{"group": "{group}", "windows": "{seqs}"}}'"""
    )
    no_replay = (
        f"Kafka no longer has all records of {name_some(gone, ', ')}, as a topic was "
        "recreated, so no replay is possible: read what is missing with a group of another name, and remove by hand what is there twice."
    )
    return [
        *([again] if seqs else []),
        *([no_replay] if gone else []),
        "What is there twice after that was written under another id. Look for rows of windows that are abandoned or "
        f"superseded: kafka-offsets windows {group} --state abandoned --state superseded",
    ]


def _replay_of_join(found: Audit, group: str, dag: str) -> list[str]:
    if not found.at_join:
        return []
    starts = dump_offsets({piece.tp: piece.offsets.start for piece in found.at_join})
    ends = dump_offsets({piece.tp: piece.offsets.end for piece in found.at_join})
    return [
        "To read what is missing before the first window, as new backfill windows, while Kafka still has it: "
        f"airflow dags trigger {dag} --conf "
        f"""'{{"group": "{group}", "starting_offsets": {starts}, "ending_offsets": {ends}}}'""",
        "If nothing should be there, leave it out by naming the windows to compare: "
        f"kafka-offsets audit {group} --table ... --windows FIRST-LAST",
    ]
