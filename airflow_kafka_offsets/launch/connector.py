"""How a launch gets Spark's Kafka connector. Only running tasks import this module."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_kafka_offsets.launch.job_files import joined
from airflow_kafka_offsets.spark.connector import AUTO, Way, connector_package, names_connector, way_of
from airflow_kafka_offsets.spark.parent import dying_with_parent
from airflow_kafka_offsets.wiring.machine.cache import cache_folder
from airflow_kafka_offsets.wiring.machine.connector import Fetching, LocalSpark, jars_in, local_spark, session_spark

PACKAGES = "spark.jars.packages"
JARS = "spark.jars"
EXCLUDES = "spark.jars.excludes"
# Where Ivy looks. Users set a mirror here, for one task or in spark-defaults.conf.
_WHERE = ("spark.jars.repositories", "spark.jars.ivySettings")


@dataclass(frozen=True, slots=True)
class Given:
    """The user's packages and jars, as lists with commas.

    Attributes:
        packages: coordinates for Ivy.
        jars: files.
        excludes: coordinates that Ivy leaves out.
    """

    packages: str | None = None
    jars: str | None = None
    excludes: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """The packages and jars with the connector; None: the user's stay unchanged.

    Attributes:
        packages: coordinates for Ivy, as a list with commas.
        jars: files, as a list with commas.
    """

    packages: str | None = None
    jars: str | None = None


def for_submit(
    connector: str | None,
    given: Given,
    *,
    is_client: bool,
    binary: str,
    environment: Mapping[str, str],
    conf: Mapping[str, object],
    properties_file: str | None = None,
    repositories: str | None = None,
) -> Told:
    """Return the packages and jars for spark-submit, with the connector.

    Args:
        connector: the operator's argument.
        given: the operator's packages and jars.
        is_client: whether the driver runs on this machine.
        binary: spark-submit's name.
        environment: that spark-submit is started with.
        conf: Spark properties of the operator.
        properties_file: the file that spark-submit reads instead of ``spark-defaults.conf``.
        repositories: the operator's repositories for Ivy.

    Raises:
        ConnectorUnavailableError: the jars are not here, and can't be fetched.
        ConnectorError: there is no Spark here, so its version is not known.
    """
    if connector is None or names_connector(given.packages, given.jars):
        return Told()
    spark = local_spark(binary, environment)
    # An argument of spark-submit replaces the property of the same meaning; it does not add to it.
    properties = {**(spark.properties(properties_file) if spark else {}), **_texts(conf)}
    given = Given(
        given.packages or properties.get(PACKAGES),
        given.jars or properties.get(JARS),
        given.excludes or properties.get(EXCLUDES),
    )
    arguments = [
        *(["--properties-file", properties_file] if properties_file else []),
        *(["--repositories", repositories] if repositories else []),
        *_where(conf),
    ]
    return _with_connector(connector, given, spark, is_client=is_client, arguments=arguments)


def for_session(connector: str | None, conf: Mapping[str, object]) -> dict[str, str]:
    """Return the properties that load the connector into a session of this process.

    Args:
        connector: the operator's argument.
        conf: Spark properties of the task.

    Raises:
        ConnectorUnavailableError: the jars are not here, and can't be fetched.
        ConnectorError: there is no Spark here, so its version is not known.
    """
    if connector is None:
        return {}
    spark = session_spark(os.environ)
    properties = {**(spark.properties() if spark else {}), **_texts(conf)}
    given = Given(properties.get(PACKAGES), properties.get(JARS), properties.get(EXCLUDES))
    told = _with_connector(connector, given, spark, is_client=True, arguments=_where(conf))
    return {name: value for name, value in ((PACKAGES, told.packages), (JARS, told.jars)) if value}


def _with_connector(
    connector: str | None, given: Given, spark: LocalSpark | None, *, is_client: bool, arguments: Sequence[str]
) -> Told:
    way = way_of(
        connector,
        spark.build if spark else None,
        is_client=is_client,
        packages=given.packages,
        jars=given.jars,
        excludes=given.excludes,
    )
    if way is Way.PACKAGES:
        return Told(packages=joined(given.packages, _coordinates(connector, spark)))
    if way is Way.FILES:
        assert spark is not None
        return Told(jars=joined(given.jars, *_files(spark, arguments)))
    return Told()


def _coordinates(connector: str | None, spark: LocalSpark | None) -> str | None:
    if connector != AUTO:
        return connector
    return spark.build.connector if spark else connector_package()


def _files(spark: LocalSpark, arguments: Sequence[str]) -> list[str]:
    how = Fetching(spark.home, spark.build.connector, arguments, spark.environment, before_exec=dying_with_parent())
    jars, _ = jars_in(cache_folder(), how)
    return [str(jar) for jar in jars if spark.build.lacks(jar.name)]


def _where(conf: Mapping[str, object]) -> list[str]:
    return [part for name in _WHERE if name in conf for part in ("--conf", f"{name}={conf[name]}")]


def _texts(conf: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in conf.items() if value is not None}
