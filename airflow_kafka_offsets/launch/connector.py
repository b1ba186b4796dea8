"""How a launch gets Spark's Kafka connector, and Spark's Avro. Only running tasks import this module."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from airflow_kafka_offsets.launch.job_files import joined
from airflow_kafka_offsets.spark.connector import (
    AUTO,
    AVRO,
    KAFKA,
    Way,
    avro_of,
    connector_package,
    is_connector,
    names_connector,
    way_of,
)
from airflow_kafka_offsets.spark.parent import dying_with_parent
from airflow_kafka_offsets.wiring.machine.cache import cache_folder
from airflow_kafka_offsets.wiring.machine.connector import Fetching, LocalSpark, jars_in, local_spark, session_spark

PACKAGES = "spark.jars.packages"
JARS = "spark.jars"
EXCLUDES = "spark.jars.excludes"
# Where Ivy looks. Users set a mirror here, for one task or in spark-defaults.conf.
_WHERE = ("spark.jars.repositories", "spark.jars.ivySettings")


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
    """Return `PACKAGES` or `JARS` for spark-submit, with the connector; neither: the user's stay unchanged.

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
        *_where(conf),
    ]
    return _with_all(connector, properties, spark, is_client=is_client, arguments=arguments, avro=avro)


def for_session(connector: str | None, conf: Mapping[str, object], *, avro: bool = False) -> dict[str, str]:
    """Return the properties that load the connector into a session of this process.

    Args:
        connector: the operator's argument.
        conf: Spark properties of the task.
        avro: whether the function also needs Spark's Avro.

    Raises:
        ConnectorUnavailableError: the jars are not here, and can't be fetched.
        ConnectorError: there is no Spark here, so its version is not known.
    """
    if connector is None:
        return {}
    spark = session_spark(os.environ)
    properties = {**(spark.properties() if spark else {}), **_texts(conf)}
    return _with_all(connector, properties, spark, is_client=True, arguments=_where(conf), avro=avro)


def _with_all(
    connector: str,
    properties: Mapping[str, str],
    spark: LocalSpark | None,
    *,
    is_client: bool,
    arguments: Sequence[str],
    avro: bool,
) -> dict[str, str]:
    found: dict[str, str] = {}
    for artifact in (KAFKA, *([AVRO] if avro else [])):
        known = {**properties, **found}
        found |= _with_one(connector, artifact, known, spark, is_client=is_client, arguments=arguments)
    return found


def _with_one(
    connector: str,
    artifact: str,
    properties: Mapping[str, str],
    spark: LocalSpark | None,
    *,
    is_client: bool,
    arguments: Sequence[str],
) -> dict[str, str]:
    packages, jars = properties.get(PACKAGES), properties.get(JARS)
    way = way_of(
        connector,
        spark.build if spark else None,
        is_client=is_client,
        packages=packages,
        jars=jars,
        excludes=properties.get(EXCLUDES),
        artifact=artifact,
    )
    if way is Way.PACKAGES:
        return {PACKAGES: joined(packages, _package(artifact, connector, spark))}
    if way is Way.FILES:
        assert spark is not None
        return {JARS: joined(jars, *_files(spark, _package(artifact, connector, spark), arguments))}
    return {}


def _package(artifact: str, connector: str, spark: LocalSpark | None) -> str:
    if artifact == KAFKA and connector != AUTO:
        return connector
    # A connector of another name does not say which Spark it is for.
    fits = connector if is_connector(connector) else spark.build.connector if spark else connector_package()
    return fits if artifact == KAFKA else avro_of(fits)


def _files(spark: LocalSpark, package: str, arguments: Sequence[str]) -> list[str]:
    how = Fetching(spark.home, package, arguments, spark.environment, before_exec=dying_with_parent())
    jars, _ = jars_in(cache_folder(), how)
    return [str(jar) for jar in jars if spark.build.lacks(jar.name)]


def _where(conf: Mapping[str, object]) -> list[str]:
    return [part for name in _WHERE if name in conf for part in ("--conf", f"{name}={conf[name]}")]


def _texts(conf: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in conf.items() if value is not None}
