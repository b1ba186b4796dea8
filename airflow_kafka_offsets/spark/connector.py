"""Which Kafka connector fits a Spark: the one place that knows its coordinates."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from airflow_kafka_offsets.spark.errors import ConnectorError

_COORDINATES = "org.apache.spark:spark-sql-kafka-0-10_2.13"


def connector_package(spark_version: str | None = None) -> str:
    """Return the Maven coordinates of Spark's Kafka connector, for ``--packages``. It must be of Spark's own version.

    Args:
        spark_version: version of the Spark that runs the job; None: that of the installed pyspark or pyspark-client.

    Raises:
        ConnectorError: no version was given, and there is no pyspark here.
    """
    return f"{_COORDINATES}:{spark_version or _installed_version()}"


def _installed_version() -> str:
    for distribution in ("pyspark", "pyspark-client"):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    raise ConnectorError(
        "Neither pyspark nor pyspark-client is installed here, so the version of Spark is not known. Name the connector "
        f"that fits the cluster yourself: {_COORDINATES}:<version of Spark>"
    )
