"""Planning, from top to bottom: what a run gets, from what the ledger has and the facts of one look at everything else.

`decide` does no I/O, so it may run while the group is locked. `service.plan` loads, looks, and writes what is decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime

from airflow_kafka_offsets.core import leader_epochs, schemas
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    LogError,
    WindowBusyError,
    counted,
    name_some,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Attempt
from airflow_kafka_offsets.core.lag.risk import Danger, warn_of_risk
from airflow_kafka_offsets.core.lag.words import hiding
from airflow_kafka_offsets.core.leader_epochs import EpochEnds, PartitionEpoch
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.plan import matching, ownership, replay
from airflow_kafka_offsets.core.plan.ownership import GroupState, How, Owner, Position
from airflow_kafka_offsets.core.plan.planning import Plan, cut, plan_all
from airflow_kafka_offsets.core.plan.readable import check_all_readable
from airflow_kafka_offsets.core.plan.replay import Owned
from airflow_kafka_offsets.core.plan.request import Live, Refused, Replay, Request, TimeSpan
from airflow_kafka_offsets.core.ranges import OffsetRanges
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.schemas import Frozen, Subject, ToFreeze
from airflow_kafka_offsets.core.store import advance
from airflow_kafka_offsets.core.window import Claim, Lane, State, Window, WindowRecord


@dataclass(frozen=True, slots=True)
class Given:
    """Ask for one window by its number: usually one that the plan task of the same run planned."""

    seq: int


@dataclass(frozen=True, slots=True)
class Asking:
    """A run that asks for its windows.

    Attributes:
        group: the group, as the run's DAG defines it.
        claim: the task that asks.
        this_try: which try of the task it is.
        request: what it asks for, unless it has windows already, or None for nothing of this group.
        at_most: how many windows the task can have, or None for any number.
        now: the moment of planning.
    """

    group: KafkaGroup
    claim: Claim
    this_try: Try
    request: Request | Refused | Given | None
    at_most: int | None
    now: datetime


@dataclass(frozen=True, slots=True)
class InLedger:
    """What the ledger has for a run that asks.

    Attributes:
        group: the group with the topics that its pattern matched when it last planned.
        state: the group's position, its open windows, and those that the run had.
        owned: what a replay asks for, and the window of a `Given`; empty for other requests.
        other_groups: the groups that the asking task owns, if this one has never planned.
        successes: the run's successful attempts that this try continues, by the number of their window.
        resumed: the number of the window whose job this very try has launched, if it gave its slot back and now goes on; or empty.
        frozen: the schemas of windows, by their number in the ledger.
    """

    group: KafkaGroup
    state: GroupState
    owned: Owned = field(default_factory=Owned)
    other_groups: Sequence[KafkaGroup] = ()
    successes: Mapping[int, Attempt] = field(default_factory=dict)
    resumed: Set[int] = frozenset()
    frozen: Mapping[int, Frozen] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """The answers of one look at Airflow, Kafka, the schema registry and the offset store. The next look replaces all of them.

    Attributes:
        version: the version of the group at that moment, see `GroupState`.
        over: for each window whose holder Airflow was asked about, by number and holds: whether that holder is over.
        crossed: by the number of another run's window: the id of a window of the asking run for which that other run waits.
        topics: the topics that the group reads, as Kafka lists them, or None if no live window was to be cut.
        logs: what Kafka holds, by isolation level: of these topics, and of those of the windows that are run again.
        windows: the numbers of the windows whose offsets were looked at again.
        first: where a group without a position starts, or None if it has one.
        recovered: the second look at logs that seemed to end before the position.
        ends: where a window ends by time; empty if it ends at the end offset.
        between: the offsets of a time span.
        ids: what unknown topic ids of windows stand for that are run again.
        epochs: the leader epochs that were in doubt.
        epoch_ends: where these end.
        at_risk: the records that retention may remove soon, or None before that look.
        hanging: the partitions with records that a transaction hides which hangs; only asked if there is nothing to read.
        subjects: the answers of the schema registry.
        ready_store: the offsets that the offset store is ready for, or None without a store or before that look.
    """

    version: int
    over: Mapping[tuple[int, int], bool] = field(default_factory=dict)
    crossed: Mapping[int, str] = field(default_factory=dict)
    topics: tuple[str, ...] | None = None
    logs: Mapping[IsolationLevel, LogSnapshot] = field(default_factory=dict)
    windows: frozenset[int] = frozenset()
    first: Offsets | None = None
    recovered: Mapping[TopicPartition, Bounds] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    between: OffsetRanges | None = None
    ids: Mapping[str, str] = field(default_factory=dict)
    epochs: frozenset[PartitionEpoch] = frozenset()
    epoch_ends: EpochEnds = field(default_factory=dict)
    at_risk: Mapping[TopicPartition, Danger] | None = None
    hanging: Sequence[TopicPartition] = ()
    subjects: Mapping[str, Subject | None] | None = None
    ready_store: Offsets | None = None

    def is_over(self, held: WindowRecord) -> bool:
        """Whether the holder of a window is over. One that got it since the look is at work."""
        return self.over.get((held.seq, held.holds), False)

    def log_now(self, level: IsolationLevel, state: GroupState) -> LogSnapshot | None:
        """Return what Kafka holds at least by now, as others may have planned since, or None if it may hold other topics or partitions."""
        log = self.logs[level] if level in self.logs else LogSnapshot({}, {})
        if state.version == self.version or state.position is None:
            return log
        return log.grown_to(state.position.offsets, state.position.topic_ids)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which windows a run gets.

    Attributes:
        how: why it gets the existing ones.
        windows: the existing ones, oldest first.
        new: how many new live windows it may cut.
    """

    how: How
    windows: Sequence[WindowRecord]
    new: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """What a run gets.

    Attributes:
        choice: the existing windows.
        plans: the windows that become new ones.
        whole: all that a live run could read, before the cap.
        to_freeze: the schemas that are frozen with these windows.
        notes: sentences for the log.
    """

    choice: Choice
    plans: Sequence[Plan] = ()
    whole: Plan | None = None
    to_freeze: ToFreeze = schemas.NOTHING
    notes: Sequence[str] = ()


def decide(asking: Asking, in_ledger: InLedger, facts: Facts) -> Decision | None:
    """Decide what a run gets.

    Args:
        asking: the run.
        in_ledger: what the ledger has at this moment.
        facts: the answers of the look before. Others may have changed the group since.

    Returns:
        None if the facts are too old for what the ledger has: look again.

    Raises:
        BadInputError, IllegalStepError, ForeignGroupError, UnreadTopicError: the run may not have what it asks for.
        WindowBusyError: another run works on it.
        LogError: Kafka does not hold it.
    """
    choice = choose(asking, in_ledger, facts)
    again = to_run(choice, in_ledger)
    if not facts.windows.issuperset(window.seq for window in again):
        return None
    # The job of a resumed window has begun to read: whether it found all records, it reports.
    check_readable([window for window in again if window.seq not in in_ledger.resumed], facts)
    decision = _with_new_windows(asking, in_ledger, facts, choice)
    if decision is None:
        return None
    decision = _at_most(asking, in_ledger, decision)
    if choice.how is How.AGAIN and (superseded := ownership.superseded_of(in_ledger.state)):
        decision = replace(decision, notes=[*decision.notes, f"{superseded}; the others run again"])
    if not is_ready(in_ledger.state, decision.plans, facts.ready_store):
        return None
    return _with_schemas(in_ledger, facts, decision)


# Which windows.


def refuse(asking: Asking, state: GroupState) -> None:
    """Refuse a run that may have no window, whatever Kafka holds.

    Raises:
        BadInputError, IllegalStepError, ForeignGroupError: it had windows under another name, or lost those that it had; the group
            belongs to another task; or a replay that can't be answered.
    """
    request = asking.request
    if isinstance(request, Given) or ownership.own_windows(state):
        return
    if isinstance(request, Refused):
        raise request.error
    if request is None:
        return
    if not (isinstance(request, TimeSpan) and request.is_interval):  # an interval means the same in any group
        ownership.check_same_name(asking.group.name, asking.claim, state, is_live=isinstance(request, Live))
    if isinstance(request, Live):
        ownership.check_owner(asking.group.name, state.owner, asking.claim)
    else:
        replay.check_has_planned(asking.group.name, state)
        if isinstance(request, TimeSpan):
            replay.check_divides(request)


def replay_of(asking: Asking, state: GroupState) -> Replay | None:
    """Return the replay whose windows the ledger is searched for. None if the run asks for none, or has its windows."""
    request = asking.request
    if request is None or isinstance(request, Live | Given | Refused):
        return None
    if not ownership.own_windows(state):
        return request
    # A backfill that reprocesses its run adds what else belongs to its interval.
    is_wider = isinstance(request, TimeSpan) and request.is_interval and request.start != request.end
    return request if is_wider else None


def holders_to_ask(asking: Asking, in_ledger: InLedger) -> list[WindowRecord]:
    """Return the windows whose holders may be over: Airflow is asked about them before a choice."""
    state = in_ledger.state
    if isinstance(asking.request, Live) and not ownership.own_windows(state):
        return list(state.open)
    how, windows = _existing(asking, in_ledger)
    return ownership.held_by_others(state, windows, asking.claim, how)


def choose(asking: Asking, in_ledger: InLedger, facts: Facts) -> Choice:
    """Choose the windows of a run: its own, the one that it was given, those of a replay, or those that dead runs left and new ones.

    Raises:
        ForeignGroupError, UnreadTopicError, WindowBusyError: see `decide`.
    """
    group, state, claim, request = in_ledger.group, in_ledger.state, asking.claim, asking.request
    if isinstance(request, Live) and not ownership.own_windows(state):
        over = {held.holder for held in state.open if facts.is_over(held)}
        adopt, number = ownership.adopt_or_cut(state, over, at_most=request.at_most, max_open=group.max_open_windows)
        ownership.check_topics(group, claim, adopt)
        return Choice(How.ADOPTED, adopt, number)
    how, windows = _existing(asking, in_ledger)
    foreign = ownership.held_by_others(state, windows, claim, how)
    if busy := next((held for held in foreign if not facts.is_over(held)), None):
        crossed = facts.crossed.get(busy.seq)
        raise WindowBusyError(busy.id, busy.holder, is_rerun=busy.state is State.COMMITTED, crossed=crossed)
    if how is How.GIVEN:
        ownership.check_given(group, state, claim, foreign)
    elif not ownership.is_owner(state.owner, claim):  # a topic may have left the owner's group since
        ownership.check_topics(group, claim, in_ledger.owned.windows)
    return Choice(how, windows)


def _existing(asking: Asking, in_ledger: InLedger) -> tuple[How, Sequence[WindowRecord]]:
    """Return the existing windows that a run gets, and why: a retry, a clear and a reprocessed run get those of their claim."""
    if isinstance(asking.request, Given):
        return How.GIVEN, in_ledger.owned.windows
    own, more = ownership.own_windows(in_ledger.state), in_ledger.owned.windows
    if not own:
        return How.REPLAY, more
    # Another task of the run gets its windows by itself.
    more = [held for held in more if held.holder == asking.claim or not held.holder.is_same_run(asking.claim)]
    return How.AGAIN, sorted([*own, *more], key=lambda held: held.seq)


def to_run(choice: Choice, in_ledger: InLedger) -> list[Window]:
    """Return the windows whose job has to run again: Kafka must still hold them."""
    return [held.window for held in choice.windows if held.seq not in in_ledger.successes]


def check_readable(windows: Sequence[Window], facts: Facts) -> None:
    """Refuse to run windows again unless Kafka still holds all of them.

    Raises:
        LogError: see `core.plan.readable`.
    """
    for level, log in sorted(facts.logs.items()):
        again = [w.identified(facts.ids) for w in windows if w.isolation_level is level and w.span]
        check_all_readable(again, log, facts.epoch_ends)


# New windows.


def _with_new_windows(asking: Asking, in_ledger: InLedger, facts: Facts, choice: Choice) -> Decision | None:
    """Add the new windows, live or backfill; None if the facts are too old."""
    log = facts.log_now(in_ledger.group.isolation_level, in_ledger.state)
    if choice.new or in_ledger.owned.gaps:
        if log is None:
            return None
        if choice.new:
            return _with_live_windows(asking, in_ledger, facts, choice, log)
    if isinstance(asking.request, Live | Given | Refused | None):
        return Decision(choice)
    return _with_backfill_windows(asking, in_ledger, choice, log or LogSnapshot({}, {}))


def _with_live_windows(
    asking: Asking, in_ledger: InLedger, facts: Facts, choice: Choice, log: LogSnapshot
) -> Decision | None:
    state, group, request = in_ledger.state, in_ledger.group, asking.request
    assert isinstance(request, Live)
    try:
        whole = all_to_read(group, state.position, request.until or asking.now, log, facts)
        plans = None
        if whole is not None:
            plans = new_windows(group, state.position, whole, choice.new, log, facts.at_risk)
    except LogError as exc:
        if not choice.windows:
            raise
        return Decision(choice, notes=[f"no new window is cut: {exc}"])
    if whole is None or plans is None:
        return None
    owner = Owner.of(asking.claim)
    if state.position is None and (warning := ownership.other_name(group, owner, in_ledger.other_groups)):
        plans[0] = replace(plans[0], warnings=(*plans[0].warnings, warning))
    if facts.hanging and not whole.ranges.span:
        warning = f"this window is empty: {hiding(facts.hanging)}"
        plans[0] = replace(plans[0], warnings=(*plans[0].warnings, warning))
    if state.open:
        plans = [plan for plan in plans if plan.ranges.span]
        ownership.check_something(state, choice.windows, [plan.ranges.span for plan in plans])
    return Decision(choice, plans, whole)


def all_to_read(
    group: KafkaGroup, position: Position | None, until: datetime, log: LogSnapshot, facts: Facts
) -> Plan | None:
    """Return all that there is to read, as one window without a cap; None if the facts are too old for this position.

    Raises:
        LogError: see `plan_all` and `leader_epochs.check_position`.
    """
    if facts.topics is None:
        return None
    log = log.only(facts.topics)
    if position is None:
        if facts.first is None:
            return None
        whole = plan_all(group, None, log, until=until, first=facts.first, ends=facts.ends)
        return replace(whole, leader_epochs=leader_epochs.to_note(None, log))
    whole = plan_all(group, position, log, until=until, recovered=facts.recovered, ends=facts.ends)
    doubtful = leader_epochs.doubtful(position.leader_epochs, position.topic_ids, log)
    if not facts.epochs.issuperset(doubtful):
        return None
    epoch_ends = {epoch: end for epoch, end in facts.epoch_ends.items() if epoch in set(doubtful)}
    leader_epochs.check_position(group.name, position, log, epoch_ends)
    silent = leader_epochs.unanswered(doubtful, epoch_ends)
    warnings = list(whole.warnings)
    if silent:
        warnings.append(leader_epochs.warning(silent))
    if group.topics_pattern is not None and (left := matching.left_warning(group, position)):
        warnings.append(left)
    noted = leader_epochs.to_note(position, log, silent)
    return replace(whole, leader_epochs=noted, warnings=tuple(warnings))


def new_windows(
    group: KafkaGroup,
    position: Position | None,
    whole: Plan,
    number: int,
    log: LogSnapshot,
    at_risk: Mapping[TopicPartition, Danger] | None,
) -> list[Plan] | None:
    """Cut all unread records into windows, or return None if the facts do not show which are at risk.

    Raises:
        AtRiskError: it may, and the group plans nothing at risk.
    """
    plans, still_at_risk = cut(whole, number, group.max_offsets), {}
    for tp, danger in (at_risk or {}).items():
        start = whole.ranges[tp].start if tp in whole.ranges else danger.offsets.end
        if start == danger.offsets.start:
            still_at_risk[tp] = danger
        elif start < danger.offsets.end:  # others have read a part of it
            return None
    return warn_of_risk(group, plans, still_at_risk, position, log)


def _with_backfill_windows(asking: Asking, in_ledger: InLedger, choice: Choice, log: LogSnapshot) -> Decision:
    state, group, owned, request = in_ledger.state, in_ledger.group, in_ledger.owned, asking.request
    until = min(request.end, asking.now) if isinstance(request, TimeSpan) else asking.now
    plans: Sequence[Plan] = ()
    if owned.gaps:
        plans = replay.backfill(group, owned.gaps, state, log, until=until)
    if choice.windows or plans or not isinstance(request, TimeSpan):
        return Decision(choice, plans)
    what = f"no window was cut after {request.start.isoformat()} and up to {request.end.isoformat()}"
    nothing = replay.nothing_to_replay(what, [held.window for held in owned.owners])
    if not request.is_interval:
        raise nothing
    return Decision(choice, notes=[str(nothing)])


def _at_most(asking: Asking, in_ledger: InLedger, decision: Decision) -> Decision:
    """Refuse more windows than the task can take; a backfill that reprocesses its run gets its own then."""
    choice, most = decision.choice, asking.at_most
    windows = choice.windows
    spans = [held.span for held in windows] + [plan.ranges.span for plan in decision.plans]
    filled = sum(span > 0 for span in spans)  # empty ones are committed at once
    if most is None or filled <= most:
        return decision
    own = ownership.own_windows(in_ledger.state)
    if choice.how is How.AGAIN and len(own) < len(windows) + len(decision.plans):
        rest = [held.id for held in windows if held not in own]
        rest += [f"{counted(plan.ranges.span, 'offset')} without an owner" for plan in decision.plans]
        note = f"{asking.claim} can take {counted(most, 'window')}, so this part of its interval is left out: {name_some(rest, ', ')}"
        return _at_most(asking, in_ledger, Decision(Choice(How.AGAIN, own), notes=[note]))
    raise BadInputError(
        f"{asking.claim} would get {counted(filled, 'window')} and can take {most}: ask for fewer, or use PlanBacklogOperator"
    )


def to_check_in_store(state: GroupState, plans: Sequence[Plan]) -> Offsets:
    """Return where the offset store has to be before live windows are cut. The commits of open windows move it at this very moment, except
    for partitions that are new to the group.
    """
    if not plans or plans[0].lane is not Lane.LIVE:
        return {}
    start = advance.before(plans[0])
    moving = state.position.offsets if state.open and state.position else {}
    return {tp: offset for tp, offset in start.items() if tp not in moving}


def moves_store(decision: Decision) -> bool:
    """Whether the commits of these windows will move the offset store."""
    is_open = any(held.window.lane is Lane.LIVE and held.state.is_open for held in decision.choice.windows)
    return is_open or any(plan.lane is Lane.LIVE for plan in decision.plans)


def is_ready(state: GroupState, plans: Sequence[Plan], store: Offsets | None) -> bool:
    """Whether the offset store is where new windows start, or was not asked."""
    return store is None or all(store.get(tp) == offset for tp, offset in to_check_in_store(state, plans).items())


# Schemas.


def subjects_to_ask(in_ledger: InLedger, decision: Decision) -> set[str]:
    """Return the subjects to look up in the group's registry."""
    return {name for names, before in _subjects(in_ledger, decision) for name in schemas.lacking(before, names)}


def _subjects(in_ledger: InLedger, decision: Decision) -> list[tuple[Mapping[str, str], Frozen]]:
    """Return the subjects of each new window, and of each that is run again, with what is frozen already. Empty windows have none."""
    registry, group = in_ledger.group.schema_registry, in_ledger.group
    if registry is None:
        return []
    subjects: list[tuple[Mapping[str, str], Frozen]] = [
        (matching.subjects_of_new(registry, group, plan) if plan.span else {}, {}) for plan in decision.plans
    ]
    for window in to_run(decision.choice, in_ledger):
        before: Frozen = {} if window.schemas is None else in_ledger.frozen[window.schemas]
        subjects.append((matching.subjects_of(registry, group, window, before) if window.span else {}, before))
    return subjects


def _with_schemas(in_ledger: InLedger, facts: Facts, decision: Decision) -> Decision | None:
    """Add the schemas to freeze: all for new windows, and what others lack. None if the registry was not asked for one."""
    registry = in_ledger.group.schema_registry
    if registry is None or facts.subjects is None:
        return decision
    frozen: list[Frozen] = []
    subjects = _subjects(in_ledger, decision)
    for names, before in subjects:
        lacking = schemas.lacking(before, names)
        if not facts.subjects.keys() >= set(lacking):
            return None
        answers = {name: facts.subjects[name] for name in lacking}
        frozen.append(schemas.completed(before, names, answers, registry.conn_id) if names else before)
    number = len(decision.plans)
    again = zip(to_run(decision.choice, in_ledger), frozen[number:], subjects[number:], strict=True)
    there = [(window, after) for window, after, (_, before) in again if after != before]
    return replace(decision, to_freeze=ToFreeze(frozen[:number], there))
