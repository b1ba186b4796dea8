"""Looks how far behind groups are: lag in offsets and in time, headroom and a verdict. Writes nothing, and reads no record.

How to call it, for many groups at once::

    ledger = open_ledger()
    found = look(ledger.groups(), ledger, lambda group: open_log(group.kafka_conn_id, group.kafka_timeout))
    found["lake.orders"].verdict, found["lake.orders"].reason

Each Kafka is asked once for all groups that read it: one snapshot for each isolation level, one look at the configuration of
the topics, and at most `core.lag.search.MAX_ROUNDS` lookups in the timestamp index. The ledger gets three statements for a thousand groups. A Kafka
that does not answer makes `GroupLag.error` of its groups: nothing is raised for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.lag.lag import GroupLag
from airflow_kafka_offsets.core.plan.overview import Overview
from airflow_kafka_offsets.ports import Ledger, LogOffsets


def look(
    groups: Sequence[KafkaGroup],
    ledger: Ledger,
    open_log: Callable[[KafkaGroup], LogOffsets],
    now: datetime | None = None,
    *,
    overviews: Mapping[str, Overview] | None = None,
    is_one_kafka: bool = False,
    horizon: timedelta | None = None,
) -> dict[str, GroupLag]:
    """Return how far behind groups are, by name. An error of one Kafka or one topic does not affect the other groups.

    Args:
        groups: the groups, as the ledger or a DAG defines them.
        ledger: their ledger. It is asked before Kafka.
        open_log: opens the Kafka of a group. It is called once for all groups with the same ``kafka_conn_id`` and ``kafka_timeout``.
        now: the time; None: that of the clock.
        overviews: what the ledger says of the groups, by name, from before this call; None: the ledger is asked.
        is_one_kafka: whether `open_log` opens the same Kafka for every group, whatever its ``kafka_conn_id`` is.
        horizon: with less headroom than this a group is at risk, too; None: `core.lag.verdict` decides.

    Raises:
        LedgerError: the ledger did not answer, or a row of it is damaged.
    """
    raise NotImplementedError
