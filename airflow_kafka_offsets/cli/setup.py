"""What is made once, or ahead of time: the ledger's tables, the connector's jars, the start archive."""

from __future__ import annotations

import os
import shlex
from argparse import Namespace
from pathlib import Path

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.cli.running import Answer, ExitCode
from airflow_kafka_offsets.cli.sources import ledger_url
from airflow_kafka_offsets.core.errors import BadInputError, LedgerSchemaError, counted, short
from airflow_kafka_offsets.spark.connector import AVRO, KAFKA, avro_of
from airflow_kafka_offsets.wiring.machine.cache import cache_folder
from airflow_kafka_offsets.wiring.machine.connector import LocalSpark, jars_in, local_spark, spark_at


def upgrade(args: Namespace) -> Answer:
    """Make the ledger's tables."""
    before, after = wiring.upgrade_ledger(ledger_url(args), beside_others=args.beside_others)
    verb = "was there" if before == after else "is made"
    return Answer(
        {"before": before, "after": after},
        lambda: f"The ledger {verb}: revision {before or 'none (no tables)'} before, {after} now.",
    )


def current(args: Namespace) -> Answer:
    """Show the revision of the ledger's tables."""
    url = ledger_url(args)
    revision, needed = wiring.ledger_revisions(url)
    is_current = revision == needed
    return Answer(
        {"revision": revision, "needed": needed, "current": is_current},
        lambda: f"The ledger is at revision {revision or 'none (no tables)'}; this package needs {needed}.",
        ExitCode.OK if is_current else ExitCode.UNAVAILABLE,
        None if is_current else _what_helps(url),
    )


def _what_helps(url: str) -> str | None:
    try:
        wiring.open_ledger_at(url)
    except LedgerSchemaError as exc:
        return str(exc)
    return None  # someone else has made it just now


def jars(args: Namespace) -> Answer:
    """Find the jars, or fetch them."""
    spark = _spark(args.spark_home)
    connector = spark.build.connector
    artifact, what, package = (AVRO, "Avro", avro_of(connector)) if args.avro else (KAFKA, "Kafka connector", connector)
    document = {"spark_home": str(spark.home), "spark_version": spark.build.version, "coordinates": package}
    if spark.build.has(artifact):
        return Answer(
            {**document, "in_spark": True, "fetched": False, "folder": None, "jars": []},
            lambda: f"Spark {spark.build.version} in {spark.home} has its {what}.",
        )
    try:
        arguments = shlex.split(args.submit_args or "")
    except ValueError as exc:
        raise BadInputError(f"--submit-args {short(args.submit_args)}: {exc}") from exc
    files, is_fetched = jars_in(args.to or cache_folder(), spark, package, arguments)
    folder, names = files[0].parent, [jar.name for jar in files]
    done = "Fetched" if is_fetched else "Already there"
    return Answer(
        {**document, "in_spark": False, "fetched": is_fetched, "folder": str(folder), "jars": names},
        lambda: "\n".join([f"{done}: {package}, {counted(len(names), 'jar')} in {folder}", *names]),
    )


def archive(args: Namespace) -> Answer:
    """Find the archive, or make it."""
    from airflow_kafka_offsets.wiring.machine.start import find_archive, make_archive

    spark, folder = _spark(args.spark_home), args.to or cache_folder()
    existing = None if args.again else find_archive(spark, folder)
    file = existing or make_archive(spark, folder)
    size = file.stat().st_size
    done = "Already there" if existing else "Made"
    return Answer(
        {"spark_home": str(spark.home), "archive": str(file), "made": existing is None, "bytes": size},
        lambda: f"{done}: {file} ({size / 1e6:.0f} MB), for the Spark in {spark.home}",
    )


def _spark(home: Path | None) -> LocalSpark:
    """Return the named Spark, or else the one that tasks would start.

    Raises:
        BadInputError: there is none.
    """
    spark = spark_at(home, os.environ) if home else local_spark("spark-submit", os.environ)
    if spark is None and home is not None:
        raise BadInputError(f"{home} is no home of Spark: it has no jars/spark-core_*.jar")
    if spark is None:
        raise BadInputError("Neither SPARK_HOME nor PATH has a Spark. Name it with --spark-home")
    return spark
