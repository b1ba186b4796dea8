"""Groups and windows as the templates show them. Here the names of DAGs go that a user may not read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from airflow_kafka_offsets import documents
from airflow_kafka_offsets.core.errors import counted, name_some
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import KEPT_FROM, Act, Attempt, acted_on
from airflow_kafka_offsets.core.lag.lag import GroupLag
from airflow_kafka_offsets.core.lag.pace import Pace
from airflow_kafka_offsets.core.offsets import Offsets
from airflow_kafka_offsets.core.plan.overview import Outline
from airflow_kafka_offsets.core.plan.ownership import Owner
from airflow_kafka_offsets.core.plan.replay import has_replay
from airflow_kafka_offsets.core.schemas import Subject
from airflow_kafka_offsets.core.window import Claim, Lane, Outcome, State, Window, WindowRecord
from airflow_kafka_offsets.core.window_id import group_of, name_window
from airflow_kafka_offsets.documents import Document
from airflow_kafka_offsets.page import heat, strips
from airflow_kafka_offsets.page.strips import Axis, Figure, Part
from airflow_kafka_offsets.page.words import ago, took
from airflow_kafka_offsets.page.zoom import Zoom
from airflow_kafka_offsets.service.pictures import FullGroup, GroupLine, GroupPicture, WindowPicture, first_and_last

LISTED = 25
"""How many windows a group's page lists."""

Readable = Collection[str]
"""The DAGs whose runs a user may read."""


@dataclass(frozen=True, slots=True)
class Person:
    """The run that has, or had, a window, as it is shown.

    Attributes:
        claim: the task instance; None if the user may not read its DAG.
    """

    claim: Claim | None


def person(claim: Claim, readable: Readable) -> Person:
    """Return who has a window, without a name that the user may not read."""
    return Person(claim if claim.dag_id in readable else None)


@dataclass(frozen=True, slots=True)
class ListRow:
    """A group in the list.

    Attributes:
        words: the search box looks in these.
        topics, first_topics: all of its topics, and the first of them in short.
    """

    name: str
    words: str
    topics: str
    first_topics: str
    open: int
    first_open: WindowRecord | None
    holder: Person | None
    age: str
    last_commit: str
    committed_at: datetime | None
    curve: str


def list_row(line: GroupLine, readable: Readable, now: datetime) -> ListRow:
    """Return a group as the list shows it."""
    outline, group = line.outline, line.group
    first, last = outline.first_open, outline.last_committed
    return ListRow(
        name=outline.group,
        words=f"{outline.group} {' '.join(group.topics)} {group.topics_pattern or ''}",
        topics=", ".join(group.topics),
        first_topics=_first_topics(group),
        open=sum(outline.open.values()),
        first_open=first,
        holder=person(first.holder, readable) if first else None,
        age=took(first.planned_at, now) if first else "",
        last_commit=ago(last.committed_at if last else None, now),
        committed_at=last.committed_at if last else None,
        curve=curve(outline.unread),
    )


MOST_TOPICS = 3
"""How many topics of a group the list names."""


def _first_topics(group: KafkaGroup) -> str:
    more = len(group.topics) - MOST_TOPICS
    named = ", ".join(group.topics[:MOST_TOPICS]) + (f" and {more} more" if more > 0 else "")
    return named if group.topics_pattern is None else f"{named} (match {group.topics_pattern})"


CURVE_WIDTH, CURVE_HEIGHT = 110, 24


def curve(values: Sequence[int]) -> str:
    """Return a line through values as the points of an SVG polyline; empty if there are fewer than two.

    Zero is at the bottom. The least value is in the middle at most, so values that hardly differ do not look high.

    >>> curve([0, 5, 10])
    '0,22 55,12 110,2'
    >>> curve([7, 7]), curve([0, 0])
    ('0,12 110,12', '0,22 110,22')
    """
    if len(values) < 2:
        return ""
    top = max(max(values), 2 * min(values)) or 1
    step, height = CURVE_WIDTH / (len(values) - 1), (CURVE_HEIGHT - 4) / top
    return " ".join([f"{round(i * step)},{round(CURVE_HEIGHT - 2 - value * height)}" for i, value in enumerate(values)])


_TONES = {State.PLANNED: "warn", State.COMMITTING: "warn", State.COMMITTED: "good"}


@dataclass(frozen=True, slots=True)
class TableRow:
    """A window in the list of a group.

    Attributes:
        tries: how many there were.
        last_try: the outcome of the last one, such as "failed"; empty if it succeeded, runs, or there was none.
    """

    id: str
    seq: int
    number: str
    state: str
    tone: str
    lane: Lane
    planned_until: datetime
    span: int
    records: int | None
    tries: int
    last_try: str
    took: str
    holder: Person
    may_replay: bool
    is_named: bool


def table_row(row: WindowRecord, attempts: Sequence[Attempt], readable: Readable, now: datetime) -> TableRow:
    """Return a window as a group's page lists it."""
    window = row.window
    time = took(row.planned_at, row.committed_at)
    last_try = ""
    if attempts:
        last = attempts[-1]
        time = took(last.started_at, last.ended_at)
        if last.outcome is Outcome.RUNNING:
            time = f"running {took(last.started_at, now)}"
        elif last.outcome is not Outcome.SUCCEEDED:
            last_try = last.outcome.value
    who = person(row.holder, readable)
    return TableRow(
        id=window.id,
        seq=window.seq,
        number=f"{window.seq:06d}",
        state=row.condition,
        tone=_TONES.get(window.state, "plain") if row.rerun is None else "warn",
        lane=window.lane,
        planned_until=window.planned_until,
        span=window.span,
        records=row.records,
        tries=row.attempts,
        last_try=last_try,
        took=time,
        holder=who,
        may_replay=has_replay(window) and who.claim is not None,
        is_named=who.claim is not None,
    )


@dataclass(frozen=True, slots=True)
class ActRow:
    """What a person did."""

    at: datetime
    who: str
    kind: str
    what: str
    why: str


def act_row(act: Act, *, is_named: bool) -> ActRow:
    """Return an act as the page shows it.

    Args:
        act: the act.
        is_named: whether its windows may be named, see `may_name`.
    """
    if KEPT_FROM in act.details:
        return ActRow(act.at, act.who, act.kind, f"before {act.details[KEPT_FROM]:06d}", act.why)
    names = [str(id_).rpartition("-")[2] for id_ in acted_on(act.details)]
    what = (
        names[0] if len(names) == 1 else f"{names[0]} to {names[-1]} ({counted(len(names), 'window')})" if names else ""
    )
    if names and not is_named:
        what = f"{counted(len(names), 'window')} of another DAG"
    return ActRow(act.at, act.who, act.kind, what, act.why)


def may_name(
    window_ids: Iterable[str], holders: Mapping[str, str], outlines: Mapping[str, Outline], readable: Readable
) -> bool:
    """Whether someone may see the names of these windows: they may read the runs of all DAGs that have, or had, them.

    A window that has left the ledger counts as one of all DAGs of its group, as its holder is unknown. Without that group, no one may see it.

    Args:
        window_ids: the windows.
        holders: the DAGs that have, or had, them, by the window's id; one that has left the ledger is not there.
        outlines: their groups, by name.
        readable: the DAGs that the user may read.
    """
    ids = set(window_ids)
    dag_ids = {holders[id_] for id_ in ids & holders.keys()}
    of_others = {group_of(id_) for id_ in ids - holders.keys()}
    if not of_others <= outlines.keys():
        return False
    for group in of_others:
        dag_ids |= outlines[group].dag_ids
    return dag_ids <= set(readable)


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group's page.

    Attributes:
        figure: the strips; None if the group has no window.
        heat: a row of cells for each topic, if there are many partitions.
        hidden: the numbers of windows that are drawn without a name.
        facts: span and planned-until time of the drawn windows that a replay may run, by number.
        zoom: the windows of this page.
        spans: other pages, by the name of the link.
        first: the first window that the ledger has, if older ones have left; else empty.
        last_number: the number of the newest committed window; empty if there is none, or the user may not read it.
        drawn: the first and the last number that is drawn; empty if none is.
        has_lags: whether Kafka's answer helped to choose the worst partitions.
    """

    picture: GroupPicture
    zoom: Zoom
    spans: Mapping[str, Zoom]
    first: str
    rows: Sequence[TableRow]
    acts: Sequence[ActRow]
    figure: Figure | None
    heat: Sequence[heat.Row]
    partitions: int
    hidden: frozenset[int]
    facts: Mapping[int, tuple[int, str]]
    owner: Person | None
    last_commit: str
    last_number: str
    drawn: tuple[str, str]
    has_lags: bool = False


def group_view(
    picture: GroupPicture,
    readable: Readable,
    now: datetime,
    zoom: Zoom,
    lag: GroupLag | None = None,
) -> GroupView:
    """Return a group's page.

    Args:
        picture: the group and its windows.
        readable: the DAGs that the user may read.
        now: the time.
        zoom: which windows the address names.
        lag: the last answer of Kafka, by which the worst of many partitions are unfolded; None if there was none.
    """
    windows, outline = picture.windows, picture.outline
    starts = picture.position.offsets if picture.position else {}
    # A partition that a window names and the group no longer has comes on top: of 20,000 partitions that is hardly ever any.
    partitions = strips.ends(windows, but=starts) | dict(starts)
    figure, cells = _figure(windows, partitions, zoom.axis, _part(picture, zoom), lag)
    records = (*picture.rows, *picture.backfills)
    hidden = frozenset(record.seq for record in records if record.holder.dag_id not in readable)
    named = [window for window in windows if window.seq not in hidden]
    commit, newest = outline.last_committed, outline.last_committed or outline.first_open
    outlines = {outline.group: outline}
    return GroupView(
        picture=picture,
        zoom=zoom,
        spans=zoom.spans(newest.planned_until) if newest else {},
        first=name_window(outline.group, outline.first) if outline.first > 1 else "",
        rows=[table_row(r, picture.attempts.get(r.seq, ()), readable, now) for r in picture.rows[:LISTED]],
        acts=[
            act_row(act, is_named=may_name(first_and_last(act), picture.holders, outlines, readable))
            for act in reversed(picture.acts)
        ],
        figure=figure,
        heat=cells,
        partitions=len(partitions),
        hidden=hidden,
        facts={w.seq: (w.span, w.planned_until.isoformat()) for w in named if has_replay(w)},
        owner=_owner(outline.owner, readable),
        last_commit=ago(commit.committed_at if commit else None, now),
        last_number=f"{commit.seq:06d}" if commit and commit.holder.dag_id in readable else "",
        drawn=_first_and_last([window.seq for window in named]),
        has_lags=bool(lag and lag.partitions),
    )


def _owner(owner: Owner | None, readable: Readable) -> Person | None:
    return person(Claim(owner.dag_id, "", owner.task_id), readable) if owner else None


def _first_and_last(seqs: Sequence[int]) -> tuple[str, str]:
    return (f"{min(seqs):06d}", f"{max(seqs):06d}") if seqs else ("", "")


def _part(picture: GroupPicture, zoom: Zoom) -> Part:
    is_cut = picture.older is not None
    return Part(
        has_oldest=not is_cut and zoom.start is None,
        has_newest=picture.has_newest,
        start=None if is_cut else zoom.start,
        end=zoom.end if zoom.before is None else None,
        floors=picture.floors,
    )


def _figure(
    windows: Sequence[Window], starts: Offsets, axis: Axis, part: Part, lag: GroupLag | None
) -> tuple[Figure | None, Sequence[heat.Row]]:
    """Return the strips, and with many partitions the cells of all and the strips of the worst."""
    if not windows:
        return None, ()
    if len(starts) < heat.FOLDED_FROM:
        return strips.figure(windows, axis, part, starts), ()
    layers = strips.layers_of(windows)
    lags, pace = (lag.partitions, lag.pace) if lag else ({}, Pace())
    states = {tp: heat.state_of(tp, layers, part.floors.get(tp, 0), lags.get(tp), pace) for tp in starts}
    unfolded = {tp: starts[tp] for tp in heat.worst(states)}
    return strips.figure(windows, axis, part, unfolded), heat.rows(states)


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """A try of a window."""

    number: int
    outcome: str
    tone: str
    records: int | None
    started_at: datetime
    took: str
    try_number: int
    bundle_version: str | None
    holder: Person


_OUTCOMES = {Outcome.SUCCEEDED: "good", Outcome.FAILED: "bad", Outcome.KILLED: "bad", Outcome.RUNNING: "warn"}


def attempt_row(number: int, attempt: Attempt, readable: Readable, now: datetime) -> AttemptRow:
    """Return a try as a window's page lists it."""
    return AttemptRow(
        number,
        attempt.outcome.value,
        _OUTCOMES.get(attempt.outcome, "plain"),
        attempt.records,
        attempt.started_at,
        took(attempt.started_at, attempt.ended_at or now),
        attempt.try_number,
        attempt.bundle_version if attempt.claim.dag_id in readable else None,
        person(attempt.claim, readable),
    )


MOST_RANGES = 100


@dataclass(frozen=True, slots=True)
class WindowView:
    """A window's page.

    Attributes:
        may_replay: whether the button can be pressed.
        sees_group: whether the user may see the window's group. If not, there is no link to it, and no replay.
    """

    picture: WindowPicture
    row: TableRow
    attempts: Sequence[AttemptRow]
    ranges: Sequence[Any]
    more_ranges: int
    widest: int
    lost: Sequence[Any]
    schemas: Sequence[tuple[str, str]]
    before: str | None
    after: str | None
    may_replay: bool
    sees_group: bool


def window_view(picture: WindowPicture, readable: Readable, now: datetime, *, sees_group: bool = True) -> WindowView:
    """Return a window's page."""
    window = picture.row.window
    filled = sorted(window.ranges.without_empty().items(), key=lambda item: (-item[1].span, item[0]))
    row = table_row(picture.row, picture.attempts, readable, now)
    return WindowView(
        picture=picture,
        row=row,
        attempts=[attempt_row(i, a, readable, now) for i, a in enumerate(picture.attempts, 1)][::-1],
        ranges=sorted(filled[:MOST_RANGES]),
        more_ranges=max(0, len(filled) - MOST_RANGES),
        widest=filled[0][1].span if filled else 0,
        lost=list(window.lost.without_empty().items())[:MOST_RANGES],
        schemas=[(name, _in_words(subject)) for name, subject in (picture.schemas or {}).items()],
        before=name_window(window.group, window.seq - 1) if window.seq > picture.outline.first else None,
        after=name_window(window.group, window.seq + 1) if window.seq < picture.outline.given else None,
        may_replay=row.may_replay and sees_group,
        sees_group=sees_group,
    )


def _in_words(subject: Subject | None) -> str:
    if subject is None:
        return "not there"
    return f"{subject.kind}, latest {subject.latest}, ids {name_some(sorted(subject.schemas), ', ')}"


def group_document(full: FullGroup, readable: Readable, lag: GroupLag | None = None) -> Document:
    """Return where a group is, as ``kafka-offsets status`` gives it, without the names that may not be read."""
    overview = full.overview
    owner, last = overview.state.owner, overview.last_committed
    return documents.group_document(full.line.group, overview, lag) | {
        "owner": owner if owner is not None and owner.dag_id in readable else None,
        "open_windows": [_in_short(window, readable) for window in reversed(overview.open)],
        "last_committed": _in_short(last, readable) if last is not None else None,
        "acts": [
            # The details of a take-over name both tasks.
            asdict(act)
            if act.kind != "take-over" and may_name(act.window_ids, full.holders, full.outlines, readable)
            else asdict(act) | {"details": {}}
            for act in overview.acts
        ],
    }


def picture_document(picture: GroupPicture, full: FullGroup, readable: Readable) -> Document:
    """Return a group for programs, together with the windows of the page as ``kafka-offsets windows`` lists them."""
    return group_document(full, readable) | {
        "windows": [_in_short(row, readable) for row in picture.rows],
        "older_than": picture.older,
    }


_UNNAMED = {"held_by": None, "bundle_version": None}
"""What a window's document has in place of what belongs to a DAG that the user may not read."""


def _in_short(window: WindowRecord, readable: Readable) -> Document:
    document = documents.window_document(window)
    return document if window.holder.dag_id in readable else document | _UNNAMED | {"id": None, "seq": None}


def window_document(picture: WindowPicture, readable: Readable) -> Document:
    """Return a window for programs, as ``kafka-offsets windows`` gives it."""
    document = documents.window_with_schemas(picture.row, picture.attempts, picture.schemas)
    if picture.row.holder.dag_id not in readable:
        document |= _UNNAMED
    for attempt, shown in zip(picture.attempts, document["history"], strict=True):
        if attempt.claim.dag_id not in readable:
            shown |= {"run": None, "bundle_version": None}
    return {"group": picture.group.name, "windows": [document]}


def run_document(line: WindowRecord, window: WindowRecord, readable: Readable) -> Document:
    """Return a window that a task instance has, or had, as ``kafka-offsets windows`` lists it, and in ``run`` that task instance."""
    hidden = {} if window.holder.dag_id in readable else _UNNAMED
    return documents.window_document(window) | hidden | {"run": line.holder}
