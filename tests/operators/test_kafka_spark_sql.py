"""SQL files on windows: what is a statement, what is refused, what a rerun leaves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets import KafkaGroup, KafkaSparkSqlOperator
from airflow_kafka_offsets.airflow_versions import AirflowFailException
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.launch.statements import check_statements, split
from tests.lab.apicurio import Apicurio
from tests.lab.registry import Registry
from tests.lab.topics import create_topic, produce_bytes
from tests.spark.avro import encoded, framed, record
from tests.task.airflow import context_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.kafka import KafkaBroker
    from tests.launch.conftest import Worker

READS = "insert into t select * from kafka_window"


@pytest.mark.parametrize(
    ("sql", "statements"),
    [
        ("select 1; select 2;", ["select 1", "select 2"]),
        ([READS, "select 1; select 2"], [READS, "select 1", "select 2"]),
        ("select 'a;b', \"c;d\", `e;f`; select 'it\\'s;', 'it''s;'", 2),
        ("-- a; b\nselect 1; /* x; y */ select 2", 2),
        ("select case when a then 1 else 2 end, if(a, 1, 2) from t; select 2", 2),
        ("merge into t using w on a = b when matched then update set *; select 2", 2),
        ("create or replace temp view v as select 1; create table t (a int); declare x int default 1", 3),
        (
            "begin\n declare x int = 1;\n insert into t select x;\n if x > 0 then delete from t; end if;\nend;\nselect 2",
            2,
        ),
        (" ;; -- only this\n;", []),
        ("", []),
    ],
)
def test_a_semicolon_ends_a_statement_where_it_stands_alone(sql: Any, statements: Any) -> None:
    assert (len(split(sql)) if isinstance(statements, int) else split(sql)) == statements


@pytest.mark.parametrize(
    "sql",
    [
        READS,
        "create temp view v as select 1; " + READS.upper(),
        "with x as (select * from `kafka_window`) select * from x",
    ],
)
def test_statements_that_name_the_view_are_taken(sql: str) -> None:
    check_statements(split(sql), "kafka_window", {})


@pytest.mark.parametrize(
    ("sql", "values", "says"),
    [
        ("select 1; select 'kafka_window' -- kafka_window", {}, r"None of the statements \(2\) reads kafka_window"),
        ("select * from my_kafka_window", {}, r"None of the statements \(1\) reads kafka_window"),
        ("", {}, r"None of the statements \(0\)"),
        (READS, {"view": "orders"}, r"reads orders\. .*KafkaSparkSqlOperator\(view=\.\.\.\)"),
        (READS, {"parameters": ["seq"]}, "parameters must be a mapping of names to values; got a list$"),
        ([READS, 5], {}, "sql must be SQL, or a list of SQL texts; got "),
        (READS, {"parameters": {"seq": 1}}, "parameters must not have seq"),
    ],
)
def test_what_would_leave_the_window_unread_is_refused_before_anything_is_planned(
    sql: Any, values: dict[str, Any], says: str
) -> None:
    group = KafkaGroup("g", topics=["t"], kafka_conn_id="nowhere")
    with pytest.raises(AirflowFailException, match=says):
        KafkaSparkSqlOperator(task_id="load", group=group, sql=sql, **values).execute(context_of())


def test_a_view_that_no_statement_could_name_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(BadInputError, match="view must be a name"):
        KafkaSparkSqlOperator(task_id="load", group=KafkaGroup("g", topics=["t"]), sql=READS, view="lake.orders")


LOAD = """
-- Parquet, a directory for each window
create table if not exists {table} (`partition` int, `offset` long, word string, window_id string)
using parquet partitioned by (window_id) location '{folder}/lake';

insert overwrite {table} partition (window_id = '${{window_id}}')
select `partition`, `offset`, 'a;b' from kafka_window where `offset` < :below;

select assert_true(count(*) = :wanted, 'not all rows of the window are there') from {table} where window_id = :window_id;
"""


def load(worker: Worker, below: int, try_number: int, wanted: int | None = None, **values: Any) -> dict[str, Any]:
    table = f"t_{worker.topic.replace('-', '_')}"
    return {
        "try_number": try_number,
        "last_clear": try_number - 1,  # a person's clear: it runs again
        "sql": {
            "sql": LOAD.format(table=table, folder=worker.folder),
            "parameters": {"below": below, "wanted": 2 * below if wanted is None else wanted},
        },
        **values,
    }


def test_a_rerun_of_a_sql_file_leaves_what_the_last_run_wrote_also_when_that_is_nothing(worker: Worker) -> None:
    said = worker.run(load(worker, 10, 1))
    worker.expect_once()
    facts = json.loads(said.rpartition("XCOM window ")[2].splitlines()[0])
    assert (facts["records"], facts["is_rerun"]) == (20, False)
    worker.run(load(worker, 5, 2))
    assert len(worker.lake()) == 10
    worker.run(load(worker, 0, 3), load(worker, 3, 4))
    assert len(worker.lake()) == 6
    said = worker.run(load(worker, 0, 5), load(worker, 0, 6, wanted=1), succeeds=False)
    assert "not all rows of the window are there" in said
    assert not worker.lake()
    assert [each.outcome.value for each in worker.attempts] == [*["succeeded"] * 5, "failed"]


def test_the_same_sql_runs_on_a_spark_of_the_tasks_own(worker: Worker, launch_jars: Path) -> None:
    conf = {
        "spark.master": "local[1]",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.warehouse.dir": str(worker.folder / "warehouse"),
    }
    worker.run(load(worker, 10, 1, conf=conf, conn_id=None), load(worker, 5, 2, conf=conf, conn_id=None))
    assert len(worker.lake()) == 10


DECODED = """
insert overwrite directory '{folder}/lake/window_id=${{window_id}}' using parquet
select `partition`, value.id as `offset` from kafka_window;
"""


def test_sql_sees_decoded_values_and_a_rerun_asks_no_registry(worker: Worker, kafka: KafkaBroker) -> None:
    topic = f"{worker.topic}-avro"
    create_topic(kafka, topic)
    with Registry("me:hunter2") as registry:
        number = registry.register(f"{topic}-value", record("Order", ("id", "long")))
        produce_bytes(kafka, topic, [framed(number if n < 5 else 77, encoded(n)) for n in range(6)])
        worker.group |= {"topics": [topic], "registry": "registry"}
        connection = json.loads(registry.connection(login="me", password="hunter2"))
        worker.connections["registry"] = connection
        sql = {"sql": DECODED.format(folder=worker.folder), "read": {"value": "avro", "on_bad": "null"}}
        said = worker.run({"sql": sql}, {"sql": sql, "try_number": 2, "last_clear": 1})
        assert f"/subjects/{topic}-value/versions/1?deleted=true" in registry.asked
        assert len(registry.asked) == len(set(registry.asked)), "each question once: only the first run asked"
    assert worker.lake() == {(0, n): 1 for n in [*range(5), None]}
    facts = json.loads(said.rpartition("XCOM window ")[2].splitlines()[0])
    assert (facts["records"], facts["bad"], facts["is_rerun"]) == (6, 1, True)
    assert "6 records read of 6 offsets; 1 record could not be decoded" in said
    assert "hunter2" not in said
    assert b"hunter2" not in (worker.folder / "airflow" / "kafka_offsets.db").read_bytes()


OF_SHOP_7 = """
insert overwrite directory '{folder}/lake/window_id=${{window_id}}' using parquet
select `partition`, value.id as `offset` from kafka_window
where key.shop = 7 and value.city = if(value.id < 3, '?', 'Bonn');
"""


def test_keys_and_values_of_a_real_registry_are_read_the_same_after_it_is_gone_on_a_server_and_on_another_spark(
    worker: Worker, kafka: KafkaBroker, launch_jars: Path
) -> None:
    topic = f"{worker.topic}-apicurio"
    create_topic(kafka, topic)
    fields = ("id", "long"), ("city", "string", "?")
    with Apicurio(worker.folder) as server:
        shop = server.register(f"{topic}-key", json.dumps(record("Shop", ("shop", "long"))))
        first, second = (
            server.register(f"{topic}-value", json.dumps(record("Order", *fields[:number]))) for number in (1, 2)
        )
        values = [framed(first, encoded(n)) if n < 3 else framed(second, encoded(n, "Bonn")) for n in range(6)]
        produce_bytes(kafka, topic, values, key=framed(shop, encoded(7)))
        worker.group |= {"topics": [topic], "registry": "apicurio"}
        worker.connections["apicurio"] = {"conn_type": "http", "host": server.url}
        sql = {"sql": OF_SHOP_7.format(folder=worker.folder), "read": {"key": "avro", "value": "avro"}}
        worker.run({"sql": sql})
    assert worker.lake() == {(0, n): 1 for n in range(6)}

    for path in (worker.folder / "lake").rglob("*.parquet"):
        path.unlink()  # so that what is found is of the rerun
    conf = {"spark.master": "local[1]", "spark.ui.enabled": "false"}
    again = {"try_number": 2, "last_clear": 1, "conf": conf, "conn_id": None}
    said = worker.run({"sql": sql, **again})
    facts = json.loads(said.rpartition("XCOM window ")[2].splitlines()[0])
    assert (facts["records"], facts["is_rerun"]) == (6, True)
    assert worker.lake() == {(0, n): 1 for n in range(6)}
