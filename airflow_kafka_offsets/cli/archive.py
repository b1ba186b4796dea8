"""``kafka-offsets archive``: what a driver's JVM starts from, before a launch needs it."""

from __future__ import annotations

import os
from argparse import Namespace

from airflow_kafka_offsets.cli.jars import spark_of
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.spark.parent import dying_with_parent
from airflow_kafka_offsets.wiring.machine.start import make_archive


def archive(args: Namespace) -> Answer:
    """Find the archive, or make it."""
    spark = spark_of(args.spark_home)
    found, is_new = make_archive(
        spark.home, os.environ, folder=args.to, again=args.again, before_exec=dying_with_parent()
    )
    size = None if found is None else found.stat().st_size
    document = {"spark_home": str(spark.home), "archive": str(found) if found else None, "made": is_new, "bytes": size}

    def text() -> str:
        if found is None:
            return "Another process is making the archive now: it will be there in a minute."
        what = "Made" if is_new else "Already there"
        return f"{what}: {found} ({(size or 0) / 1e6:.0f} MB), for the Spark in {spark.home}"

    return Answer(document, text)
