"""A table in the ledger's database, staged over Spark Connect by a process without a JVM."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_kafka_offsets.ledger import schema
from airflow_kafka_offsets.ledger.engine import open_engine
from tests.lab.topics import create_topic, produce
from tests.lab.waiting import run_to_end
from tests.spark.jdbc import Database

if TYPE_CHECKING:
    from tests.lab.databases import MariaDB
    from tests.lab.kafka import KafkaBroker
    from tests.lab.spark_connect import SparkConnect

ROOT = Path(__file__).parents[2]

CLIENT = """
import json, sys
from pyspark.sql import SparkSession
from airflow_kafka_offsets.spark import KafkaWindow
from tests.spark.conftest import handoff

remote, url, table, servers, topic = json.loads(sys.argv[1])
spark = SparkSession.builder.remote(remote).getOrCreate()

def told(table, limit=1000, **options):
    given = {"options": {"kafka.bootstrap.servers": servers}, "output_tables": [table]}
    window = KafkaWindow(spark, handoff({topic: {0: (0, 5)}}, **given))
    df = window.read().selectExpr("cast(cast(value as string) as int) as n").limit(limit)
    try:
        return window.stage_jdbc(df, url, table, {"user": "open", **options})
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}"

print(json.dumps([told(table, 3), told(table), told("nowhere"), told(table, password="canary")]))
"""


def test_a_window_is_staged_over_connect_if_all_of_it_was_read(
    spark_connect: SparkConnect, mariadb: MariaDB, kafka: KafkaBroker, topic: str
) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 5)
    database = Database(mariadb.url)
    schema.upgrade(open_engine(database.url))
    # No password: over Connect it would have to be the server's.
    mariadb.execute("CREATE USER open@'127.0.0.1'", "GRANT ALL ON offsets.* TO open@'127.0.0.1'")
    database.create("over_connect")
    arguments = json.dumps([spark_connect.url, database.jdbc, "over_connect", kafka.bootstrap_servers, topic])
    done = run_to_end([sys.executable, "-c", CLIENT, arguments], cwd=ROOT)
    assert done.returncode == 0, done.stderr[-5000:]
    incomplete, staged, nowhere, password = json.loads(done.stdout.splitlines()[-1])
    assert incomplete.startswith("IncompleteReadError: Window lake.orders-000012: ")
    assert staged == 5
    [(window, name, rows)] = database.ask(
        "SELECT window_id, staging, row_count FROM kafka_offsets_staged WHERE target = 'over_connect'"
    )
    numbers = sorted(database.ask(f"SELECT n FROM {name}"))
    # At once: if this test fails later, others on this server must not meet the table.
    database.run(f"DROP TABLE {name}", "DELETE FROM kafka_offsets_staged WHERE target = 'over_connect'")
    assert (window, rows) == ("lake.orders-000012", 5)
    assert numbers == [(n,) for n in range(5)]
    assert nowhere.startswith("TargetError: nowhere can't take the window (")
    assert "Table 'offsets.nowhere' doesn't exist)" in nowhere
    assert "ALTER TABLE `nowhere` ADD COLUMN `window_id`" in nowhere
    assert password == (
        "WriteOptionError: A Spark Connect server would show the password in password in its UI. "
        "Store it on the server: docs/sinks/jdbc.md"
    )
