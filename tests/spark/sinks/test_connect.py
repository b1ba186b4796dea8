"""Windows written over Spark Connect, from a process of its own that has no JVM."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.lab.tables import CATALOG
from tests.lab.waiting import run_to_end

if TYPE_CHECKING:
    from tests.lab.kafka import KafkaBroker
    from tests.lab.spark_connect import SparkConnect
    from tests.spark.conftest import Ranges

ROOT = Path(__file__).parents[3]

CLIENT = """
import json, sys
from pyspark.sql import SparkSession
from airflow_kafka_offsets.spark import KafkaWindow
from tests.lab.tables import SHORT_PLANS
from tests.spark.conftest import handoff
from tests.spark.sinks.contract import job, window_id

url, kafka, ranges, codes, report = json.loads(sys.argv[1])
ranges = {topic: {int(p): tuple(ends) for p, ends in of_topic.items()} for topic, of_topic in ranges.items()}
spark = SparkSession.builder.remote(url).config(map=SHORT_PLANS).getOrCreate()

def run(code, target, seq, condition="true", **how):
    values = {"window_id": window_id(seq), "seq": seq, "report": report}
    window = KafkaWindow(spark, handoff(ranges, options={"kafka.bootstrap.servers": kafka}, **values))
    try:
        job(code, window, target, condition, **how)
        window.finish()
        with open(report) as file:
            return json.load(file)["written"]
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}"[:300]

def rows(query):
    return sorted(tuple(row) for row in spark.sql(query).collect())

results = {}
for name, (code, target, query) in codes.items():
    steps = [(1, "value < 3"), (2, "value > 7"), (1, "value > 8"), (2, "value < 0")]
    results[name] = [run(code, target, seq, condition) for seq, condition in steps]
    results[name].append(rows(query) if query else None)
results["incomplete"] = run(codes["append"][0], codes["append"][1], 3, limit=2)
results["appended"] = rows(codes["append"][2])
print(json.dumps(results))
"""


def test_table_formats_work_without_a_jvm_and_files_say_that_they_need_one(
    spark_connect: SparkConnect, kafka: KafkaBroker, topic: str, ranges: Ranges, tmp_path: Path
) -> None:
    # A busy server of Spark 4.0 may report no count: see docs/launchers/connect.md. Then all of it runs again, on other tables.
    for again in range(3):
        results = answers(spark_connect, kafka, ranges, tmp_path / str(again), f"{topic.replace('-', '_')}_{again}")
        if "Spark reported no action" not in json.dumps({**results, "incomplete": None}):
            break
    first, second = "lake.orders-000001", "lake.orders-000002"
    replaced = [True, True, True, True, [[first, 109]]]
    assert {name: results[name] for name in ("replace", "first", "iceberg", "merge")} == dict.fromkeys(
        ("replace", "first", "iceberg", "merge"), replaced
    )
    assert results["function"][:4] == [True] * 4, "the written rows are the counted ones, and not a second read"
    once = [[first, 100], [first, 101], [first, 102], [second, 208], [second, 209]]
    assert results["append"] == [True, True, False, False, once]
    assert all("Spark Connect can't rename" in answer for answer in results["parquet"][:4]), results["parquet"]
    assert "IncompleteReadError" in results["incomplete"]
    assert results["appended"] == once


def answers(spark_connect: SparkConnect, kafka: KafkaBroker, ranges: Ranges, folder: Path, name: str) -> dict[str, Any]:
    """Return the results of a client that writes below a folder, and to tables of a name."""
    folder.mkdir()
    lake = str(folder)
    append = "window.write_delta(df.withColumn('of', F.lit(window.id)), target, mode='append')"
    of = "select window_id, n from"
    look = "results = []; window.write(df, lambda rows, window: results.append(rows._explain_string()))"
    codes = {
        "function": (f"{look}; assert 'InMemoryTableScan' in results[0], results", "", ""),
        "parquet": ("window.write_parquet(df, target)", f"{lake}/parquet", ""),
        "replace": ("window.write_delta(df, target)", f"{lake}/orders", f"{of} delta.`{lake}/orders`"),
        "first": ("window.write_delta(df, target, check_first=True)", f"{lake}/first", f"{of} delta.`{lake}/first`"),
        "append": (append, f"{lake}/appended", f"select of, n from delta.`{lake}/appended`"),
        "iceberg": ("window.write_iceberg(df, target)", f"{CATALOG}.db.{name}", f"{of} {CATALOG}.db.{name}"),
        "merge": (
            "window.write_iceberg(df, target, merge_on='n', order_by='n')",
            f"{CATALOG}.db.{name}_m",
            f"{of} {CATALOG}.db.{name}_m",
        ),
    }
    arguments = [spark_connect.url, kafka.bootstrap_servers, ranges, codes, f"{lake}/report.json"]
    command = [sys.executable, "-c", CLIENT, json.dumps(arguments)]
    done = run_to_end(command, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-5000:]
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results
