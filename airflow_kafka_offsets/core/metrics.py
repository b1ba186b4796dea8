"""Names of the metrics that tasks send while they work. docs/reference/metrics.md lists them."""

from __future__ import annotations

WINDOWS_PLANNED = "kafka_offsets.windows_planned"
WINDOWS_COMMITTED = "kafka_offsets.windows_committed"
WINDOWS_REPLAYED = "kafka_offsets.windows_replayed"
ATTEMPTS_FAILED = "kafka_offsets.attempts_failed"
RECORDS = "kafka_offsets.records"
OFFSETS_LOST = "kafka_offsets.offsets_lost"

ATTEMPT_DURATION = "kafka_offsets.attempt_duration"
COMMIT_DURATION = "kafka_offsets.commit_duration"

COUNTERS = (WINDOWS_PLANNED, WINDOWS_COMMITTED, WINDOWS_REPLAYED, ATTEMPTS_FAILED, RECORDS, OFFSETS_LOST)
TIMERS = (ATTEMPT_DURATION, COMMIT_DURATION)


def name_with_group(name: str, group: str) -> str:
    """Return a metric's name for a server that has no tags: the group comes last, as one part of the name.

    >>> name_with_group(WINDOWS_COMMITTED, "lake.orders")
    'kafka_offsets.windows_committed.lake__orders'
    """
    # As Airflow's own names have it: there, a dot begins the next part of a name.
    return f"{name}.{group.replace('.', '__')}"
