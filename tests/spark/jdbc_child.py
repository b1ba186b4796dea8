"""A job that writes windows side by side, for tests which kill it: `python jdbc_child.py <its work as JSON>`."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from pyspark.sql import SparkSession

from airflow_kafka_offsets.spark import KafkaWindow
from airflow_kafka_offsets.spark.handoff import Handoff


def main() -> None:
    """Write each window in a thread of its own."""
    work = json.loads(sys.argv[1])
    builder = SparkSession.builder.master("local[4]")
    for name, value in work["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    jobs = [threading.Thread(target=write, args=[spark, job]) for job in work["jobs"]]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    print("done")


def write(spark: SparkSession, job: dict[str, Any]) -> None:
    """Write the numbers 10 to 14; the window reads nothing, which spares the test a Kafka."""
    window = KafkaWindow(spark, Handoff(**job["handoff"]))
    df = spark.range(10, 15, 1, 2).selectExpr("cast(id as int) as n")
    window.write_jdbc(df, job["url"], job["table"], job["properties"])


if __name__ == "__main__":
    main()
