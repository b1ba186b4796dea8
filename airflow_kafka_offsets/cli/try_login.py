"""Tries the login of a connection, and what its user may do."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.cli.running import Answer, ExitCode
from airflow_kafka_offsets.cli.sources import open_ledger
from airflow_kafka_offsets.core.errors import KafkaOffsetsError, KafkaRefusedError, counted, name_some
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.plan.matching import topics_to_ask_for
from airflow_kafka_offsets.core.store_address import parse_store_address
from airflow_kafka_offsets.launch.job_files import reader_of
from airflow_kafka_offsets.launch.session import log_in
from airflow_kafka_offsets.spark.errors import KafkaWindowError
from airflow_kafka_offsets.wiring.connections import find_connection
from airflow_kafka_offsets.wiring.stores.opening import open_store

if TYPE_CHECKING:
    from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
    from airflow_kafka_offsets.adapters.stores.kafka import KafkaStore


@dataclass(frozen=True, slots=True)
class Finding:
    """What was tried, and what came of it.

    Attributes:
        subject: what was tried, such as ``planning`` or ``topic orders``.
        is_right: whether nothing has to be corrected.
        text: what is there, or what to correct.
    """

    subject: str
    is_right: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok' if self.is_right else 'WRONG':5}  {self.subject}: {self.text}"


def try_login(args: Namespace) -> Answer:
    """Try the login as planning does, and translate it as a job will, or try it as a job does."""
    find_connection(args.connection, "kafka")
    known = open_ledger(args).group(args.group) if args.group else KafkaGroup("unnamed", topics=["unnamed"])
    group = replace(known, kafka_conn_id=args.connection, kafka_timeout=args.timeout)
    findings = [*_planning(group, args), _tried("job", partial(_job, group, args))]
    is_right = all(finding.is_right for finding in findings)
    return Answer(
        {"connection": args.connection, "right": is_right, "findings": [asdict(finding) for finding in findings]},
        lambda: "\n".join(map(str, findings)),
        ExitCode.OK if is_right else ExitCode.REFUSED,
    )


def _tried(subject: str, attempt: Callable[[], str]) -> Finding:
    try:
        return Finding(subject, True, attempt())
    except (KafkaOffsetsError, KafkaWindowError) as exc:
        return Finding(subject, False, str(exc))


def _planning(group: KafkaGroup, args: Namespace) -> Iterator[Finding]:
    """Yield what planning meets. After a login that failed, there is nothing more to try."""
    try:
        log = wiring.open_log(group)
        listed = sorted(log.topics())
    except KafkaOffsetsError as exc:
        yield Finding("planning", False, str(exc))
        return
    names = f": {name_some(listed, ', ')}" if listed else ""
    yield Finding("planning", True, f"logged in. Kafka lists {counted(len(listed), 'topic')}{names}")
    topics = args.topic or (topics_to_ask_for(group, listed, None) if args.group else ())
    for topic in topics:
        yield _tried(f"topic {topic}", partial(_topic, log, topic))
    address = parse_store_address(group.offset_store) if group.offset_store else None
    if address and address.kind == "kafka":
        store = cast("KafkaStore", open_store(address, group))
        yield _tried(f"store {address}", partial(_store, store, group.name, topics))


def _topic(log: KafkaLog, topic: str) -> str:
    described = log.rights([topic])
    if topic not in described:
        raise KafkaRefusedError("Kafka has no such topic. Make it, or correct its name")
    rights = described[topic]
    if rights is None:
        return "it is there. This Kafka does not say what this user may do"
    if "READ" not in rights:
        raise KafkaRefusedError(f"its records may not be read. Grant the ACL Read on Topic {topic}")
    if "DESCRIBE_CONFIGS" not in rights:
        return "may be read. Without the ACL DescribeConfigs, planning does not know how long its records live"
    return "may be read, and its configuration too"


def _store(store: KafkaStore, group: str, topics: Sequence[str]) -> str:
    store.check_rights(group, topics)
    return f"may commit offsets of group {group}"


def _job(group: KafkaGroup, args: Namespace) -> str:
    reader = reader_of(group)
    protocol = reader.options.get("kafka.security.protocol", "PLAINTEXT")
    mechanism = reader.options.get("kafka.sasl.mechanism")
    login = f"{protocol} with {mechanism}" if mechanism else protocol
    if not args.job:
        return f"the login is translated for Spark, and not tried (--job tries it): {login} to {reader.servers}"
    log_in(reader, args.timeout)
    return f"Spark's Kafka client logged in from this machine: {login} to {reader.servers}"
