"""Which Kafka connector fits a Spark, and how Spark gets it: the one place that knows its coordinates. The same for Spark's Avro.

The jars in the folder ``jars`` of Spark's home say which connector fits (the name of ``spark-core``), and whether Spark has it
already. If it does not, Spark resolves coordinates with Ivy at each launch (``--packages``), or gets files that were resolved
once (``--jars``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from airflow_kafka_offsets.spark.errors import ConnectorError

AUTO = "auto"
"""The value of an operator's `connector` with which this module decides."""

_ORGANISATION = "org.apache.spark"
KAFKA = "spark-sql-kafka-0-10"
"""The artifact of the Kafka connector."""
AVRO = "spark-avro"
"""The artifact of Spark's Avro, which decodes the records of a group with a schema registry."""
# A connector of another layout, or a fork of it, counts as one too.
_NAMED = {KAFKA: "spark-sql-kafka", AVRO: AVRO}
_CORE = re.compile(r"spark-core_(?P<scala>\d+\.\d+)-(?P<version>\d.*?)(?<!-tests)(?<!-sources)(?<!-javadoc)\.jar")


@dataclass(frozen=True)  # no slots: drivers may have Python 3.8
class SparkBuild:
    """A Spark, by the names of its own jars.

    Attributes:
        version: such as ``4.0.0``, with a vendor's suffix.
        scala: version of Scala that it was built for, such as ``2.13``.
        jars: the names of its jars.
    """

    version: str
    scala: str
    jars: frozenset[str]

    @property
    def connector(self) -> str:
        """The Maven coordinates of the connector that fits."""
        return connector_package(self.version, self.scala)

    def has(self, artifact: str) -> bool:
        """Whether an artifact of Spark's is among its jars."""
        return any(name.startswith(f"{artifact}_") for name in self.jars)

    def lacks(self, jar: str) -> bool:
        """Whether a jar that Ivy fetched, ``<organisation>_<file>``, is not among its own.

        The connector requires some that every Spark has (Hadoop's client, 50 MB). They would be copied at each launch.
        """
        return not any(jar.endswith(f"_{name}") for name in self.jars)


def spark_build(jars: Iterable[str]) -> SparkBuild | None:
    """Return the Spark that has these jars; None means their names do not identify it.

    >>> spark_build(["spark-core_2.13-4.0.0.jar", "zstd-jni-1.5.6-9.jar"]).connector
    'org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0'
    """
    names = frozenset(jars)
    found = [match for match in map(_CORE.fullmatch, names) if match]
    if len(found) != 1:
        return None
    return SparkBuild(found[0]["version"], found[0]["scala"], names)


def names_connector(*lists: str | None, artifact: str = KAFKA) -> bool:
    """Whether the packages or jars that Spark loads name a connector, or Spark's Avro, already.

    >>> names_connector(None, "/jars/mine.jar,/jars/spark-sql-kafka-0-10_2.13-4.0.0.jar")
    True
    """
    return any(_NAMED[artifact] in (text or "") for text in lists)


def is_connector(coordinates: str) -> bool:
    """Whether coordinates are those of Spark's own connector."""
    return f":{KAFKA}_" in coordinates


def avro_of(connector: str) -> str:
    """Return the coordinates of Spark's Avro for the Spark that a connector is for.

    >>> avro_of("org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0")
    'org.apache.spark:spark-avro_2.13:4.0.0'
    """
    return connector.replace(f":{KAFKA}_", f":{AVRO}_")


def folder_name(coordinates: str) -> str:
    """Return the name of the folder that holds the jars of these coordinates.

    >>> folder_name("org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0")
    'spark-sql-kafka-0-10_2.13-4.0.0'
    """
    _, artifact, revision = coordinates.split(":")
    return f"{artifact}-{revision}"


def connector_package(spark_version: str | None = None, scala: str | None = None) -> str:
    """Return the Maven coordinates of Spark's Kafka connector, which must have Spark's own version, for ``--packages``.

    Args:
        spark_version: version of the Spark that runs the job; None: that of the installed pyspark or pyspark-client.
        scala: version of Scala that this Spark was built for; None means the usual one of its version.

    Raises:
        ConnectorError: no version was given, and there is no pyspark here.

    >>> connector_package("3.5.7")
    'org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7'
    """
    spark_version = spark_version or _installed_version()
    return f"{_ORGANISATION}:{KAFKA}_{scala or _usual_scala(spark_version)}:{spark_version}"


def _usual_scala(spark_version: str) -> str:
    # Spark 3 is built for both. From pip, and on most platforms, it is the one for 2.12. Spark 4 is built for 2.13 alone.
    return "2.12" if spark_version.startswith("3.") else "2.13"


def _installed_version() -> str:
    for distribution in ("pyspark", "pyspark-client"):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    raise ConnectorError(
        "Neither pyspark nor pyspark-client is installed here. Name the connector that fits the cluster: "
        f"{_ORGANISATION}:{KAFKA}_2.13:<version of Spark> (most builds of Spark 3: _2.12)"
    )
