"""What the service needs from outside, as Protocols over core types. Adapters translate their client's errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Act, Attempt, Frontier, OldWindow, WindowRow
from airflow_kafka_offsets.core.lag.pace import Commit
from airflow_kafka_offsets.core.lag.retention import Retention
from airflow_kafka_offsets.core.lag.search import Hits, Probe
from airflow_kafka_offsets.core.launch.jobs import Job, JobName
from airflow_kafka_offsets.core.leader_epochs import EpochEnds, PartitionEpoch
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.plan.overview import Outline, Overview, WindowLine, WindowSummary
from airflow_kafka_offsets.core.plan.ownership import Abandonment, GroupState, Owner, Position
from airflow_kafka_offsets.core.plan.pruning import Pruned
from airflow_kafka_offsets.core.schemas import NOTHING, Frozen, Subject, ToFreeze
from airflow_kafka_offsets.core.source.offsets import SourceOffsets
from airflow_kafka_offsets.core.store.guarantees import Guarantees
from airflow_kafka_offsets.core.tries import Try
from airflow_kafka_offsets.core.window import Claim, Draft, Excerpt, Held, Lane, Outcome, Standing, State, Window


class LogOffsets(Protocol):
    """What Kafka holds. It only looks: it joins no group and reads no record.

    Every method gives real offsets for every partition that it was asked for, or raises within the time-out it was
    built with:

    Raises:
        KafkaUnavailableError: Kafka did not answer, or a partition has no leader; the message says which and why.
        KafkaRefusedError: login, TLS or authorization.
    """

    def snapshot(self, topics: Sequence[str], isolation_level: IsolationLevel) -> LogSnapshot:
        """Return ids and bounds of topics; one that does not exist is not in the answer."""
        ...

    def topics(self) -> Collection[str]:
        """Return the names of all topics that this user may describe, those of Kafka itself among them."""
        ...

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of topics, without looking at their logs; one that does not exist is not in the answer."""
        ...

    def bounds(
        self, partitions: Sequence[TopicPartition], isolation_level: IsolationLevel
    ) -> Mapping[TopicPartition, Bounds]:
        """Return the bounds of partitions that exist."""
        ...

    def offsets_at(
        self, partitions: Sequence[TopicPartition], time: datetime, isolation_level: IsolationLevel
    ) -> Mapping[TopicPartition, int | None]:
        """Return each partition's first offset whose record has this timestamp or a later one; None: there is none."""
        ...

    def first_records(self, wanted: Collection[Probe]) -> Hits:
        """Return offset and timestamp of the first record that a probe finds, up to the high watermark; None: there is none.

        The topics were looked at a moment ago (`snapshot`): they are not described again unless a partition does not answer.
        """
        ...

    def retentions(self, topics: Sequence[str]) -> Mapping[str, Retention]:
        """Return what removes the records of topics; one whose configuration this user may not read is not in the answer."""
        ...

    def epoch_ends(self, wanted: Collection[PartitionEpoch]) -> EpochEnds:
        """Return where the records of leader epochs, and of all before them, end. This is needed rarely. Without an epoch, Kafka is not asked.

        An epoch is missing in the answer if it is too old, if Kafka is behind a proxy, or if Kafka did not answer in time. That is
        no error.
        """
        ...

    def committed(self, group_id: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Return what a Kafka consumer group has committed; None: nothing for that partition."""
        ...


class OffsetStore(Protocol):
    """Where committed watermarks are also kept, for the rest of the company to read. Offsets are next offsets.

    Nothing is asked of the server before the first call. Every method returns or raises within a time that the store was
    built with (and a small multiple of it for the many requests of a large group).

    Attributes:
        name: its address as the group writes it, for messages; it holds no secret.
        guarantees: what it promises.

    Raises:
        StoreUnavailableError: it did not answer, and nothing was written.
        StoreOutcomeUnknownError: it stopped answering during a write; repeat `advance` to find out.
        StoreRefusedError: it said no: login, rights, read-only, full.
        StoreContentError: what it holds under our names is not an offset.
    """

    name: str

    @property
    def guarantees(self) -> Guarantees:
        """What it promises."""
        ...

    def read(self, group: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the next offset of each topic-partition that the store holds for a group; a group never seen has none."""
        ...

    def advance(self, group: str, before: Offsets, after: Offsets, window_id: str = "") -> None:
        """Move the offsets of a group from `before` to `after`, all partitions or none, if they are still at `before`.

        A partition that is already at `after`, or is missing, is fine: see `core.store.guarantees.must_write`. Partitions that
        `after` does not name stay as they are.

        Args:
            group: the group.
            before: where its partitions are, without those that are new to the group.
            after: where they go; names every partition of `before`.
            window_id: the window whose commit this is, for stores that have a place for it; empty: none.

        Raises:
            StoreDriftError: a partition has another offset; nothing was written.
            StoreLimitError: too many partitions for one atomic write; nothing was written.
            ConcurrentChangeError: others kept writing at the same moment; nothing was written, ask again.
        """
        ...


class SchemaRegistry(Protocol):
    """What has the schemas of topics.

    Raises:
        RegistryUnavailableError: it did not answer within its time-out.
        RegistryRefusedError: it said no, or what answers is no registry.
    """

    def subject(self, name: str) -> Subject | None:
        """Return all schemas of a subject; None: there is no such subject."""
        ...


class OffsetSource(Protocol):
    """Where offsets are taken from by hand: a store under some name, a checkpoint, a file. It is only read.

    Attributes:
        name: the source as a person writes it, for messages.

    Raises:
        BadInputError: it is not there, or holds something else.
        StoreAnswerError: it did not answer, or said no.
    """

    name: str

    def read(self, topics: Sequence[str] = ()) -> SourceOffsets:
        """Return what is there. `topics` matters only to a source that has to be asked by topic."""
        ...


class Cluster(Protocol):
    """What runs drivers outside of Airflow, and can be asked for them.

    Raises:
        ClusterUnavailableError: it did not answer.
    """

    def jobs(self, name: JobName) -> Sequence[Job]:
        """Return the jobs of a window, oldest first, whoever launched them; also those that may be of it."""
        ...

    def knows(self, job_id: str) -> bool:
        """Whether there is, or was, a job of this id."""
        ...

    def stop(self, job_id: str) -> None:
        """Request the end of a job, which comes later. A job that is already over is fine."""
        ...


class Exchange(Protocol):
    """A folder in storage that Airflow and Spark both reach: for the window that a job of another launcher gets, and for its report.

    Raises:
        ExchangeError: it can't be read or written.
    """

    def put(self, name: str, text: str) -> None:
        """Write a file into the folder, which need not exist."""
        ...

    def reports(self, folder: str) -> Mapping[str, bytes]:
        """Return what jobs have reported below a folder of this one: the name of each one's folder, and the bytes in it.

        Those of a report that its job did not finish may be none, or end too early.
        """
        ...


class Ledger(Protocol):
    """The record of groups, windows, claims, attempts and acts. Every write is one transaction.

    Raises:
        LedgerUnavailableError: the database did not answer.
        LedgerSchemaError: its tables are missing or of another version.
    """

    def load(self, group: str, claim: Claim | None = None) -> GroupState:
        """Return what matters to someone who asks for a window."""
        ...

    def load_all(self, names: Sequence[str]) -> Mapping[str, GroupState]:
        """Return the states of groups, as `load` without a claim does; one that never planned is not in the answer.

        Of the open windows of a group only the oldest is there, where the watermark is: all of them may have a million ranges.
        """
        ...

    def overviews(self, names: Sequence[str], *, newest_acts: int | None = None) -> Mapping[str, Overview]:
        """Return where groups stand; one that the ledger does not have is not in the answer.

        Args:
            names: the groups.
            newest_acts: of each, only so many of the newest acts; None: all.
        """
        ...

    def position(self, group: str) -> Position | None:
        """Return where the next live window of a group starts; None: the ledger does not have the group."""
        ...

    def outlines(self, names: Sequence[str]) -> Mapping[str, Outline]:
        """Return groups in a line each, without any ranges; one that the ledger does not have is not in the answer."""
        ...

    def frontiers(self, names: Sequence[str]) -> Mapping[str, Frontier]:
        """Return how far groups have come in time; one that never planned is not in the answer."""
        ...

    def recent_commits(self, wanted: Mapping[str, int]) -> Mapping[str, Sequence[Commit]]:
        """Return the newest committed live windows of groups, newest first, without their ranges: of each group at most so many.

        A group without one is not in the answer.
        """
        ...

    def standings(self, window_ids: Sequence[str]) -> Mapping[str, Standing]:
        """Return where windows stand; one that does not exist is not in the answer."""
        ...

    def one_connection(self) -> AbstractContextManager[None]:
        """Let all questions of this context (`contextvars`) use one connection meanwhile: that of its turn, if it has one."""
        ...

    def turn(self, group: str) -> AbstractContextManager[None]:
        """Wait for a group, and let no one else change it meanwhile. All that this context asks and writes then is one transaction.

        Raises:
            ConcurrentChangeError: as the writes of this transaction.
        """
        ...

    def add_windows(
        self,
        group: KafkaGroup,
        version: int,
        drafts: Sequence[Draft],
        claim: Claim,
        now: datetime,
        take: Sequence[Held] = (),
        to_freeze: ToFreeze = NOTHING,
    ) -> list[Held]:
        """Write down new windows held by the claim, give it others as `hold` does, and freeze schemas, all or none; return the new ones.

        A group without an owner belongs to the claim's task from its first live window on. The group's definition is written
        down, too, unless the group belongs to another task.

        Raises:
            ConcurrentChangeError: the group is no longer at this version, or see `hold` and `freeze`.
        """
        ...

    def schemas(self, number: int) -> Frozen:
        """Return the schemas that are kept under a number."""
        ...

    def freeze(self, there: Sequence[tuple[Window, Frozen]]) -> None:
        """Freeze schemas with windows of a group, in place of those that they have, all or none.

        Each text is kept once, and equal schemas have one number.

        Args:
            there: the windows, each with what takes the place of its schemas.

        Raises:
            ConcurrentChangeError: a window has other ones by now.
        """
        ...

    def define(self, group: KafkaGroup, claim: Claim) -> None:
        """Write down the definition of a group that is there already, unless the group belongs to another task than the claim's.

        Raises:
            UnknownGroupError: there is no such group.
        """
        ...

    def hold(
        self,
        held_windows: Sequence[Held],
        claim: Claim,
        now: datetime,
        there: Sequence[tuple[Window, Frozen]] = (),
    ) -> list[Held]:
        """Give windows to a claim, and `freeze` schemas, all or none, if each still has the holder and the state that `held_windows` says.

        Attempts of others that still run on them become `lost`.

        Raises:
            ConcurrentChangeError: someone else took one first, or it was changed; or see `freeze`.
        """
        ...

    def start_attempt(self, window: Window, claim: Claim, this_try: Try, now: datetime) -> int:
        """Record that a try begins, and return its number. Attempts of earlier tries that still run become `lost`.

        Args:
            window: the window.
            claim: who works on it.
            this_try: which try of the task it is.
            now: the time.
        """
        ...

    def succeeded(self, group: str, claim: Claim, this_try: Try) -> Mapping[int, Attempt]:
        """Return the successful attempts of a task that this try continues, by the window's sequence number."""
        ...

    def end_attempt(self, attempt: int, outcome: Outcome, records: int | None, now: datetime) -> None:
        """Record how a try ended."""
        ...

    def commit(
        self,
        window_id: str,
        claim: Claim,
        attempt: int | None,
        now: datetime,
        *,
        in_two_steps: bool = False,
        output: Sequence[str] = (),
    ) -> bool:
        """Commit a window, if it is still planned; False: it was committed before, and nothing changed but its output.

        Args:
            window_id: the window.
            claim: who commits.
            attempt: the attempt that is the evidence; None: there is none, or none is needed.
            now: the time.
            in_two_steps: leave a live window committing, until `finish`.
            output: tables of the ledger's database that get, in the same transaction, what the job staged for them.

        Raises:
            WindowError: see `core.window.check_commit`.
            OutputError: what the job staged can't be published; nothing was committed.
            UnknownWindowError: there is no such window.
        """
        ...

    def finish(self, group: str, version: int, seqs: Sequence[int], now: datetime) -> None:
        """Finish commits that were begun: windows that are committing become committed, all or none.

        Raises:
            ConcurrentChangeError: the group is no longer at this version, or one of the windows is not committing.
        """
        ...

    def abandon(self, window_id: str, act: Act, *, leave_gap: bool = False) -> Abandonment:
        """Take from an open window the ownership of its offsets, and record with the act what that means.

        Raises:
            IllegalStepError: it is not planned.
            ConfirmationError: see `core.plan.ownership.check_gap`.
            UnknownWindowError: there is no such window.
        """
        ...

    def commit_by_hand(
        self, window_id: str, act: Act, *, in_two_steps: bool = False, output: Sequence[str] = ()
    ) -> None:
        """Commit a planned window on a person's word, which is recorded; `in_two_steps` and `output` as in `commit`.

        Raises:
            IllegalStepError: it is not planned.
            OutputError: its job staged nothing, or the database refuses the rows; nothing was committed.
            UnknownWindowError: there is no such window.
        """
        ...

    def reset(self, group: str, version: int, position: Position, superseded: Sequence[int], act: Act) -> None:
        """Move the watermark to a position, and mark the windows that it supersedes.

        Raises:
            ConcurrentChangeError: the group is no longer at this version.
        """
        ...

    def take_over(self, group: str, version: int, owner: Owner, act: Act) -> None:
        """Give a group to another task.

        Raises:
            ConcurrentChangeError: the group is no longer at this version.
            UnknownGroupError: there is no such group.
        """
        ...

    def found(self, group: KafkaGroup, position: Position, act: Act) -> None:
        """Write down a group that never planned, and where its first window starts.

        Raises:
            ConcurrentChangeError: the group is there.
        """
        ...

    def record(self, group: str, act: Act) -> None:
        """Record what a person did that changes nothing in the ledger.

        Raises:
            UnknownGroupError: there is no such group.
        """
        ...

    def pruned(self, group: str) -> Pruned:
        """Return what is known of the windows that a group no longer has."""
        ...

    def old_windows(self, group: str, *, since: int, limit: int) -> Sequence[OldWindow]:
        """Return windows of a group with this number or a larger one, the oldest first; at most `limit`."""
        ...

    def prune(self, old: Sequence[OldWindow], act: Act, number: int | None = None) -> int:
        """Delete old windows that follow one another, the first ones of their group, all or none.

        Args:
            old: these windows.
            act: what is recorded.
            number: that of the act, if a part of it is recorded already: its details are changed; None: it is new.

        Returns:
            The number of the act.

        Raises:
            ConcurrentChangeError: another process changed or pruned one of them, or a reset has made one of them the last commit.
        """
        ...

    def groups(self) -> Sequence[KafkaGroup]:
        """Return every group as it was defined when it last planned, whatever windows that plan gave."""
        ...

    def groups_of(self, owner: Owner) -> Sequence[KafkaGroup]:
        """Return the groups that belong to a task, as they were defined when they last planned."""
        ...

    def group(self, name: str) -> KafkaGroup:
        """Return one group as it was defined when it last planned.

        Raises:
            UnknownGroupError: there is no such group.
        """
        ...

    def window(self, window_id: str) -> WindowRow:
        """Return one window.

        Raises:
            UnknownWindowError: there is no such window.
        """
        ...

    def windows(
        self,
        group: str,
        *,
        states: Sequence[State] = (),
        lane: Lane | None = None,
        seqs: Sequence[int] = (),
        cut_in: tuple[datetime, datetime] | None = None,
        before: int | None = None,
        since: int | None = None,
        limit: int = 50,
    ) -> Sequence[WindowRow]:
        """Return windows of a group, newest first.

        Args:
            group: its name.
            states: only these; none: all.
            lane: only this one; None: both.
            seqs: only these; none: all.
            cut_in: only windows with ``start < until <= end``.
            before: only windows with smaller numbers, for the next page.
            since: only windows with this number or a larger one.
            limit: how many at most.
        """
        ...

    def summaries(
        self, group: str, *, states: Sequence[State] = (), seqs: Sequence[int] = (), limit: int = 50
    ) -> Sequence[WindowSummary]:
        """Return windows of a group in short, newest first. Their ranges are not read: with many partitions, this takes most of the time.

        Args:
            group: its name.
            states: only these; none: all.
            seqs: only these; none: all.
            limit: how many at most.
        """
        ...

    def excerpt(
        self,
        group: str,
        partitions: Collection[TopicPartition],
        *,
        before: int | None = None,
        since: int | None = None,
    ) -> Excerpt | None:
        """Return the newest committed live window, with the ranges of some partitions only; None: there is none.

        Args:
            group: its name.
            partitions: which ranges to read.
            before: only windows with smaller numbers.
            since: only windows with this number or a larger one.
        """
        ...

    def attempts_at(self, group: str, seqs: Sequence[int]) -> Mapping[int, Sequence[Attempt]]:
        """Return the attempts at windows of a group by their number, oldest first; a window without one is not in the answer."""
        ...

    def attempts(self, window_id: str) -> Sequence[Attempt]:
        """Return the attempts at a window, oldest first."""
        ...

    def windows_of_run(
        self, dag_id: str, run_id: str, task_id: str | None = None, map_index: int | None = None
    ) -> Sequence[WindowLine]:
        """Return the windows that a run has, or had, by group and number: at most `core.plan.overview.MAX_OF_RUN`.

        The `holder` of each is the task instance of this run that had it, and not who had it last.

        Args:
            dag_id: the run's DAG.
            run_id: the run.
            task_id: only those of this task; None: of all.
            map_index: only those of this mapped task instance; None: of all.
        """
        ...

    def acts(self, group: str, *, newest: int | None = None) -> Sequence[Act]:
        """Return what people did to a group, oldest first; with `newest`, only so many of the newest acts."""
        ...
