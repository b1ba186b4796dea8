"""Reads from the ledger what the page shows. Writes nothing, and asks no Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import PrunedWindowError, UnknownGroupError, UnknownWindowError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Act, Attempt, acted_on
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.overview import Outline, Overview
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.schemas import Frozen
from airflow_kafka_offsets.core.window import OWNING, Lane, Window, WindowRecord
from airflow_kafka_offsets.core.window_id import parse_window_id

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

MOST_WINDOWS, FEWEST_WINDOWS = 200, 2
RANGES_AT_ONCE = 40_000
"""How many ranges the windows of a picture have at most: with many partitions it has fewer windows."""

MOST_STRIPS, MOST_BLOCKS = 64, 6_000
"""How many partitions have a strip each, and how many blocks these have together: more, a browser draws slowly. With more partitions, only
few have a strip."""

MOST_BACKFILLS = 200

MOST_ACTS = 20
"""How many of the newest things that people did a picture has, and a group for programs."""

MOST_NAMED = 1_000
"""How many windows that acts name are looked up for a group: as many as one statement can ask for."""

Visible = Callable[[Iterable[Outline]], list[Outline]]
"""Which groups someone may see."""


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group in the list: its definition and its outline."""

    group: KafkaGroup
    outline: Outline


@dataclass(frozen=True, slots=True)
class FullGroup:
    """A group with all its partitions and its open windows, for programs.

    Attributes:
        line: its definition and its outline.
        overview: with the newest things that people did. One has no details if it names too many windows to look up whose they are, or a
            group that this person may not see.
        holders: the DAGs that have, or had, the windows which acts name, by the window's id; one that has left the ledger is not there.
        outlines: the group itself, and the others that acts name, by name.
    """

    line: GroupLine
    overview: Overview
    holders: Mapping[str, str]
    outlines: Mapping[str, Outline]

    @property
    def dag_ids(self) -> set[str]:
        """All DAGs that are named in it."""
        of_groups = {dag_id for outline in self.outlines.values() for dag_id in outline.dag_ids}
        return self.overview.dag_ids | of_groups | set(self.holders.values())


@dataclass(frozen=True, slots=True)
class GroupPicture:
    """A group and some of its windows.

    Attributes:
        group: its definition.
        outline: in one line.
        position: where the next live window starts, or None before the first one.
        acts: the newest things that people did, oldest first.
        has_more_acts: whether there are older ones.
        holders: the DAGs that have, or had, the first and the last window that an act was about, by the window's id.
        rows: the windows, newest first.
        backfills: backfill windows that are newer than the oldest of `rows`, and not among them.
        older: the number below which the next page begins, or None if there is no older window.
        attempts: at the windows of `rows`, by their number.
        floors: below these offsets, the ledger has lost the owners (`core.plan.pruning`); a partition without one is missing.
    """

    group: KafkaGroup
    outline: Outline
    position: Position | None = None
    acts: Sequence[Act] = ()
    has_more_acts: bool = False
    holders: Mapping[str, str] = field(default_factory=dict)
    rows: Sequence[WindowRecord] = ()
    backfills: Sequence[WindowRecord] = ()
    older: int | None = None
    attempts: Mapping[int, Sequence[Attempt]] = field(default_factory=dict)
    floors: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def line(self) -> GroupLine:
        """The group in one line."""
        return GroupLine(self.group, self.outline)

    @property
    def has_newest(self) -> bool:
        """Whether the newest window of the group is among `rows`."""
        return bool(self.rows) and self.rows[0].seq >= self.outline.given

    @property
    def dag_ids(self) -> set[str]:
        """All DAGs that are named in the picture."""
        tried = {attempt.claim.dag_id for some in self.attempts.values() for attempt in some}
        shown = {row.holder.dag_id for row in (*self.rows, *self.backfills)}
        return tried | shown | self.outline.dag_ids | set(self.holders.values())

    @property
    def windows(self) -> list[Window]:
        """All windows of the picture."""
        return [row.window for row in (*self.rows, *self.backfills)]


@dataclass(frozen=True, slots=True)
class WindowPicture:
    """A window with its attempts, and its group in one line.

    Attributes:
        schemas: those that are frozen with the window, or None if none are.
    """

    group: KafkaGroup
    outline: Outline
    row: WindowRecord
    attempts: Sequence[Attempt]
    schemas: Frozen | None = None

    @property
    def dag_ids(self) -> set[str]:
        """The DAGs that have, or had, the window."""
        return {self.row.holder.dag_id, *(attempt.claim.dag_id for attempt in self.attempts)}


def groups(ledger: Ledger, visible: Visible, dag_id: str | None = None) -> list[GroupLine]:
    """Return the groups that someone may see, by name; with a DAG, only those that it has a part in."""
    with ledger.one_connection():
        defined = {group.name: group for group in ledger.groups()}
        outlines = ledger.outlines(list(defined))
    existing = [outlines[name] for name in defined if name in outlines]
    wanted = existing if dag_id is None else [one for one in existing if dag_id in one.dag_ids]
    return [GroupLine(defined[one.group], one) for one in visible(wanted)]


def in_full(ledger: Ledger, lines: Sequence[GroupLine], visible: Visible) -> list[FullGroup]:
    """Return groups with all their partitions and open windows.

    Args:
        ledger: where they are.
        lines: groups that this person may see.
        visible: which other groups they may see.
    """
    with ledger.one_connection():
        overviews = ledger.overviews([line.group.name for line in lines], newest_acts=MOST_ACTS)
        pictures = {name: replace(one, acts=_with_few_named(one.acts)) for name, one in overviews.items()}
        own = {line.group.name: line.outline for line in lines}
        mentioned = {name for overview in pictures.values() for act in overview.acts for name in act.group_names}
        others = ledger.outlines(sorted(mentioned - own.keys())) if mentioned - own.keys() else {}
        seen = own | {outline.group: outline for outline in visible(others.values())}
        hidden = frozenset(others.keys() - seen.keys())
        pictures = {name: replace(one, acts=_without(hidden, one.acts)) for name, one in pictures.items()}
        named = [id_ for overview in pictures.values() for act in overview.acts for id_ in act.window_ids]
        holders = _holders(ledger, named)
    return [FullGroup(line, pictures[line.group.name], holders, seen) for line in lines]


def _without(hidden: frozenset[str], acts: Sequence[Act]) -> tuple[Act, ...]:
    """Return acts: those that name a hidden group have no details."""
    return tuple(replace(act, details={}) if act.group_names & hidden else act for act in acts)


def _with_few_named(acts: Sequence[Act]) -> tuple[Act, ...]:
    """Return acts, oldest first, that name at most `MOST_NAMED` windows together: others lose their details, older ones first."""
    left = MOST_NAMED
    shown: list[Act] = []
    for act in reversed(acts):
        number = len(act.window_ids)
        is_too_much = number > left
        shown.append(replace(act, details={}) if is_too_much else act)
        left -= 0 if is_too_much else number
    return tuple(reversed(shown))


def _holders(ledger: Ledger, window_ids: Iterable[str]) -> dict[str, str]:
    ids = sorted(set(window_ids))
    return {id_: window.holder.dag_id for id_, window in ledger.records(ids).items()} if ids else {}


def first_and_last(act: Act) -> tuple[str, ...]:
    """Return the windows that the page names of those that an act was about."""
    ids = acted_on(act.details)
    return (*ids[:1], *ids[-1:])


def group_line(ledger: Ledger, name: str, visible: Visible) -> GroupLine:
    """Return a group in one line.

    Raises:
        UnknownGroupError: there is no such group that this person may see.
    """
    outlines = visible(ledger.outlines([name]).values())
    if not outlines:
        raise UnknownGroupError(f"There is no group {name} that you may see")
    return GroupLine(ledger.group(name), outlines[0])


def group(
    ledger: Ledger,
    name: str,
    visible: Visible,
    before: int | None = None,
    cut_in: tuple[datetime, datetime] | None = None,
) -> GroupPicture:
    """Return a group with its newest windows, or with those before a number.

    Args:
        ledger: where they are.
        name: the group.
        visible: which groups this person may see.
        before: only windows with smaller numbers.
        cut_in: only windows with ``start < planned_until <= end``.

    Raises:
        UnknownGroupError: there is no such group that this person may see.
    """
    with ledger.one_connection():
        line = group_line(ledger, name, visible)
        position, acts = ledger.position(name), ledger.acts(name, newest=MOST_ACTS + 1)
        floors = ledger.pruned(name).floors_of(position.topic_ids) if position else {}
        shown = acts[-MOST_ACTS:]
        holders = _holders(ledger, (id_ for act in shown for id_ in first_and_last(act)))
        stands = GroupPicture(line.group, line.outline, position, shown, len(acts) > len(shown), holders, floors=floors)
        limit = windows_at_once(len(position.offsets) if position else 1)
        rows = ledger.windows(name, before=before, cut_in=cut_in, limit=limit)
        if not rows:
            return stands
        seqs = {row.seq for row in rows}
        oldest, newest = min(seqs), max(seqs)
        backfills = []
        if newest < line.outline.given or cut_in is not None:
            # What these windows leave open may have been filled by one that is older or newer than the span, or than the page.
            newer = ledger.windows(name, lane=Lane.BACKFILL, states=sorted(OWNING), since=oldest, limit=MOST_BACKFILLS)
            backfills = [row for row in newer if row.seq not in seqs]
        attempts = ledger.attempts_at(name, [row.seq for row in rows])
    older = oldest if len(rows) == limit and oldest > line.outline.first else None
    return replace(stands, rows=rows, backfills=backfills, older=older, attempts=attempts)


def windows_at_once(partitions: int) -> int:
    """Return how many windows a picture has. All of them are drawn.

    >>> [windows_at_once(partitions) for partitions in (1, 64, 65, 1000, 20000)]
    [200, 93, 200, 40, 2]
    """
    most = MOST_BLOCKS // max(1, partitions) if partitions <= MOST_STRIPS else MOST_WINDOWS
    return min(MOST_WINDOWS, most, max(FEWEST_WINDOWS, RANGES_AT_ONCE // max(1, partitions)))


def windows_of_run(ledger: Ledger, lines: Sequence[WindowRecord]) -> list[tuple[WindowRecord, WindowRecord]]:
    """Return the windows of a run in short, in their order; one that has left the ledger meanwhile is left out."""
    seqs: dict[str, set[int]] = {}
    for line in lines:
        seqs.setdefault(line.group, set()).add(line.seq)
    with ledger.one_connection():
        pictures = {
            window.id: window
            for name, some in seqs.items()
            for window in ledger.summaries(name, seqs=sorted(some), limit=len(some))
        }
    return [(line, pictures[line.id]) for line in lines if line.id in pictures]


def hidden_window(window_id: str) -> UnknownWindowError:
    """Return the error about a window that is not there, or that this person may not see, without which of the two."""
    return UnknownWindowError(f"There is no window {window_id} that you may see")


def window(ledger: Ledger, window_id: str, visible: Visible) -> WindowPicture:
    """Return a window with everything that the ledger has about it.

    Whether someone may see it, its own DAGs decide (`WindowPicture.dag_ids`): the group may be theirs no longer.

    Raises:
        BadInputError: it is not a window's id.
        UnknownWindowError: there is no such window. Only whoever sees the group is told that it was pruned.
    """
    name, seq = parse_window_id(window_id)
    with ledger.one_connection():
        outline = ledger.outlines([name]).get(name)
        if outline is None:
            raise hidden_window(window_id)
        try:
            row = ledger.window(window_id)
        except UnknownWindowError as exc:
            if isinstance(exc, PrunedWindowError) and visible([outline]):
                raise
            raise hidden_window(window_id) from exc
        attempts = ledger.attempts_at(name, [seq]).get(seq, ())
        number = row.schemas
        schemas = None if number is None else ledger.schemas(number)
        return WindowPicture(ledger.group(name), outline, row, attempts, schemas)
