"""``kafka-offsets prune``: take windows that Kafka no longer holds out of the ledger."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from airflow_kafka_offsets.cli.acts import act_answer, signed
from airflow_kafka_offsets.cli.exit_codes import code_of
from airflow_kafka_offsets.cli.running import Answer
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
    """Prune a group or all of them, or say what that would take."""
    if (args.group is None) == (not args.all):
        raise BadInputError("Name a group, or add --all for all groups of the ledger")
    if args.all and args.deleted_topics:
        raise BadInputError(
            "--deleted-topics is for one group, not for --all: with a wrong Kafka every topic would count as deleted. Name the group "
            "whose topics you know to be deleted: kafka-offsets prune GROUP --older-than ... --deleted-topics"
        )
    args.why = args.why or f"older than {args.older_than.written}"
    who, ledger = person(args), open_ledger(args)
    groups = ledger.groups() if args.all else [ledger.group(args.group)]
    failed: list[KafkaOffsetsError] = []
    found = [_of_group(args, ledger, group, who, failed) for group in groups]
    total = sum(one["windows"] for one in found)
    document = {**signed(args, who, is_needed=bool(total)), "older_than": args.older_than.written, "groups": found}
    nothing = f"{_kept_text(found)}No window can be pruned" if not total else None
    answer = act_answer(document, lambda: _told(document), already=nothing)
    if not failed:
        return answer
    return Answer(document, answer.text, code_of(failed[0]), "\n".join(dict.fromkeys(map(str, failed))))


def _of_group(
    args: Namespace, ledger: Ledger, group: KafkaGroup, who: str, failed: list[KafkaOffsetsError]
) -> Document:
    """Prune one group; with --all, an error in one does not keep the others from it."""
    pruning: Pruning | None = None
    try:
        pruning = Pruning(ledger, open_log(args, group))
        age, are_deleted = args.older_than.age, args.deleted_topics
        if args.yes:
            return _document(group.name, pruning.prune(group, age, who, args.why, are_deleted=are_deleted))
        return _document(group.name, pruning.preview(group, age, are_deleted=are_deleted))
    except KafkaOffsetsError as exc:
        if not args.all:
            raise
        failed.append(exc)
        # What it took out before it failed has left the ledger.
        return {**_document(group.name, pruning.done if pruning else Prune()), "error": str(exc)}


def _document(group: str, found: Prune) -> Document:
    def named(seq: int | None) -> str | None:
        return None if seq is None else name_window(group, seq)

    return {
        "group": group,
        "windows": found.windows,
        "attempts": found.attempts,
        "lost": found.lost,
        "first": named(found.first),
        "last": named(found.last),
        "pruned_before": None if found.last is None else found.last + 1,
        "kept": named(found.kept),
        "kept_because": found.why,
        "error": None,
    }


def _told(document: Document) -> Iterator[str]:
    done, found = document["done"], [one for one in document["groups"] if one["windows"]]
    number = sum(one["windows"] for one in found)
    its, it, they = ("its", "it", "it") if number == 1 else ("their", "them", "they")
    yield (
        f"{counted(number, 'window')} {'left' if done else 'would leave'} the ledger. Kafka no longer holds {its} offsets, so no run can "
        f"read {it} again:"
    )
    yield table(("group", "windows", "attempts", "first", "last"), found)
    if kept := _kept_text(document["groups"]).strip():
        yield kept
    if not done:
        yield (
            f"What {they} wrote stays as it is, and so does the watermark. No id is given again. A replay of a window that has left says "
            "when it left."
        )


def _kept_text(groups: Sequence[Document]) -> str:
    kept = [
        f"{one['kept']} and what comes after it stays, because {one['kept_because']}.\n"
        for one in groups
        if one["kept"]
    ]
    return "".join(kept)
