"""The connector that fits the installed Spark."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import pytest

from airflow_kafka_offsets.spark import connector
from airflow_kafka_offsets.spark.connector import connector_package
from airflow_kafka_offsets.spark.errors import ConnectorError


def test_the_connector_is_of_the_version_of_pyspark() -> None:
    assert connector_package() == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')}"
    assert connector_package("4.2.0") == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"


def test_pyspark_client_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_client(name: str) -> str:
        if name != "pyspark-client":
            raise PackageNotFoundError(name)
        return "4.1.1"

    monkeypatch.setattr(connector, "version", only_client)
    assert connector_package().endswith(":4.1.1")


def test_without_pyspark_the_error_says_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(connector, "version", nothing)
    with pytest.raises(ConnectorError, match=r"spark-sql-kafka-0-10_2\.13:<version of Spark>"):
        connector_package()
