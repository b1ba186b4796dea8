"""``kafka-offsets plan``: the next window of a group, or the windows of a replay, and why. Writes nothing."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from airflow_kafka_offsets.cli.dag_files import Definition, find_definition
from airflow_kafka_offsets.cli.running import Answer, ExitCode
from airflow_kafka_offsets.cli.sources import ledger_url, open_ledger, open_service
from airflow_kafka_offsets.cli.tables import open_text, partitions_table, ranges_table, table
from airflow_kafka_offsets.core.errors import BadInputError, LogError, UnknownGroupError, counted
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.plan import ownership
from airflow_kafka_offsets.core.plan.ownership import Owner
from airflow_kafka_offsets.core.plan.planning import Plan
from airflow_kafka_offsets.core.plan.request import REPLAY_KEYS, Replay, parse_replay, trigger_command
from airflow_kafka_offsets.core.window import Claim
from airflow_kafka_offsets.documents import Document, range_document, ranges_document, replay_document, window_document
from airflow_kafka_offsets.service.topics import as_last_planned
from airflow_kafka_offsets.service.windows import WindowService
from airflow_kafka_offsets.wiring.absent import AbsentLedger, open_ledger_or_absent

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger


def plan(args: Namespace) -> Answer:
    """Show the open window, if there is one, and the window that would be cut next; or the answer to a replay."""
    if not args.group and not args.dag:
        raise BadInputError("Name the group, or its DAG file with --dag")
    definition = find_definition(args.dag, args.group) if args.dag else None
    request = parse_replay(definition.group.name if definition else args.group, _replay(args))
    if definition:
        ledger = open_ledger_or_absent(ledger_url(args, definition.group.ledger_conn_id))
    else:
        ledger = open_ledger(args)
    group = definition.group if definition else _stored(ledger, args.group)
    if request is not None:
        owner = ledger.load(group.name).owner
        dag_id = definition.planners[0].dag_id if definition else owner.dag_id if owner else None
        command = trigger_command(group.name, {key: value for key, value in _replay(args).items() if value}, dag_id)
        return _replayed(open_service(args, ledger, group), group, request, command)
    return _next_window(args, ledger, group, definition)


def _next_window(args: Namespace, ledger: Ledger, group: KafkaGroup, definition: Definition | None) -> Answer:
    state = ledger.load(group.name)
    group = as_last_planned(ledger, group, has_planned=state.version > 0)
    if definition:
        _check_owner(definition, state.owner)
    first = window_document(ledger.window(state.open[0].id)) if state.open else None
    document: Document = {
        "group": group.name,
        "dag_id": definition.planners[0].dag_id if definition else None,
        "is_first": state.position is None,
        "open_window": first,
        "max_offsets": group.max_offsets,
        "no_ledger_in": ledger.where if isinstance(ledger, AbsentLedger) else None,
        "refused": None,
        "span": None,
        "partitions": [],
        "lost": [],
        "warnings": [],
        "problems": [],
    }
    try:
        planned = open_service(args, ledger, group).next_window(group, state.position)
    except LogError as exc:
        problems = [{**tp._asdict(), "problem": why} for tp, why in sorted(exc.partitions.items())]
        document |= {"refused": str(exc), "problems": problems}
        return Answer(document, lambda: _text(document), ExitCode.REFUSED, str(exc))
    document |= _plan_document(planned)
    if definition and state.position is None:
        renames = [ownership.other_name(group, planner, ledger.groups_of(planner)) for planner in definition.planners]
        document["warnings"] += [warning for warning in renames if warning]
    return Answer(document, lambda: _text(document))


def _stored(ledger: Ledger, group: str) -> KafkaGroup:
    try:
        return ledger.group(group)
    except UnknownGroupError as exc:
        raise UnknownGroupError(f"{exc}. Before its first run:\n    kafka-offsets plan --dag FILE") from exc


def _check_owner(definition: Definition, owner: Owner | None) -> None:
    """Refuse what would be refused to the DAG's next run."""
    if owner in definition.planners:
        return
    first = definition.planners[0]
    ownership.check_owner(definition.group.name, owner, Claim(first.dag_id, "next", first.task_id))


def _replay(args: Namespace) -> dict[str, str | None]:
    values = (args.windows, args.from_time, args.to_time, args.starting_offsets, args.ending_offsets)
    return dict(zip(REPLAY_KEYS, values, strict=True))


def _replayed(service: WindowService, group: KafkaGroup, request: Replay, command: str) -> Answer:
    windows, drafts = service.answer(group, request)
    document = replay_document(group.name, windows, drafts)
    return Answer(document, lambda: _replay_text(document, command))


def _replay_text(document: Document, command: str) -> str:
    parts = []
    if again := document["again"]:
        windows = table(("id", "lane", "state", "planned_until", "span"), again)
        parts.append(f"A replay would run {counted(len(again), 'window')} again:\n\n{windows}")
    for number, window in enumerate(document["new"], start=1):
        parts.append(
            f"New backfill window {number} of {len(document['new'])}, span {window['span']}:\n\n"
            + ranges_table(window["ranges"])
        )
    return "\n\n".join([*parts, f"To run it:{command}"])


def _plan_document(planned: Plan) -> Document:
    verdicts = planned.verdicts
    return {
        "span": planned.ranges.span,
        "partitions": [{**range_document(tp, r), "verdict": verdicts[tp]} for tp, r in planned.ranges.items()],
        "lost": ranges_document(planned.lost),
        "warnings": list(planned.warnings),
    }


def _text(document: Document) -> str:
    parts = []
    if window := document["open_window"]:
        parts.append(f"Window {open_text(window)} comes first: the next run gets it, after that run is over.")
    if document["refused"]:
        parts.append("The next window can't be planned.")
        if document["problems"]:
            parts.append(partitions_table(("topic", "partition", "problem"), document["problems"], lambda problem: 0))
        return "\n\n".join(parts)
    next_one = "The next window"
    if document["open_window"]:
        next_one = "After it, the next window"
    elif document["is_first"]:
        next_one = f"Group {document['group']} has no watermark yet. Its first window"
    parts.append(f"{next_one} would have {_size(document)}.")
    keys = ("topic", "partition", "verdict", "start", "end", "span")
    parts.append(partitions_table(keys, document["partitions"]))
    if document["lost"]:
        parts.append("Recorded as lost (on_data_loss='skip'):\n\n" + ranges_table(document["lost"]))
    parts += [f"Warning: {warning}" for warning in document["warnings"]]
    if document["no_ledger_in"]:
        parts.append(f"{document['no_ledger_in']} has no ledger yet: the group counts as new.")
    return "\n\n".join(parts)


def _size(document: Document) -> str:
    number = len(document["partitions"])
    reading = sum(1 for r in document["partitions"] if r["span"])
    if not reading:
        return f"span 0: nothing to read in {counted(number, 'partition')}"
    of_all = counted(number, "partition") if reading == number else f"{reading} of {counted(number, 'partition')}"
    cap = f", at most {document['max_offsets']}" if document["max_offsets"] else ""
    return f"span {document['span']} in {of_all}{cap}"
