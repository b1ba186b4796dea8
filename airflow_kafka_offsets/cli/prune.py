"""``kafka-offsets prune``: old windows leave the ledger. A dry run, or with ``--yes`` the act."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from airflow_kafka_offsets.cli.acts import act_answer, signed
from airflow_kafka_offsets.cli.running import Answer, code_of
from airflow_kafka_offsets.cli.sources import open_ledger, open_log, person
from airflow_kafka_offsets.cli.tables import table
from airflow_kafka_offsets.core.errors import BadInputError, KafkaOffsetsError, counted
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.documents import Document
from airflow_kafka_offsets.service.prune import Prune, Pruning

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger


def prune(args: Namespace) -> Answer:
    """Take windows out of the ledger: those of a group, or of all."""
    if (args.group is None) == (not args.all):
        raise BadInputError("Name a group, or add --all")
    if args.all and args.deleted_topics:
        raise BadInputError("--deleted-topics is for one group, not for --all")
    args.why = args.why or f"older than {args.older_than.written}"
    who, ledger = person(args), open_ledger(args)
    groups, errors = [], []
    for group in ledger.groups() if args.all else [ledger.group(args.group)]:
        pruned, error = _prune_group(args, ledger, group, who)
        groups.append(pruned)
        errors += [error] if error else []
    total = sum(group["windows"] for group in groups)
    document = {**signed(args, who, is_needed=bool(total)), "older_than": args.older_than.written, "groups": groups}
    nothing = None if total else "\n".join([*_kept(groups), "No window can be pruned"])
    answer = act_answer(document, lambda: _prune_text(document), already=nothing)
    if not errors:
        return answer
    return Answer(document, answer.text, code_of(errors[0]), "\n".join(dict.fromkeys(map(str, errors))))


def _prune_group(
    args: Namespace, ledger: Ledger, group: KafkaGroup, who: str
) -> tuple[Document, KafkaOffsetsError | None]:
    """Prune a group. With --all, an error in one group does not keep the others from it."""
    pruning: Pruning | None = None
    age, are_deleted = args.older_than.age, args.deleted_topics
    try:
        pruning = Pruning(ledger, open_log(args, group))
        if args.yes:
            return _prune_document(group.name, pruning.prune(group, age, who, args.why, are_deleted=are_deleted)), None
        return _prune_document(group.name, pruning.preview(group, age, are_deleted=are_deleted)), None
    except KafkaOffsetsError as exc:
        if not args.all:
            raise
        # The windows that were taken out before the error have left the ledger.
        return {**_prune_document(group.name, pruning.done if pruning else Prune()), "error": str(exc)}, exc


def _prune_document(group: str, pruned: Prune) -> Document:
    def named(seq: int | None) -> str | None:
        return None if seq is None else name_window(group, seq)

    return {
        "group": group,
        "windows": pruned.windows,
        "attempts": pruned.attempts,
        "lost": pruned.lost,
        "first": named(pruned.first),
        "last": named(pruned.last),
        "pruned_before": None if pruned.last is None else pruned.last + 1,
        "kept": named(pruned.kept),
        "kept_because": pruned.why,
        "error": None,
    }


def _prune_text(document: Document) -> Iterator[str]:
    groups = [group for group in document["groups"] if group["windows"]]
    number = counted(sum(group["windows"] for group in groups), "window")
    left = "left" if document["done"] else "would leave"
    yield f"{number} {left} the ledger. The output and the watermark stay:"
    yield table(("group", "windows", "attempts", "first", "last"), groups)
    if kept := _kept(document["groups"]):
        yield "\n".join(kept)


def _kept(groups: Sequence[Document]) -> list[str]:
    return [f"{g['kept']} and later windows stay, because {g['kept_because']}." for g in groups if g["kept"]]
