"""Spark on this machine, and the jars of its Kafka connector in the cache folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from airflow_kafka_offsets.adapters.machine import connector_jars, spark_home
from airflow_kafka_offsets.adapters.machine.connector_jars import Fetching
from airflow_kafka_offsets.spark.connector import SparkBuild, folder_name, spark_build

__all__ = ["Fetching", "LocalSpark", "jars_in", "local_spark", "session_spark", "spark_at"]

_FOLDER = "jars"


@dataclass(frozen=True, slots=True)
class LocalSpark:
    """A Spark on this machine.

    Attributes:
        home: its folder.
        build: its versions, from the names of its jars.
        environment: that it is started with.
    """

    home: Path
    build: SparkBuild
    environment: Mapping[str, str]

    def properties(self, file: str | None = None) -> dict[str, str]:
        """Return the properties that spark-submit reads from a file; None: its own ``spark-defaults.conf``."""
        return spark_home.default_properties(self.home, self.environment, file)


def local_spark(binary: str, environment: Mapping[str, str]) -> LocalSpark | None:
    """Return the Spark that a binary starts in an environment; None: it can't be found."""
    home = spark_home.find_home(binary, environment)
    return spark_at(home, environment) if home else None


def session_spark(environment: Mapping[str, str]) -> LocalSpark | None:
    """Return the Spark that a session in this process starts; None: there is none."""
    home = spark_home.home_of_pyspark(environment)
    return spark_at(home, environment) if home else None


def spark_at(home: Path, environment: Mapping[str, str]) -> LocalSpark | None:
    """Return the Spark in a folder; None: its jars do not show its version."""
    build = spark_build(spark_home.jar_names(home))
    return LocalSpark(home, build, environment) if build else None


def jars_in(cache: Path, how: Fetching) -> tuple[list[Path], bool]:
    """Return the jars of the connector, sorted by name, and whether they were fetched now.

    Args:
        cache: the cache folder.
        how: how they are fetched, if they are not there.

    Raises:
        ConnectorUnavailableError: they are not there, and can't be fetched.
    """
    folder = cache / _FOLDER / folder_name(how.coordinates)
    kept = connector_jars.kept_jars(folder)
    return (kept, False) if kept else (connector_jars.fetch_jars(folder, how), True)
