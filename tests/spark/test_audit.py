"""A table that Spark wrote, audited against the ledger: planted faults are found where they were planted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.cli import main
from airflow_kafka_offsets.spark import islands
from tests.cli.test_audit import QUERY
from tests.core.examples import claim, tp
from tests.lab.memory import IN_MEMORY
from tests.service.world import World
from tests.spark.conftest import frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Record = tuple[str, int, int]
OLD = [("orders", partition, offset) for partition in range(2) for offset in range(20)]
"""What another program wrote before the group: up to the offsets that it took over."""


@pytest.fixture
def world() -> Iterator[World]:
    """Return a world in which a group took a topic over at offset 20, and has read two windows since."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        start = json.dumps({"orders": {"0": 20, "1": 20}})
        world = World(Path(folder), starting_offsets=start)
        for run in range(2):
            for partition in range(2):
                world.kafka.produce(tp(partition), 20)
            if run == 0:
                for partition in range(2):
                    world.kafka.produce(tp(partition), 10)
            world.run(claim(f"run-{run}"))
        yield world


def written(world: World) -> list[tuple[Record, str]]:
    """Return each record of the windows, with its window."""
    return [
        ((tp_.topic, tp_.partition, offset), row.window.id)
        for row in world.ledger.windows("lake")
        for tp_, r in row.window.ranges.items()
        for offset in range(r.start, r.end)
    ]


def table(spark: SparkSession, path: Path, old: list[Record], new: list[tuple[Record, str]]) -> DataFrame:
    """Write earlier rows beside the windows, and return all rows as readers see them."""
    rows = [(*record, "before-the-move") for record in old] + [(*record, window) for record, window in new]
    frame = frame_of(spark, rows, "topic string, partition int, offset bigint, window_id string")
    frame.write.mode("overwrite").partitionBy("window_id").parquet(str(path))
    return spark.read.parquet(str(path))


def audit(world: World, folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, Any]:
    """Run `kafka-offsets audit` on what Spark wrote."""
    capsys.readouterr()
    url = str(world.ledger._engine.url)
    with pytest.raises(SystemExit) as ended:
        main(["audit", "lake", "--table", str(folder), "--ledger", url, "-o", "json", *more])
    return int(ended.value.code or 0), json.loads(capsys.readouterr().out)


def test_a_table_that_continues_an_old_one_has_each_record_once(
    spark: SparkSession, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = table(spark, tmp_path / "lake", OLD, written(world))
    islands(frame).write.csv(str(tmp_path / "islands"), header=True)
    code, found = audit(world, tmp_path / "islands", capsys)
    assert (code, found["right"], found["windows"], found["found"]) == (0, True, 2, 60)
    assert [(r["partition"], r["start"], r["end"]) for r in found["outside"]] == [(0, 0, 20), (1, 0, 20)]


def test_planted_faults_are_named_with_their_windows(
    spark: SparkSession, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = written(world)
    kept = [one for one in new if one[0] not in {("orders", 0, 22), ("orders", 0, 23), ("orders", 1, 49)}]
    twice = [(record, "lake-000099") for record, _ in new if record[1:] in {(0, 28), (0, 29), (0, 30)}]
    old = [record for record in OLD if record != ("orders", 1, 19)] + [("orders", 0, 20)]
    frame = table(spark, tmp_path / "lake", old, kept + twice)
    islands(frame).write.csv(str(tmp_path / "islands"))
    code, found = audit(world, tmp_path / "islands", capsys)
    assert (code, found["right"]) == (1, False)
    assert shown(found["missing"], "not_there") == [
        ("lake-000001", "orders", 0, 22, 24, 0),
        ("lake-000002", "orders", 1, 49, 50, 0),
    ]
    assert shown(found["doubled"], "more_than_once") == [
        ("lake-000001", "orders", 0, 20, 21, 2),
        ("lake-000001", "orders", 0, 28, 30, 2),
        ("lake-000002", "orders", 0, 30, 31, 2),
    ]
    assert [(r["partition"], r["start"], r["end"]) for r in found["at_join"]] == [(1, 19, 20)]
    code, found = audit(world, tmp_path / "islands", capsys, "--windows", "2")
    assert (code, found["windows"], len(found["missing"]), len(found["doubled"])) == (1, 1, 1, 1)


def shown(findings: list[dict[str, Any]], which: str) -> list[tuple[Any, ...]]:
    keys = ("topic", "partition", "start", "end", "copies")
    return [(finding["window"], *(r[key] for key in keys)) for finding in findings for r in finding[which]]


def test_the_query_of_the_docs_gives_the_same(spark: SparkSession, world: World, tmp_path: Path) -> None:
    new = written(world)
    frame = table(spark, tmp_path / "lake", OLD, new[3:20] + new[10:40])
    frame.createOrReplaceTempView("the_table")
    settings = {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        by_query = spark.sql(QUERY.replace("lake.orders", "the_table")).collect()
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))
    by_function = islands(frame).collect()
    assert sorted(map(tuple, by_function)) == sorted(map(tuple, by_query))
    assert len(by_query) > 4


def test_a_partition_with_more_offsets_than_a_task_sorts_is_cut_where_the_ledger_joins_it(spark: SparkSession) -> None:
    rows = [("orders", "0", offset) for offset in range(999_990, 1_000_010)]
    frame = frame_of(spark, rows, "t string, p string, o long").selectExpr("t", "cast(p as long) as p", "o")
    found = sorted(map(tuple, islands(frame, topic="t", partition="p", offset="o").collect()))
    assert found == [("orders", 0, 999_990, 999_999, 1), ("orders", 0, 1_000_000, 1_000_009, 1)]
