"""`make bench`: what our operators add to the parsing of a DAG file, beside what they extend.

As Airflow does, each file is parsed in a process of its own, forked from one that has imported `airflow.sdk`.
"""

from __future__ import annotations

import logging
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from multiprocessing import get_context
from typing import Any

from tabulate import tabulate

ROUNDS = 15

# What Airflow imports for any DAG is there before.
SDK = """
from airflow.sdk import DAG, Asset, AssetWatcher, BaseOperator, BaseSensorOperator, Param, task
with DAG("before"):
    BaseSensorOperator(task_id="wait") >> BaseOperator(task_id="work")
"""
GROUP = """
from airflow_kafka_offsets import KafkaGroup
group = KafkaGroup("lake.orders", topics=["orders"])
"""
PYSPARK = """
from airflow.providers.apache.spark.operators.spark_pyspark import PySparkOperator
def load(spark): ...
with DAG("d"): PySparkOperator(task_id="load", python_callable=load)
"""

# DAG files: with what we extend, and with ours.
FILES = {
    "KafkaSparkSubmitOperator": (
        """
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
with DAG("d"): SparkSubmitOperator(task_id="load", application="job.py")
""",
        f"""{GROUP}
from airflow_kafka_offsets import KafkaSparkSubmitOperator
with DAG("d"): KafkaSparkSubmitOperator(task_id="load", application="job.py", group=group)
""",
    ),
    "KafkaSparkOperator": (
        PYSPARK,
        f"""{GROUP}
from airflow_kafka_offsets import KafkaSparkOperator
def load(spark, window): ...
with DAG("d"): KafkaSparkOperator(task_id="load", python_callable=load, group=group)
""",
    ),
    "KafkaSparkSqlOperator": (
        PYSPARK,
        f"""{GROUP}
from airflow_kafka_offsets import KafkaSparkSqlOperator
with DAG("d"): KafkaSparkSqlOperator(task_id="load", sql="select * from kafka_window", group=group)
""",
    ),
    "@task.kafka_spark": (
        """
@task.pyspark
def load(spark): ...
with DAG("d"): load()
""",
        f"""{GROUP}
@task.kafka_spark(group=group)
def load(spark, window): ...
with DAG("d"): load()
""",
    ),
    "PlanWindow-, CommitWindowOperator": (
        """
with DAG("d"): BaseOperator(task_id="plan") >> BaseOperator(task_id="commit")
""",
        f"""{GROUP}
from airflow_kafka_offsets import CommitWindowOperator, PlanWindowOperator
with DAG("d"):
    plan = PlanWindowOperator(task_id="plan", group=group)
    plan >> CommitWindowOperator(task_id="commit", window=plan.output)
""",
    ),
    "sensors": (
        """
with DAG("d"): BaseSensorOperator(task_id="enough") >> BaseSensorOperator(task_id="committed")
""",
        f"""{GROUP}
from airflow_kafka_offsets import KafkaEnoughSensor, WindowCommittedSensor
with DAG("d"):
    enough = KafkaEnoughSensor(task_id="enough", group=group, min_span=1)
    enough >> WindowCommittedSensor(task_id="committed", window_id="lake.orders-000012")
""",
    ),
    "KafkaOffsetsTrigger": (
        """
from airflow.triggers.base import BaseEventTrigger
class Trigger(BaseEventTrigger):
    def serialize(self): return "d.Trigger", {}
    async def run(self): yield
with DAG("d", schedule=[Asset("orders", watchers=[AssetWatcher(name="w", trigger=Trigger())])]): ...
""",
        f"""{GROUP}
from airflow_kafka_offsets import KafkaOffsetsTrigger
trigger = KafkaOffsetsTrigger(group=group, min_span=1)
with DAG("d", schedule=[Asset("orders", watchers=[AssetWatcher(name="w", trigger=trigger)])]): ...
""",
    ),
    "replay_params": (
        """
with DAG("d", params={"from": Param(None, type=["null", "string"])}): ...
""",
        """
from airflow_kafka_offsets import replay_params
with DAG("d", params=replay_params()): ...
""",
    ),
}

_names: dict[str, Any] = {}


def main(rounds: int = ROUNDS) -> None:
    """Run the benchmark, and print two tables."""
    logging.disable(logging.WARNING)
    parsed(SDK)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        table("with bytecode, as packages are installed", rounds, folder, writes=True)
        table("without bytecode: PYTHONDONTWRITEBYTECODE", rounds, f"{folder}/none", writes=False)
    print(f"ms; medians of {rounds} interleaved rounds; beyond: median of the differences, with its quartiles")


def table(title: str, rounds: int, folder: str, *, writes: bool) -> None:
    """Measure all files, and print a table.

    Args:
        title: of the table.
        rounds: how often; once more comes first, which writes the bytecode.
        folder: where bytecode is looked for.
        writes: whether it is written.
    """
    sys.pycache_prefix, sys.dont_write_bytecode = folder, not writes
    texts = [text for pair in FILES.values() for text in pair]
    # One file for each child, so that none finds what another one imported.
    with get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        measured = pool.map(parsed, texts * (rounds + 1), chunksize=1)[len(texts) :]
    rows = []
    for number, name in enumerate(FILES):
        theirs, ours = (measured[2 * number + i :: len(texts)] for i in (0, 1))
        rows.append([name, *columns(theirs, ours, 0), *columns(theirs, ours, 1)])
    headers = [title, "extended, CPU", "ours", "beyond", "extended, wall", "ours", "beyond"]
    print(tabulate(rows, headers, tablefmt="github", colalign=("left", *("right",) * 6), floatfmt=".0f"), "\n")


def parsed(text: str) -> tuple[float, float]:
    """Parse a DAG file, and return the milliseconds of CPU and of the clock that it took."""
    cpu, wall = time.process_time(), time.perf_counter()
    exec(compile(text, "dag.py", "exec"), _names)
    return 1000 * (time.process_time() - cpu), 1000 * (time.perf_counter() - wall)


def columns(theirs: list[tuple[float, float]], ours: list[tuple[float, float]], which: int) -> list[float | str]:
    """Return the medians of both, and what ours takes more."""
    pairs = [(a[which], b[which]) for a, b in zip(theirs, ours, strict=True)]
    low, middle, high = statistics.quantiles([b - a for a, b in pairs], n=4)
    medians = [statistics.median(values) for values in zip(*pairs, strict=True)]
    return [*medians, f"{middle:.0f} ({low:.0f} to {high:.0f})"]


if __name__ == "__main__":
    print(f"{datetime.now(UTC):%Y-%m-%d}")
    main(*map(int, sys.argv[1:]))
