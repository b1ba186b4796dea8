"""`make bench`: what one small window takes, by spark-submit, over Spark Connect, and as AvailableNow submitted again, interleaved.

Before each round every partition gets some more records; each way has a lake of its own and reads the same ones.

Arguments: records of a window (default 10,000), rounds (default 5).
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from tabulate import tabulate

from airflow_kafka_offsets.spark.handoff import Handoff
from tests.bench.throughput import (
    JOBS,
    PARTITIONS,
    Cost,
    fill,
    handoff,
    run,
    run_available_now,
    run_window,
    spread,
)
from tests.lab.jars import spark_connector_jars
from tests.lab.kafka import KafkaBroker
from tests.lab.spark_connect import SparkConnect
from tests.lab.start import folder_for_launches
from tests.lab.topics import create_topic

TOPIC = "small"
PLAIN = "spark-submit, --packages and no archive"
BACKLOG = 5
"""Windows that one process works off over Spark Connect, as a task does with a replay of several."""


def main(records: int, rounds: int) -> None:
    """Run the benchmark, and print a table."""
    each = max(1, records // PARTITIONS)
    costs: dict[str, list[Cost]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        kafka = stack.enter_context(KafkaBroker(folder / "kafka", jvm_options=("-Xmx1g",)))
        spark_connector_jars()
        folder_for_launches()
        connect = stack.enter_context(SparkConnect(folder / "connect"))
        create_topic(kafka, TOPIC, PARTITIONS)
        for number in range(rounds + 1):
            fill(kafka, TOPIC, dict.fromkeys(range(PARTITIONS), (0, each)))
            found = measure(kafka, connect, folder, number, each)
            for name, cost in found.items() if number else ():  # the first round warms the server up
                costs.setdefault(name, []).append(cost)
            print(f"... round {number}: {found}", flush=True)
    report(costs, each * PARTITIONS)


def measure(kafka: KafkaBroker, connect: SparkConnect, folder: Path, number: int, each: int) -> dict[str, Cost]:
    """Run the window of this round in each way; a backlog is as many windows of it."""
    handed = handoff(kafka, TOPIC, dict.fromkeys(range(PARTITIONS), (number * each, (number + 1) * each)), seq=number)
    lake, kept = folder / "streamed", folder / "checkpoint"
    backlog = over_connect(kafka, connect, folder, [handed] * BACKLOG, each * PARTITIONS * BACKLOG)
    found = {
        "spark-submit": run_window(kafka, folder, handed, "Parquet", folder / "submitted"),
        PLAIN: run_window(kafka, folder, handed, "Parquet", folder / "submitted plainly", is_plain=True),
        "AvailableNow, submitted again": run_available_now(
            kafka, folder, "Parquet", {}, each * PARTITIONS, topic=TOPIC, lake=lake, checkpoint=kept
        ),
        "Connect, a process for each": over_connect(kafka, connect, folder, [handed], each * PARTITIONS),
    }
    costs = (backlog.wall, backlog.work, backlog.cpu, backlog.broker, backlog.work_cpu)
    return {**found, f"Connect, {BACKLOG} in one process": Cost(*(value / BACKLOG for value in costs))}


def over_connect(
    kafka: KafkaBroker, connect: SparkConnect, folder: Path, windows: Sequence[Handoff], expected: int
) -> Cost:
    """Run windows by one client of the server."""
    files = []
    for window in windows:
        files.append(folder / f"{window.window_id}.json")
        files[-1].write_text(window.to_json())
    result = folder / "connect.json"
    command = [sys.executable, JOBS / "over_connect.py", connect.url, folder / "connected", result, *files]
    return run(kafka, [str(part) for part in command], result, expected)


def report(costs: dict[str, list[Cost]], records: int) -> None:
    """Print seconds of a window, windows an hour, and how many times as many as AvailableNow has."""
    peer = costs["AvailableNow, submitted again"]
    rows = []
    for name, runs in costs.items():
        wall, work = (statistics.median(getattr(run, of) for run in runs) for of in ("wall", "work"))
        is_all = not name.startswith("Connect")
        cpu = (
            [statistics.median(run.all_cpu for run in runs), spread(runs, costs[PLAIN], "all_cpu")]
            if is_all
            else ["", ""]
        )
        rows.append([name, wall, work, 3600 / wall, spread(runs, peer, "wall"), *cpu])
    headers = [
        "one window",
        "wall s",
        "work s",
        "windows an hour",
        "times AvailableNow",
        "CPU s",
        "times less than plain",
    ]
    print(tabulate(rows, headers, floatfmt=(".1f", ".1f", ".1f", ".0f", "", ".1f")))
    print(f"windows of {records:,} records in {PARTITIONS} partitions; medians, ratios with smallest and largest")
    print("the CPU of the Connect server is not counted, so none is shown for it")


if __name__ == "__main__":
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, load {load}")
    given = [int(value) for value in sys.argv[1:]]
    main(given[0] if given else 10_000, given[1] if len(given) > 1 else 5)
