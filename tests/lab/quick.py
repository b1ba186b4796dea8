"""The lab's Sparks start as quickly as users' do: from an archive of classes, and with the quick compiler alone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from airflow_kafka_offsets.adapters.start.archives import find_archive, make_archive, start_options
from airflow_kafka_offsets.adapters.start.programs import spark_at
from airflow_kafka_offsets.core.start import LAUNCHER_OPTIONS, SUBMIT_OPTIONS, compiler_options, quick_launcher
from tests.lab.cache import PROVIDER_CACHE
from tests.lab.java import pyspark_home

if TYPE_CHECKING:
    from pathlib import Path


def start_archive() -> Path | None:
    """Return the archive of the installed PySpark, and make it if it is not there; None: another process makes it now."""
    spark = spark_at(pyspark_home(), os.environ)
    if spark is None:
        return None
    return find_archive(spark, PROVIDER_CACHE) or make_archive(spark, PROVIDER_CACHE, os.environ)


def quick_start() -> dict[str, str]:
    """Return environment variables with which each spark-submit starts quickly, from the archive if it is there."""
    spark = spark_at(pyspark_home(), os.environ)
    archive = [] if spark is None else start_options(spark, PROVIDER_CACHE)
    options = [*archive, *compiler_options("quick", 0, runs_tasks=True)]
    return {SUBMIT_OPTIONS: " ".join(options), LAUNCHER_OPTIONS: quick_launcher(None)}
