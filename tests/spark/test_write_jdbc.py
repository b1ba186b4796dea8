"""What a table of a database has besides the contract of every sink: names, types, locks, staging tables."""

from __future__ import annotations

import sqlite3
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.spark.errors import OtherWindowError, PublishError, TargetError, WriteOptionError
from airflow_kafka_offsets.spark.label import Label, label_of
from airflow_kafka_offsets.spark.observing import Observed
from airflow_kafka_offsets.spark.sinks import jdbc
from airflow_kafka_offsets.spark.sinks.jdbc import JdbcTable
from airflow_kafka_offsets.spark.sinks.jdbc_sql import Target, stage_name
from tests.lab.waiting import LONGEST
from tests.spark.conftest import handoff, take_whole_names_only
from tests.spark.jdbc import Database

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_kafka_offsets.spark import KafkaWindow
    from tests.lab.databases import Postgres
    from tests.spark.conftest import MakeWindow, Ranges

ID = "lake.orders-000012"
LABEL = label_of(handoff({}))


@pytest.fixture(params=["postgres", "mariadb"])
def database(request: pytest.FixtureRequest) -> Database:
    """Return a database of each kind."""
    return Database(request.getfixturevalue(request.param).url)


@pytest.fixture
def table(database: Database) -> str:
    """Return the name of a new target with one column `n`."""
    name = f"orders_{uuid.uuid4().hex[:10]}"
    database.create(name)
    return name


def values(window: KafkaWindow, condition: str = "n >= 0") -> DataFrame:
    return window.read().selectExpr("cast(cast(value as string) as int) as n").filter(condition)


def write(window: KafkaWindow, df: DataFrame, database: Database, table: str, **more: Any) -> int:
    return window.write_jdbc(df, database.jdbc, table, database.properties, **more)


def test_windows_stand_side_by_side_with_each_other_and_with_the_rows_of_others(
    make_window: MakeWindow, ranges: Ranges, database: Database, table: str
) -> None:
    database.run(f"INSERT INTO {table} (n) VALUES (77)")
    for window_id in ("lake.orders-000001", "Lake.orders-000001", "lake.orders-000001"):
        window = make_window(ranges, window_id=window_id)
        write(window, values(window, "n < 2"), database, table)
    assert database.found(table) == [
        (None, 77),
        ("Lake.orders-000001", 0),
        ("Lake.orders-000001", 1),
        ("lake.orders-000001", 0),
        ("lake.orders-000001", 1),
    ]


def test_a_table_without_the_column_is_refused_before_anything_is_read_with_the_statements_that_add_it(
    make_window: MakeWindow, ranges: Ranges, database: Database, topic: str
) -> None:
    table = topic.replace("-", "_")
    window = make_window(ranges)
    df = values(window)
    with pytest.raises(TargetError, match="It must exist"):
        write(window, df, database, table)
    database.run(f"CREATE TABLE {table} (n INTEGER)")
    with pytest.raises(TargetError, match=r"window_id:\n    ALTER TABLE .* ADD COLUMN .*window_id") as refused:
        write(window, df, database, table)
    assert window.is_unchecked
    database.run(*str(refused.value).split("\n    ")[1:])
    with pytest.raises(TargetError, match="n2"):
        write(window, df.withColumnRenamed("n", "n2"), database, table)
    with pytest.raises(WriteOptionError, match="column window_id"):
        write(window, df.withColumnRenamed("n", "WINDOW_ID"), database, table)
    assert write(window, df, database, table) == 10
    assert database.numbers(table) == [*range(10)]


def test_a_table_is_made_on_request(make_window: MakeWindow, ranges: Ranges, database: Database, topic: str) -> None:
    table = f"made_{topic.replace('-', '_')}"
    for _ in range(2):
        window = make_window(ranges)
        assert write(window, values(window), database, table, create=True) == 10
    assert database.found(table) == [(ID, n) for n in range(10)]


def test_rows_are_converted_as_by_a_direct_write(
    spark: SparkSession, make_window: MakeWindow, ranges: Ranges, database: Database, topic: str
) -> None:
    """The staging table has the target's types, not those that Spark would give it."""
    table = f"typed_{topic.replace('-', '_')}"
    moment = "TIMESTAMP(3) NULL" if database.is_mysql else "TIMESTAMPTZ"
    database.create(
        table, f"n INTEGER, doc {'JSON' if database.is_mysql else 'JSONB'}, at {moment}, note VARCHAR(9) DEFAULT 'x'"
    )
    window = make_window(ranges)
    df = values(window, "n = 1").selectExpr("n", """'{"a":1}' as doc""", "timestamp'2026-03-29 01:30:00.123Z' as at")
    options = {**database.properties, "stringtype": "unspecified"}
    window.write_jdbc(df, database.jdbc, table, options)
    seconds = "UNIX_TIMESTAMP(at)" if database.is_mysql else "extract(epoch from at)"
    assert [(n, float(at), note) for n, at, note in database.ask(f"SELECT n, {seconds}, note FROM {table}")] == [
        (1, 1774747800.123, "x")
    ]


def test_whoever_makes_the_tables_beside_the_target_at_the_same_moment_does_not_fail_the_job(
    make_window: MakeWindow, postgres: Postgres, ranges: Ranges, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL may tell the second of two that a type exists, in spite of IF NOT EXISTS; see _make_lock()."""
    database = Database(postgres.create_database(f"twins_{topic}"))
    database.create("orders")
    once, others = jdbc._update, {"kafka_offsets_published", "kafka_offsets_digests"}

    def beside_another_job(connection: Any, statement: str, *arguments: Any, **more: Any) -> int:
        made = next((name for name in others if statement.startswith("CREATE TABLE") and name in statement), None)
        if made is None:
            return once(connection, statement, *arguments, **more)
        others.remove(made)
        database.run(f"CREATE TYPE {made} AS ENUM ()")
        try:
            return once(connection, statement, *arguments, **more)
        finally:
            database.run(f"DROP TYPE {made}", statement)

    monkeypatch.setattr(jdbc, "_update", beside_another_job)
    window = make_window(ranges)
    assert write(window, values(window), database, "orders") == 10
    assert database.numbers("orders") == [*range(10)]
    assert not others


def test_rows_without_a_digest_are_replaced_only_by_a_window_that_was_committed(
    make_window: MakeWindow, ranges: Ranges, database: Database, table: str
) -> None:
    """As those that a version without digests has written."""
    database.run(f"INSERT INTO {table} (n, window_id) VALUES (77, '{ID}')")
    window = make_window(ranges)
    with pytest.raises(OtherWindowError, match="without a digest"):
        write(window, values(window), database, table)
    assert database.numbers(table) == [77]
    assert database.stages() == []
    rerun = make_window(ranges, is_rerun=True)
    assert write(rerun, values(rerun), database, table) == 10
    assert database.numbers(table) == [*range(10)]


def test_one_window_may_be_in_several_tables_and_of_several_ledgers_in_different_ones(
    make_window: MakeWindow, ranges: Ranges, database: Database, table: str
) -> None:
    database.create(f"{table}_other")
    for until in ("2026-01-01T01:00:00+00:00", "2026-03-01T00:00:00+00:00"):
        window = make_window(ranges, planned_until=until)
        write(window, values(window), database, table if "-01-" in until else f"{table}_other")
    assert database.numbers(f"{table}_other") == database.numbers(table) == [*range(10)]


def test_rows_that_a_task_left_twice_are_not_published(
    make_window: MakeWindow, ranges: Ranges, database: Database, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = JdbcTable._write

    def twice(self: JdbcTable, df: DataFrame, name: str) -> None:
        once(self, df, name)
        database.run(f"INSERT INTO {database.stages()[0]} (n) VALUES (9)")

    monkeypatch.setattr(JdbcTable, "_write", twice)
    window = make_window(ranges)
    with pytest.raises(PublishError, match="Spark staged 11 rows and reported 10"):
        write(window, values(window), database, table)
    assert database.numbers(table) == []
    assert database.stages() == []


def test_rows_of_which_spark_tells_no_number_are_not_published(
    make_window: MakeWindow, ranges: Ranges, database: Database, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Observed, "metrics", lambda *_: {})  # as a busy Connect server may answer
    window = make_window(ranges)
    with pytest.raises(PublishError, match="Spark staged 10 rows and reported none in time"):
        write(window, values(window), database, table)
    assert database.numbers(table) == []
    assert database.stages() == []


def test_what_the_database_refuses_leaves_what_was_there(
    make_window: MakeWindow, ranges: Ranges, database: Database, table: str
) -> None:
    first = make_window(ranges)
    write(first, values(first, "n < 3"), database, table)
    database.run(f"CREATE UNIQUE INDEX u_{table} ON {table} (n)")
    rerun = make_window(ranges)
    df = values(rerun).selectExpr("n % 2 as n")
    with pytest.raises(PublishError, match=f"(?i){table}: window {ID} could not be published .*(unique|duplicate)"):
        write(rerun, df, database, table)
    assert database.numbers(table) == [0, 1, 2]
    assert database.stages() == []


def test_a_mysql_table_that_takes_nothing_back_is_refused(
    mariadb: Any, make_window: MakeWindow, ranges: Ranges
) -> None:
    database = Database(mariadb.url)
    database.run("CREATE TABLE memory_orders (n INTEGER, window_id VARCHAR(255)) ENGINE = MyISAM")
    window = make_window(ranges)
    with pytest.raises(TargetError, match="ENGINE = InnoDB"):
        write(window, values(window), database, "memory_orders")


def staged(spark: SparkSession, database: Database, table: str, numbers: range) -> tuple[JdbcTable, Any]:
    """Stage as one try of a window does."""
    sink = JdbcTable(spark, database.jdbc, table, database.properties)
    df = spark.range(numbers.start, numbers.stop, 1, 2).selectExpr("cast(id as int) as n")
    with sink.staging(["n"], ID) as name:
        return sink, sink.fill(name, df, 60)


def test_classes_of_the_jvm_are_asked_for_by_their_whole_names(
    spark: SparkSession, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = JdbcTable(spark, database.jdbc, "any", database.properties)
    take_whole_names_only(monkeypatch)
    with sink._connected() as connection:
        assert connection.isValid(1)


def test_whenever_twins_publish_at_once_one_copy_is_left(spark: SparkSession, database: Database, table: str) -> None:
    """The table has no row of the window at first: two transactions that delete nothing would both insert."""
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            database.run(f"DELETE FROM {table}", *_forget(database))
            tries = [staged(spark, database, table, range(size)) for size in (40, 30, 20, 10)]
            together = threading.Barrier(4)

            def publish(sink: JdbcTable, stage: Any, together: threading.Barrier = together) -> str | None:
                together.wait(LONGEST)
                try:
                    sink.publish(stage, LABEL)
                except PublishError as exc:
                    return str(exc)  # a younger try was faster, and has dropped what this one staged
                return None

            failures = [job.result() for job in [pool.submit(publish, *each) for each in tries]]
            assert None in failures
            assert database.numbers(table) in ([*range(size)] for size in (40, 30, 20, 10))
            assert database.stages() == []


def test_a_group_with_the_name_of_another_groups_window_has_a_mark_of_its_own(
    spark: SparkSession, database: Database, table: str
) -> None:
    for group in ("lake", "lake-000001"):
        sink, stage = staged(spark, database, table, range(2))
        sink.publish(stage, label_of(handoff({}, window_id=f"{group}-000001", group=group, ledgers=["a" * 32])))
    assert database.numbers(table) == [0, 1, 0, 1]


def test_two_windows_of_a_ledger_that_inherits_may_be_the_first_at_one_moment(
    spark: SparkSession, database: Database, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def publish(number: int, ledgers: list[str]) -> None:
        sink, stage = staged(spark, database, table, range(number, number + 1))
        sink.publish(stage, label_of(handoff({}, window_id=f"lake.orders-00000{number}", ledgers=ledgers)))

    publish(1, ["a"])
    once, together, numbers = Label.must_mark, threading.Barrier(2), {2, 3}

    def both(self: Label, target: str, ledger: str | None) -> bool:
        """Let both windows see the old mark before one of them replaces it."""
        answer = once(self, target, ledger)
        if (number := int(self.window_id[-1])) in numbers:
            numbers.remove(number)
            together.wait(LONGEST)
        return answer

    monkeypatch.setattr(Label, "must_mark", both)
    with ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(publish, number, ["b", "a"]) for number in (2, 3)]:
            job.result()
    assert database.numbers(table) == [1, 2, 3]
    with pytest.raises(OtherWindowError, match=r"from another ledger, b:"):
        publish(4, ["a"])


def _forget(database: Database) -> list[str]:
    there = database.ask("SELECT count(*) FROM information_schema.tables WHERE table_name = 'kafka_offsets_published'")
    return ["DELETE FROM kafka_offsets_published"] if there[0][0] else []


def test_a_publication_ends_older_tries_and_leaves_a_younger_one_alone(
    spark: SparkSession, database: Database, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [stage_name(ID, table, _second(n), "abcdef") for n in range(3)]
    stages = iter(names)
    monkeypatch.setattr("airflow_kafka_offsets.spark.sinks.jdbc.stage_name", lambda *_: next(stages))
    tries = [staged(spark, database, table, range(10 * (n + 1))) for n in range(3)]
    other = stage_name("lake.orders-000013", table, _second(0), "abcdef")
    database.run(f"CREATE TABLE {other} (n INTEGER)")
    sink, stage = tries[1]
    sink.publish(stage, LABEL)
    assert {*database.stages()} & {*names, other} == {names[2], other}
    with pytest.raises(PublishError, match="could not be published"):
        tries[0][0].publish(tries[0][1], LABEL)
    assert database.numbers(table) == [*range(20)]
    tries[2][0].publish(tries[2][1], LABEL)
    assert database.numbers(table) == [*range(30)]
    database.run(f"DROP TABLE {other}")


def _second(n: int) -> Any:
    from datetime import datetime

    return datetime(2026, 1, 31, 12, 0, n, tzinfo=UTC)


def test_over_connect_the_way_through_the_ledger_is_named_and_a_password_refused() -> None:
    remote: Any = object()  # has no JVM
    sink = JdbcTable(remote, "jdbc:postgresql://host/db", "orders")
    with pytest.raises(TargetError, match=r"use stage_jdbc\(\)"):
        sink.need_jvm()
    for url, properties in (
        ("jdbc:postgresql://host/db", {"user": "u", "Password": "canary"}),
        ("jdbc:postgresql://host/db?password=canary", {}),
        ("jdbc:mysql://u:canary@host/db", {}),
    ):
        with pytest.raises(WriteOptionError, match=r"docs/sinks/jdbc\.md") as refused:
            JdbcTable(remote, url, "orders", properties)
        assert "canary" not in str(refused.value)
    with pytest.raises(WriteOptionError, match="Leave out URL: the arguments url and table name the target"):
        JdbcTable(remote, "jdbc:postgresql://host/db", "orders", {"URL": "jdbc:postgresql://other/db"})


def test_the_keys_of_our_own_tables_are_never_null() -> None:
    target = Target("jdbc:sqlite:lake.db", "orders")
    connection = sqlite3.connect(":memory:")
    for create, keys in (
        (target.create_published(), {"window_id"}),
        (target.create_digests(), {"window_id", "target"}),
    ):
        connection.execute(create)
        [(table,)] = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        assert {name for _, name, _, is_not_null, _, is_key in columns if is_not_null and is_key} == keys
        connection.execute(f"DROP TABLE {table}")
