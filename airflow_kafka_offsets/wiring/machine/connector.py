"""How a launch gets Spark's Kafka connector, and Spark's Avro. Only running tasks and commands import this module."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_kafka_offsets.adapters.machine.connector_jars import fetch_jars, kept_jars
from airflow_kafka_offsets.adapters.machine.spark_home import LocalSpark, local_spark, session_spark, spark_at
from airflow_kafka_offsets.spark.connector import (
    AUTO,
    AVRO,
    KAFKA,
    avro_of,
    connector_package,
    folder_name,
    is_connector,
    names_connector,
)
from airflow_kafka_offsets.wiring.machine.cache import cache_folder

__all__ = ["LocalSpark", "for_session", "for_submit", "jars_in", "local_spark", "spark_at"]

PACKAGES = "spark.jars.packages"
JARS = "spark.jars"
EXCLUDES = "spark.jars.excludes"
# Where Ivy looks. Users set a mirror here, for one task or in spark-defaults.conf.
_REPOSITORIES = ("spark.jars.repositories", "spark.jars.ivySettings")


def for_submit(
    connector: str | None,
    given: Mapping[str, str | None],
    *,
    is_client: bool,
    binary: str,
    environment: Mapping[str, str],
    conf: Mapping[str, object],
    properties_file: str | None,
    repositories: str | None,
    avro: bool = False,
) -> dict[str, str]:
    """Return `PACKAGES` or `JARS` for spark-submit, with the connector; without them, the user's stay unchanged.

    Args:
        connector: the operator's argument.
        given: the operator's lists with commas, by the properties of the same meaning: `PACKAGES`, `JARS` and `EXCLUDES`.
        is_client: whether the driver runs on this machine.
        binary: spark-submit's name.
        environment: that spark-submit is started with.
        conf: Spark properties of the operator.
        properties_file: the file that spark-submit reads instead of ``spark-defaults.conf``.
        repositories: the operator's repositories for Ivy.
        avro: whether the job also needs Spark's Avro.

    Raises:
        ConnectorUnavailableError: the jars are not here, and can't be fetched.
        ConnectorError: there is no Spark here, so its version is not known.
    """
    if connector is None or (not avro and names_connector(given[PACKAGES], given[JARS])):
        return {}
    spark = local_spark(binary, environment)
    # An argument of spark-submit replaces the property of the same meaning; it does not add to it.
    lists = {name: text for name, text in given.items() if text}
    properties = {**(spark.properties(properties_file) if spark else {}), **_texts(conf), **lists}
    arguments = [
        *(["--properties-file", properties_file] if properties_file else []),
        *(["--repositories", repositories] if repositories else []),
        *_repositories(conf),
    ]
    return _with_connector(connector, properties, spark if is_client else None, spark, arguments, avro=avro)


def for_session(connector: str | None, conf: Mapping[str, object], *, avro: bool = False) -> dict[str, str]:
    """Return the properties that load the connector into a session of this process; see `for_submit`."""
    if connector is None:
        return {}
    spark = session_spark(os.environ)
    properties = {**(spark.properties() if spark else {}), **_texts(conf)}
    return _with_connector(connector, properties, spark, spark, _repositories(conf), avro=avro)


def _with_connector(
    connector: str,
    properties: Mapping[str, str],
    driver: LocalSpark | None,
    spark: LocalSpark | None,
    arguments: Sequence[str],
    *,
    avro: bool,
) -> dict[str, str]:
    """Add the connector to what Spark loads.

    Args:
        connector: the operator's argument.
        properties: what the user gives to Spark.
        driver: the Spark of a driver on this machine, or None if it is elsewhere.
        spark: the Spark that is launched from this machine, or None if it is not found.
        arguments: arguments of spark-submit with the repositories of its Ivy.
        avro: whether to add Spark's Avro, too.
    """
    added: dict[str, str] = {}
    for artifact in (KAFKA, *([AVRO] if avro else [])):
        packages, jars = (added.get(name) or properties.get(name) for name in (PACKAGES, JARS))
        if names_connector(packages, jars, artifact=artifact):
            continue
        local = driver if connector == AUTO else None
        if local and local.build.has(artifact):
            continue
        package = _package(artifact, connector, spark)
        # With packages or excludes of the user, Ivy runs anyway. It chooses one version of what several packages require.
        if local and not packages and not properties.get(EXCLUDES):
            fetched, _ = jars_in(cache_folder(), local, package, arguments)
            files = [str(jar) for jar in fetched if local.build.lacks(jar.name)]
            added[JARS] = ",".join(filter(None, [jars, *files]))
        else:
            added[PACKAGES] = ",".join(filter(None, [packages, package]))
    return added


def _package(artifact: str, connector: str, spark: LocalSpark | None) -> str:
    if artifact == KAFKA and connector != AUTO:
        return connector
    # A connector of another name does not show which Spark it is for.
    fits = connector if is_connector(connector) else spark.build.connector if spark else connector_package()
    return fits if artifact == KAFKA else avro_of(fits)


def jars_in(cache: Path, spark: LocalSpark, coordinates: str, arguments: Sequence[str]) -> tuple[list[Path], bool]:
    """Return the jars of these coordinates in a cache folder, sorted by name, and whether they were fetched now.

    Raises:
        ConnectorUnavailableError: they are not there, and can't be fetched.
    """
    folder = cache / "jars" / folder_name(coordinates)
    kept = kept_jars(folder)
    return (kept, False) if kept else (fetch_jars(folder, spark, coordinates, arguments), True)


def _repositories(conf: Mapping[str, object]) -> list[str]:
    return [part for name in _REPOSITORIES if name in conf for part in ("--conf", f"{name}={conf[name]}")]


def _texts(conf: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in conf.items() if value is not None}
