"""What a person may do, in the same words by every command: a dry run, or with ``--yes`` the act."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from airflow_kafka_offsets.cli.exit_codes import ExitCode
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.tables import ranges_table, table
from airflow_kafka_offsets.core import leader_epochs
from airflow_kafka_offsets.core.errors import counted
from airflow_kafka_offsets.core.leader_epochs import PartitionEpoch
from airflow_kafka_offsets.core.plan.reset import Reset, nobody_reads
from airflow_kafka_offsets.core.window import Window
from airflow_kafka_offsets.documents import Document, ranges_document

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

NOTHING_CHANGED = "Nothing was changed."


def signed(args: Namespace, who: str, *, is_needed: bool = True) -> Document:
    """Return whether it is done, by whom and why."""
    return {"done": is_needed and args.yes, "who": who, "why": args.why}


def act_answer(
    document: Document, told: Callable[[], Iterable[str]], *, already: str | None = None, confirm: Sequence[str] = ()
) -> Answer:
    """Answer with what was done, or would be.

    Args:
        document: for programs; ``done`` says which.
        told: return the paragraphs for people.
        already: there is nothing to do, and this sentence says why; None: there is.
        confirm: the flags that it needs beside ``--yes``; one that supersedes windows has its own.
    """
    if already is not None:
        return Answer(document, lambda: f"{already}. {NOTHING_CHANGED}")
    if document["done"]:
        return Answer(document, lambda: "\n\n".join(told()))
    flags = ["--yes", *confirm, *(["--supersede"] if document.get("superseded") else [])]
    to_do_it = f"{NOTHING_CHANGED} To do it: the same command with {' '.join(flags)}"
    return Answer(document, lambda: "\n\n".join([*told(), to_do_it]), ExitCode.UNCONFIRMED)


def already_there(sentence: str, unchecked: Collection[PartitionEpoch]) -> str:
    """Say that there is nothing to do, and what is not known of it."""
    return f"{sentence}. {leader_epochs.warning(unchecked)}" if unchecked else sentence


def consequences_document(found: Reset | None, unchecked: Collection[PartitionEpoch], ledger: Ledger) -> Document:
    """Return what a move of the watermark does to offsets and windows.

    Args:
        found: the move; None: the group is new, and has no windows.
        unchecked: the leader epochs whose ends Kafka did not report.
        ledger: tells who held the windows.
    """
    not_checked = [asked.partition._asdict() for asked in unchecked]
    if found is None:
        return {
            "skipped": [],
            "replaced": [],
            "unchecked": not_checked,
            "read_by_others": [],
            "superseded": [],
            "unread": [],
        }
    unread = [{"window": id_, **one} for id_, ranges in found.unread.items() for one in ranges_document(ranges)]
    return {
        "skipped": ranges_document(found.skipped),
        "replaced": ranges_document(found.replaced),
        "unchecked": not_checked,
        "read_by_others": ranges_document(found.read_by_others),
        "superseded": _superseded(found.superseded, ledger),
        "unread": unread,
    }


def _superseded(windows: Sequence[Window], ledger: Ledger) -> list[Document]:
    if not windows:
        return []
    first, last = windows[0], windows[-1]
    rows = ledger.windows(first.group, before=last.seq + 1, limit=last.seq - first.seq + 1)
    holders = {row.window.seq: row.holder for row in rows}
    return [{"id": w.id, "planned_until": w.planned_until, "span": w.span, "held_by": holders[w.seq]} for w in windows]


def consequences(document: Document, found: Reset | None, unchecked: Collection[PartitionEpoch]) -> Iterator[str]:
    """Say what a move of the watermark does to offsets and windows. The arguments are as above."""
    if document["replaced"]:
        yield (
            "Kafka gave these offsets to other records after they were read. No one reads the new records after that (recorded):\n\n"
            + ranges_table(document["replaced"])
        )
    if document["skipped"]:
        yield gap(document)
    if unchecked:
        yield f"{leader_epochs.warning(unchecked)}."
    if found is None:
        return
    if document["read_by_others"]:
        yield (
            "Before the import, another reader read these offsets. New windows read them again: remove what it wrote of them, or records "
            "count twice:\n\n" + ranges_table(document["read_by_others"])
        )
    if document["superseded"]:
        yield from _superseded_text(document, found)
        if document["done"]:
            return
        yield (
            "Usually, a replay is meant. To run these windows again under their own ids, clear the runs above in Airflow instead. "
            "This replaces their output, and the watermark stays where it is."
        )


def gap(document: Document) -> str:
    """Say of the offsets that lose their owner where they are recorded, and who can read them."""
    return (
        "No one owns these offsets after that (recorded as a gap). A replay reads them, as long as Kafka holds them:\n\n"
        + ranges_table(document["skipped"])
    )


def _superseded_text(document: Document, found: Reset) -> Iterator[str]:
    windows = document["superseded"]
    is_done = document["done"]
    have, their, old, new = (
        ("has", "its", "id", "a new id") if len(windows) == 1 else ("have", "their", "ids", "new ids")
    )
    lose = f"{have} lost" if is_done else "would lose"
    yield (
        f"{counted(len(windows), 'committed window')} {lose} {their} offsets, which are read again under {new}. "
        f"Remove what was written under the old {old}, or records count twice:"
    )
    yield table(("id", "planned_until", "span", "held_by"), windows, held_by="run")
    if document["unread"]:
        yield from nobody_reads(found)
        yield ranges_table(document["unread"])
