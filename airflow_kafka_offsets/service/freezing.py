"""Asks a schema registry again for what is frozen with windows, where that was wrong: a person's act (docs/design.md, rule 11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from airflow_kafka_offsets.core import schemas
from airflow_kafka_offsets.core.errors import BadInputError, IllegalStepError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import REFROZEN, Act, Idle, check_idle
from airflow_kafka_offsets.core.plan.matching import subjects_of
from airflow_kafka_offsets.core.plan.pruning import absent
from airflow_kafka_offsets.core.schemas import Change, Frozen, Subject
from airflow_kafka_offsets.core.window import Claim, Held
from airflow_kafka_offsets.ports import Ledger, SchemaRegistry
from airflow_kafka_offsets.service.windows import utc_now


@dataclass(frozen=True, slots=True)
class Refreeze:
    """What is frozen with a window, and what takes its place.

    Attributes:
        idle: the window, which no job was at work on.
        holder_is_over: whether the run that has it is over; None: no Airflow could be asked.
        after: what takes the place.
        changes: the subjects that change.
    """

    idle: Idle
    holder_is_over: bool | None
    after: Frozen
    changes: Sequence[Change]

    @property
    def held(self) -> Held:
        """The window, and whoever worked on it last."""
        return self.idle.held


class Freezing:
    """Freezes schemas again, of one registry and in one ledger.

    Args:
        ledger: the ledger.
        registry: the group's; None: it has none.
        is_over: whether a claim is over; None: no Airflow could be asked.
        clock: tells the time.
    """

    def __init__(
        self,
        ledger: Ledger,
        registry: SchemaRegistry | None,
        is_over: Callable[[Claim], bool | None],
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self._is_over = is_over
        self._clock = clock

    def preview(self, group: KafkaGroup, seqs: Sequence[int], *, drop: bool = False) -> list[Refreeze]:
        """Return what would be frozen with windows, without writing anything. A window that stays as it is is not in the answer.

        Args:
            group: as the ledger has it.
            seqs: the windows.
            drop: whether that leaves which the registry no longer has.

        Raises:
            BadInputError: the group names no registry, or that lacks a subject.
            UnknownWindowError: there is no such window.
            IllegalStepError: a window owns nothing, or its job is at work.
            RegistryError: the registry gave no useful answer.
        """
        registry = group.schema_registry
        if registry is None or self._registry is None:
            raise BadInputError(
                f"Group {group.name} names no schema registry, as its last run planned it. Set KafkaGroup(registry='<id of an Airflow "
                "connection>'), and let a run plan: a window that is run again gets its schemas then"
            )
        answers: dict[str, Subject | None] = {}
        found = []
        for held in self._windows(group.name, seqs):
            window = held.window
            before = {} if window.schemas is None else self._ledger.schemas(window.schemas)
            names = subjects_of(registry, group, window, before)
            for name in sorted({*before, *names} - answers.keys()):
                answers[name] = self._registry.subject(name)
            after = schemas.refrozen(before, names, answers, registry.conn_id, drop=drop)
            if changes := schemas.changes(before, after):
                found.append(self._idle(held, after, changes))
        return found

    def freeze(
        self, group: KafkaGroup, seqs: Sequence[int], who: str, why: str, *, drop: bool = False
    ) -> list[Refreeze]:
        """Freeze the schemas of windows again, of all or of none. See `preview`.

        Raises:
            ConcurrentChangeError: a run took a window just now, or froze some; nothing was written.
        """
        found = self.preview(group, seqs, drop=drop)
        if found:
            before = {one.held.window.id: one.held.window.schemas for one in found}
            act = Act("freeze-schemas", who, why, self._clock(), {REFROZEN: before})
            self._ledger.refreeze([(one.idle, one.after) for one in found], act)
        return found

    def _windows(self, group: str, seqs: Sequence[int]) -> list[Held]:
        """Return these windows, without those that have nothing to read: these have no job."""
        found = {row.held.window.seq: row.held for row in self._ledger.windows(group, seqs=seqs, limit=len(seqs))}
        if missing := [seq for seq in seqs if seq not in found]:
            raise absent(group, missing, self._ledger.pruned(group))
        for held in found.values():
            if not held.window.state.owns:
                raise IllegalStepError(f"Window {held.window.id} was {held.window.state}: no run reads it again")
        return [found[seq] for seq in seqs if found[seq].window.span]

    def _idle(self, held: Held, after: Frozen, changes: Sequence[Change]) -> Refreeze:
        is_over = self._is_over(held.holder)
        idle = check_idle(held, self._ledger.attempts(held.window.id), is_over)
        return Refreeze(idle, is_over, after, changes)
