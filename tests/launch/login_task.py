"""Tasks that log in to Kafka, each in its own way, in a process of their own: see `test_logins`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.launch import connect_task


def run(
    logins: list[str],
    topic: str,
    folder: str,
    options: dict[str, dict[str, str]],
    conf: dict[str, str],
    conn_id: str | None,
) -> None:
    """Plan and read a window of the topic with each login; print what came of it.

    Args:
        logins: the connections, whose names are those of the groups.
        topic: of the windows.
        folder: where files are left.
        options: the ``spark_options`` of a group.
        conf: of Spark; it runs here unless they say otherwise.
        conn_id: of Spark Connect, or None.
    """
    usual = {
        "spark.master": "local[1]",
        "spark.ui.enabled": "true",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": Path(folder, "events").as_uri(),
        "spark.driver.host": "127.0.0.1",
    }
    conf = {} if conn_id else {**usual, **conf}
    Path(folder, "events").mkdir(exist_ok=True)
    for login in logins:
        group = {"name": login, "topics": [topic], "kafka_conn_id": login, "spark_options": options.get(login, {})}
        print("LOGIN", login, flush=True)
        try:
            connect_task.main(
                group=group, folder=folder, function="look_around", conf=conf, conn_id=conn_id, run_id=login
            )
        except Exception as exc:
            print("FAILED", login, json.dumps(f"{type(exc).__name__}: {exc}"), flush=True)
