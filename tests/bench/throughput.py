"""`make bench`: one large window to Parquet and to nowhere, beside Trigger.AvailableNow and a bare consumer, interleaved.

Every job is submitted from scratch by spark-submit, on the same two cores, with the same sink: the window as the operator submits it (the
connector as files, from a start archive), the stream as its users do it (``--packages``). A second of CPU is one of the
process tree of spark-submit or of the broker: of use where other work keeps the machine busy, as wall time is not.

Arguments: gigabytes of values (default 0.2; the figures of docs/performance/README.md are of 2), rounds (default 3).
"""

from __future__ import annotations

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from tabulate import tabulate

from airflow_kafka_offsets.adapters.machine.archives import start_options
from airflow_kafka_offsets.adapters.machine.spark_home import spark_at
from airflow_kafka_offsets.core.launch.start import (
    LAUNCHER_OPTIONS,
    QUICK,
    SUBMIT_OPTIONS,
    compiler_options,
    with_options,
)
from airflow_kafka_offsets.spark.connector import connector_package
from airflow_kafka_offsets.spark.handoff import CONF_WINDOW, Handoff
from airflow_kafka_offsets.spark.options import DEFAULTS
from airflow_kafka_offsets.spark.shipping import write_zip
from tests.lab.cache import PROVIDER_CACHE
from tests.lab.jars import spark_connector_jars
from tests.lab.java import pyspark_home
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import LOOPBACK
from tests.lab.start import connector_files, folder_for_launches, ours
from tests.lab.topics import create_topic

JOBS = Path(__file__).parent / "jobs"
PARTITIONS = 8
VALUE_BYTES = 200
TOPIC = "bench"


@dataclass(frozen=True)
class Cost:
    """What one run took, in seconds.

    Attributes:
        wall: from the start of its first process to the end of its last.
        work: of these, reading and writing: without the start of Spark.
        cpu: of its processes.
        broker: of the broker's CPU.
        work_cpu: of the JVM while it read and wrote, and of the broker.
    """

    wall: float
    work: float
    cpu: float
    broker: float
    work_cpu: float

    @property
    def all_cpu(self) -> float:
        """CPU seconds of its processes and the broker's."""
        return self.cpu + self.broker


def main(gigabytes: float, rounds: int) -> None:
    """Run the benchmark, and print tables."""
    records = int(gigabytes * 1e9 / VALUE_BYTES / PARTITIONS) * PARTITIONS
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        kafka = stack.enter_context(KafkaBroker(folder / "kafka", jvm_options=("-Xmx1g",)))
        spark_connector_jars()
        folder_for_launches()
        create_topic(kafka, TOPIC, PARTITIONS)
        fill(kafka, TOPIC, dict.fromkeys(range(PARTITIONS), (0, records // PARTITIONS)))
        print(f"{records:,} records of {VALUE_BYTES} bytes in {PARTITIONS} partitions, lz4", flush=True)
        ways = {**spark_ways(kafka, folder, records), "bare consumer": partial(bare, kafka, records)}
        costs: dict[str, list[Cost]] = {name: [] for name in ways}
        for number in range(rounds):
            for name, way in ways.items():
                costs[name].append(way())
                print(f"... round {number + 1}, {name}: {costs[name][-1]}", flush=True)
    report(costs, records * VALUE_BYTES / 1e6)


def spark_ways(kafka: KafkaBroker, folder: Path, records: int) -> dict[str, Callable[[], Cost]]:
    """Return each way to read with Spark, by name."""
    handed = handoff(kafka, TOPIC, dict.fromkeys(range(PARTITIONS), (0, records // PARTITIONS)), seq=1)
    ways: dict[str, Callable[[], Cost]] = {}
    for sink in ("Parquet", "noop"):
        ways[f"{sink}: window"] = partial(run_window, kafka, folder, handed, sink)
        ways[f"{sink}: AvailableNow"] = partial(run_available_now, kafka, folder, sink, {}, records)
        ways[f"{sink}: AvailableNow, same settings"] = partial(
            run_available_now, kafka, folder, sink, DEFAULTS, records
        )
    return ways


def handoff(kafka: KafkaBroker, topic: str, ranges: Mapping[int, tuple[int, int]], seq: int) -> Handoff:
    """Return a window over these ranges."""
    return Handoff(
        window_id=f"bench-{seq:06d}",
        group="bench",
        seq=seq,
        lane="live",
        planned_until="2026-01-01T00:00:00+00:00",
        is_rerun=False,
        isolation_level="read_committed",
        expect_gaps=False,
        topics={topic: {str(p): ends for p, ends in ranges.items()}},
        options={"kafka.bootstrap.servers": kafka.bootstrap_servers},
    )


def run_window(
    kafka: KafkaBroker, folder: Path, handed: Handoff, sink: str, lake: Path | None = None, *, is_plain: bool = False
) -> Cost:
    """Submit this package's job as its operator does.

    Args:
        kafka: the broker.
        folder: for what is written.
        handed: the window.
        sink: ``Parquet`` or ``noop``.
        lake: where Parquet goes.
        is_plain: instead of that, with ``--packages`` and no start archive.
    """
    conf = {CONF_WINDOW: handed.to_json()}
    to = "noop" if sink == "noop" else str(lake or folder / "lake" / uuid.uuid4().hex)
    expected = sum(end - start for ranges in handed.topics.values() for start, end in ranges.values())
    connector = ["--packages", connector_package()] if is_plain else ["--jars", connector_files()]
    flags = [*connector, "--py-files", str(write_zip(folder))]
    started = {} if is_plain else _start_variables(expected)
    return submit(kafka, folder, JOBS / "window.py", [to], expected, conf, flags, environment=started)


def _start_variables(span: int) -> dict[str, str]:
    """Return the environment variables by which the operators start the driver of a window of so many offsets."""
    spark = spark_at(pyspark_home(), ours())
    assert spark is not None
    options = [*start_options(spark, PROVIDER_CACHE), *compiler_options(span)]
    return {SUBMIT_OPTIONS: with_options(options, None), LAUNCHER_OPTIONS: QUICK}


def run_available_now(
    kafka: KafkaBroker,
    folder: Path,
    sink: str,
    settings: Mapping[str, str],
    expected: int,
    *,
    topic: str = TOPIC,
    lake: Path | None = None,
    checkpoint: Path | None = None,
) -> Cost:
    """Submit a streaming query that reads all there is and ends."""
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
        **settings,
    }
    to = "noop" if sink == "noop" else str(lake or folder / "lake" / uuid.uuid4().hex)
    kept = str(checkpoint or folder / "checkpoints" / uuid.uuid4().hex)
    flags = ["--packages", connector_package()]
    return submit(kafka, folder, JOBS / "available_now.py", [to], expected, {}, flags, [kept, json.dumps(options)])


def submit(
    kafka: KafkaBroker,
    folder: Path,
    job: Path,
    arguments: Sequence[str],
    expected: int,
    conf: Mapping[str, str],
    flags: Sequence[str],
    more: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Cost:
    """Run spark-submit from scratch, and return what it took."""
    result = folder / f"{uuid.uuid4().hex}.json"
    everywhere = {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(folder / "local"),
        **conf,
    }
    command = [str(pyspark_home() / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [part for name, value in everywhere.items() for part in ("--conf", f"{name}={value}")]
    command += [*flags, str(job), *arguments, str(result), *more]
    return run(kafka, command, result, expected, environment)


def run(
    kafka: KafkaBroker,
    command: Sequence[str],
    result: Path,
    expected: int,
    added: Mapping[str, str] | None = None,
) -> Cost:
    """Run a process to its end, make sure that it read what it should, and return what it took."""
    # Spark's own settings of whoever runs this must not change what is measured.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment = {**clean, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(Path(__file__).parents[2])}
    environment |= added or {}
    broker, before, start = broker_cpu(kafka), children_cpu(), time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - start
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    told = json.loads(result.read_text())
    if told["records"] != expected:
        raise RuntimeError(f"{told['records']} of {expected} records were read")
    used = broker_cpu(kafka) - broker
    return Cost(wall, told["seconds"], children_cpu() - before, used, told["cpu"] + used)


def children_cpu() -> float:
    """Return the CPU seconds of all processes that were started here and have ended, with their own."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def broker_cpu(kafka: KafkaBroker) -> float:
    """Return the CPU seconds of the broker so far."""
    used = psutil.Process(kafka.pid).cpu_times()
    return float(used.user + used.system)


def bare(kafka: KafkaBroker, records: int) -> Cost:
    """Read all of it with two processes that do nothing with it: the floor."""
    broker, before, start = broker_cpu(kafka), children_cpu(), time.perf_counter()
    shares = [range(PARTITIONS)[first::2] for first in (0, 1)]
    with ProcessPoolExecutor(2) as pool:
        read = sum(pool.map(partial(consume, kafka.client_config(), records // PARTITIONS), shares))
    if read != records:
        raise RuntimeError(f"{read} of {records} records were read")
    wall = time.perf_counter() - start
    used, served = children_cpu() - before, broker_cpu(kafka) - broker
    return Cost(wall, wall, used, served, used + served)


def consume(config: Mapping[str, str], each: int, partitions: Sequence[int]) -> int:
    """Read so many records of each of these partitions, and return how many."""
    consumer = Consumer({**config, "group.id": "bench-bare", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in partitions])
    read = 0
    while read < each * len(partitions):
        read += len(consumer.consume(10_000, timeout=30))
    consumer.close()
    return read


def fill(kafka: KafkaBroker, topic: str, numbers: Mapping[int, tuple[int, int]]) -> None:
    """Write records with the numbers `start` to `end` into each partition, by two processes."""
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(partial(produce, kafka.client_config(), topic), numbers, numbers.values()))


def produce(config: Mapping[str, str], topic: str, partition: int, numbers: tuple[int, int]) -> None:
    """Write the records of one partition."""
    some = values()
    settings = {"compression.type": "lz4", "linger.ms": 50, "batch.size": 1_000_000}
    producer = Producer({**config, **settings, "queue.buffering.max.messages": 500_000})
    for number in range(*numbers):
        while True:
            try:
                producer.produce(topic, some[number % len(some)], b"%d" % number, partition)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError(f"{topic}-{partition} did not take all records")


def values() -> list[bytes]:
    """Return JSON of the length that is measured, which shrinks to about a half."""
    draw = random.Random(1)
    some = []
    for number in range(20_000):
        start = b'{"id":%d,"user":"u%d","amount":%d,"note":"' % (number, draw.randrange(10**6), draw.randrange(10**5))
        note = bytes(draw.choices(b"abcdefghijklmnop     ", k=VALUE_BYTES - 2 - len(start)))
        some.append(start + note + b'"}')
    return some


def report(costs: Mapping[str, Sequence[Cost]], megabytes: float) -> None:
    """Print what each way took, and how many times the others' throughput a window has, with the spread over the rounds."""
    rows = []
    for name, runs in costs.items():
        middle = [statistics.median(getattr(run, of) for run in runs) for of in ("wall", "work", "cpu", "broker")]
        per_cpu = [statistics.median(megabytes / getattr(run, of) for run in runs) for of in ("all_cpu", "work_cpu")]
        rows.append([name, *middle, megabytes / middle[0], megabytes / middle[1], *per_cpu])
    headers = ["way", "wall s", "work s", "CPU s", "broker CPU s", "MB/wall s", "MB/work s", "MB/CPU s"]
    headers.append("MB/CPU s of work")
    print(tabulate(rows, headers, floatfmt=".1f"))
    ratios = []
    for name, runs in costs.items():
        mine = costs["noop: window" if not name.startswith("Parquet") else "Parquet: window"]
        if runs is not mine:
            ratios.append([name, *(spread(mine, runs, of) for of in ("wall", "work", "all_cpu", "work_cpu"))])
    print(tabulate(ratios, ["window against", "per wall s", "per s of work", "per CPU s", "per CPU s of work"]))
    print("work is reading and writing, without the start of Spark that spark-submit pays each time")
    print("medians; ratios are throughput of the window over the other's, round by round: median (smallest to largest)")


def spread(mine: Sequence[Cost], others: Sequence[Cost], of: str) -> str:
    """Return how many times as fast mine were, round by round."""
    ratios = sorted(getattr(b, of) / getattr(a, of) for a, b in zip(mine, others, strict=True))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


if __name__ == "__main__":
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, load {load}")
    given = sys.argv[1:]
    main(float(given[0]) if given else 0.2, int(given[1]) if len(given) > 1 else 3)
