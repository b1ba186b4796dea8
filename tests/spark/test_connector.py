"""The connector that fits a Spark."""

from __future__ import annotations

import doctest
from importlib.metadata import PackageNotFoundError, version

import pytest

from airflow_kafka_offsets.spark import connector
from airflow_kafka_offsets.spark.connector import SparkBuild, connector_package, spark_build
from airflow_kafka_offsets.spark.errors import ConnectorError


def plain_build() -> SparkBuild:
    found = spark_build(["spark-core_2.13-4.0.0.jar", "lz4-java-1.8.0.jar"])
    assert found is not None
    return found


def test_the_connector_is_of_the_version_of_pyspark() -> None:
    assert connector_package() == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')}"
    assert connector_package("4.2.0") == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
    assert connector_package("3.5.7") == "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7"
    assert connector_package("3.5.7", "2.13") == "org.apache.spark:spark-sql-kafka-0-10_2.13:3.5.7"


@pytest.mark.parametrize(
    ("core", "coordinates"),
    [
        ("spark-core_2.13-4.1.1.jar", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1"),
        ("spark-core_2.12-3.5.6.jar", "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.6"),
        ("spark-core_2.13-3.5.6.jar", "org.apache.spark:spark-sql-kafka-0-10_2.13:3.5.6"),
        ("spark-core_2.12-3.5.4-amzn-0.jar", "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.4-amzn-0"),
        ("spark-core_2.13-4.2.0-preview1.jar", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0-preview1"),
    ],
)
def test_the_name_of_sparks_core_says_which_connector_fits(core: str, coordinates: str) -> None:
    names = [core, "spark-core-extras_2.13-9.9.9.jar", core.replace(".jar", "-tests.jar"), "spark-sql_2.13-4.1.1.jar"]
    build = spark_build(names)
    assert build is not None
    assert build.connector == coordinates


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["spark-connect-client-jvm_2.13-4.0.0.jar"],
        ["spark-core_2.13-4.0.0.jar", "spark-core_2.13-4.0.1.jar"],
        ["spark-core_2.13-4.0.0-tests.jar", "spark-core_2.13.jar"],
    ],
)
def test_jars_that_name_no_spark_or_two_are_not_known(names: list[str]) -> None:
    assert spark_build(names) is None


PLAIN = plain_build()


def test_what_spark_has_itself_is_not_given_again() -> None:
    fetched = ["org.lz4_lz4-java-1.8.0.jar", "org.lz4_lz4-java-1.9.0.jar", "org.apache.kafka_kafka-clients-3.9.0.jar"]
    assert [jar for jar in fetched if PLAIN.lacks(jar)] == fetched[1:]


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


def test_the_examples_are_true() -> None:
    assert doctest.testmod(connector) == (0, 5)
