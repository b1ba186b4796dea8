"""``kafka-offsets jars``: Spark's Kafka connector, or Spark's Avro, before a launch needs it."""

from __future__ import annotations

import os
import shlex
from argparse import Namespace
from pathlib import Path

from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.core.errors import BadInputError, counted, short
from airflow_kafka_offsets.spark.connector import AVRO, KAFKA, avro_of
from airflow_kafka_offsets.spark.parent import dying_with_parent
from airflow_kafka_offsets.wiring.machine.cache import cache_folder
from airflow_kafka_offsets.wiring.machine.connector import Fetching, LocalSpark, jars_in, local_spark, spark_at


def jars(args: Namespace) -> Answer:
    """Find the jars, or fetch them."""
    spark = spark_of(args.spark_home)
    connector = spark.build.connector
    artifact, what, package = (AVRO, "Avro", avro_of(connector)) if args.avro else (KAFKA, "Kafka connector", connector)
    known = {"spark_home": str(spark.home), "spark_version": spark.build.version, "coordinates": package}
    if spark.build.has(artifact):
        return Answer(
            {**known, "in_spark": True, "fetched": False, "folder": None, "jars": []},
            lambda: f"Spark {spark.build.version} in {spark.home} has its {what}: nothing has to be fetched.",
        )
    how = Fetching(
        spark.home,
        package,
        _words(args.submit_args or ""),
        spark.environment,
        before_exec=dying_with_parent(),
    )
    found, is_fetched = jars_in(args.to or cache_folder(), how)
    folder, names = found[0].parent, [jar.name for jar in found]
    done = "Fetched" if is_fetched else "Already there"
    size = counted(len(names), "jar")
    return Answer(
        {**known, "in_spark": False, "fetched": is_fetched, "folder": str(folder), "jars": names},
        lambda: "\n".join([f"{done}: {package}, {size} in {folder}", *names]),
    )


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as exc:
        raise BadInputError(f"--submit-args {short(text)} can't be split into arguments: {exc}") from exc


def spark_of(home: Path | None) -> LocalSpark:
    """Return the Spark that is named, else the one that tasks would start.

    Raises:
        BadInputError: there is none.
    """
    spark = spark_at(home, os.environ) if home else local_spark("spark-submit", os.environ)
    if spark is not None:
        return spark
    if home is not None:
        raise BadInputError(f"{home} is not a home of Spark: {home}/jars/spark-core_<scala>-<version>.jar is missing")
    raise BadInputError(
        "No Spark is found here: neither SPARK_HOME nor the spark-submit on PATH leads to a folder with jars/spark-core_*.jar. "
        "Name it: --spark-home FOLDER"
    )
