"""`make bench`: what our operators add to the parsing of a DAG file, beside what they extend.

As Airflow does, each file is parsed in a process of its own, forked from one that has imported `airflow.sdk`.

Where OpenLineage's provider is installed, the Spark provider's `SparkSubmitOperator` imports it, and 300 modules with it. How long this takes
depends on how deep in the stack Python is: by up to a fifth, which is more than all that ours adds. So both ways are measured as if that
provider was absent, and `SUBMIT_NAME` a second time as it is.
"""

from __future__ import annotations

import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.abc import MetaPathFinder
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

NOTHING = 'with DAG("d"): ...'
OPERATOR = 'with DAG("d"): BaseOperator(task_id="t")'
SENSOR = 'with DAG("d"): BaseSensorOperator(task_id="t")'
SUBMIT = """
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
with DAG("d"): SparkSubmitOperator(task_id="t", application="job.py")
"""
PYSPARK = """
from airflow.providers.apache.spark.operators.spark_pyspark import PySparkOperator
def load(spark): ...
with DAG("d"): PySparkOperator(task_id="t", python_callable=load)
"""
TRIGGER = """
from airflow.triggers.base import BaseEventTrigger
class Trigger(BaseEventTrigger):
    def serialize(self): return "d.Trigger", {}
    async def run(self): yield
with DAG("d", schedule=[Asset("orders", watchers=[AssetWatcher(name="w", trigger=Trigger())])]): ...
"""
GROUP = """
from airflow_kafka_offsets import KafkaGroup
group = KafkaGroup("lake.orders", topics=["orders"])
"""

# For each public name, two DAG files: with what it extends, and with it.
FILES = {
    "KafkaGroup": (NOTHING, f"{GROUP}{NOTHING}"),
    "StoreAddress": (NOTHING, f'from airflow_kafka_offsets import StoreAddress\nStoreAddress("kafka")\n{NOTHING}'),
    "Registry": (NOTHING, f'from airflow_kafka_offsets import Registry\nRegistry("registry")\n{NOTHING}'),
    "KafkaSparkSubmitOperator": (
        SUBMIT,
        f"""{GROUP}
from airflow_kafka_offsets import KafkaSparkSubmitOperator
with DAG("d"): KafkaSparkSubmitOperator(task_id="t", application="job.py", group=group)
""",
    ),
    "KafkaSparkOperator": (
        PYSPARK,
        f"""{GROUP}
from airflow_kafka_offsets import KafkaSparkOperator
def load(spark, window): ...
with DAG("d"): KafkaSparkOperator(task_id="t", python_callable=load, group=group)
""",
    ),
    "KafkaSparkSqlOperator": (
        PYSPARK,
        f"""{GROUP}
from airflow_kafka_offsets import KafkaSparkSqlOperator
with DAG("d"): KafkaSparkSqlOperator(task_id="t", sql="select * from kafka_window", group=group)
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
    "PlanWindowOperator": (
        OPERATOR,
        f"""{GROUP}
from airflow_kafka_offsets import PlanWindowOperator
with DAG("d"): PlanWindowOperator(task_id="t", group=group)
""",
    ),
    "PlanBacklogOperator": (
        OPERATOR,
        f"""{GROUP}
from airflow_kafka_offsets import PlanBacklogOperator
with DAG("d"): PlanBacklogOperator(task_id="t", group=group)
""",
    ),
    "CommitWindowOperator": (
        OPERATOR,
        """
from airflow_kafka_offsets import CommitWindowOperator
with DAG("d"): CommitWindowOperator(task_id="t", window="lake.orders-000012")
""",
    ),
    "KafkaUnreadSensor": (
        SENSOR,
        f"""{GROUP}
from airflow_kafka_offsets import KafkaUnreadSensor
with DAG("d"): KafkaUnreadSensor(task_id="t", group=group, min_span=1)
""",
    ),
    "KafkaTimeSensor": (
        SENSOR,
        f"""{GROUP}
from airflow_kafka_offsets import KafkaTimeSensor
with DAG("d"): KafkaTimeSensor(task_id="t", group=group, until="{{{{ data_interval_end }}}}")
""",
    ),
    "KafkaLagSensor": (
        SENSOR,
        f"""{GROUP}
from airflow_kafka_offsets import KafkaLagSensor
with DAG("d"): KafkaLagSensor(task_id="t", group=group, max_lag=0)
""",
    ),
    "KafkaVerdictSensor": (
        SENSOR,
        f"""{GROUP}
from airflow_kafka_offsets import KafkaVerdictSensor
with DAG("d"): KafkaVerdictSensor(task_id="t", group=group)
""",
    ),
    "WindowCommittedSensor": (
        SENSOR,
        """
from airflow_kafka_offsets import WindowCommittedSensor
with DAG("d"): WindowCommittedSensor(task_id="t", window_id="lake.orders-000012")
""",
    ),
    "KafkaVerdictTrigger": (
        TRIGGER,
        f"""{GROUP}
from airflow_kafka_offsets import KafkaVerdictTrigger
trigger = KafkaVerdictTrigger(group=group)
with DAG("d", schedule=[Asset("orders", watchers=[AssetWatcher(name="w", trigger=trigger)])]): ...
""",
    ),
    "KafkaOffsetsTrigger": (
        TRIGGER,
        f"""{GROUP}
from airflow_kafka_offsets import KafkaOffsetsTrigger
trigger = KafkaOffsetsTrigger(group=group, min_span=1)
with DAG("d", schedule=[Asset("orders", watchers=[AssetWatcher(name="w", trigger=trigger)])]): ...
""",
    ),
    "replay_params": (
        'with DAG("d", params={"from": Param(None, type=["null", "string"])}): ...',
        'from airflow_kafka_offsets import replay_params\nwith DAG("d", params=replay_params()): ...',
    ),
}

SUBMIT_NAME = "KafkaSparkSubmitOperator"
LINEAGE = "airflow.providers.openlineage"
ROWS = [*((name, name, False) for name in FILES), (f"{SUBMIT_NAME}, with OpenLineage", SUBMIT_NAME, True)]
"""The title of each row, the name in `FILES`, and whether OpenLineage's provider may be imported."""

_names: dict[str, Any] = {}


class Absent(MetaPathFinder):
    """Makes OpenLineage's provider absent."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:
        """Find nothing, and let no one else look for the provider."""
        if f"{fullname}.".startswith(f"{LINEAGE}."):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def main(rounds: int = ROUNDS) -> None:
    """Run the benchmark, and print a table."""
    logging.disable(logging.WARNING)
    parsed(SDK)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        cached = measured(rounds, folder, writes_bytecode=True)
        compiled = measured(rounds, f"{folder}/none", writes_bytecode=False)
    rows = [[title, *one, *other[2:]] for (title, _, _), one, other in zip(ROWS, cached, compiled, strict=True)]
    headers = ["", "extended, CPU", "ours, CPU", "beyond, CPU", "wall", "compiled: beyond, CPU", "wall"]
    print(tabulate(rows, headers, tablefmt="github", colalign=("left", *("right",) * 6), floatfmt=".0f"))
    print(f"ms; medians of {rounds} interleaved rounds; beyond: medians of the differences, with their quartiles")


def measured(rounds: int, folder: str, *, writes_bytecode: bool) -> list[list[float | str]]:
    """Return the columns of each row.

    Args:
        rounds: how often each file is parsed; once more comes first, which writes the bytecode.
        folder: where bytecode is looked for.
        writes_bytecode: whether it is written; if not, each parse compiles what it imports.
    """
    sys.pycache_prefix, sys.dont_write_bytecode = folder, not writes_bytecode
    files = [(text, has_lineage) for _, name, has_lineage in ROWS for text in FILES[name]]
    # One file for each child, so that none finds what another one imported.
    with get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        times = pool.starmap(parsed, files * (rounds + 1), chunksize=1)[len(files) :]
    by_file = [times[number :: len(files)] for number in range(len(files))]
    return [columns(extended, ours) for extended, ours in zip(by_file[::2], by_file[1::2], strict=True)]


def parsed(text: str, has_lineage: bool = True) -> tuple[float, float]:
    """Parse a DAG file, and return the milliseconds of CPU and of the clock that it took.

    Args:
        text: the file.
        has_lineage: whether OpenLineage's provider may be imported; if not, it is absent in this process from now on.
    """
    if not has_lineage:
        sys.meta_path.insert(0, Absent())
    cpu, wall = time.process_time(), time.perf_counter()
    exec(compile(text, "dag.py", "exec"), _names)
    return 1000 * (time.process_time() - cpu), 1000 * (time.perf_counter() - wall)


def columns(extended: list[tuple[float, float]], ours: list[tuple[float, float]]) -> list[float | str]:
    """Return the CPU of both, and what ours takes more by CPU and by the clock."""
    medians = [statistics.median(cpu for cpu, _ in times) for times in (extended, ours)]
    more = [[b[which] - a[which] for a, b in zip(extended, ours, strict=True)] for which in (0, 1)]
    return [*medians, *map(spread, more)]


def spread(values: list[float]) -> str:
    """Return the median and the quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.0f} ({low:.0f} to {high:.0f})"


if __name__ == "__main__":
    print(f"{datetime.now(UTC):%Y-%m-%d}")
    main(*map(int, sys.argv[1:]))
