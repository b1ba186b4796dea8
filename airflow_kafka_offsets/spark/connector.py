"""The Maven coordinates of the Kafka connector, and of Spark's Avro, that fit a Spark.

The jars in Spark's home show its version (by the name of ``spark-core``), and whether Spark has the connector already. If it does
not, Ivy resolves coordinates at each launch (``--packages``), or Spark gets files that were resolved once (``--jars``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from airflow_kafka_offsets.spark.errors import ConnectorError

AUTO = "auto"
"""The value of an operator's `connector` that leaves the choice to this module."""

_ORGANISATION = "org.apache.spark"
KAFKA = "spark-sql-kafka-0-10"
"""The artifact of the Kafka connector."""
AVRO = "spark-avro"
"""The artifact of Spark's Avro, which decodes the records of a group with a schema registry."""
# A fork of the connector, or one of another layout, counts too.
_NAMED = {KAFKA: "spark-sql-kafka", AVRO: AVRO}
_CORE = re.compile(r"spark-core_(?P<scala>\d+\.\d+)-(?P<version>\d.*?)(?<!-tests)(?<!-sources)(?<!-javadoc)\.jar")


@dataclass(frozen=True)  # no slots: drivers may have Python 3.8
class SparkBuild:
    """A Spark, by the names of its own jars.

    Attributes:
        version: such as ``4.0.0``, with a vendor's suffix.
        scala: its version of Scala, such as ``2.13``.
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
        """Whether it has an artifact."""
        return any(name.startswith(f"{artifact}_") for name in self.jars)

    def lacks(self, jar: str) -> bool:
        """Whether it does not have a jar that Ivy fetched, ``<organisation>_<file>``.

        The connector requires some that every Spark has (Hadoop's client, 50 MB), and a launch would copy them.
        """
        return not any(jar.endswith(f"_{name}") for name in self.jars)


def spark_build(jars: Iterable[str]) -> SparkBuild | None:
    """Return the Spark with these jars; None if their names do not show its version.

    >>> spark_build(["spark-core_2.13-4.0.0.jar", "zstd-jni-1.5.6-9.jar"]).connector
    'org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0'
    """
    names = frozenset(jars)
    cores = [match for match in map(_CORE.fullmatch, names) if match]
    return SparkBuild(cores[0]["version"], cores[0]["scala"], names) if len(cores) == 1 else None


def names_connector(*lists: str | None, artifact: str = KAFKA) -> bool:
    """Whether lists of packages or jars name a connector, or Spark's Avro.

    >>> names_connector(None, "/jars/mine.jar,/jars/spark-sql-kafka-0-10_2.13-4.0.0.jar")
    True
    """
    return any(_NAMED[artifact] in (text or "") for text in lists)


def is_connector(coordinates: str) -> bool:
    """Whether the coordinates are of Spark's own connector."""
    return f":{KAFKA}_" in coordinates


def avro_of(connector: str) -> str:
    """Return the coordinates of Spark's Avro for the Spark of a connector.

    >>> avro_of("org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0")
    'org.apache.spark:spark-avro_2.13:4.0.0'
    """
    return connector.replace(f":{KAFKA}_", f":{AVRO}_")


def folder_name(coordinates: str) -> str:
    """Return the name of the folder for the jars of these coordinates.

    >>> folder_name("org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0")
    'spark-sql-kafka-0-10_2.13-4.0.0'
    """
    _, artifact, revision = coordinates.split(":")
    return f"{artifact}-{revision}"


def connector_package(spark_version: str | None = None, scala: str | None = None) -> str:
    """Return the Maven coordinates of Spark's Kafka connector, for ``--packages``. It must have Spark's own version.

    Args:
        spark_version: of the Spark that runs the job, or None for that of the installed pyspark or pyspark-client.
        scala: version of Scala of this Spark, or None for the usual one.

    Raises:
        ConnectorError: there is neither a version nor a pyspark.

    >>> connector_package("3.5.7")
    'org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7'
    """
    spark_version = spark_version or _installed_version()
    # Spark 3 exists for both, from pip and on most platforms for 2.12. Spark 4 exists for 2.13 alone.
    scala = scala or ("2.12" if spark_version.startswith("3.") else "2.13")
    return f"{_ORGANISATION}:{KAFKA}_{scala}:{spark_version}"


def _installed_version() -> str:
    for distribution in ("pyspark", "pyspark-client"):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    raise ConnectorError(
        "No pyspark is installed here. Name the cluster's connector (Spark 3: mostly _2.12):\n"
        f"    {_ORGANISATION}:{KAFKA}_2.13:<version of Spark>"
    )
