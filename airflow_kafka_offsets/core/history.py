"""What the ledger keeps of windows, attempts and acts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from airflow_kafka_offsets.core.errors import BadInputError, short
from airflow_kafka_offsets.core.offsets import TopicPartition, is_whole
from airflow_kafka_offsets.core.window import Claim, Outcome
from airflow_kafka_offsets.core.window_id import group_of


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of one run to process one window.

    Attributes:
        id: its number in the ledger.
        window_id: what it processed.
        claim: who tried.
        try_number: Airflow's number of the try.
        outcome: how it ended.
        records: how many records the job read, or None if not reported.
        started_at, ended_at: in UTC; ended_at is None if no end is reported.
        series: the series of tries, see `core.run.Try.series`.
        bundle_version: see `core.run.Try`.
    """

    id: int
    window_id: str
    claim: Claim
    try_number: int
    outcome: Outcome
    records: int | None
    started_at: datetime
    ended_at: datetime | None
    series: str
    bundle_version: str | None = None


@dataclass(frozen=True, slots=True)
class Rerun:
    """The newest attempt at a window that was committed before it began, as long as the window is not committed again.

    Attributes:
        window_id: the window. Its output may be a part.
        outcome: how the attempt ended; with another launcher it runs until its commit.
        begun_at: when it began, or when the launcher got the window, in UTC.
    """

    window_id: str
    outcome: Outcome
    begun_at: datetime


@dataclass(frozen=True, slots=True)
class Act:
    """What a person did to a group.

    Attributes:
        kind: ``"abandon"``, ``"commit"``, ``"reset"``, ``"take-over"``, ``"import"``, ``"copy"``, ``"export"``,
            ``"inherit"`` or ``"prune"``.
        who, why, at: as recorded.
        details: JSON-able facts: windows concerned, gaps, places.

    Raises:
        BadInputError: see `check_signature`.
    """

    kind: str
    who: str
    why: str
    at: datetime
    details: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_signature(self.who, self.why)

    @property
    def window_ids(self) -> tuple[str, ...]:
        """The windows that it names: those that it was about, and those that an import left open."""
        return (*acted_on(self.details), *self.details.get("left_open", ()))

    @property
    def group_names(self) -> frozenset[str]:
        """The groups that it names: those of its windows, and the name under which offsets were looked up in a source.

        That name may be one of another tool, which the ledger does not have.
        """
        of_windows = {group_of(window_id) for window_id in self.window_ids}
        return frozenset(of_windows | {self.details["name"]} if "name" in self.details else of_windows)


def acted_on(details: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the windows that an act was about, from its details, in order: one, or those of a reset."""
    one = [details["window"]] if "window" in details else []
    return tuple(sorted([*one, *details.get("superseded", ())], key=_by_age))


def _by_age(window_id: str) -> tuple[int, str]:
    return len(window_id), window_id  # up to the millionth, names alone sort as the windows do


@dataclass(frozen=True, slots=True)
class Gap:
    """A live window that a person abandoned below later ones: these do not have its offsets.

    Attributes:
        window_id: the window.
        after: the latest planned-until time that an older window proves, or None if none does.
        until: its own planned-until time.
    """

    window_id: str
    after: datetime | None
    until: datetime

    def to_json(self) -> dict[str, str | None]:
        """Return what the act keeps of it when its window leaves the ledger."""
        return {"after": self.after.isoformat() if self.after else None, "until": self.until.isoformat()}

    @classmethod
    def from_json(cls, window_id: str, kept: Mapping[str, Any]) -> Gap:
        """Read what `to_json` returned."""
        after = datetime.fromisoformat(kept["after"]) if kept["after"] else None
        return cls(window_id, after, datetime.fromisoformat(kept["until"]))


@dataclass(frozen=True, slots=True)
class Frontier:
    """How far a group has come in time.

    A live window that was not capped, with no older live window open, proves that all before its planned-until time is committed. A capped one
    left something of that time unread.

    Attributes:
        window_id: the window with the latest planned-until time that proves this, or None if there is none.
        planned_until: that of this window.
        open: the ids of the live windows that wait for their commit, oldest first.
        gaps: the windows that left a gap.
    """

    window_id: str | None = None
    planned_until: datetime | None = None
    open: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()


INHERIT = "inherit"
"""The kind of the act that lets a group write beside its output of a lost ledger, whose id is ``ledger`` in the details."""

MOVES = ("reset", "import")
"""The kinds of acts that move the watermark."""

MENDS = (*MOVES, "copy", "abandon", "commit")
"""The kinds of acts after which an offset store may no longer refuse the group: they move it, or the watermark."""

NEXT_WINDOW = "next_window"
"""In the details of an act that moved the watermark, a reset or an import: the number of the first window after it."""

LEFT = "left"
"""In the details of an act that moved the watermark: the ids of the topics that it left for others of the same name."""

FOUNDED = "founded"
"""In the details of an import that made its group: where each partition starts. Another reader has read what lies below."""


GAP = "gap"
"""In the details of an abandonment whose window was pruned: the `Gap` that it left."""

KEPT_FROM = "kept_from"
"""In the details of a prune: the number of the first window that it left."""


def founded_at(acts: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """Return where an import let a group begin, in topics that it has not left for others of the same name since.

    Args:
        acts: the details of the group's `MOVES`, oldest first.
    """
    founded: dict[TopicPartition, int] = {}
    for details in acts:
        for name, offset in details.get(FOUNDED, {}).items():
            topic, _, partition = name.rpartition("-")
            founded[TopicPartition(topic, int(partition))] = offset
        founded = {tp: offset for tp, offset in founded.items() if tp.topic not in details.get(LEFT, ())}
    return founded


def check_details(details: Mapping[str, Any]) -> None:
    """Read all that programs read in an act's details.

    Raises:
        AttributeError, LookupError, TypeError, ValueError: this package never writes this.
    """
    numbers = [details.get(NEXT_WINDOW, 1), details.get(KEPT_FROM, 1), *founded_at([details]).values()]
    if not all(is_whole(number) and number >= 0 for number in numbers):
        raise ValueError("an offset or a window is no number")
    names = [*acted_on(details), *details.get("left_open", ()), details.get("ledger", "")]
    if not all(isinstance(name, str) for name in (*names, *details.get(LEFT, {}).values())):
        raise ValueError("a window, a topic id or a ledger is no text")


def first_ids(topic_ids: Mapping[str, str], acts: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the first id that a group knew of each topic: what the unknown ids of its windows stand for.

    Args:
        topic_ids: those of the group's position.
        acts: the details of the group's `MOVES`, oldest first: which topics it has left for others of the same name.
    """
    first: dict[str, str] = {}
    for details in acts:
        first = {**details.get(LEFT, {}), **first}
    return {**topic_ids, **first}


MAX_WHO = 200


def check_signature(who: str, why: str) -> None:
    """Require a name and a reason: both are kept in the ledger.

    Raises:
        BadInputError: one is empty, the name is too long, or the reason is still the ``...`` of a message.
    """
    if not any(map(str.isalnum, why)):
        raise BadInputError(f"{short(why)} is not a reason: say why, for whoever finds this in the ledger later")
    if not who.strip() or len(who) > MAX_WHO:
        raise BadInputError(f"Name who does this, in at most {MAX_WHO} characters; got {who[:MAX_WHO]!r}")
