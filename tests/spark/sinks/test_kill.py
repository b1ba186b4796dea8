"""Jobs of every sink, killed (SIGKILL) in the middle of their write; then the window is run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.spark import KafkaWindow
from tests.lab.processes import wait_until
from tests.lab.tables import CATALOG
from tests.spark.conftest import handoff, open_spark
from tests.spark.sinks import test_delta, test_files, test_function, test_iceberg
from tests.spark.sinks.contract import SinkContract, job, rows_of, window_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.lab.kafka import KafkaBroker
    from tests.spark.conftest import Ranges

ROOT = Path(__file__).parents[3]
# Those of the first partition are through, the last one never ends.
STUCK = "case when value < 9 then n else length(reflect('java.lang.Thread', 'sleep', 600000L)) end"


def sinks(folder: Path, topic: str) -> list[tuple[SinkContract, str]]:
    """Return each sink with a target of its own."""
    return [
        (test_files.TestParquet(), f"{folder}/parquet"),
        (test_delta.TestReplace(), f"{folder}/replaced"),
        (test_delta.TestAppend(), f"{folder}/appended"),
        (test_iceberg.TestReplace(), f"{CATALOG}.killed.`{topic}`"),
        (test_iceberg.TestMerge(), f"{CATALOG}.killed.`{topic}-merged`"),
        (test_function.TestFunction(), f"{folder}/orders.db"),
    ]


def test_a_killed_job_leaves_each_target_as_it_was_and_the_next_try_puts_it_right(
    spark: SparkSession,
    kafka: KafkaBroker,
    topic: str,
    ranges: Ranges,
    spark_connector: list[Path],
    table_jars: list[Path],
    tmp_path: Path,
) -> None:
    def run(sink: SinkContract, target: str, seq: int, condition: str) -> None:
        job(sink.code, window_of(spark, kafka.bootstrap_servers, ranges, seq), target, condition)

    targets = sinks(tmp_path, topic)
    for sink, target in targets:
        # Where windows are replaced, the one that is killed; else another.
        run(sink, target, 2 if sink.is_replaced else 1, "value < 7")
    warehouse = Path(spark.conf.get(f"spark.sql.catalog.{CATALOG}.warehouse"))
    kill_half_way(
        tmp_path,
        {
            "warehouse": str(warehouse.parent),
            "jars": [str(jar) for jar in (*spark_connector, *table_jars)],
            "kafka": kafka.bootstrap_servers,
            "ranges": {name: {str(p): ends for p, ends in of_topic.items()} for name, of_topic in ranges.items()},
            "jobs": [(sink.code, target) for sink, target in targets],
        },
    )
    for sink, target in targets:
        assert (target, sorted(sink.rows(spark, target))) == (target, rows_of(2 if sink.is_replaced else 1, *range(7)))
        run(sink, target, 2, "value > 4")
        others = [] if sink.is_replaced else rows_of(1, *range(7))
        sink.assert_rows(spark, target, *others, *rows_of(2, *range(5, 10)))


def window_of(spark: SparkSession, kafka: str, ranges: Ranges, seq: int) -> KafkaWindow:
    """Return the window with this number."""
    return KafkaWindow(
        spark, handoff(ranges, window_id=window_id(seq), seq=seq, options={"kafka.bootstrap.servers": kafka})
    )


def kill_half_way(folder: Path, what: dict[str, Any]) -> None:
    """Start jobs in a process of their own, and kill it with its Spark when each of them is in the middle of its write."""
    log, mark = folder / "jobs.log", folder / "half-way"
    command = [sys.executable, "-m", __name__, json.dumps({**what, "mark": str(mark), "folder": str(folder)})]
    with log.open("w") as output:
        child = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True)
    try:
        wait_until(lambda: mark.exists() or child.poll() is not None, what="the jobs are half-way")
        assert mark.exists(), log.read_text()[-5000:]
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def run_jobs(what: dict[str, Any]) -> None:
    """Run all jobs at once, and leave a mark when each has done all but its last record."""
    ranges = {name: {int(p): tuple(ends) for p, ends in of_topic.items()} for name, of_topic in what["ranges"].items()}
    jobs = what["jobs"]
    spark = open_spark(Path(what["warehouse"]), [Path(jar) for jar in what["jars"]], threads=2 * len(jobs))

    def run(code: str, target: str) -> None:
        window = window_of(spark, what["kafka"], ranges, 2)
        job(code, window, target, n=STUCK)

    for code, target in jobs:
        threading.Thread(target=run, args=(code, target), daemon=True).start()
    tracker = spark.sparkContext.statusTracker()

    def are_half_way() -> bool:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        stuck = [stage for stage in stages if stage and stage.numActiveTasks == 1 and stage.numCompletedTasks > 0]
        return len(stuck) == len(jobs)

    wait_until(are_half_way, what="every job has one task left")
    Path(what["mark"]).touch()
    threading.Event().wait()


if __name__ == "__main__":
    run_jobs(json.loads(sys.argv[1]))
