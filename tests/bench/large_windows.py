"""What windows of many partitions cost Spark: one record each, so that nothing but the partitions themselves is measured.

``python -m tests.bench.large_windows 1000 5000 20000``; prints seconds, CPU-seconds of the driver's JVM (``local[2]``: the
tasks' too), the growth of the event log, and the most memory that the JVM had. `make bench` does
1,000 and 5,000: 20,000 take a quarter of an hour on two quiet cores.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession
from tabulate import tabulate

from airflow_kafka_offsets.spark.connector import connector_package
from airflow_kafka_offsets.spark.handoff import Handoff
from airflow_kafka_offsets.spark.window import KafkaWindow
from tests.bench.plan_and_commit import PER_BROKER, PER_TOPIC, make_topics
from tests.lab.kafka import KafkaBroker
from tests.lab.topics import produce_one_each

WAYS: dict[str, dict[str, Any]] = {
    "read()": {},
    "read(minPartitions=1): a task for each partition": {"minPartitions": 1},
}


def main(sizes: list[int]) -> None:
    """Run the benchmark for numbers of partitions, multiples of 500, and print a table."""
    rows = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        kafka = stack.enter_context(KafkaBroker(folder / "kafka-1"))
        for number in range(2, 1 + -(-max(sizes) // PER_BROKER)):
            stack.enter_context(KafkaBroker(folder / f"kafka-{number}", joins=kafka, node_id=number))
        topics = make_topics(kafka, max(sizes))
        produce_one_each(kafka, topics, PER_TOPIC)
        events = folder / "events"
        events.mkdir()
        spark = open_spark(events)
        stack.callback(spark.stop)
        read(spark, kafka, topics[:1])  # warms up
        for size in sizes:
            for name, options in WAYS.items():
                step = partial(read, spark, kafka, topics[: size // PER_TOPIC], **options)
                rows.append([f"{size:,}", name, *measured(spark, events, step)])
                print("...", *rows[-1], flush=True)
    headers = ["partitions", "read with", "s", "CPU s", "CPU ms a partition", "event log MB", "peak memory MB"]
    print(tabulate(rows, headers, tablefmt="github"))


def open_spark(events: Path) -> SparkSession:
    """Start Spark on two threads, with its UI and an event log, as clusters have them."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.jars.packages": connector_package(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
    }
    return SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()


def read(spark: SparkSession, kafka: KafkaBroker, topics: list[str], **how: Any) -> int:
    """Read a window of one record in each partition, check it, and return how many partitions it has."""
    ranges = {topic: {str(p): (0, 1) for p in range(PER_TOPIC)} for topic in topics}
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    until, level = "2026-01-01T00:00:00+00:00", "read_committed"
    window = KafkaWindow(spark, Handoff("g-000001", "g", 1, "live", until, False, level, False, ranges, options))
    window.read(**how).write.format("noop").mode("overwrite").save()
    window.check()
    return window.span


def measured(spark: SparkSession, events: Path, step: Callable[[], int]) -> list[str]:
    """Return seconds, CPU-seconds, CPU-milliseconds a partition, megabytes of event log, megabytes of memory."""
    assert spark._jvm is not None
    jvm = psutil.Process(spark._jvm.java.lang.ProcessHandle.current().pid())
    started, cpu, log = time.perf_counter(), sum(jvm.cpu_times()[:2]), size_of(events)
    partitions = step()
    seconds, cpu = time.perf_counter() - started, sum(jvm.cpu_times()[:2]) - cpu
    facts = (seconds, cpu, cpu / partitions * 1000, (size_of(events) - log) / 1e6, peak_memory(jvm.pid))
    return [f"{fact:.1f}" for fact in facts]


def size_of(folder: Path) -> int:
    """Return how many bytes are in the files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def peak_memory(pid: int) -> float:
    """Return the most memory that a process had, in megabytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [1000, 5000])
