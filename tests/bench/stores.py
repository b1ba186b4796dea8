"""`make bench`: what one advance of each offset store costs, on real servers, interleaved in one run."""

from __future__ import annotations

import logging
import statistics
import sys
import tempfile
import uuid
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tabulate import tabulate

from airflow_kafka_offsets.adapters.stores.files import FilesStore
from airflow_kafka_offsets.adapters.stores.hbase import TABLE, HBaseStore
from airflow_kafka_offsets.adapters.stores.hdfs import HdfsFolders
from airflow_kafka_offsets.adapters.stores.kafka import KafkaStore
from airflow_kafka_offsets.adapters.stores.local import LocalFolders
from airflow_kafka_offsets.adapters.stores.redis import RedisStore
from airflow_kafka_offsets.adapters.stores.s3 import S3Folders
from airflow_kafka_offsets.adapters.stores.sql import SqlStore
from airflow_kafka_offsets.adapters.stores.zookeeper import JsonLayout, ZooKeeperStore
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.ports import OffsetStore
from tests.bench.plan_and_commit import PER_TOPIC, make_topics, timed
from tests.lab.databases import MariaDB, Postgres
from tests.lab.hbase import HBaseServer
from tests.lab.hdfs import Hdfs
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import LOOPBACK
from tests.lab.redis import RedisServer
from tests.lab.s3 import S3
from tests.lab.zookeeper import ZooKeeperServer

ROUNDS = 5


def main(sizes: list[int]) -> None:
    """Run the benchmark for numbers of partitions, and print a table."""
    logging.disable(logging.WARNING)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        kafka = stack.enter_context(KafkaBroker(folder / "kafka"))
        stores = {**kafka_stores(kafka), **open_stores(stack, folder)}
        columns = []
        for size in sizes:
            columns.append(measure(stores, make_topics(kafka, size), size))
            print(f"... {size:,} partitions: done", flush=True)
    rows = [[name, *(column[name] for column in columns)] for name in stores]
    print(tabulate(rows, ["one advance, ms", *(f"{size:,}" for size in sizes)], floatfmt=".0f"))
    print(
        f"medians of {ROUNDS} interleaved rounds; up to {PER_TOPIC} partitions in a topic; every server on this machine"
    )


def kafka_stores(kafka: KafkaBroker) -> dict[str, OffsetStore]:
    """Open both ways of Kafka."""
    return {
        "Kafka": KafkaStore("kafka://", kafka.client_config(), 30),
        "Kafka, plain commits": KafkaStore("kafka://", kafka.client_config(), 30, is_transactional=False),
    }


def open_stores(stack: ExitStack, folder: Path) -> dict[str, OffsetStore]:
    """Start all other servers, and open a store on each."""
    import happybase

    redis, zookeeper = RedisServer(folder / "redis"), ZooKeeperServer(folder / "zookeeper")
    hbase, hdfs, s3 = HBaseServer(folder / "hbase"), Hdfs(folder / "hdfs"), S3(folder / "s3")
    postgres, mariadb = Postgres(), MariaDB()
    for server in (redis, zookeeper, hbase, hdfs, s3, postgres, mariadb):
        stack.enter_context(server)
    happybase.Connection(LOOPBACK, hbase.port).create_table(TABLE, {"offsets": {}, "state": {}})
    bucket, client = s3.create_bucket("offsets"), s3.client()
    (folder / "files").mkdir()
    return {
        "Redis": RedisStore("redis://", 30, redis.login()),
        "ZooKeeper": ZooKeeperStore("zookeeper://", 30, zookeeper.hosts),
        "ZooKeeper, one node": ZooKeeperStore("zookeeper://", 30, zookeeper.hosts, layout=JsonLayout),
        "HBase": HBaseStore("hbase://", host=LOOPBACK, port=hbase.port, timeout=30),
        "SQL (PostgreSQL)": SqlStore("sql://", postgres.url, 30, create=True),
        "SQL (MariaDB)": SqlStore("sql://", mariadb.url, 30, create=True),
        "local files": FilesStore("files://", LocalFolders(str(folder / "files"))),
        "S3 (moto)": FilesStore("s3://", S3Folders(lambda: client, bucket)),
        "HDFS": FilesStore("hdfs://", HdfsFolders(hdfs.client(), "/offsets")),
    }


def measure(stores: dict[str, OffsetStore], topics: list[str], size: int) -> dict[str, float]:
    """Return the median of each store, in milliseconds."""
    group = f"bench-{uuid.uuid4().hex[:8]}"
    before = {TopicPartition(t, p): 10**9 for t in topics for p in range(min(PER_TOPIC, size))}
    for store in stores.values():
        store.advance(group, {}, before)
    times: dict[str, list[float]] = {name: [] for name in stores}
    for number in range(ROUNDS):
        after = {tp: offset + 1000 for tp, offset in before.items()}
        for name, store in stores.items():
            seconds, _ = timed(partial(store.advance, group, before, after, f"{group}-{number:06d}"))
            times[name].append(seconds)
        before = after
    return {name: statistics.median(seconds) * 1000 for name, seconds in times.items()}


if __name__ == "__main__":
    print(f"{datetime.now(UTC):%Y-%m-%d}")
    main([int(size) for size in sys.argv[1:]] or [10, 1000, 10_000])
