"""The use cases: plan, commit, abandon, reset. Each loads, calls a core function, and saves.

No Kafka call is made while a transaction of the ledger is open. Whoever loses a race gets `ConcurrentChangeError`
and looks again, up to `RACES` times. A plan that lost waits for its turn: then it asks only the ledger, and cannot lose.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from airflow_kafka_offsets.core import leader_epochs, schemas
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConcurrentChangeError,
    IllegalStepError,
    LogError,
    OutputError,
    UnknownGroupError,
    WindowBusyError,
    counted,
    name_some,
)
from airflow_kafka_offsets.core.group import KafkaGroup, check_reads
from airflow_kafka_offsets.core.history import Act, Attempt, WindowRow
from airflow_kafka_offsets.core.lag.risk import warn_of_risk
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, topics_of
from airflow_kafka_offsets.core.plan import ownership
from airflow_kafka_offsets.core.plan.matching import as_planned, subjects_of, subjects_of_new
from airflow_kafka_offsets.core.plan.ownership import Abandonment, GroupState, How, Owner, Position
from airflow_kafka_offsets.core.plan.planning import (
    SECOND_LOOK_LEVEL,
    Plan,
    cut,
    plan_all,
    suspects,
)
from airflow_kafka_offsets.core.plan.readable import check_all_readable, check_same_topics, ends_behind, unreadable
from airflow_kafka_offsets.core.plan.request import Live, Refused, Replay, Request, TimeSpan, parse_seq
from airflow_kafka_offsets.core.plan.reset import (
    Reset,
    check_confirmed,
    check_no_open_window,
    summary_of_reset,
    window_starts,
)
from airflow_kafka_offsets.core.spark_json import dump_offsets, load_offsets
from airflow_kafka_offsets.core.starting import AtCommitted, first_offsets, lookup_time, parse_reset_target
from airflow_kafka_offsets.core.store import advance
from airflow_kafka_offsets.core.tries import Try
from airflow_kafka_offsets.core.window import OWNING, Claim, Lane, Outcome, State, Window, WindowRecord
from airflow_kafka_offsets.core.window_id import name_window, parse_window_id
from airflow_kafka_offsets.ports import LogOffsets, OffsetStore, SchemaRegistry
from airflow_kafka_offsets.service.guard import Guard
from airflow_kafka_offsets.service.memory import Memory, NotKnownError
from airflow_kafka_offsets.service.publish import Publisher
from airflow_kafka_offsets.service.replay import Allocation, ReplayPlanner
from airflow_kafka_offsets.service.reset import committed_windows, read_before, snapshot_of_all, work_out
from airflow_kafka_offsets.service.topics import as_last_planned, topics_now, with_left

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

logger = logging.getLogger(__name__)

LIVE = Live()
FIRST_TRY = Try()

RACES = 60
"""How often the loser of a race looks again. With the pauses, this takes half a minute."""
LONGEST_PAUSE = 1.0

SECOND_LOOKS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each further look at a log that seems to end too early. Their sum is what a slow new leader may need."""

_T = TypeVar("_T")
IsOver = Callable[[Claim], bool]
"""Whether a claim's task or run is over, so that its window may be taken. Airflow knows."""


def utc_now() -> datetime:
    """Return the time; the service takes it as a parameter, so that tests can pass their own."""
    return datetime.now(UTC)


def second_look(kafka: LogOffsets, position: Position | None, log: LogSnapshot) -> Mapping[TopicPartition, Bounds]:
    """Look again, up to the high watermark, at partitions whose log seems to end before the watermark.

    Planning waits for a leader that lags; this does not.
    """
    doubtful = suspects(position, log)
    return kafka.bounds(doubtful, SECOND_LOOK_LEVEL) if doubtful else {}


@dataclass(frozen=True, slots=True)
class Planned:
    """The window that a run works on.

    Attributes:
        window: the window.
        is_rerun: it was committed before, and not by this very task since its last clear. The job runs again, and its commit
            changes only the history.
        how: how the run got it.
        done: the attempt in which this very task already did it, in a try that this one continues; None: it is still to do.
        warnings: what a person should know about a new window, or about a run that was deleted and made again.
        read_before: how many records the newest successful attempt with a count has read; None: there is no such attempt.
        frozen: the schemas that are frozen with the window, once its job is about to run.
        topics: those that the group read when it last planned, quiet ones included, once its job is about to run.
    """

    window: Window
    is_rerun: bool
    how: How
    done: Attempt | None = None
    warnings: tuple[str, ...] = ()
    read_before: int | None = None
    frozen: schemas.Frozen = field(default_factory=dict)
    topics: tuple[str, ...] = ()

    @property
    def needs_job(self) -> bool:
        """Whether a job has to run: there is something to read, and this very task has not done it."""
        return self.window.span > 0 and self.done is None


@dataclass(frozen=True, slots=True)
class _Asking:
    """Who asks for windows, and what planning must know about it."""

    group: KafkaGroup
    claim: Claim
    is_over: IsOver
    now: datetime
    this_try: Try
    at_most: int | None = None

    def as_last_planned(self, ledger: Ledger, state: GroupState) -> _Asking:
        return replace(self, group=as_last_planned(ledger, self.group, has_planned=state.version > 0))

    def check_replays(self, state: GroupState, held_windows: Sequence[WindowRecord]) -> None:
        ownership.check_replays(self.group.name, self.group.reads, state, self.claim, held_windows)


class WindowService:
    """The use cases on one ledger and one Kafka."""

    def __init__(
        self,
        ledger: Ledger,
        kafka: LogOffsets,
        clock: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], None] = time.sleep,
        store: OffsetStore | None = None,
        output: Sequence[str] = (),
        registry: SchemaRegistry | None = None,
    ) -> None:
        self._ledger = ledger
        self._kafka = kafka
        self._registry = registry
        self._clock = clock
        self._sleep = sleep
        self._output = output
        self._replays = ReplayPlanner(ledger, kafka, clock)
        self._guard = Guard(ledger, kafka, clock)
        self._publisher = Publisher(ledger, store, clock)

    def plan(
        self,
        group: KafkaGroup,
        claim: Claim,
        is_over: IsOver,
        request: Request | Refused | None = LIVE,
        *,
        this_try: Try = FIRST_TRY,
        at_most: int | None = None,
    ) -> list[Planned]:
        """Give a run its windows: those that it had, or else what it asks for.

        Args:
            group: the group's definition.
            claim: who asks.
            is_over: whether the claim that holds a window is over.
            request: what the run asks for, see `request_of`. A run that has windows gets these, whatever it asks for.
            this_try: which try of the task asks. What an earlier try did is not done again if this one continues it.
            at_most: how many windows the asking task can have; None: any number.

        Returns:
            At least one window, oldest first. None for a backfill run if no window was cut in its interval, and for a run that
            asks for nothing of this group.

        Raises:
            BadInputError: the request was refused. Or the replay is at or above the watermark, unknown or empty; the message has the
                numbers. Or the run had its windows in another group.
            ForeignGroupError: it plans live, and the group belongs to another DAG or task.
            UnreadTopicError: a window has records of a topic that this definition of the group does not read.
            WindowBusyError: another run works on one of them; nothing was written.
            LogError: Kafka does not hold what the plan needs; nothing was written.
            RegistryError: the group's schema registry gave no useful answer; nothing was written.
            KafkaAnswerError, LedgerError, StoreError: as they say.
        """
        memory = Memory(self._kafka, is_over, self._registry)
        asking = _Asking(group, claim, memory.is_over, self._clock(), this_try, at_most)
        planned = self._with(memory, asking.now)._plan_by_turns(memory, asking, request)
        for p in planned:
            for warning in p.warnings:
                logger.warning("Group %s: %s", group.name, warning)
            logger.info(
                "Group %s window %s (%s): %s, span %d",
                group.name,
                p.window.id,
                p.how,
                counted(len(p.window.ranges.without_empty()), "partition"),
                p.window.span,
            )
        return planned

    def _with(self, memory: Memory, now: datetime) -> WindowService:
        """Return this service as one plan uses it: what it has asked it knows, and no time passes."""
        same = copy(self)
        same._kafka, same._clock, same._sleep = memory, lambda: now, partial(memory.sleep, self._sleep)
        same._registry = memory if self._registry is not None else None
        same._replays = ReplayPlanner(self._ledger, memory, same._clock)
        same._guard = Guard(self._ledger, memory, same._clock)
        return same

    def _plan_by_turns(self, memory: Memory, asking: _Asking, request: Request | Refused | None) -> list[Planned]:
        """Plan; whoever loses a race waits for its turn, in which the ledger alone is asked."""

        def first_or_in_turn() -> list[Planned]:
            try:
                return self._plan(memory, asking, request)
            except ConcurrentChangeError as lost:
                if self._publisher.store:  # between its steps the store has to be asked
                    raise
                logger.info("%s; waiting for its turn", lost)
            try:
                with self._ledger.turn(asking.group.name), memory.alone():
                    return self._plan(memory, asking, request)
            except (NotKnownError, LogError) as exc:  # what Kafka said long ago is no reason to fail
                memory.forget()
                raise ConcurrentChangeError(
                    f"Group {asking.group.name} was changed by another process just now"
                ) from exc

        return self._racing(first_or_in_turn)

    def _plan(self, memory: Memory, asking: _Asking, request: Request | Refused | None) -> list[Planned]:
        state = self._settled(asking.group.name, asking.claim)
        memory.position = state.position
        asking = asking.as_last_planned(self._ledger, state)
        try:
            return self._plan_on(asking, request, state)
        except LogError:
            # A person continues with a command that knows only the group's name, and uses the definition in the ledger.
            if state.version:
                self._ledger.define(asking.group, asking.claim)
            raise

    def _plan_on(self, asking: _Asking, request: Request | Refused | None, state: GroupState) -> list[Planned]:
        if own := ownership.own_windows(state):
            windows = self._again(asking, request, state, own)
            first, *others = self._allocate(asking, state, windows, how=How.AGAIN)
            warnings = (ownership.made_again(asking.claim, own),) if asking.this_try.number == 1 else ()
            return [replace(first, warnings=warnings), *others]
        if isinstance(request, Refused):
            raise request.error
        if request is None:
            return []
        if not (isinstance(request, TimeSpan) and request.is_interval):  # an interval means the same in any group
            ownership.check_same_group(asking.group.name, asking.claim, state)
        if isinstance(request, Live):
            return self._plan_live(asking, request, state)
        windows = self._replays.plan(asking.group, request, state)
        asking.check_replays(state, windows.held_windows)
        return self._allocate(asking, state, windows, how=How.REPLAY)

    def _settled(self, group: str, claim: Claim) -> GroupState:
        """Load a group, and finish commits that stopped half-way."""
        state = self._ledger.load(group, claim)
        half_way = {h.window.seq for h in (*state.open, *state.claimed) if h.window.state is State.COMMITTING}
        if not half_way:
            return state
        logger.info(
            "Group %s: the commit of %s had stopped half-way, and is finished now",
            group,
            counted(len(half_way), "window"),
        )
        self._publisher.finish(group, half_way)
        return self._ledger.load(group, claim)

    def _plan_live(self, asking: _Asking, request: Live, state: GroupState) -> list[Planned]:
        group, request = asking.group, replace(request, until=request.until or asking.now)
        ownership.check_owner(group.name, state.owner, asking.claim)
        holders = {held.holder for held in state.open}
        over = {holder for holder in holders if holder == asking.claim or asking.is_over(holder)}
        choice = ownership.choose(state, over, at_most=request.at_most, max_open=group.max_open_windows)
        ownership.check_adopts(group.name, group.reads, choice.adopt)
        plans = self._plans_behind(group, state, request, choice)
        if plans:
            self._publisher.check(group.name, state, advance.before(plans[0]))
        if plans and (told := self._other_name(group, asking.claim, state)):
            plans[0] = replace(plans[0], warnings=(*plans[0].warnings, told))
        return self._allocate(asking, state, Allocation(choice.adopt, plans), how=How.ADOPTED)

    def _other_name(self, group: KafkaGroup, claim: Claim, state: GroupState) -> str | None:
        owner = Owner.of(claim)
        # Only before the first window: later, the history shows that the group is the task's.
        owned = self._ledger.groups_of(owner) if state.position is None else ()
        return ownership.other_name(group, owner, owned)

    def _plans_behind(
        self, group: KafkaGroup, state: GroupState, request: Live, choice: ownership.Choice
    ) -> list[Plan]:
        """Plan what a run cuts. If the run also adopts windows, it works on these even if nothing can be cut."""
        try:
            plans = self.preview(group, state.position, request, choice.cut) if choice.cut else []
        except LogError as exc:
            if not choice.adopt:
                raise
            logger.warning("Group %s: no window is cut after those that are adopted: %s", group.name, exc)
            return []
        if not state.open:
            return plans
        filled = [plan for plan in plans if plan.ranges.span]
        ownership.check_something(state, choice.adopt, [plan.ranges.span for plan in filled])
        return filled

    def _allocate(self, asking: _Asking, state: GroupState, windows: Allocation, *, how: How) -> list[Planned]:
        """Give a claim existing windows and new ones, all or none."""
        if asking.at_most is not None and windows.filled > asking.at_most:
            raise BadInputError(
                f"{asking.claim} would get {counted(windows.filled, 'window')} and can take {asking.at_most}: ask for fewer, "
                "or plan them with PlanBacklogOperator and give each to a mapped task"
            )
        held_windows, drafts = windows.held_windows, windows.drafts
        foreign = ownership.of_others(state, held_windows, asking.claim, how)
        # Airflow's answer is stale if someone got the window since then. In this case, `hold` refuses.
        working = {holder for holder in {held.holder for held in foreign} if not asking.is_over(holder)}
        if busy := next((held for held in foreign if held.holder in working), None):
            raise WindowBusyError(busy.window.id, busy.holder, is_rerun=busy.window.state is State.COMMITTED)
        if how is How.GIVEN:
            ownership.check_given(asking.group.name, asking.group.reads, state, asking.claim, foreign)
        done = self._ledger.succeeded(asking.group.name, asking.claim, asking.this_try) if held_windows else {}
        # A window that is not run again may have expired.
        again = [held.window for held in held_windows if held.window.seq not in done]
        self._check_readable(again, asking.group, windows.seen)
        self._warn_of_retention(asking.group, again, [draft for draft in drafts if draft.lane is Lane.BACKFILL])
        # After Kafka: what a producer has written by now, it has registered before.
        to_freeze = self._to_freeze(asking.group, drafts, again)
        take = ownership.to_hold(held_windows, asking.claim)
        added: Sequence[WindowRecord] = ()
        if drafts:
            group, version = as_planned(asking.group, drafts), state.version
            added = self._ledger.add_windows(group, version, drafts, asking.claim, asking.now, take, to_freeze)
        elif held_windows:
            if take:
                self._ledger.hold(take, asking.claim, asking.now, to_freeze.there)
            elif to_freeze.there:
                self._ledger.freeze(to_freeze.there)
            # Whoever commits these windows later may know only the group's name, and uses the definition in the ledger.
            self._ledger.define(asking.group, asking.claim)
        there = [_planned(held, how, done.get(held.window.seq)) for held in held_windows]
        return there + [
            Planned(held.window, False, How.NEW, warnings=draft.warnings)
            for held, draft in zip(added, drafts, strict=True)
        ]

    def _to_freeze(self, group: KafkaGroup, drafts: Sequence[Plan], again: Sequence[Window]) -> schemas.ToFreeze:
        """Return the schemas to freeze with new windows, and what others lack: all, if they are from before the group had a registry.

        A window that has nothing to read gets none: it has no job.
        """
        registry = group.schema_registry
        if registry is None:
            return schemas.NOTHING
        new = [self._frozen(registry, subjects_of_new(registry, group, d), {}) if d.span else {} for d in drafts]
        there = []
        for window in again:
            if not window.span:
                continue
            before = {} if window.schemas is None else self._ledger.schemas(window.schemas)
            after = self._frozen(registry, subjects_of(registry, group, window, before), before)
            if after != before:
                there.append((window, after))
        return schemas.ToFreeze(new, there)

    def _frozen(self, registry: schemas.Registry, names: Mapping[str, str], before: schemas.Frozen) -> schemas.Frozen:
        """Return what is to be frozen with a window; the registry is asked only for what is not frozen yet."""
        assert self._registry is not None, "whoever opened this service knew the group"
        lacking = schemas.lacking(before, names)
        answers = {name: self._registry.subject(name) for name in lacking}
        return schemas.completed(before, names, answers, registry.conn_id)

    def topics_of_group(self, group: KafkaGroup) -> tuple[str, ...]:
        """Return the topics that a group read when it last planned; it has planned. A list of topics stays as it is."""
        return tuple(as_last_planned(self._ledger, group, has_planned=True).topics)

    def frozen(self, window_id: str) -> schemas.Frozen:
        """Return the schemas that are frozen with a window.

        Raises:
            UnknownWindowError: there is none of this id.
        """
        number = self.window(window_id).schemas
        return {} if number is None else self._ledger.schemas(number)

    def take(
        self, group: KafkaGroup, window_id: str, claim: Claim, is_over: IsOver, this_try: Try = FIRST_TRY
    ) -> Planned:
        """Give a task one window by name: usually one of those that the plan task of its run planned.

        Raises:
            BadInputError: it is a window of another group, or there is none of this name.
            IllegalStepError: it no longer owns anything.
            ForeignGroupError: it is open, belongs to another run, and the group belongs to another DAG.
            UnreadTopicError: it belongs to another run, and has records of a topic that this definition of the group does not read.
            WindowBusyError, LogError: as in `plan`.
        """
        seq = parse_seq(group.name, window_id)
        asking = _Asking(group, claim, is_over, self._clock(), this_try)
        return self._racing(lambda: self._take(asking, name_window(group.name, seq)))

    def _take(self, asking: _Asking, window_id: str) -> Planned:
        held = self._ledger.window(window_id).held
        if held.window.state is State.COMMITTING:
            self._publisher.finish(held.window.group, [held.window.seq])
            held = self._ledger.window(window_id).held
        if not held.window.state.owns:
            raise IllegalStepError(f"Window {window_id} was {held.window.state}, so it owns nothing now. Plan again")
        state = self._ledger.load(asking.group.name, asking.claim)
        asking = asking.as_last_planned(self._ledger, state)
        [planned] = self._allocate(asking, state, Allocation([held]), how=How.GIVEN)
        return planned

    def _warn_of_retention(self, group: KafkaGroup, again: Sequence[Window], drafts: Sequence[Plan]) -> None:
        """Say if windows that are not cut now, and new ones of a replay, may expire before they have run."""
        new = {f"new backfill window {number}": draft for number, draft in enumerate(drafts, 1)}
        if told := self._guard.warning(group, {**{window.id: window for window in again}, **new}):
            logger.warning("Group %s: %s", group.name, told)

    def _check_readable(self, windows: Sequence[Window], group: KafkaGroup, seen: LogSnapshot | None) -> None:
        for level in sorted({window.isolation_level for window in windows}):
            of_level = [window for window in windows if window.isolation_level is level]
            self._check_readable_at(level, of_level, seen if level is group.isolation_level else None)

    def unreadable(self, windows: Sequence[Window]) -> Mapping[str, LogError]:
        """Return, by its id, why a window can't be run again; one that can is not in the answer. Writes nothing.

        Raises:
            KafkaAnswerError: Kafka did not answer, or said no.
        """
        errors: dict[str, LogError] = {}
        for level in sorted({window.isolation_level for window in windows}):
            of_level = [window for window in windows if window.isolation_level is level]
            if found := self._look_at(level, of_level, None):
                errors |= unreadable(of_level, *found)
        return errors

    def _check_readable_at(self, level: IsolationLevel, windows: Sequence[Window], seen: LogSnapshot | None) -> None:
        if found := self._look_at(level, windows, seen):
            check_all_readable(windows, *found)

    def _look_at(
        self, level: IsolationLevel, windows: Sequence[Window], seen: LogSnapshot | None
    ) -> tuple[LogSnapshot, leader_epochs.EpochEnds] | None:
        """Return what Kafka holds of windows; None: they have no offsets."""
        topics = sorted({tp.topic for window in windows for tp in window.ranges.without_empty()})
        if not topics:
            return None
        if seen is None or not seen.topic_ids.keys() >= set(topics):
            seen = self._kafka.snapshot(topics, level)
        behind: dict[TopicPartition, int] = {}
        for window in windows:
            for tp in ends_behind(window, seen):
                behind[tp] = max(window.ranges[tp].end, behind.get(tp, 0))
        seen = LogSnapshot(seen.topic_ids, {**seen.bounds, **self._look_again(behind, level)})
        asked = leader_epochs.of_windows(windows, seen)
        epoch_ends = self._kafka.epoch_ends(asked)
        if silent := leader_epochs.unanswered(asked, epoch_ends):
            logger.warning("%s: %s", name_some([window.id for window in windows], ", "), leader_epochs.warning(silent))
        return seen, epoch_ends

    def _look_again(self, wanted: Offsets, level: IsolationLevel) -> dict[TopicPartition, Bounds]:
        """Look again at logs that seem to end before these offsets, until none does: a new leader may be slow."""
        found: dict[TopicPartition, Bounds] = {}
        behind = sorted(wanted)
        for pause in SECOND_LOOKS:
            if not behind:
                break
            self._sleep(pause)
            found |= self._kafka.bounds(behind, level)
            behind = [tp for tp in behind if found[tp].end < wanted[tp]]
        return found

    def preview_replay(self, group: KafkaGroup, request: Replay) -> tuple[list[Window], Sequence[Plan]]:
        """Work out what a replay would do without writing anything: windows that it runs again, and new ones.

        Raises:
            BadInputError, LogError: as in `plan`.
        """
        found = self._replays.plan(group, request, self._ledger.load(group.name))
        windows = [held.window for held in found.held_windows]
        self._check_readable(windows, group, found.seen)
        return windows, found.drafts

    def _again(
        self, asking: _Asking, request: Request | Refused | None, state: GroupState, own: Sequence[WindowRecord]
    ) -> Allocation:
        """Return the windows that the task had. If a backfill reprocesses the run, add what else belongs to its interval."""
        if not isinstance(request, TimeSpan) or not request.is_interval or request.start == request.end:
            return Allocation(own)
        more = self._replays.of_span(asking.group, request, state, own)
        asking.check_replays(state, more.held_windows)
        # Another task of the run gets its windows by itself.
        held_windows = [
            h for h in more.held_windows if h.holder == asking.claim or not h.holder.is_same_run(asking.claim)
        ]
        windows = replace(more, held_windows=sorted([*own, *held_windows], key=lambda held: held.window.seq))
        if asking.at_most is None or windows.filled <= asking.at_most:
            return windows
        left_out = [held.window.id for held in held_windows] + [
            f"{counted(draft.ranges.span, 'offset')} without an owner" for draft in more.drafts
        ]
        logger.warning(
            "Group %s: %s can take %s, and gets only its own; this part of its interval is left out: %s",
            asking.group.name,
            asking.claim,
            counted(asking.at_most, "window"),
            name_some(left_out, ", "),
        )
        return Allocation(own, seen=more.seen)

    def check(self, window: Window) -> None:
        """Make sure, after the job, that it read the topics from which the window was cut.

        Raises:
            TopicRecreatedError, MissingPartitionError: they are no longer there.
            KafkaAnswerError: Kafka did not answer, or said no.
        """
        topics = topics_of(window.ranges.without_empty())
        if topics:
            check_same_topics(window, self._kafka.topic_ids(topics))

    def preview(
        self, group: KafkaGroup, position: Position | None, request: Live = LIVE, number: int = 1
    ) -> list[Plan]:
        """Plan the next live windows from a position without writing anything.

        Raises:
            LogError, KafkaAnswerError: as in `plan`.
        """
        until = request.until or self._clock()
        topics = topics_now(self._kafka, group, position)
        snapshot = self._kafka.snapshot(topics, group.isolation_level)
        ends = self._offsets_at(group, snapshot, request.ends_at)
        if position is None:
            first = self._first_offsets(group, snapshot)
            whole = plan_all(group, None, snapshot, until=until, first=first, ends=ends)
            whole = replace(whole, leader_epochs=leader_epochs.to_note(None, snapshot))
        else:
            doubtful = {tp: position.offsets[tp] for tp in suspects(position, snapshot)}
            recovered = self._look_again(doubtful, SECOND_LOOK_LEVEL)
            whole = plan_all(group, position, snapshot, until=until, recovered=recovered, ends=ends)
            whole = with_left(self._checked(group, position, snapshot, whole), group, position)
        at_risk = self._guard.look(group, whole)
        return warn_of_risk(group, cut(whole, number, group.max_offsets), at_risk, position, snapshot)

    def _checked(self, group: KafkaGroup, position: Position, snapshot: LogSnapshot, plan: Plan) -> Plan:
        """Make sure that what was read is still there, and note in the plan the epochs that the next look needs."""
        asked = leader_epochs.doubtful(position.leader_epochs, position.topic_ids, snapshot)
        epoch_ends = self._kafka.epoch_ends(asked)
        leader_epochs.check_position(group.name, position, snapshot, epoch_ends)
        silent = leader_epochs.unanswered(asked, epoch_ends)
        warnings = (*plan.warnings, leader_epochs.warning(silent)) if silent else plan.warnings
        return replace(plan, leader_epochs=leader_epochs.to_note(position, snapshot, silent), warnings=warnings)

    def _offsets_at(
        self, group: KafkaGroup, snapshot: LogSnapshot, time: datetime | None
    ) -> Mapping[TopicPartition, int | None]:
        return self._kafka.offsets_at(list(snapshot.bounds), time, group.isolation_level) if time else {}

    def _first_offsets(self, group: KafkaGroup, snapshot: LogSnapshot) -> Mapping[TopicPartition, int]:
        start = group.start
        at_time = self._offsets_at(group, snapshot, lookup_time(start, self._clock()))
        is_committed = isinstance(start, AtCommitted)
        committed = self._committed_offsets(group.name, list(snapshot.bounds)) if is_committed else None
        where = self._publisher.store or "The Kafka consumer group"
        return first_offsets(start, snapshot, at_time=at_time, committed=committed, committed_in=where)

    def _committed_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        return (self._publisher if self._publisher.store else self._kafka).committed(group, partitions)

    def read_before(self, window_id: str) -> int | None:
        """Return how many records the newest successful attempt with a count has read; None: there is no such attempt."""
        return told(self._ledger.attempts(window_id))

    def start_attempt(self, window: Window, claim: Claim, this_try: Try = FIRST_TRY) -> int:
        """Record that a try to process the window begins, and return its number."""
        return self._racing(lambda: self._ledger.start_attempt(window, claim, this_try, self._clock()))

    def end_attempt(self, attempt: int, outcome: Outcome, records: int | None = None) -> None:
        """Record how a try ended. This is the evidence for a commit."""
        self._racing(lambda: self._ledger.end_attempt(attempt, outcome, records, self._clock()))

    def attempts(self, window_id: str) -> Sequence[Attempt]:
        """Return the attempts at a window, oldest first."""
        return self._ledger.attempts(window_id)

    def window(self, window_id: str) -> Window:
        """Return a window as the ledger has it.

        Raises:
            UnknownWindowError: there is none of this id.
        """
        return self._ledger.window(window_id).held.window

    def definition(self, group: str) -> KafkaGroup:
        """Return a group as the ledger has it.

        Raises:
            UnknownGroupError: the ledger has no such group.
        """
        return self._ledger.group(group)

    def row(self, window_id: str) -> WindowRow:
        """Return a window with its history in short.

        Raises:
            UnknownWindowError: there is none of this id.
        """
        return self._ledger.window(window_id)

    def commit(self, window_id: str, claim: Claim, attempt: int | None = None) -> bool:
        """Commit a window after its job succeeded; exactly one of any number of commits wins.

        Args:
            window_id: the window.
            claim: who commits: a task of the run that holds the window.
            attempt: the attempt whose recorded success is the evidence; None: there was nothing to run, or another
                launcher ran the job and the green task is the only evidence.

        Returns:
            True: this commit did it; False: the window was committed before and this was a rerun, or someone else finished
            this commit first: another commit, or a plan.

        Raises:
            NoEvidenceError, WindowBusyError, IllegalStepError: nothing was committed.
            OutputError: what the job staged for the group's `output_tables` can't be published; nothing was committed.
            StoreError: the offset store did not follow. The window is committing and its job is done. Another call, or the
                next plan, finishes the commit.
        """
        in_two_steps = self._publisher.store is not None
        is_first = self._racing(
            lambda: self._ledger.commit(
                window_id, claim, attempt, self._clock(), in_two_steps=in_two_steps, output=self._output
            )
        )
        if in_two_steps and is_first:
            is_first = self._finish(window_id)
        logger.info(
            "Window %s: %s", window_id, "committed" if is_first else "was committed before, so the watermark stays"
        )
        return is_first

    def _finish(self, window_id: str) -> bool:
        """Finish the commit of a window; False: someone else was faster."""
        group, seq = parse_window_id(window_id)
        finished = self._racing(lambda: self._publisher.finish(group))
        # A backfill window moves no store: its commit was done in one step.
        return seq in finished or self.window(window_id).lane is Lane.BACKFILL

    def check_commit_by_hand(self, window_id: str) -> None:
        """Refuse what `commit_by_hand` would refuse because of the window's state, without writing anything.

        Raises:
            IllegalStepError: it is not planned.
            UnknownWindowError: there is no such window.
        """
        self.window(window_id).to(State.COMMITTING, State.COMMITTED)

    def commit_by_hand(self, window_id: str, who: str, why: str) -> None:
        """Commit a planned window on a person's word that its job has read all of it, with the rows that the job staged.

        This is for a window that no run can read again: what its job wrote is the only copy.

        Raises:
            IllegalStepError, UnknownWindowError: see `check_commit_by_hand`; nothing was committed.
            OutputError: the group has output tables, and there is nothing to publish; nothing was committed.
            StoreError: the offset store did not follow: the window is committing, and the next plan finishes the commit.
        """
        act = Act("commit", who, why, self._clock(), {"window": window_id})
        group, _ = parse_window_id(window_id)
        self.check_commit_by_hand(window_id)
        in_two_steps, output = self._publisher.store is not None, self._ledger.group(group).output_tables
        try:
            self._racing(lambda: self._ledger.commit_by_hand(window_id, act, in_two_steps=in_two_steps, output=output))
        except OutputError as exc:
            raise OutputError(
                f"{exc}. If no run can read the window again, abandon it: kafka-offsets abandon {window_id} --why '...'"
            ) from exc
        if in_two_steps:
            self._racing(lambda: self._publisher.finish(group))

    def preview_abandon(self, window_id: str) -> Abandonment:
        """Work out what it means to abandon a window, without writing anything.

        Raises:
            IllegalStepError: it is not planned.
            UnknownWindowError: there is no such window.
        """
        window = self.window(window_id)
        newest = self._ledger.windows(window.group, states=tuple(OWNING), lane=Lane.LIVE, limit=1)
        position = self._ledger.load(window.group).position
        return ownership.abandonment(window, position, newest[0].held.window.seq if newest else None)

    def abandon(self, window_id: str, who: str, why: str, *, leave_gap: bool = False) -> Abandonment:
        """Abandon an unfinished window: a person's act. See `preview_abandon`.

        Raises:
            ConfirmationError: its offsets would be left without an owner, and `leave_gap` is not set.
            StoreBehindError: it is abandoned, and the offset store did not follow the watermark over the gap.
        """
        act = Act("abandon", who, why, self._clock(), {"window": window_id})
        done = self._racing(lambda: self._ledger.abandon(window_id, act, leave_gap=leave_gap))
        if done.is_passed:
            self._publisher.follow_gap(done.window)
        return done

    def take_over(self, group: str, owner: Owner, who: str, why: str) -> Owner | None:
        """Give a group to another DAG or task, usually a renamed one: a person's act.

        Returns:
            The owner before; None: it had none.

        Raises:
            UnknownGroupError: there is no such group.
        """
        act = Act("take-over", who, why, self._clock())
        return self._racing(lambda: self._take_over(group, owner, act))

    def _take_over(self, group: str, owner: Owner, act: Act) -> Owner | None:
        state = self._ledger.load(group)
        details = {"from": str(state.owner) if state.owner else None, "to": str(owner)}
        self._ledger.take_over(group, state.version, owner, replace(act, details=details))
        return state.owner

    def preview_reset(
        self, group: KafkaGroup, to: str, *, topics: Sequence[str] = (), to_window: str | None = None
    ) -> Reset:
        """Work out a reset without writing anything.

        Args:
            group: the group's definition.
            to: ``"earliest"``, ``"latest"``, a time with its zone, or Spark's JSON of offsets; partitions that the JSON
                doesn't name keep their watermark.
            topics: only these topics move; none: all of the group's.
            to_window: instead of `to`: the start of this window.

        Raises:
            UnknownGroupError: the group has no watermark yet.
            UnknownWindowError: there is no such window.
            BadInputError, IllegalStepError: it can't be done; the message says what can.
        """
        return self._reset(group, to, topics, to_window)[1]

    def reset(
        self,
        group: KafkaGroup,
        to: str,
        who: str,
        why: str,
        *,
        topics: Sequence[str] = (),
        to_window: str | None = None,
        supersede: bool = False,
    ) -> Reset:
        """Move the watermark: a person's act. See `preview_reset`.

        Raises:
            ConfirmationError: windows would lose their offsets, and `supersede` is not set.
        """
        act = Act("reset", who, why, self._clock())
        state, reset = self._reset(group, to, topics, to_window)
        check_confirmed(group.name, reset, supersede)
        assert state.position is not None
        self._publisher.check(group.name, state, state.position.offsets)
        act = replace(act, details=summary_of_reset(reset))
        self._ledger.reset(group.name, state.version, reset.position, [w.seq for w in reset.superseded], act)
        self._publisher.follow_reset(group.name, state.position.offsets, reset.position.offsets)
        return reset

    def _reset(
        self, group: KafkaGroup, to: str, topics: Sequence[str], to_window: str | None
    ) -> tuple[GroupState, Reset]:
        state = self._ledger.load(group.name)
        if state.position is None:
            raise UnknownGroupError(
                f"Group {group.name} has no watermark yet; its starting_offsets say where it starts"
            )
        check_no_open_window(group.name, state)
        check_reads(group, topics)
        target = self._written_target(group, state.position, to, to_window, topics)
        moving: Sequence[str] = topics
        if target is not None:
            moving = topics_of(target)
        elif not topics:
            moving = topics_now(self._kafka, group, state.position)
        snapshot = snapshot_of_all(self._kafka, group, moving, state.position)
        if target is None:
            target = self._looked_up_target(group, to, snapshot)
        return state, work_out(self._ledger, self._kafka, group, state.position, target, snapshot)

    def _written_target(
        self, group: KafkaGroup, position: Position, to: str, to_window: str | None, topics: Sequence[str]
    ) -> Mapping[TopicPartition, int] | None:
        """Return the target if it is given as offsets or a window; None: it has to be looked up in Kafka."""
        if to_window is not None:
            window = self.window(to_window)
            if window.group != group.name:
                raise BadInputError(f"Window {to_window} is not one of group {group.name}")
            if window.lane is Lane.BACKFILL:
                raise BadInputError(
                    f"Window {to_window} is a backfill window, and perhaps no live window starts where it does. "
                    f"Name the offsets: --to '{dump_offsets(window.ranges.starts)}'"
                )
            topic_ids = self._kafka.topic_ids(read_before(group, position))
            committed = committed_windows(self._ledger, group.name)
            starts = window_starts(window, position, committed, group.reads, topic_ids)
            moving = topics or group.reads
            return {tp: start for tp, start in starts.items() if tp.topic in moving}
        if not to.lstrip().startswith("{"):
            return None
        target = load_offsets(to)
        check_reads(group, (tp.topic for tp in target))
        return target

    def _looked_up_target(self, group: KafkaGroup, to: str, snapshot: LogSnapshot) -> Mapping[TopicPartition, int]:
        start = parse_reset_target(to)
        at_time = self._offsets_at(group, snapshot, lookup_time(start, self._clock()))
        return first_offsets(start, snapshot, at_time=at_time)

    def _racing(self, step: Callable[[], _T]) -> _T:
        """Repeat a step if someone else was faster: forty backfill runs may plan at one moment."""
        for look in range(RACES):
            try:
                return step()
            except ConcurrentChangeError as exc:
                logger.info("%s; looking again", exc)
                # The pause is random: otherwise all who lost together would lose together again.
                self._sleep(random.uniform(0, min(LONGEST_PAUSE, 0.01 * 2**look)))
        try:
            return step()
        except ConcurrentChangeError as exc:
            raise ConcurrentChangeError(f"{exc}; that happened {RACES} times. Let the task try again later") from exc


def told(attempts: Sequence[Attempt]) -> int | None:
    """Return how many records the newest successful attempt with a count has read; None: there is no such attempt."""
    done = [a for a in attempts if a.outcome is Outcome.SUCCEEDED]
    counts = [a.records for a in done if a.records is not None]
    return counts[-1] if counts else None


def _planned(held: WindowRecord, how: How, done: Attempt | None) -> Planned:
    # A task that committed and then failed still counts as a first run: it has not returned its result yet.
    is_own_commit = done is not None and held.committed_at is not None and held.committed_at >= done.started_at
    is_rerun = held.window.state is State.COMMITTED and not is_own_commit
    return Planned(held.window, is_rerun, how, done)
