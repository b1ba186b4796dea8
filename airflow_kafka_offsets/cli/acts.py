"""What only a person may do: abandon, commit, reset and take-over. A dry run, or with ``--yes`` the act."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.cli import airflow_runs
from airflow_kafka_offsets.cli.running import Answer, ExitCode
from airflow_kafka_offsets.cli.sources import open_ledger, open_service, person
from airflow_kafka_offsets.cli.tables import open_text, ranges_table, table, time
from airflow_kafka_offsets.core import leader_epochs
from airflow_kafka_offsets.core.errors import BadInputError, counted
from airflow_kafka_offsets.core.leader_epochs import PartitionEpoch
from airflow_kafka_offsets.core.plan.ownership import Owner
from airflow_kafka_offsets.core.plan.request import parse_seq
from airflow_kafka_offsets.core.plan.reset import Reset, nobody_reads, only_copies, run_instead
from airflow_kafka_offsets.core.window import Lane, Window
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.documents import Document, ranges_document, window_detail, window_document
from airflow_kafka_offsets.service.windows import WindowService

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

NOTHING_CHANGED = "Nothing was changed."


def signed(args: Namespace, who: str, *, is_needed: bool = True) -> Document:
    """Return whether an act is done, by whom and why."""
    return {"done": is_needed and args.yes, "who": who, "why": args.why}


def act_answer(
    document: Document,
    paragraphs: Callable[[], Iterable[str]],
    *,
    already: str | None = None,
    flags: Sequence[str] = (),
) -> Answer:
    """Answer with what was done, or would be.

    Args:
        document: for programs; ``done`` is whether it was done.
        paragraphs: for people.
        already: why there is nothing to do, or None if there is.
        flags: what the act needs beside ``--yes``; an act that supersedes windows has its own.
    """
    if already is not None:
        return Answer(document, lambda: f"{already}. {NOTHING_CHANGED}")
    if document["done"]:
        return Answer(document, lambda: "\n\n".join(paragraphs()))
    needed = ["--yes", *flags, *(["--supersede"] if document.get("superseded") else [])]
    to_do_it = f"{NOTHING_CHANGED} To do it, add {' '.join(needed)}"
    return Answer(document, lambda: "\n\n".join([*paragraphs(), to_do_it]), ExitCode.UNCONFIRMED)


def abandon(args: Namespace) -> Answer:
    """Abandon an open window."""
    service, document = _open_window(args)
    abandoned = service.preview_abandon(args.window_id)
    if args.yes:
        abandoned = service.abandon(args.window_id, document["who"], args.why, leave_gap=args.leave_gap)
    document["skipped"] = ranges_document(abandoned.skipped)
    return act_answer(document, lambda: _abandon_text(document), flags=["--leave-gap"] if abandoned.skipped else [])


def commit(args: Namespace) -> Answer:
    """Commit a window on a person's word."""
    service, document = _open_window(args)
    if args.yes:
        service.commit_by_hand(args.window_id, document["who"], args.why)
    else:
        service.check_commit_by_hand(args.window_id)
    return act_answer(document, lambda: _commit_text(document))


def _open_window(args: Namespace) -> tuple[WindowService, Document]:
    who, ledger = person(args), open_ledger(args)
    row = ledger.window(args.window_id)
    document = {
        **signed(args, who),
        "window": window_detail(row, ledger.attempts(args.window_id)),
        "holder_is_over": airflow_runs.is_over(row.holder),
    }
    return open_service(args, ledger, ledger.group(row.group)), document


def _abandon_text(document: Document) -> Iterator[str]:
    id_, is_done = document["window"]["id"], document["done"]
    if is_done:
        yield f"Window {id_} is abandoned, by {document['who']}. {_holder_text(document)}"
    else:
        yield from _window_text("abandon", document)
    if document["skipped"]:
        yield gap(document)
    else:
        who = "Only a replay" if document["window"]["lane"] == Lane.BACKFILL else "The next run"
        yield f"{who} {'plans' if is_done else 'would plan'} these offsets again, under another id."
    remove = _remove(f"what its job wrote under {id_}", document)
    yield f"{remove}. But keep what a sink refused to replace (OtherWindowError): another window wrote it."
    if not is_done:
        yield f"If the output is the only copy, keep it, too:\n    kafka-offsets commit {id_} --why '...'"


def _commit_text(document: Document) -> Iterator[str]:
    if document["done"]:
        yield f"Window {document['window']['id']} is committed, by {document['who']}."
        return
    yield from _window_text("commit", document)
    yield "Nothing proves that its job read all of it: check what it wrote. No later window reads what is missing."


def _window_text(verb: str, document: Document) -> Iterator[str]:
    window = document["window"]
    yield f"This would {verb} window {open_text(window)}:"
    yield ranges_table([r for r in window["ranges"] if r["span"]]) if window["span"] else "It is empty."
    if running := [a for a in window["history"] if a["outcome"] == "running"]:
        yield f"Its last attempt, from {time(running[-1]['started_at'])}, has no recorded end."
    yield _holder_text(document)


def _holder_text(document: Document) -> str:
    states = {
        True: "is over",
        False: "still runs: mark its task as failed",
        None: "may still run (no Airflow here to ask)",
    }
    return f"{document['window']['held_by']} {states[document['holder_is_over']]}. Make sure that its job is over."


def reset(args: Namespace) -> Answer:
    """Move the watermark."""
    to, target = _target(args)
    who, ledger = person(args), open_ledger(args)
    group = ledger.group(args.group)
    service = open_service(args, ledger, group)
    move = service.preview_reset(group, to, **target)
    is_needed = move.changes_something
    if is_needed and args.yes:
        move = service.reset(group, to, who, args.why, **target, supersede=args.supersede)
    document = {
        "group": group.name,
        "needed": is_needed,
        **signed(args, who, is_needed=is_needed),
        "moves": [{**tp._asdict(), "from": old, "to": new} for tp, (old, new) in move.moves.items()],
        **consequences_document(move, move.unchecked, ledger),
    }
    already = already_there(f"The watermark of group {group.name} is already there", move.unchecked)
    return act_answer(document, lambda: _reset_text(document, move), already=None if is_needed else already)


def _target(args: Namespace) -> tuple[str, dict[str, Any]]:
    if bool(args.to) == bool(args.to_window):
        raise BadInputError("Name the new position: either --to or --to-window")
    to_window = name_window(args.group, parse_seq(args.group, args.to_window)) if args.to_window else None
    return args.to or "", {"topics": args.topic or (), "to_window": to_window}


def _reset_text(document: Document, move: Reset) -> Iterator[str]:
    if document["moves"]:
        verb = "has moved" if document["done"] else "would move"
        yield f"The watermark of group {document['group']} {verb}:"
        moves = ({**m, "change": None if m["from"] is None else m["to"] - m["from"]} for m in document["moves"])
        yield table(("topic", "partition", "from", "to", "change"), moves)
    else:
        yield f"The watermark of group {document['group']} stays where it is."
    yield from consequences(document, move, move.unchecked)


def already_there(sentence: str, unchecked: Collection[PartitionEpoch]) -> str:
    """Return why there is nothing to do, with what Kafka left open."""
    return f"{sentence}. {leader_epochs.warning(unchecked)}" if unchecked else sentence


def consequences_document(move: Reset | None, unchecked: Collection[PartitionEpoch], ledger: Ledger) -> Document:
    """Return what a move of the watermark does to offsets and windows.

    Args:
        move: the move, or None if the group is new and has no windows.
        unchecked: the leader epochs whose ends Kafka did not report.
        ledger: has the holders of the windows.
    """
    document: Document = {
        "skipped": [],
        "replaced": [],
        "unchecked": [epoch.partition._asdict() for epoch in unchecked],
        "read_by_others": [],
        "superseded": [],
        "unread": [],
    }
    if move is None:
        return document
    return document | {
        "skipped": ranges_document(move.skipped),
        "replaced": ranges_document(move.replaced),
        "read_by_others": ranges_document(move.read_by_others),
        "superseded": _superseded(move.superseded, ledger),
        "unread": [{"window": id_, **r} for id_, ranges in move.unread.items() for r in ranges_document(ranges)],
    }


def _superseded(windows: Sequence[Window], ledger: Ledger) -> list[Document]:
    if not windows:
        return []
    first, last = windows[0], windows[-1]
    rows = ledger.windows(first.group, before=last.seq + 1, limit=last.seq - first.seq + 1)
    holders = {row.seq: row.holder for row in rows}
    return [{"id": w.id, "planned_until": w.planned_until, "span": w.span, "held_by": holders[w.seq]} for w in windows]


def consequences(document: Document, move: Reset | None, unchecked: Collection[PartitionEpoch]) -> Iterator[str]:
    """Return the paragraphs on what a move of the watermark does to offsets and windows. The arguments are as above."""
    if move is not None:
        yield from only_copies(move)
    if document["replaced"]:
        yield (
            "Other records have these offsets now. No window reads them (recorded):\n\n"
            + ranges_table(document["replaced"])
        )
    if document["skipped"]:
        yield gap(document)
    if unchecked:
        yield f"{leader_epochs.warning(unchecked)}."
    if document["read_by_others"]:
        ranges = ranges_table(document["read_by_others"])
        output = _remove("what that reader wrote of them", document)
        yield f"Another reader read these offsets before the import, and new windows read them again. {output}:\n\n{ranges}"
    if move is not None and document["superseded"]:
        yield from _superseded_text(document, move)


def gap(document: Document) -> str:
    """Show the offsets that lose their owner."""
    verb = "is" if document["done"] else "would be"
    return (
        f"This {verb} a recorded gap, which a replay reads while Kafka holds it:\n\n{ranges_table(document['skipped'])}"
    )


def _remove(output: str, document: Document) -> str:
    return f"{'Remove' if document['done'] else 'After that, remove'} {output}, or records count twice"


def _superseded_text(document: Document, move: Reset) -> Iterator[str]:
    windows, verb = document["superseded"], "Superseded" if document["done"] else "Would be superseded"
    number = counted(len(windows), "committed window")
    yield f"{verb}, and read again by new windows: {number}. {_remove('the output of these windows', document)}:"
    yield table(("id", "planned_until", "span", "held_by"), windows, held_by="run")
    if document["unread"]:
        yield from nobody_reads(move)
        yield ranges_table(document["unread"])
    if not document["done"]:
        yield run_instead(document["group"], move)


def take_over(args: Namespace) -> Answer:
    """Give a group to a DAG and task."""
    owner = Owner(args.dag, args.task)  # before anything is opened
    who, ledger = person(args), open_ledger(args)
    group = ledger.group(args.group)
    state = ledger.load(group.name)
    is_needed = state.owner != owner
    document = {
        "group": group.name,
        **signed(args, who, is_needed=is_needed),
        "from": state.owner,
        "to": owner,
        "topics": list(group.topics),
        "open_windows": [window_document(ledger.window(held.id)) for held in state.open],
    }
    if is_needed and args.yes:
        open_service(args, ledger, group).take_over(group.name, owner, who, args.why)
    already = None if is_needed else f"Group {group.name} already belongs to {owner}"
    return act_answer(document, lambda: _take_over_text(document), already=already)


def _take_over_text(document: Document) -> Iterator[str]:
    verb = "belongs" if document["done"] else "would belong"
    before = document["from"] or "no one"
    yield (
        f"Group {document['group']} {verb} to {document['to']}, and no longer to {before}. Make sure that the new task writes the same output."
    )
    if windows := document["open_windows"]:
        yield "It adopts these windows, each after its run is over:"
        yield table(("id", "state", "span", "held_by"), windows)


def inherit(args: Namespace) -> Answer:
    """Let a group write beside its output of a lost ledger."""
    who, ledger = person(args), open_ledger(args)
    group = ledger.group(args.group)
    is_needed = args.ledger_id not in ledger.ledgers(group.name)
    document = {"group": group.name, **signed(args, who, is_needed=is_needed), "ledger": args.ledger_id}
    if is_needed and args.yes:
        open_service(args, ledger, group).inherit(group.name, args.ledger_id, who, args.why)
    already = None if is_needed else f"Group {group.name} already writes beside the output of {args.ledger_id}"
    return act_answer(document, lambda: _inherit_text(document), already=already)


def _inherit_text(document: Document) -> Iterator[str]:
    verb = "writes" if document["done"] else "would write"
    yield (
        f"Group {document['group']} {verb} beside its output of ledger {document['ledger']}. If that ledger still writes there, "
        "records count twice: it must be lost for good."
    )
