"""What the service needs from outside, as Protocols over core types. Adapters translate their client's errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping, Sequence
from datetime import datetime
from typing import Protocol

from airflow_kafka_offsets.core.lag.retention import Retention
from airflow_kafka_offsets.core.lag.search import Hits, Known, Place, Probe
from airflow_kafka_offsets.core.launch.jobs import Job, JobName, JobState
from airflow_kafka_offsets.core.leader_epochs import EpochEnds, PartitionEpoch
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.schemas import Subject
from airflow_kafka_offsets.core.source.offsets import SourceOffsets
from airflow_kafka_offsets.core.store.guarantees import Guarantees


class LogOffsets(Protocol):
    """Looks at Kafka: it joins no group and reads no record.

    Every method returns real offsets for every partition, or raises within the time-out it was built with:

    Raises:
        KafkaUnavailableError: Kafka did not answer, or a partition has no leader; the message says which and why.
        KafkaRefusedError: login, TLS or authorization.
        KafkaLacksError: Kafka does not support that question.
    """

    @property
    def found_times(self) -> MutableMapping[Place, Known]:
        """What searches in the timestamp index have found so far, in this process."""
        ...

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
        """Return each partition's first offset whose record has this timestamp or a later one, or None if there is none."""
        ...

    def first_records(self, wanted: Collection[Probe]) -> Hits:
        """Return offset and timestamp of the first record that a probe finds, up to the high watermark, or None if there is none.

        The topics were looked at a moment ago (`snapshot`): they are not described again unless a partition does not answer.
        """
        ...

    def retentions(self, topics: Sequence[str]) -> Mapping[str, Retention]:
        """Return what removes the records of topics, without those whose configuration this user may not read."""
        ...

    def epoch_ends(self, wanted: Collection[PartitionEpoch]) -> EpochEnds:
        """Return where the records of leader epochs, and of all before them, end.

        An epoch is missing if it is too old, Kafka is behind a proxy, or did not answer in time.
        """
        ...

    def committed(self, group_id: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Return what a Kafka consumer group has committed, or None if nothing for that partition."""
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
        StoreRefusedError: it refuses: login, rights, read-only, full.
        StoreContentError: it holds something other than an offset.
    """

    name: str

    @property
    def guarantees(self) -> Guarantees:
        """What it promises."""
        ...

    def read(self, group: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the next offset of each topic-partition that the store holds for a group; a group never seen has none."""
        ...

    def window_ids(self, group: str, topics: Sequence[str]) -> Collection[str]:
        """Return the ids of the windows whose commits wrote these offsets; none if the store has no place for them."""
        ...

    def check_writable(self, group: str) -> None:
        """Refuse a group whose commits would be refused at this moment, as far as the store knows before a write.

        Raises:
            StoreRefusedError: the group is a Kafka consumer group with members.
        """
        ...

    def advance(self, group: str, before: Offsets, after: Offsets, window_id: str = "") -> None:
        """Move the offsets of a group from `before` to `after`, all partitions or none, if they are still at `before`.

        A partition that is already at `after`, or is missing, is fine: see `core.store.guarantees.must_write`. Partitions that
        `after` does not name stay as they are.

        Args:
            group: the group.
            before: where its partitions are, without those that are new to the group.
            after: where they go; names every partition of `before`.
            window_id: the window whose commit this is, for stores that have a place for it, or empty.

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
        """Return all schemas of a subject, or None if there is no such subject."""
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
        """Return its offsets. Only a source that is read topic by topic needs `topics`."""
        ...


class Cluster(Protocol):
    """What runs drivers outside of Airflow, and can be asked for them.

    Raises:
        ClusterUnavailableError: it did not answer.
    """

    def jobs(self, name: JobName) -> Sequence[Job]:
        """Return the jobs of a window, oldest first, also those that may belong to it."""
        ...

    def state(self, job_id: str) -> JobState | None:
        """Return the state of a job, or None if the cluster has none of this id, or has it no longer."""
        ...

    def stop(self, job_id: str) -> None:
        """Request the end of a job, which comes later. A job that is already over is fine."""
        ...


class Exchange(Protocol):
    """A folder in storage that Airflow and Spark both reach: for the window of another launcher's job, and its report.

    Raises:
        ExchangeError: it can't be read or written.
    """

    def put(self, name: str, text: str) -> None:
        """Write a file into the folder, which need not exist."""
        ...

    def reports(self, folder: str) -> Mapping[str, bytes]:
        """Return the reports of jobs below a folder of this one, by the name of the job's folder. A report may be cut off."""
        ...
