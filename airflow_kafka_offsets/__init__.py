"""Kafka topics as replayable windows for scheduled Spark batches."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "KafkaGroup": "airflow_kafka_offsets.core.group",
    "KafkaSparkOperator": "airflow_kafka_offsets.operators.kafka_spark",
    "KafkaSparkSqlOperator": "airflow_kafka_offsets.operators.kafka_spark_sql",
    "KafkaSparkSubmitOperator": "airflow_kafka_offsets.operators.spark_submit",
    "PlanWindowOperator": "airflow_kafka_offsets.operators.window",
    "PlanBacklogOperator": "airflow_kafka_offsets.operators.window",
    "CommitWindowOperator": "airflow_kafka_offsets.operators.window",
    "replay_params": "airflow_kafka_offsets.params",
    "KafkaUnreadSensor": "airflow_kafka_offsets.sensors.kafka",
    "KafkaLagSensor": "airflow_kafka_offsets.sensors.kafka",
    "KafkaVerdictSensor": "airflow_kafka_offsets.sensors.kafka",
    "KafkaTimeSensor": "airflow_kafka_offsets.sensors.kafka",
    "WindowCommittedSensor": "airflow_kafka_offsets.sensors.window",
    "KafkaOffsetsTrigger": "airflow_kafka_offsets.triggers.event",
    "KafkaVerdictTrigger": "airflow_kafka_offsets.triggers.event",
    "StoreAddress": "airflow_kafka_offsets.core.store_address",
    "Registry": "airflow_kafka_offsets.core.schemas",
}

__all__ = [
    "CommitWindowOperator",
    "KafkaUnreadSensor",
    "KafkaGroup",
    "KafkaLagSensor",
    "KafkaOffsetsTrigger",
    "KafkaSparkOperator",
    "KafkaSparkSqlOperator",
    "KafkaSparkSubmitOperator",
    "KafkaTimeSensor",
    "KafkaVerdictSensor",
    "KafkaVerdictTrigger",
    "PlanWindowOperator",
    "PlanBacklogOperator",
    "Registry",
    "StoreAddress",
    "WindowCommittedSensor",
    "replay_params",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use: this module also runs on clusters, without Airflow and the rest of us."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)
