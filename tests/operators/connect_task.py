"""A task of `KafkaSparkOperator` in a process of its own, as a worker would run it: so it can be killed.

Run as ``python -m tests.operators.connect_task '<JSON>'`` with the keys of `main`; Airflow's connections come in the environment.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_kafka_offsets import KafkaGroup, KafkaSparkOperator, KafkaSparkSqlOperator


def slowly_until_released(hold: str) -> Any:
    """Return a function of Spark that stops in the middle of the write while the hold file is there."""

    def slowly(value: bytes) -> str:
        import pathlib
        import time

        while pathlib.Path(hold).exists():
            pathlib.Path(hold + ".reached").touch()
            time.sleep(0.1)
        return bytes(value).decode()

    return slowly


def load(spark: Any, window: Any, folder: str, ti: Any) -> int | None:
    """Append the window, so that every second writer shows; stop in the middle while ``hold-<try>`` is there."""
    from pyspark.sql import functions as F

    slowly = F.udf(slowly_until_released(f"{folder}/hold-{ti.try_number}"), "string")
    records = window.read().select("partition", "offset", slowly("value").alias("value"))
    records.write.mode("append").parquet(f"{folder}/lake")
    return ti.try_number  # type: ignore[no-any-return]


def load_late(spark: Any, window: Any, folder: str, ti: Any) -> None:
    """Read the window, then wait as a frozen worker would, before writing."""
    window.read().write.format("noop").mode("overwrite").save()
    window.check()
    hold = Path(folder, f"hold-{ti.try_number}")
    while hold.exists():
        Path(f"{hold}.reached").touch()
        time.sleep(0.1)
    spark.range(1).write.mode("append").parquet(f"{folder}/late")


def plain(spark: Any, window: Any, folder: str) -> None:
    """Write the window as Parquet."""
    window.read().write.mode("overwrite").parquet(f"{folder}/lake")


def main(
    *,
    group: dict[str, Any],
    folder: str,
    function: str = "",
    try_number: int = 1,
    run_id: str = "run",
    conf: dict[str, str] | None = None,
    conn_id: str | None = "connect",
    sql: dict[str, Any] | None = None,
) -> None:
    """Run one try of the task.

    Args:
        group: arguments of `KafkaGroup`.
        folder: where the function writes.
        function: name of one of this module.
        try_number: Airflow's number of the try.
        run_id: the run.
        conf: the run's conf: a replay.
        conn_id: of Spark.
        sql: instead of the function: arguments of `KafkaSparkSqlOperator`.
    """
    from airflow.sdk import DAG

    shared: dict[str, Any] = {"task_id": "load", "group": KafkaGroup(**group), "conn_id": conn_id, "retries": 9}
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
        max_tries=9,
        xcom_push=lambda key, value: print("XCOM", key, json.dumps(value), flush=True),
    )
    dag_run = SimpleNamespace(run_type="manual", conf=conf or {})
    context: Any = {"ti": ti, "task": task, "dag_run": dag_run, "params": {}, "dag": SimpleNamespace(params={})}
    print("RETURNED", json.dumps(task.execute({**context, "outlet_events": {}})), flush=True)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    main(**json.loads(sys.argv[1]))
