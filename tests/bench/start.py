"""`make bench`: what one spark-submit of the operator pays for, step by step, from a task's first line to its job's first record.

Each way is a task in a process of its own, on a real broker, a real ledger and `local[2]`: *before* with ``--packages``, no start archive and both compilers; *now* as
the operator starts it. Seconds of the clock and of the CPU of the process that works.

Arguments: records of the window (default 10,000), rounds (default 3).
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tabulate import tabulate

from tests.bench.throughput import PARTITIONS, fill
from tests.lab.jars import spark_connector_jars
from tests.lab.java import java, pyspark_home
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import LOOPBACK
from tests.lab.start import PROGRAM, folder_for_launches, ours
from tests.lab.topics import create_topic

JOB = Path(__file__).parent / "jobs" / "started.py"
ROOT = Path(__file__).parents[2]
CONF = {"spark.ui.enabled": "false", "spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
AS_JAVA_STARTS = {"spark.driver.extraJavaOptions": "-Xshare:auto -XX:TieredStopAtLevel=4"}
"""Options of a user, which win: no start archive and both compilers. The launcher's JVM stays quick; its row has what it costs otherwise."""
WAYS: dict[str, dict[str, str]] = {"before": AS_JAVA_STARTS, "now": {}}

Step = tuple[str, float, float]
"""What it is, seconds of the clock, seconds of CPU."""


def main(records: int, rounds: int) -> None:
    """Run the benchmark, and print a table."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        kafka = stack.enter_context(KafkaBroker(folder / "kafka", jvm_options=("-Xmx1g",)))
        spark_connector_jars()
        cache = folder_for_launches()
        create_topic(kafka, "start", PARTITIONS)
        fill(kafka, "start", dict.fromkeys(range(PARTITIONS), (0, max(1, records // PARTITIONS))))
        found: dict[str, list[list[Step]]] = {way: [] for way in WAYS}
        for number in range(rounds + 1):
            for way in WAYS:
                steps = run_task(kafka, folder / f"{way}-{number}", cache, way)
                found[way] += [steps] if number else []  # the first round fills caches of the machine
                print(f"... round {number}, {way}: {steps[-1]}", flush=True)
    report(found, records)


def run_task(kafka: KafkaBroker, folder: Path, cache: Path, way: str) -> list[Step]:
    """Run one task in a process of its own, and return its steps; the last one is the whole."""
    folder.mkdir()
    connections = {
        "kafka_default": {"conn_type": "kafka", "extra": kafka.client_config()},
        "spark_default": {"conn_type": "spark", "host": "local[2]"},
    }
    environment = ours(
        AIRFLOW_HOME=str(folder),
        PYTHONPATH=str(ROOT),
        BENCH_SERVERS=kafka.bootstrap_servers,
        AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER=str(cache),
        PATH=f"{PROGRAM.parent}:{os.environ['PATH']}",
        **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(value) for name, value in connections.items()},
    )
    before, start = cpu_of(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "tests.bench.start", "task", way, str(folder)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    whole = ("all of it, until the task's end", time.perf_counter() - start, cpu_of(resource.RUSAGE_CHILDREN) - before)
    if done.returncode:
        raise RuntimeError(f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    task = json.loads((folder / "task.json").read_text())
    return [*steps_of(task, json.loads((folder / "job.json").read_text())), whole]


def steps_of(task: dict[str, Any], job: dict[str, Any]) -> list[Step]:
    """Return the steps of a task and of its job, one after the other."""
    steps = [(name, wall, cpu) for name, wall, cpu in task["steps"]]
    notes = job["notes"]
    steps.append(("scripts and launcher of Spark (a JVM)", job["jvm"] - job["submitted"], task["launcher"]))
    steps.append(("JVM of the driver, until it starts Python", job["python"] - job["jvm"], notes[0]["jvm"]))
    last = {"at": job["python"], "python": 0.0, "jvm": notes[0]["jvm"]}
    for note in notes:
        cpu = note["python"] - last["python"] + note["jvm"] - last["jvm"]
        steps.append((note["step"], note["at"] - last["at"], cpu))
        last = note
    return steps


def cpu_of(who: int) -> float:
    """Return the CPU seconds of this process, or of its children that have ended."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def task(way: str, folder: Path) -> None:
    """Be the task: run the operator as Airflow's task runner does, and write down its steps."""
    steps: list[Step] = []
    last = [time.perf_counter(), cpu_of(resource.RUSAGE_SELF)]

    def note(name: str) -> None:
        now = [time.perf_counter(), cpu_of(resource.RUSAGE_SELF)]
        steps.append((name, now[0] - last[0], now[1] - last[1]))
        last[:] = now

    import airflow.sdk  # noqa: F401

    note("import airflow.sdk (of any task)")
    from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator

    note("import the operator")
    operator = Timed(KafkaGroup, KafkaSparkSubmitOperator, folder, way, note)
    operator.run()
    (folder / "task.json").write_text(json.dumps({"steps": steps[: operator.submitted], "launcher": launcher_cpu(way)}))


class Timed:
    """An operator whose steps are noted: what it calls is called through something that looks at the clock.

    Args:
        group: the class of groups.
        operator: the class of the operator.
        folder: where the window goes.
        way: one of `WAYS`.
        note: what is called after each step.
    """

    def __init__(self, group: Any, operator: Any, folder: Path, way: str, note: Callable[[str], None]) -> None:
        from airflow_kafka_offsets.spark.connector import connector_package

        connector = {"connector": connector_package()} if way == "before" else {}
        self.operator = operator(
            task_id="load",
            group=group("bench", topics=["start"]),
            application=str(JOB),
            application_args=[str(folder / "lake"), str(folder / "job.json"), os.environ["BENCH_SERVERS"]],
            conf={**CONF, **WAYS[way]},
            driver_memory="2g",
            **connector,
        )
        self.submitted = 0
        self._note = note
        self._step("_check_and_prepare", "check what was written (and find Spark, its version and the connector)")
        self._step("_launch", "open the ledger, plan, begin the attempt", before=True)
        self._run_job = self.operator.run_job
        self.operator.run_job = self._timed_job

    def run(self) -> None:
        """Run the operator once."""
        task = {"dag_id": "d", "run_id": "r", "task_id": "load", "map_index": -1, "try_number": 1, "max_tries": 0}
        ti = SimpleNamespace(**task, stats_tags={}, bundle_instance=SimpleNamespace(version=None))
        context: Any = {
            "ti": ti,
            "dag_run": SimpleNamespace(run_type="manual", conf={}, start_date=None),
            "params": {},
            "dag": SimpleNamespace(params={}, tasks=[]),
            "data_interval_end": datetime(2026, 1, 1, tzinfo=UTC),
        }
        self.operator.execute(context)

    def _step(self, method: str, name: str, *, before: bool = False) -> None:
        real = getattr(self.operator, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            if before:
                self._note(name)
                return real(*args, **kwargs)
            result = real(*args, **kwargs)
            self._note(name)
            return result

        setattr(self.operator, method, timed)

    def _timed_job(self, context: Any) -> None:
        self._note("write the window, the job side's zip, the login")
        hook = self.operator.launch_hook
        read = hook._process_spark_submit_log

        def timed(itr: Any) -> None:
            self._note("build the command, look for the start archive, start spark-submit")
            self.submitted = 6
            read(itr)

        hook._process_spark_submit_log = timed
        self._run_job(context)


def launcher_cpu(way: str) -> float:
    """Return the CPU seconds of the JVM that works out how to start the driver's."""
    options = ["-XX:TieredStopAtLevel=1"] if way == "now" else []
    command = [java(), "-Xmx128m", *options, "-cp", f"{pyspark_home()}/jars/*", "org.apache.spark.launcher.Main"]
    command += ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]", "job.py"]
    # What Spark's scripts set for it.
    environment = {**os.environ, "SPARK_HOME": str(pyspark_home()), "SPARK_SCALA_VERSION": "2.13"}
    before = cpu_of(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, capture_output=True, check=True)
    return cpu_of(resource.RUSAGE_CHILDREN) - before


def report(found: dict[str, list[list[Step]]], records: int) -> None:
    """Print each step's seconds in both ways."""
    rows = []
    for number, (name, *_) in enumerate(found["now"][0]):
        cells = [statistics.median(run[number][of] for run in runs) for runs in found.values() for of in (1, 2)]
        rows.append([name, *cells])
    print(tabulate(rows, ["step", "before: s", "CPU s", "now: s", "CPU s"], floatfmt=".2f"))
    print(f"a window of {records:,} records in {PARTITIONS} partitions; medians")


if __name__ == "__main__":
    if sys.argv[1:2] == ["task"]:
        task(sys.argv[2], Path(sys.argv[3]))
    else:
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        print(f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, load {load}")
        given = [int(value) for value in sys.argv[1:]]
        main(given[0] if given else 10_000, given[1] if len(given) > 1 else 3)
