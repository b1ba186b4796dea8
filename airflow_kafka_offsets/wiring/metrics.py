"""What gives metrics to Prometheus. If its client library is missing, the error names the extra to install."""

from __future__ import annotations

from airflow_kafka_offsets.core.errors import BadInputError

try:
    from airflow_kafka_offsets.adapters.prometheus import exposition, read, serving, write
except ModuleNotFoundError as exc:
    if (exc.name or "").partition(".")[0] != "prometheus_client":
        raise
    raise BadInputError(
        "This command needs the Python module prometheus_client:\n    pip install 'airflow-kafka-offsets[metrics]'"
    ) from exc

__all__ = ["exposition", "read", "serving", "write"]
