"""All use cases of windows, on one ledger and one Kafka."""

from __future__ import annotations

from airflow_kafka_offsets.service.acts import Acts
from airflow_kafka_offsets.service.plan import Planner
from airflow_kafka_offsets.service.run import Runs


class WindowService(Planner, Runs, Acts):
    """What operators and commands use."""
