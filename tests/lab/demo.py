"""`make demo`: the promise, seen. Real Kafka, Airflow and Spark: a killed job, a retry, a rerun, a replay by time, the proof."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import requests
from confluent_kafka import Producer
from tabulate import tabulate

from airflow_kafka_offsets.core.window import State, Window, WindowRecord
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.task.links import in_airflow
from tests.lab.airflow import Airflow
from tests.lab.jars import JarError, jars_for_launches
from tests.lab.java import JavaError
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import ServerError, wait_until
from tests.lab.topics import create_topic

DAGS = Path(__file__).parents[2] / "dags"
DAG, TASK, TOPIC, GROUP = "demo_orders", "load", "orders", "demo.orders"
PARTITIONS = 4
WINDOWS = 3
ORDERS_PER_SECOND = 2000
_START = time.monotonic()


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"[{time.monotonic() - _START:5.0f} s] {text}", flush=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    """Tell what is going on, and that it goes on."""
    say(f"{what} ...")
    done = threading.Event()

    def still() -> None:
        while not done.wait(15):
            say(f"  ... still: {what}")

    thread = threading.Thread(target=still, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()


@dataclass
class Orders:
    """A producer of numbered orders in the background."""

    kafka: KafkaBroker
    produced: int = 0
    acknowledged: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Begin to produce."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        producer = Producer({**self.kafka.client_config(), "linger.ms": 20})
        while not self._stop.wait(0.1):
            for _ in range(ORDERS_PER_SECOND // 10):
                order = b'{"order": %d, "amount": %d}' % (self.produced, self.produced % 997)
                producer.produce(TOPIC, order, partition=self.produced % PARTITIONS, on_delivery=self._delivered)
                self.produced += 1
            producer.poll(0)
        producer.flush(60)

    def _delivered(self, error: object, _: object) -> None:
        self.acknowledged += error is None

    def stop(self) -> None:
        """Stop, and make sure that Kafka has all orders."""
        self._stop.set()
        self._thread.join()
        if self.acknowledged != self.produced:
            raise RuntimeError(f"Kafka acknowledged {self.acknowledged} of {self.produced} orders")


@dataclass
class Demo:
    """The servers of the demo, and what it looks at."""

    kafka: KafkaBroker
    airflow: Airflow
    ledger: Ledger
    lake: Path
    replayed: list[str] = field(default_factory=list)

    def windows(self) -> list[WindowRecord]:
        """Return the windows, oldest first."""
        return list(reversed(self.ledger.windows(GROUP)))

    def committed(self) -> int:
        """Return how many windows are committed."""
        return sum(row.window.state is State.COMMITTED for row in self.windows())

    def wait_for(self, committed: int) -> None:
        """Wait until that many windows are committed, telling of each change."""
        seen: dict[str, str] = {}

        def is_done() -> bool:
            for row in self.windows():
                line = f"{row.window.state}, {row.attempts} attempt(s)"
                if seen.get(row.window.id) != line:
                    seen[row.window.id] = line
                    say(f"  window {row.window.id}: {line}, span {row.window.span:,}")
            return self.committed() >= committed

        wait_until(is_done, what=f"{committed} windows are committed", interval=0.5)

    def wait_for_retry(self, window_id: str) -> None:
        """Wait until the window is worked on for a second time."""

        def is_retried() -> bool:
            return any(row.window.id == window_id and row.attempts > 1 for row in self.windows())

        wait_until(is_retried, what=f"a second attempt at {window_id}", interval=0.5)

    def kill_a_job_midway(self) -> str:
        """SIGKILL the Spark driver of a window while it writes, and return the window's id."""
        killed: list[str] = []

        def is_killed() -> bool:
            row = next((r for r in reversed(self.windows()) if r.window.state is State.PLANNED), None)
            if row and list(self.lake.glob(f".staging-{row.window.id}-*")):
                driver = self.airflow.driver_process(DAG, row.holder.run_id, TASK)
                if driver is not None and kill(driver):
                    killed.append(row.window.id)
            return bool(killed)

        wait_until(is_killed, what="a Spark job was killed while it wrote", interval=0.01)
        return killed[0]

    def has_read(self, orders: int) -> bool:
        """Whether committed windows cover that many offsets."""
        return sum(r.window.span for r in self.windows() if r.committed_at) >= orders

    def orders_in_lake(self) -> Counter[int]:
        """Count each order in the lake, as any reader of Parquet sees it."""
        import pyarrow.dataset

        table = pyarrow.dataset.dataset(self.lake, partitioning="hive").to_table(["json"])
        return Counter(int(text.split(":")[1].split(",")[0]) for text in table["json"].to_pylist())


def kill(process: psutil.Process) -> bool:
    """SIGKILL a process; False: it was gone already."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def run(stack: ExitStack, folder: Path) -> tuple[Demo, int]:
    """Start everything, play the scenes, and return how many orders were produced."""
    demo = start_servers(stack, folder)
    orders = Orders(demo.kafka)
    orders.start()
    say(f"producing {ORDERS_PER_SECOND:,} orders a second into {PARTITIONS} partitions; {DAG} runs every 30 s")
    demo.airflow.api.unpause(DAG)
    demo.wait_for(1)
    with step("waiting for the next Spark job, to kill it while it writes"):
        killed = demo.kill_a_job_midway()
    say(f"  SIGKILL to the driver of window {killed}; Airflow retries the task")
    demo.wait_for_retry(killed)
    # While that window is at work, the next one is not cut yet: it will hold all the rest.
    orders.stop()
    say(f"the producer stops after {orders.produced:,} orders")
    demo.wait_for(WINDOWS)
    with step("letting the schedule read the rest"):
        wait_until(lambda: demo.has_read(orders.produced), what="all orders are read", interval=0.5)
    clear_the_first_run(demo)
    replay_by_time(demo)
    return demo, orders.produced


def start_servers(stack: ExitStack, folder: Path) -> Demo:
    """Start a Kafka broker and the four parts of Airflow, and fetch what is not there yet, all beside each other."""
    lake = folder / "lake"
    lake.mkdir()
    # It knows its address before it runs.
    kafka = KafkaBroker(folder / "kafka")
    airflow = Airflow(
        folder / "airflow",
        DAGS,
        connections={
            "kafka_default": {"conn_type": "kafka", "extra": kafka.client_config()},
            "spark_default": {"conn_type": "spark", "host": "local[2]"},
        },
        environment={"DEMO_LAKE": str(lake)},
        # No one changes a Dag file here, and to read them again and again takes the time of their tasks.
        settings={"dag_processor": {"min_file_process_interval": "600"}},
    )
    with step("starting Kafka and Airflow (the first time: downloading Kafka and Spark's connector, too)"):
        with ThreadPoolExecutor(3) as pool:
            starts = [
                pool.submit(start_kafka, stack, kafka),
                pool.submit(start_airflow, stack, airflow),
                pool.submit(jars_for_launches),
            ]
        for start in starts:
            start.result()
    return Demo(kafka, airflow, Ledger(f"sqlite:///{airflow.home}/kafka_offsets.db", create=True), lake)


def start_kafka(stack: ExitStack, kafka: KafkaBroker) -> None:
    """Start the broker, and create the topic."""
    stack.callback(kafka.stop)
    kafka.start()
    create_topic(kafka, TOPIC, PARTITIONS)
    say(f"  Kafka is up at {kafka.bootstrap_servers}")


def start_airflow(stack: ExitStack, airflow: Airflow) -> None:
    """Start Airflow's scheduler, API server, Dag processor and triggerer, with the DAGs of this repository."""
    stack.callback(airflow.stop)
    airflow.start()
    airflow.api.wait_for_dag(DAG)
    say(f"  Airflow is up at {airflow.url} (user {airflow.user}, password {airflow.password})")


def clear_the_first_run(demo: Demo) -> None:
    """Clear the run of the first window, as a person would in the UI, and wait for it."""
    first = demo.windows()[0]
    run_id = first.holder.run_id
    with step(f"clearing the run of {first.window.id} ({run_id}): the same window is run again"):
        demo.airflow.api.clear(DAG, run_id, [TASK])
        demo.airflow.api.wait_for_run(DAG, run_id, "success")


def replay_by_time(demo: Demo) -> None:
    """Ask for the time of the second and third window, as a person would in the Trigger form, and wait for it."""
    first, second, third = (row.window for row in demo.windows()[:3])
    span = {"from": first.planned_until.isoformat(), "to": third.planned_until.isoformat()}
    with step(
        f"replaying by time, after {span['from']} and up to {span['to']}: {second.id}, {third.id} and their like"
    ):
        run_id = demo.airflow.api.run_to(DAG, span)
        result = demo.airflow.api.xcom(DAG, run_id, TASK)
        for window in result.get("windows", [result]):
            demo.replayed.append(window["window_id"])
            say(f"  window {window['window_id']}: run again under its own id, {window['records']:,} records")
        demo.airflow.api.pause(DAG)
        wait_for_running(demo)


def wait_for_running(demo: Demo) -> None:
    """Wait until no task is at work: a Parquet directory that is replaced right now would not count."""

    def is_quiet() -> bool:
        runs = demo.airflow.api.runs(DAG)[-5:]
        states = {task["state"] for run in runs for task in demo.airflow.api.tasks(DAG, run["dag_run_id"])}
        return not {"running", "queued"} & states

    wait_until(is_quiet, what="no task is at work", interval=0.5)


def describe(window: Window) -> str:
    """Return the ranges of a window in one line."""
    return "  ".join(f"{tp.partition}:[{r.start},{r.end})" for tp, r in window.ranges.items())


def prove(demo: Demo, produced: int) -> bool:
    """Print the windows and the proof line, and say whether the promise held."""
    rows = [row for row in demo.windows() if row.window.span]
    table = [
        [
            r.window.id,
            r.window.state.value,
            r.attempts,
            describe(r.window),
            r.window.span,
            r.records,
        ]
        for r in rows
    ]
    print()
    print(tabulate(table, ["window", "state", "attempts", "offsets by partition", "span", "records"], intfmt=","))
    found = demo.orders_in_lake()
    duplicates = sum(count - 1 for count in found.values())
    missing = len(set(range(produced)) - found.keys())
    print()
    print(
        f"records produced {produced:,}, records in the lake {sum(found.values()):,}, duplicates {duplicates}, "
        f"missing {missing}"
    )
    was_retried = any(row.attempts > 1 for row in rows[1:])
    was_rerun = rows[0].attempts > 1
    was_replayed = {row.window.id for row in demo.windows()[1:3] if row.window.span} <= set(demo.replayed)
    return not duplicates and not missing and len(rows) >= WINDOWS and was_retried and was_rerun and was_replayed


def where_to_look(airflow: str, *, is_kept: bool) -> str:
    """Return the line with the address of the group's page.

    Args:
        airflow: the address of Airflow's UI.
        is_kept: whether Airflow stays up after the demo.
    """
    address = f"{airflow}/{in_airflow(f'groups/{GROUP}')}"
    return f"Who read what: {address}" + ("" if is_kept else " (KEEP=1 leaves it up)")


def main() -> int:
    """Run the demo; 0: the promise held."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="kafka-offsets-demo-"))
    keep = os.environ.get("KEEP") == "1"
    held = False
    try:
        with ExitStack() as stack:
            demo, produced = run(stack, folder)
            held = prove(demo, produced)
            print("The promise held." if held else "THE PROMISE DID NOT HOLD.", flush=True)
            say(where_to_look(demo.airflow.url, is_kept=keep))
            if keep:
                say(
                    f"KEEP=1: Airflow stays up at {demo.airflow.url} (user {demo.airflow.user}, password "
                    f"{demo.airflow.password}), Kafka at {demo.kafka.bootstrap_servers}, the lake in {demo.lake}. "
                    "Ctrl-C stops it all"
                )
                demo.airflow.api.unpause(DAG)
                signal.pause()
            say("stopping")
    except KeyboardInterrupt:
        say("stopped")
    except requests.RequestException as exc:
        say(f"Airflow did not answer: {exc}")
    except (JarError, JavaError, ServerError) as exc:
        say(str(exc))
    finally:
        if held:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            say(f"logs are in {folder}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
