"""The job side: a window of Kafka offsets, read and written by a Spark job.

It runs on clusters that have only pyspark and the standard library, so nothing here imports the rest of this package. What
Airflow imports outside of a job needs no pyspark. It takes Python 3.8, the oldest that Spark 3.5
accepts.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_kafka_offsets.spark.audit import islands
    from airflow_kafka_offsets.spark.errors import KafkaWindowError
    from airflow_kafka_offsets.spark.window import KafkaWindow, current_window

_EXPORTS = {
    "KafkaWindow": "airflow_kafka_offsets.spark.window",
    "KafkaWindowError": "airflow_kafka_offsets.spark.errors",
    "current_window": "airflow_kafka_offsets.spark.window",
    "islands": "airflow_kafka_offsets.spark.audit",
}

__all__ = ["KafkaWindow", "KafkaWindowError", "current_window", "islands"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use: whoever parses a DAG or launches a job needs neither the window nor its sinks."""
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)
