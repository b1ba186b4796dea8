"""Planning: look, decide, write. `Planner._plan` is the whole of it; the rules are in `core.plan.decide`.

No one but the ledger is asked while the group is locked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_kafka_offsets.core import schemas
from airflow_kafka_offsets.core.errors import ConcurrentChangeError, LogError, counted
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Attempt
from airflow_kafka_offsets.core.plan import ownership
from airflow_kafka_offsets.core.plan.decide import (
    Asking,
    Choice,
    Decision,
    Facts,
    Given,
    InLedger,
    all_to_read,
    choose,
    decide,
    moves_store,
    new_windows,
    refuse,
    replay_of,
    subjects_to_ask,
    to_check_in_store,
    to_run,
)
from airflow_kafka_offsets.core.plan.matching import as_planned
from airflow_kafka_offsets.core.plan.ownership import GroupState, How, Owner, Position
from airflow_kafka_offsets.core.plan.planning import Plan
from airflow_kafka_offsets.core.plan.readable import unreadable
from airflow_kafka_offsets.core.plan.replay import Owned
from airflow_kafka_offsets.core.plan.request import Live, Refused, Replay, Request, TimeSpan, parse_seq
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Claim, Draft, Lane, State, Window, WindowRecord, check_owns
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.service import replay
from airflow_kafka_offsets.service.base import UseCases, until_won
from airflow_kafka_offsets.service.look import Look, warn_of_silence
from airflow_kafka_offsets.service.topics import as_last_planned

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

logger = logging.getLogger(__name__)

LIVE = Live()
FIRST_TRY = Try()

IsOver = Callable[[Claim], bool]
"""Whether a claim's task or run is over, so that its window may be taken. Airflow knows."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The window that a run works on.

    Attributes:
        window: the window.
        is_rerun: it was committed before, and not by this very task since its last clear. The job runs again, and its commit
            changes only the history.
        how: how the run got it.
        earlier_success: the attempt in which this very task already did it, in a try that this one continues, or None if it is still to do.
        warnings: what a person should know about a new window, or about a run that was deleted and made again.
        read_before: how many records the newest successful attempt with a count has read, or None if there is no such attempt.
        frozen: the schemas that are frozen with the window, once its job is about to run.
        topics: those that the group read when it last planned, quiet ones included, once its job is about to run.
        ledgers: the ledger's id, and those of lost ledgers whose output it may write beside, once its job is about to run.
    """

    window: Window
    is_rerun: bool
    how: How
    earlier_success: Attempt | None = None
    warnings: tuple[str, ...] = ()
    read_before: int | None = None
    frozen: schemas.Frozen = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    ledgers: tuple[str, ...] = ()

    @property
    def needs_job(self) -> bool:
        """Whether a job has to run: there is something to read, and this very task has not done it."""
        return self.window.span > 0 and self.earlier_success is None


class Planner(UseCases):
    """Gives runs their windows."""

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
            at_most: how many windows the asking task can have, or None for any number.

        Returns:
            At least one window, oldest first. None for a backfill run if no window was cut in its interval, and for a run that
            asks for nothing of this group.

        Raises:
            BadInputError: the request was refused. Or the replay is at or above the watermark, unknown or empty; the message has the
                numbers. Or the run had its windows under another name of its group, DAG or task.
            ForeignGroupError: it plans live, and the group belongs to another DAG or task.
            UnreadTopicError: a window has records of a topic that this definition of the group does not read.
            WindowBusyError: another run works on one of them; nothing was written.
            LogError: Kafka does not hold what the plan needs; nothing was written.
            RegistryError: the group's schema registry gave no useful answer; nothing was written.
            KafkaAnswerError, LedgerError, StoreError: as they say.
        """
        try:
            return self._plan(Asking(group, claim, this_try, request, at_most, self._clock()), is_over)
        except LogError:
            # A person continues with a command that has only the group's name, and uses the definition in the ledger.
            if self.ledger.load(group.name).version:
                self.ledger.define(as_last_planned(self.ledger, group, has_planned=True), claim)
            raise

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
        given = Given(parse_seq(group.name, window_id))
        [planned] = self._plan(Asking(group, claim, this_try, given, None, self._clock()), is_over)
        return planned

    def _plan(self, asking: Asking, is_over: IsOver) -> list[Planned]:
        look = Look(self.ledger, self._kafka, self._publisher, asking.now, self._sleep)
        facts: Facts | None = None

        def step() -> list[Planned]:
            """Look, unless only the last turn was lost; then decide and write."""
            nonlocal facts
            name, before = asking.group.name, None
            if facts is None:
                before, facts = self._look(look, asking, is_over)
            try:
                # All ledger calls in this block are one transaction, which locks the group.
                with self.ledger.turn(name):
                    in_ledger = load_from_ledger(self.ledger, asking, facts, before=before)
                    decision = decide(asking, in_ledger, facts)
                    planned = write(self.ledger, asking, in_ledger, decision) if decision else []
            except LogError:
                if self.ledger.load(name).version == facts.version:
                    raise
                decision = None  # what Kafka held before others planned is no reason to fail
            if decision is None:
                facts = None
                raise ConcurrentChangeError(f"Another process changed group {name}")
            _log(asking, facts, in_ledger, decision, planned)
            look.warn_of_retention(in_ledger.group, _not_new_live(in_ledger, decision))
            return planned

        return until_won(step)

    def _finish_commits(self, asking: Asking) -> GroupState:
        """Load the group, after finishing commits that stopped half-way: of any run, also of an earlier try of this one."""
        group, request = asking.group.name, asking.request
        state = self.ledger.load(group, asking.claim)
        half_way = {h.seq for h in (*state.open, *state.claimed) if h.state is State.COMMITTING}
        if isinstance(request, Given):
            record = self.ledger.window(name_window(group, request.seq))
            half_way |= {record.seq} if record.state is State.COMMITTING else set()
        if not half_way:
            return state
        logger.info(
            "Group %s: finishing the commit of %s, which stopped half-way", group, counted(len(half_way), "window")
        )
        self._publisher.finish(group, half_way)
        return self.ledger.load(group, asking.claim)

    def _look(self, look: Look, asking: Asking, is_over: IsOver) -> tuple[InLedger, Facts]:
        """Collect all that the decision needs, in rounds: each depends on the one before it.

        No window is planned here, but the look may write: it finishes commits that stopped half-way, and moves an offset store to where
        partitions that are new to the group start.
        """
        state = self._finish_commits(asking)
        refuse(asking, state)
        replayed, facts = replay_of(asking, state), Facts(state.version)
        if isinstance(replayed, TimeSpan):
            group = as_last_planned(self.ledger, asking.group, has_planned=True)
            facts = look.at_span(group, state, replayed)
        in_ledger = load_from_ledger(self.ledger, asking, facts, state=state)
        facts = look.at_holders(asking, in_ledger, facts, is_over)
        facts = look.at_kafka(asking.request, in_ledger, choose(asking, in_ledger, facts), facts)
        first = decide(asking, in_ledger, facts)
        assert first is not None, "the facts are new"
        group = in_ledger.group
        if first.whole is not None:
            at_risk, log = look.at_retention(group, first.whole.ranges), facts.logs[group.isolation_level]
            hanging = () if first.whole.ranges.span else look.hanging(group, log.only(facts.topics or ()))
            facts = replace(facts, at_risk=at_risk, hanging=hanging)
        start = to_check_in_store(state, first.plans)
        self._publisher.prepare(group, state, start, is_to_move=moves_store(first))
        if self._publisher.address:
            facts = replace(facts, ready_store=start)
        if group.schema_registry is not None:
            # After Kafka: what a producer has written by now, it has registered before.
            assert self._registry is not None, "whoever opened this service knew the group"
            subjects = {name: self._registry.subject(name) for name in sorted(subjects_to_ask(in_ledger, first))}
            facts = replace(facts, subjects=subjects)
        return in_ledger, facts

    # Without writing anything.

    def next_window(self, group: KafkaGroup, position: Position | None) -> Plan:
        """Return the live window that would be cut next, from a position.

        Raises:
            LogError, KafkaAnswerError: as in `plan`.
        """
        look = Look(self.ledger, self._kafka, self._publisher, self._clock(), self._sleep)
        in_ledger = InLedger(group, GroupState(position=position))
        facts = look.at_kafka(LIVE, in_ledger, Choice(How.NEW, (), new=1), Facts(0))
        log = facts.logs[group.isolation_level]
        whole = all_to_read(group, position, look.now, log, facts)
        assert whole is not None, "the facts are new"
        plans = new_windows(group, position, whole, 1, log, look.at_retention(group, whole.ranges))
        assert plans is not None
        return plans[0]

    def answer(self, group: KafkaGroup, request: Replay) -> tuple[list[Window], Sequence[Plan]]:
        """Return the windows that a replay would run again, and its new ones.

        Raises:
            BadInputError, LogError: as in `plan`.
        """
        asking = Asking(group, Claim("", "", ""), FIRST_TRY, request, None, self._clock())  # no run asks
        look = Look(self.ledger, self._kafka, self._publisher, asking.now, self._sleep)
        state = replace(self.ledger.load(group.name), owner=None)
        refuse(asking, state)
        facts = look.at_span(group, state, request) if isinstance(request, TimeSpan) else Facts(state.version)
        in_ledger = load_from_ledger(self.ledger, asking, facts, state=state)
        over = {(held.seq, held.holds): True for held in in_ledger.owned.windows}
        facts = replace(facts, over=over)
        facts = look.at_kafka(asking.request, in_ledger, choose(asking, in_ledger, facts), facts)
        decision = decide(asking, in_ledger, facts)
        assert decision is not None, "the facts are new"
        for note in decision.notes:
            logger.warning("Group %s: %s", group.name, note)
        look.warn_of_retention(in_ledger.group, _not_new_live(in_ledger, decision))
        return [held.window for held in decision.choice.windows], decision.plans

    def unreadable(self, windows: Sequence[Window]) -> Mapping[str, LogError]:
        """Return, by id, why windows can't be run again.

        Raises:
            KafkaAnswerError: Kafka did not answer, or said no.
        """
        facts = Look(self.ledger, self._kafka, self._publisher, self._clock(), self._sleep).at_windows(windows)
        errors: dict[str, LogError] = {}
        for level, log in facts.logs.items():
            of_level = [w.identified(facts.ids) for w in windows if w.isolation_level is level]
            errors |= unreadable(of_level, log, facts.epoch_ends)
        return errors


def load_from_ledger(
    ledger: Ledger, asking: Asking, facts: Facts, *, state: GroupState | None = None, before: InLedger | None = None
) -> InLedger:
    """Load what the ledger has for a run that asks.

    Args:
        ledger: the ledger.
        asking: the run.
        facts: they have the offsets of a time span.
        state: the group, if it was loaded a moment ago.
        before: what was loaded before the look. As long as no one has planned since, the ledger is not searched again.
    """
    name = asking.group.name
    state = state or ledger.load(name, asking.claim)
    refuse(asking, state)
    group = as_last_planned(ledger, asking.group, has_planned=state.version > 0)
    owned, replayed = Owned(), replay_of(asking, state)
    if isinstance(asking.request, Given):
        held = ledger.window(name_window(name, asking.request.seq))
        check_owns(held)
        owned = Owned([held])
    elif before is not None and before.state.version == state.version and before.state.claimed == state.claimed:
        owned = before.owned
    elif replayed is not None:
        own = ownership.own_windows(state)
        owned = replay.find(ledger, group, replayed, state, facts.between, own)
    there = (*state.open, *state.claimed, *owned.windows)
    numbers = {held.schemas for held in there} if group.schema_registry is not None else set()
    owner = Owner.of(asking.claim) if isinstance(asking.request, Live) and state.position is None else None
    return InLedger(
        group,
        state,
        owned,
        # Only before the first window: later, the history shows that the group is the task's.
        other_groups=ledger.groups_of(owner) if owner else (),
        successes=ledger.succeeded(name, asking.claim, asking.this_try) if state.claimed else {},
        resumed=ledger.resumed(name, asking.claim, asking.this_try),
        frozen={number: ledger.schemas(number) for number in numbers if number is not None},
    )


def write(ledger: Ledger, asking: Asking, in_ledger: InLedger, decision: Decision) -> list[Planned]:
    """Write a decision down: windows that the run takes, new ones, and schemas."""
    choice, plans, to_freeze = decision.choice, decision.plans, decision.to_freeze
    take = ownership.to_hold(choice.windows, asking.claim, choice.how)
    added: Sequence[WindowRecord] = ()
    if plans:
        group, version = as_planned(in_ledger.group, plans), in_ledger.state.version
        added = ledger.add_windows(group, version, plans, asking.claim, asking.now, take, to_freeze)
    elif choice.windows:
        if take:
            ledger.hold(take, asking.claim, asking.now, to_freeze.earlier)
        elif to_freeze.earlier:
            ledger.freeze(to_freeze.earlier)
        # Whoever commits these windows later may have only the group's name, and uses the definition in the ledger.
        ledger.define(in_ledger.group, asking.claim)
    planned = [_planned(held, choice.how, in_ledger.successes.get(held.seq)) for held in choice.windows]
    if choice.how is How.AGAIN and asking.this_try.number == 1 and not asking.this_try.is_resumed:
        own = ownership.own_windows(in_ledger.state)
        planned[0] = replace(planned[0], warnings=(ownership.made_again(asking.claim, own),))
    return planned + [
        Planned(held.window, False, How.NEW, warnings=plan.warnings) for held, plan in zip(added, plans, strict=True)
    ]


def _log(asking: Asking, facts: Facts, in_ledger: InLedger, decision: Decision, planned: Sequence[Planned]) -> None:
    """Log what was planned, and what a person should know of it."""
    group = asking.group.name
    warn_of_silence(to_run(decision.choice, in_ledger), facts)
    for warning in (*decision.notes, *(warning for p in planned for warning in p.warnings)):
        logger.warning("Group %s: %s", group, warning)
    for p in planned:
        partitions = counted(len(p.window.ranges.without_empty()), "partition")
        logger.info("Group %s window %s (%s): %s, span %d", group, p.window.id, p.how, partitions, p.window.span)


def _not_new_live(in_ledger: InLedger, decision: Decision) -> dict[str, Draft]:
    """Return by name the windows whose retention the look has not asked for: those that run again, and new backfill windows."""
    backfill = [draft for draft in decision.plans if draft.lane is Lane.BACKFILL]
    new = {f"new backfill window {number}": draft for number, draft in enumerate(backfill, 1)}
    return {**{window.id: window for window in to_run(decision.choice, in_ledger)}, **new}


def _planned(held: WindowRecord, how: How, done: Attempt | None) -> Planned:
    # A task that committed and then failed still counts as a first run: it has not returned its result yet.
    is_own_commit = done is not None and held.committed_at is not None and held.committed_at >= done.started_at
    is_rerun = held.state is State.COMMITTED and not is_own_commit
    return Planned(held.window, is_rerun, how, done)
