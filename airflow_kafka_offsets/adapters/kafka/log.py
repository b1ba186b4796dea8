"""Lookups in Kafka through confluent-kafka's AdminClient.

Each lookup describes its topics first, then lists offsets. The description returns topic ids and leaders, and refreshes
librdkafka's metadata. Without it, librdkafka does not find a new partition for minutes, and never finds a moved leader.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_before_delay, wait_random_exponential

from airflow_kafka_offsets.adapters.kafka.client import (
    _T,
    LONGEST,
    SHORTEST,
    TICK,
    KafkaRequests,
    client_config,
    opened,
    shared_client,
)
from airflow_kafka_offsets.adapters.kafka.messages import reason_of
from airflow_kafka_offsets.core.errors import BadInputError, KafkaLacksError, may_pass
from airflow_kafka_offsets.core.lag.retention import Retention, retention_of
from airflow_kafka_offsets.core.lag.search import Hit, Hits, Known, Place, Probe
from airflow_kafka_offsets.core.leader_epochs import EpochEnds, PartitionEpoch
from airflow_kafka_offsets.core.log import Bounds, IsolationLevel, LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition

logger = logging.getLogger(__name__)


CHUNK = 1000
"""Partitions in one call. A call's time grows with their square; smaller calls cost more requests."""


BY_TIME = "ListOffsets by time"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# Seconds until a topic that seems absent is looked for again.
_SECOND_LOOK = 0.5

# An offset above all logs, and a group that no one joins: a consumer must name a group.
_BEHIND_ALL = 2**62
_NO_GROUP = "airflow-kafka-offsets-looks"
# librdkafka reports the end only in this text: rd_kafka_toppar_handle_OffsetForLeaderEpoch in rdkafka_offset.c.
_EPOCH_END = re.compile(r"broker end offset is (\d+) \(offset leader epoch \d+\)")


_V = TypeVar("_V")
_P = TypeVar("_P", PartitionEpoch, Probe)

_NO_OFFSET = -1  # Kafka: no record has this timestamp or a later one


class KafkaLog:
    """Look up topic ids, bounds, timestamps and committed offsets; `ports.LogOffsets`.

    It has no client of its own: in each process, all objects of one connection share one, also after a fork.

    Args:
        config: librdkafka's settings, as in the extra of an Airflow connection of type ``kafka``.
        timeout: seconds after which a lookup gives up, 1 to 3600. A request that is running then may take 2 s more.
    """

    def __init__(self, config: Mapping[str, Any], timeout: float) -> None:
        self._config = client_config(config)
        self._timeout = min(max(timeout, SHORTEST), LONGEST)

    @property
    def found_times(self) -> dict[Place, Known]:
        """What searches in the timestamp index have found so far, in this process."""
        return shared_client(self._config).found_times

    def snapshot(self, topics: Sequence[str], isolation_level: IsolationLevel) -> LogSnapshot:
        """Return ids and bounds of topics, without those that do not exist."""
        return self._ask(lambda lookup: lookup.snapshot(topics, isolation_level)) if topics else LogSnapshot({}, {})

    def topics(self) -> Collection[str]:
        """Return the names of all topics that this user may describe, those of Kafka itself among them: one request."""
        return self._ask(lambda lookup: lookup.topics())

    def topic_ids(self, topics: Sequence[str]) -> Mapping[str, str]:
        """Return the ids of topics, without those that do not exist. Their offsets are not looked up."""
        return self._ask(lambda lookup: lookup.topic_ids(topics)) if topics else {}

    def bounds(
        self, partitions: Sequence[TopicPartition], isolation_level: IsolationLevel
    ) -> Mapping[TopicPartition, Bounds]:
        """Return the bounds of partitions that exist."""
        return self._ask(lambda lookup: lookup.bounds(partitions, isolation_level)) if partitions else {}

    def offsets_at(
        self, partitions: Sequence[TopicPartition], time: datetime, isolation_level: IsolationLevel
    ) -> Mapping[TopicPartition, int | None]:
        """Return each partition's first offset whose record has this timestamp or a later one; None if there is none.

        Raises:
            BadInputError: the time has no zone, or is before 1970.
        """
        moment = epoch_milliseconds(time)
        return self._ask(lambda lookup: lookup.offsets_at(partitions, moment, isolation_level)) if partitions else {}

    def first_records(self, wanted: Collection[Probe]) -> Hits:
        """Return offset and timestamp of the first record that each probe finds, up to the high watermark; None if there is none."""
        return self._ask(lambda lookup: lookup.first_records(wanted)) if wanted else {}

    def retentions(self, topics: Sequence[str]) -> Mapping[str, Retention]:
        """Return the retention of topics, without those whose configuration this user may not read."""
        return self._ask(lambda lookup: lookup.retentions(topics)) if topics else {}

    def epoch_ends(self, wanted: Collection[PartitionEpoch]) -> EpochEnds:
        """Return the end offset of each leader epoch, without those that Kafka did not report."""
        return self._ask(lambda lookup: lookup.epoch_ends(wanted)) if wanted else {}

    def committed(self, group_id: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """Return the committed offsets of a Kafka consumer group; None means no offset for that partition."""
        commits = self.commits(group_id, partitions)
        return {tp: commits[tp][0] if tp in commits else None for tp in partitions}

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Return the topic-partitions of topics. A topic that does not exist has none."""
        return self._ask(lambda lookup: lookup.partitions(topics)) if topics else []

    def commits(self, group_id: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, tuple[int, str]]:
        """Return offset and metadata that a Kafka consumer group has committed, without partitions that have none."""
        return self._ask(lambda lookup: lookup.commits(group_id, partitions)) if partitions else {}

    def group_state(self, group_id: str) -> confluent_kafka.ConsumerGroupState | None:
        """Return the state of a Kafka consumer group; None if it does not exist, or this user may not see it."""
        return self._ask(lambda lookup: lookup.group_state(group_id))

    def rights(self, topics: Sequence[str]) -> Mapping[str, frozenset[str] | None]:
        """Return the rights (``READ``) of this user on topics, without those that do not exist; None if Kafka does not report any."""
        return self._ask(lambda lookup: lookup.rights(topics)) if topics else {}

    def group_rights(self, group_id: str) -> frozenset[str] | None:
        """Return the rights of this user on a Kafka consumer group, as `rights`. Its offsets must have been looked up just before."""
        return self._ask(lambda lookup: lookup.group_rights(group_id))

    def _ask(self, question: Callable[[_Lookup], _T]) -> _T:
        # Each failure but a refusal is tried again: librdkafka marks only some passing errors as "retriable".
        retrying = Retrying(
            retry=retry_if_exception(may_pass),
            stop=stop_before_delay(self._timeout),
            wait=wait_random_exponential(multiplier=0.2, max=3),
            before_sleep=_log_retry,
            reraise=True,
        )
        return retrying(question, _Lookup(KafkaRequests(self._config, self._timeout)))


def _log_retry(state: RetryCallState) -> None:
    assert state.outcome
    assert state.next_action
    logger.info("%s. Next attempt in %.1f s", state.outcome.exception(), state.next_action.sleep)


class _Lookup:
    """The questions and the meaning of their answers. Each method is one attempt; it fails unless each partition has an answer."""

    def __init__(self, requests: KafkaRequests) -> None:
        self._kafka = requests

    def snapshot(self, topics: Sequence[str], isolation_level: IsolationLevel) -> LogSnapshot:
        described = self._describe_twice(topics)
        leaders = _leaders(described)
        self._kafka.fail_for(_leaderless(leaders))
        return LogSnapshot(_topic_ids(described), self._bounds(list(leaders), isolation_level))

    def topics(self) -> frozenset[str]:
        [listed] = self._kafka.send("Metadata", lambda admin, seconds: {"": _listing(admin, seconds)}).values()
        if isinstance(listed, KafkaError):
            raise self._kafka.unavailable({"the list of topics": reason_of(listed)})
        return frozenset(listed.topics)

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        return _topic_ids(self._describe_twice(topics))

    def bounds(
        self, partitions: Sequence[TopicPartition], isolation_level: IsolationLevel
    ) -> dict[TopicPartition, Bounds]:
        self._refresh(partitions)
        return self._bounds(partitions, isolation_level)

    def offsets_at(
        self, partitions: Sequence[TopicPartition], moment: int, isolation_level: IsolationLevel
    ) -> dict[TopicPartition, int | None]:
        self._refresh(partitions)
        [answers] = self._list_offsets(partitions, [OffsetSpec.for_timestamp(moment)], isolation_level, BY_TIME)
        self._kafka.fail_for({tp: why for tp, answer in answers.items() if (why := _defect_of_time(answer))})
        return {tp: None if answer.offset == _NO_OFFSET else answer.offset for tp, answer in answers.items()}

    def first_records(self, wanted: Collection[Probe]) -> dict[Probe, Hit | None]:
        answers = self._first_records(wanted)
        if any(map(_defect_of_time, answers.values())):
            # A leader has moved since the topics were described.
            self._refresh([probe.partition for probe in wanted])
            answers = self._first_records(wanted)
        self._kafka.fail_for(
            {probe.partition: why for probe, answer in answers.items() if (why := _defect_of_time(answer))}
        )
        return {
            probe: None if answer.offset == _NO_OFFSET else Hit(answer.offset, answer.timestamp)
            for probe, answer in answers.items()
        }

    def _first_records(self, wanted: Collection[Probe]) -> dict[Probe, Any]:
        chunks = [chunk for some in one_of_each(wanted) for chunk in _chunks(some)]
        calls = [{_partition(p.partition): OffsetSpec.for_timestamp(p.time_ms) for p in chunk} for chunk in chunks]
        # Retention ignores transactions, so its records are those up to the high watermark.
        answers = self._send_all(calls, IsolationLevel.READ_UNCOMMITTED, BY_TIME)
        return dict(zip((probe for chunk in chunks for probe in chunk), answers, strict=True))

    def retentions(self, topics: Sequence[str]) -> dict[str, Retention]:
        wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(set(topics))]
        try:
            answers = self._kafka.send(
                "DescribeConfigs", lambda admin, seconds: admin.describe_configs(wanted, request_timeout=seconds)
            )
        except KafkaLacksError:
            return {}
        errors = {resource.name: a for resource, a in answers.items() if isinstance(a, KafkaError)}
        # Librdkafka's own errors are negative: no broker has answered.
        silent = {topic: error for topic, error in errors.items() if error.code() < 0}
        self._kafka.fail_for({topic: reason_of(error) for topic, error in silent.items()})
        return {
            resource.name: retention_of({name: entry.value for name, entry in answer.items()})
            for resource, answer in answers.items()
            if resource.name not in errors
        }

    def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        return list(_leaders(self._describe_twice(topics)))

    def group_state(self, group_id: str) -> Any:
        # List all groups: describing one may crash the process, see _fetch_committed.
        [answer] = self._kafka.send(
            "ListGroups", lambda admin, s: {"": admin.list_consumer_groups(request_timeout=s)}
        ).values()
        what = f"groups, {group_id} among them"
        if isinstance(answer, KafkaError):
            raise self._kafka.unavailable({what: reason_of(answer)})
        states = [listed.state for listed in answer.valid if listed.group_id == group_id]
        self._kafka.refuse_unsupported("ListGroups", dict(enumerate(answer.errors)))
        if not states and answer.errors:
            # The group's broker may be one of those that did not answer.
            raise self._kafka.unavailable({what: str(answer.errors[0])})
        return states[0] if states else None

    def rights(self, topics: Sequence[str]) -> dict[str, frozenset[str] | None]:
        return {name: _rights(topic) for name, topic in self._describe_twice(topics, with_rights=True).items()}

    def group_rights(self, group_id: str) -> frozenset[str] | None:
        # This may crash the process if the coordinator hangs, see _fetch_committed. So only a command asks, after that.
        [answer] = self._kafka.send(
            "DescribeGroups",
            lambda admin, seconds: admin.describe_consumer_groups(
                [group_id], include_authorized_operations=True, request_timeout=seconds
            ),
        ).values()
        if not isinstance(answer, KafkaError):
            return _rights(answer)
        self._kafka.refuse_unauthorized("Group", {group_id: answer})
        if answer.code() == KafkaError.GROUP_ID_NOT_FOUND:
            return None
        raise self._kafka.unavailable({f"group {group_id}": reason_of(answer)})

    def commits(self, group_id: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, str]]:
        # A consumer reports "timed out" also for a wrong password. This description reports the real reason.
        self._describe([tp.topic for tp in partitions])
        fetched = self._fetch_committed(group_id, partitions)
        answers = {TopicPartition(answer.topic, answer.partition): answer for answer in fetched}
        self._kafka.fail_for({tp: reason_of(answer.error) for tp, answer in answers.items() if answer.error})
        return {tp: (answer.offset, answer.metadata or "") for tp, answer in answers.items() if answer.offset >= 0}

    def epoch_ends(self, wanted: Collection[PartitionEpoch]) -> dict[PartitionEpoch, int]:
        overdue = time.monotonic() + self._kafka.request_seconds()
        ends: dict[PartitionEpoch, int] = {}
        for epochs in one_of_each(wanted):
            ends |= self._fetch_epoch_ends(epochs, overdue)
        return ends

    def _fetch_epoch_ends(self, epochs: Collection[PartitionEpoch], overdue: float) -> dict[PartitionEpoch, int]:
        """Request one epoch of each partition, all at once.

        In librdkafka only a consumer sends OffsetForLeaderEpoch, before it reads at an offset of an earlier leader. So this
        consumer starts at an offset far above the end of each log. Kafka does not confirm that offset, and the error holds the
        end of the epoch. No record is ever read. The ACL Describe is enough.
        """
        settings = {
            **self._kafka.config,
            "group.id": _NO_GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
        waiting = {epoch.partition: epoch for epoch in epochs}
        ends: dict[PartitionEpoch, int] = {}
        try:
            with closing(opened(Consumer, settings)) as consumer:
                consumer.assign([_far_behind(epoch) for epoch in epochs])
                while waiting and time.monotonic() < overdue:
                    message = consumer.poll(TICK)
                    # A message about the whole client has no topic.
                    if message is None or not message.topic():
                        continue
                    epoch = waiting.pop(TopicPartition(message.topic(), message.partition()), None)
                    end = epoch_end(message.error().str()) if message.error() else None
                    if epoch and end is not None:
                        ends[epoch] = end
        except KafkaException as exc:
            logger.info("No ends of leader epochs: %s", self._kafka.masked(reason_of(exc.args[0])))
        return ends

    def _refresh(self, partitions: Sequence[TopicPartition]) -> None:
        leaders = _leaders(self._describe([tp.topic for tp in partitions]))
        self._kafka.fail_for({tp: "no such partition" for tp in partitions if tp not in leaders})
        self._kafka.fail_for(_leaderless({tp: leaders[tp] for tp in partitions}))

    def _describe_twice(self, topics: Sequence[str], *, with_rights: bool = False) -> dict[str, Any]:
        # A broker that restarts, or learns late of a new topic, reports it as unknown for a moment.
        described = self._describe(topics, with_rights=with_rights)
        absent = set(topics) - described.keys()
        if absent:
            time.sleep(_SECOND_LOOK)
            described |= self._describe(absent, with_rights=with_rights)
        return described

    def _describe(self, topics: Iterable[str], *, with_rights: bool = False) -> dict[str, Any]:
        """Return the description of each topic that exists."""
        wanted = TopicCollection(sorted(set(topics)))
        answers = self._kafka.send(
            "Metadata",
            lambda admin, seconds: admin.describe_topics(
                wanted, include_authorized_operations=with_rights, request_timeout=seconds
            ),
        )
        errors = {topic: answer for topic, answer in answers.items() if isinstance(answer, KafkaError)}
        self._kafka.refuse_unauthorized("Topic", errors)
        absent = {topic for topic, error in errors.items() if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART}
        self._kafka.fail_for({topic: reason_of(error) for topic, error in errors.items() if topic not in absent})
        return {topic: answer for topic, answer in answers.items() if topic not in errors}

    def _fetch_committed(self, group_id: str, partitions: Sequence[TopicPartition]) -> list[Any]:
        # Not through an AdminClient: if a group's coordinator moves or hangs, these requests crash the process
        # (librdkafka #4605 describe_consumer_groups, #5040 list_consumer_group_offsets).
        settings = {**self._kafka.config, "group.id": group_id, "enable.auto.commit": False}
        wanted = list(map(_partition, partitions))
        try:
            with closing(opened(Consumer, settings)) as consumer:
                return self._wait_for_committed(consumer, group_id, wanted)
        except KafkaException as exc:
            raise self._kafka.unavailable({f"group {group_id}": reason_of(exc.args[0])}) from exc

    def _wait_for_committed(self, consumer: Consumer, group_id: str, wanted: list[Any]) -> list[Any]:
        seconds = self._kafka.request_seconds()
        try:
            return list(consumer.committed(wanted, timeout=SHORTEST))
        except KafkaException:
            # If the user may not see the group, Kafka reports it here, in place of a record.
            message = consumer.poll(0)
            if message is not None and message.error():
                self._kafka.refuse_unauthorized("Group", {group_id: message.error()})
            if seconds < 2 * SHORTEST:
                raise
        return list(consumer.committed(wanted, timeout=seconds - SHORTEST))

    def _bounds(
        self, partitions: Sequence[TopicPartition], isolation_level: IsolationLevel
    ) -> dict[TopicPartition, Bounds]:
        specs = [OffsetSpec.earliest(), OffsetSpec.latest()]
        beginnings, ends = self._list_offsets(partitions, specs, isolation_level)
        self._kafka.fail_for({tp: why for tp in beginnings if (why := _defect(beginnings[tp]) or _defect(ends[tp]))})
        # If records of an open transaction are deleted, the last stable offset is below the beginning offset.
        return {tp: Bounds(b.offset, max(b.offset, ends[tp].offset), _epoch(ends[tp])) for tp, b in beginnings.items()}

    def _list_offsets(
        self,
        partitions: Sequence[TopicPartition],
        specs: Sequence[Any],
        isolation_level: IsolationLevel,
        what: str = "ListOffsets",
    ) -> list[dict[TopicPartition, Any]]:
        """Return for each spec the answer for each partition: an offset with its timestamp, or a KafkaError.

        All requests are sent before the first answer is awaited. A call takes one spec for each partition: of two, it
        silently drops the first.
        """
        wanted = list(map(_partition, partitions))
        calls = [dict.fromkeys(chunk, spec) for spec in specs for chunk in _chunks(wanted)]
        answers = iter(self._send_all(calls, isolation_level, what))
        return [dict(zip(partitions, answers, strict=False)) for _ in specs]

    def _send_all(self, calls: Sequence[Mapping[Any, Any]], isolation_level: IsolationLevel, what: str) -> list[Any]:
        """Send calls of ListOffsets together, and return the answers in their order."""
        level = confluent_kafka.IsolationLevel[isolation_level.name]
        asked = [tp for call in calls for tp in call]

        def request(admin: Any, seconds: float) -> dict[int, Any]:
            sent = [admin.list_offsets(call, isolation_level=level, request_timeout=seconds) for call in calls]
            return dict(enumerate(futures[tp] for call, futures in zip(calls, sent, strict=True) for tp in call))

        return list(self._kafka.send(what, request, lambda number: asked[number].topic).values())


def _listing(admin: Any, seconds: float) -> Future[Any]:
    """Return the cluster's metadata as the other requests return theirs: this one is the only one that blocks."""
    answer: Future[Any] = Future()
    try:
        answer.set_result(admin.list_topics(timeout=seconds))
    except KafkaException as exc:
        # librdkafka reports only here that a login was refused.
        admin.poll(0)
        answer.set_exception(exc)
    return answer


def epoch_milliseconds(moment: datetime) -> int:
    """Return the first millisecond that is not before a moment. Kafka's timestamps have no fractions.

    Raises:
        BadInputError: the moment has no zone, or is before 1970 (negative timestamps have another meaning in Kafka).
    """
    if moment.tzinfo is None:
        raise BadInputError(f"A time needs a zone: {moment.isoformat()}")
    if moment < _EPOCH:
        raise BadInputError(f"Kafka has no times before 1970: {moment.isoformat()}")
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def _defect(answer: Any, lowest: int = 0) -> str | None:
    if isinstance(answer, KafkaError):
        return reason_of(answer)
    # librdkafka reports success with offset -1001 for each partition of a leader that did not answer.
    return None if answer.offset >= lowest else "no answer from its leader"


def _partition(tp: TopicPartition) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(tp.topic, tp.partition)


def _chunks(values: Sequence[_V]) -> list[Sequence[_V]]:
    return [values[start : start + CHUNK] for start in range(0, len(values), CHUNK)]


def one_of_each(wanted: Iterable[_P]) -> list[list[_P]]:
    """Divide epochs or probes into lists that name each partition once.

    >>> first, second = PartitionEpoch(TopicPartition("orders", 0), 3), PartitionEpoch(TopicPartition("orders", 0), 5)
    >>> one_of_each([first, second]) == [[first], [second]]
    True
    """
    by_partition: dict[TopicPartition, list[_P]] = {}
    for item in wanted:
        by_partition.setdefault(item.partition, []).append(item)
    most = max(map(len, by_partition.values()), default=0)
    return [[items[number] for items in by_partition.values() if number < len(items)] for number in range(most)]


def _defect_of_time(answer: Any) -> str | None:
    return _defect(answer, lowest=_NO_OFFSET)


def epoch_end(error: str) -> int | None:
    """Return the end of a leader epoch from a consumer's error about an unconfirmed offset; None means not known.

    >>> epoch_end("Partition log truncation detected at ...: broker end offset is 60 (offset leader epoch 0). Reset to INVALID.")
    60
    >>> epoch_end("No epoch found less or equal to ...: broker end offset is -1 (offset leader epoch -1).")
    """
    match = _EPOCH_END.search(error)
    return int(match.group(1)) if match else None


def _far_behind(epoch: PartitionEpoch) -> confluent_kafka.TopicPartition:
    tp = epoch.partition
    return confluent_kafka.TopicPartition(tp.topic, tp.partition, _BEHIND_ALL, leader_epoch=epoch.leader_epoch)


def _epoch(answer: Any) -> int | None:
    epoch: int | None = answer.leader_epoch
    return epoch if epoch is not None and epoch >= 0 else None


def _topic_ids(described: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(topic.topic_id) for name, topic in described.items()}


def _rights(described: Any) -> frozenset[str] | None:
    rights = frozenset(operation.name for operation in described.authorized_operations or ())
    return rights if "DESCRIBE" in rights else None  # whoever gets a description has this one


def _leaders(described: Mapping[str, Any]) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(name, partition.id): partition.leader
        for name, topic in described.items()
        for partition in topic.partitions
    }


def _leaderless(leaders: Mapping[TopicPartition, Any]) -> dict[TopicPartition, str]:
    return {tp: "no leader" for tp, leader in leaders.items() if leader is None}
