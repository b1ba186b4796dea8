"""A task of `KafkaSparkOperator` in a process of its own, as a worker would run it: so it can be killed. See `conftest.Worker`.

Airflow's connections come in the environment.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import requests

from airflow_kafka_offsets import KafkaGroup, KafkaSparkOperator, KafkaSparkSqlOperator
from airflow_kafka_offsets.core.launch.start import LAUNCHER_OPTIONS, SUBMIT_OPTIONS
from tests.lab.holds import slowly_until_released
from tests.lab.processes import command_lines
from tests.lab.waiting import ANSWER


def append(spark: Any, window: Any, folder: str, ti: Any) -> int:
    """Append the window, so that every second writer shows; stop in the middle while ``hold-<try>`` is there."""
    from pyspark.sql import functions as F

    slowly = F.udf(slowly_until_released(f"{folder}/hold-{ti.try_number}"), "string")
    records = window.read().select("partition", "offset", slowly("value").alias("value"))
    records.write.mode("append").parquet(f"{folder}/lake")
    return int(ti.try_number)


def wait_then_append(spark: Any, window: Any, folder: str, ti: Any) -> int:
    """Append the window, after a while in which only this process is busy, and not the server."""
    spark.range(1).collect()
    hold = Path(folder, f"hold-{ti.try_number}")
    while hold.exists():
        Path(f"{hold}.reached").touch()
        time.sleep(0.1)
    window.read().select("partition", "offset").write.mode("append").parquet(f"{folder}/lake")
    return int(ti.try_number)


def say_which_spark(spark: Any, window: Any, folder: str, ti: Any) -> dict[str, Any]:
    """Read the window, and tell which kind of Spark that was."""
    window.read().write.format("noop").mode("overwrite").save()
    return {"tags": sorted(spark.getTags()), "is_connect": not hasattr(spark, "_jvm")}


def say_how_it_started(spark: Any, window: Any, folder: str, ti: Any) -> dict[str, Any]:
    """Take the window. Return how the driver's JVM was started, and its variables that are left in this process."""
    from tests.launch.jobs.how_it_started import start_of

    assert window.starting_offsets != window.ending_offsets  # who takes both reads by means of their own
    left = {name: value for name, value in os.environ.items() if name in (SUBMIT_OPTIONS, LAUNCHER_OPTIONS)}
    return {**start_of(spark._jvm), "environment": left}


def look_around(spark: Any, window: Any, folder: str, ti: Any) -> int:
    """Read the window, and keep what its job shows to others: all command lines, and the pages of Spark's UI."""
    records = window.read().collect()
    if not hasattr(spark, "sparkContext"):  # what a server shows: `test_connect_secrets`
        return len(records)
    seen = Path(folder, "seen")
    seen.mkdir(exist_ok=True)
    url = spark.sparkContext.uiWebUrl
    api = f"{url}/api/v1/applications/{spark.sparkContext.applicationId}"
    paths = [f"{api}/environment", f"{api}/sql?details=true", f"{url}/environment/", f"{url}/SQL/execution/?id=0"]
    pages = [requests.get(path, timeout=ANSWER).text for path in paths]
    (seen / f"{window.group}.pages").write_text("\n".join(pages))
    (seen / f"{window.group}.argv").write_text("\n".join(command_lines()))
    return len(records)


def main(
    *,
    group: dict[str, Any],
    folder: str,
    function: str = "",
    try_number: int = 1,
    last_clear: int = 0,
    conf: dict[str, str] | None = None,
    conn_id: str | None = "connect",
    sql: dict[str, Any] | None = None,
    run_id: str = "run",
) -> None:
    """Run one try of the task.

    Args:
        group: arguments of `KafkaGroup`.
        folder: where the function writes.
        function: name of one of this module.
        try_number: Airflow's number of the try.
        last_clear: the try after which a person cleared the task.
        conf: of Spark.
        conn_id: of Spark.
        run_id: the run's.
        sql: instead of the function: arguments of `KafkaSparkSqlOperator`.
    """
    from airflow.sdk import DAG

    shared: dict[str, Any] = {"task_id": "load", "group": KafkaGroup(**group), "conn_id": conn_id, "retries": 9}
    shared["config_kwargs"] = conf or {}
    with DAG("dag"):
        task: KafkaSparkOperator = (
            KafkaSparkSqlOperator(**shared, **sql)
            if sql
            else KafkaSparkOperator(**shared, python_callable=globals()[function], op_kwargs={"folder": folder})
        )
    ti = SimpleNamespace(
        dag_id="dag",
        run_id=run_id,
        task_id="load",
        map_index=-1,
        try_number=try_number,
        max_tries=9 + last_clear,
        bundle_instance=SimpleNamespace(version=None),
        xcom_push=lambda key, value: print("XCOM", key, json.dumps(value), flush=True),
    )
    dag_run = SimpleNamespace(run_type="manual", conf={}, start_date=None)
    context: Any = {
        "ti": ti,
        "task": task,
        "dag_run": dag_run,
        "params": {},
        "dag": SimpleNamespace(params={}, tasks=[]),
    }
    print("RETURNED", json.dumps(task.execute({**context, "outlet_events": {}})), flush=True)


def run(tries: list[dict[str, Any]]) -> None:
    """Run tries of the task one after the other; each has the keys of `main`."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    for one_try in tries:
        main(**one_try)


def collect(url: str, query: str) -> None:
    """Be a client of a server, and wait for the answer to a query."""
    from pyspark.sql import SparkSession

    SparkSession.builder.remote(url).getOrCreate().sql(query).collect()
