"""What a run does with its windows: attempts, the check after the job, the commit."""

from __future__ import annotations

import logging

from airflow_kafka_offsets.core import schemas
from airflow_kafka_offsets.core.exchange import Place
from airflow_kafka_offsets.core.group import MAX_OPEN
from airflow_kafka_offsets.core.offsets import topics_of
from airflow_kafka_offsets.core.plan.readable import check_same_topics
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Claim, Lane, Outcome, State, Window, WindowRecord
from airflow_kafka_offsets.core.window_id import parse_window_id
from airflow_kafka_offsets.service.base import UseCases, until_won
from airflow_kafka_offsets.service.plan import FIRST_TRY
from airflow_kafka_offsets.service.topics import learned_ids

logger = logging.getLogger(__name__)


class Runs(UseCases):
    """Works on windows that a run has."""

    def frozen(self, window_id: str) -> schemas.Frozen:
        """Return the schemas that are frozen with a window.

        Raises:
            UnknownWindowError: there is none of this id.
        """
        number = self.ledger.window(window_id).schemas
        return {} if number is None else self.ledger.schemas(number)

    def hand_off(self, window_id: str, claim: Claim, place: Place) -> None:
        """Record where a plan task has left a window for another launcher.

        Raises:
            WindowBusyError: the claim no longer holds it.
        """
        until_won(lambda: self.ledger.hand_off(window_id, claim, place))

    def start_attempt(self, window: Window, claim: Claim, this_try: Try = FIRST_TRY) -> int:
        """Record that an attempt at the window begins, and return the number of the attempt.

        Raises:
            WindowBusyError, IllegalStepError: another run has the window by now, or a later try of this task works on its windows.
        """
        return until_won(lambda: self.ledger.start_attempt(window.id, claim, this_try, self._clock()))

    def end_attempt(self, attempt: int, outcome: Outcome, records: int | None = None) -> None:
        """Record how an attempt ended. This is the evidence for a commit."""
        until_won(lambda: self.ledger.end_attempt(attempt, outcome, records, self._clock()))

    def check_same_topics(self, window: Window) -> None:
        """Make sure, after the job, that it read the topics from which the window was cut.

        Raises:
            TopicRecreatedError, MissingPartitionError: they are no longer there.
            KafkaAnswerError: Kafka did not answer, or said no.
        """
        topics = topics_of(window.ranges.without_empty())
        if topics:
            known = window.identified(learned_ids(self.ledger, [window]))
            check_same_topics(known, self._kafka.topic_ids(topics))

    def commit(self, window_id: str, claim: Claim, attempt: int | None = None) -> bool:
        """Commit a window after its job succeeded; exactly one of any number of commits wins.

        Args:
            window_id: the window.
            claim: who commits: a task of the run that holds the window.
            attempt: the attempt whose recorded success is the evidence, or None if there was nothing to run, or if another
                launcher ran the job and the green task is the only evidence.

        Returns:
            Whether this commit did it. Otherwise the window was committed before and this was a rerun, or another commit or a plan
            finished this commit first.

        Raises:
            NoEvidenceError, WindowBusyError, IllegalStepError: nothing was committed.
            OutputError: what the job staged for the group's `output_tables` can't be published; nothing was committed.
            StoreError: the offset store did not follow. The window is committing and its job is done. Another call, or the
                next plan, finishes the commit.
        """
        leave_committing = self._publisher.address is not None
        is_first = until_won(
            lambda: self.ledger.commit(
                window_id, claim, attempt, self._clock(), leave_committing=leave_committing, output=self._output
            )
        )
        if leave_committing and is_first:
            is_first = self._finish(window_id)
        logger.info(
            "Window %s: %s", window_id, "committed" if is_first else "is committed by an earlier call, try or run"
        )
        return is_first

    def passed_with(self, window: Window) -> list[WindowRecord]:
        """Return the live windows that the watermark passed with the commit of this one: it, and later ones that waited for it.

        There are none while an older one is open: the last of these to be committed has them all.
        """
        waiting = [held.seq for held in self.ledger.load(window.group).open]
        if any(seq < window.seq for seq in waiting):
            return []
        committed = self.ledger.windows(
            window.group,
            states=[State.COMMITTED],
            lane=Lane.LIVE,
            since=window.seq,
            before=min(waiting, default=None),
            limit=MAX_OPEN,
        )
        at = {record.seq: record.committed_at for record in committed}.get(window.seq)
        return [record for record in committed if at and record.committed_at and record.committed_at <= at]

    def _finish(self, window_id: str) -> bool:
        """Finish the commit of a window. Return whether no one else was faster."""
        group, seq = parse_window_id(window_id)
        finished = until_won(lambda: self._publisher.finish(group))
        # A backfill window moves no store: its commit was done in one step.
        return seq in finished or self.ledger.window(window_id).lane is Lane.BACKFILL
