"""Servers for the tests: each is started when a test first asks for it. What few files use is stopped after each of them, the rest at the end."""

from __future__ import annotations

import gc
import os
import signal
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from airflow_kafka_offsets.core.launch.start import SUBMIT_OPTIONS
from tests.lab import processes
from tests.lab.cache import PROVIDER_CACHE
from tests.lab.leftovers import sweep
from tests.lab.memory import IN_MEMORY
from tests.lab.start import MUCH_CODE, SHORT_LIFE, start_variables

# What tests have in common asserts, too; only in tests and conftest.py does pytest say by itself what was compared.
pytest.register_assert_rewrite(
    *("tests.ledger.examples", "tests.service.simulation", "tests.spark.sinks.contract"),
    *("tests.stores.across", "tests.stores.contract"),
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.databases import MariaDB, Postgres
    from tests.lab.forks import Forks
    from tests.lab.hbase import HBaseServer
    from tests.lab.hdfs import Hdfs
    from tests.lab.kafka import KafkaBroker, TwoDoorBroker
    from tests.lab.redis import RedisCluster, RedisServer, SecureRedisServer
    from tests.lab.s3 import S3
    from tests.lab.spark_connect import SparkConnect
    from tests.lab.spark_standalone import SparkStandalone
    from tests.lab.sparks import OtherSpark
    from tests.lab.start import StartArchive
    from tests.lab.yarn import Yarn
    from tests.lab.zookeeper import ZooKeeperServer

_MARKER_OF_FIXTURE = {
    "kafka": "kafka",
    "kafka_sasl": "kafka",
    "postgres": "postgres",
    "mariadb": "mariadb",
    "hbase": "hbase",
    "redis": "redis",
    "redis_secure": "redis",
    "redis_cluster": "redis",
    "zookeeper": "zookeeper",
    "s3": "s3",
    "hdfs": "hdfs",
    "spark_connector": "spark",
    "launch_jars": "spark",
    "folder_for_launches": "spark",
    "spark_connect": "spark",
    "table_jars": "spark",
    "spark_3": "spark",
    "spark_standalone": "spark",
    "start_archive": "spark",
    "yarn": "yarn",
}
# Files that use one of these fixtures share a heavy server: they run in one process, which starts it once.
_PROCESS_OF_FIXTURE = {
    "spark_connect": "Spark Connect",
    "spark_standalone": "standalone Spark",
    "table_jars": "Spark",
    "server": "page",
}
_MARKERS_OF_SERVERS = frozenset({"server", "airflow", *_MARKER_OF_FIXTURE.values()})

# What collecting makes stays until the end: to look through it again and again took a third of its time.
gc.disable()

# How many examples a law sees: in the whole run, and with `--hypothesis-profile=quick`. Laws with numbers of their own
# take the smaller of both. No deadline: the machine may be busy.
settings.register_profile("deep", deadline=None, max_examples=50)
settings.register_profile("quick", settings.get_profile("deep"), max_examples=8, stateful_step_count=12)
settings.load_profile("deep")


def pytest_configure() -> None:
    """Tidy up after killed runs; stop the servers at SIGTERM, too, and ask them without a proxy; let Spark start quickly."""
    sweep()
    processes.reach_loopback_directly()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ.update(start_variables(span=0))
    os.environ[SUBMIT_OPTIONS] += f" {SHORT_LIFE} {MUCH_CODE}"
    os.environ["AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER"] = str(PROVIDER_CACHE)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test that uses a server, before `-m` selects; keep the tests of a file in one process, and files that share a heavy server."""
    process_of_file: dict[str, str] = {}
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        for fixture in _MARKER_OF_FIXTURE.keys() & fixtures:
            item.add_marker(_MARKER_OF_FIXTURE[fixture])
        if not _MARKERS_OF_SERVERS.isdisjoint(marker.name for marker in item.iter_markers()):
            item.add_marker("server")
        for fixture in _PROCESS_OF_FIXTURE.keys() & fixtures:
            process_of_file[_file_of(item)] = _PROCESS_OF_FIXTURE[fixture]
    for item in items:
        file = _file_of(item)
        item.add_marker(pytest.mark.xdist_group(process_of_file.get(file, file)))


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse servers to a test that is not marked: `make test-unit` would start them, too."""
    processes.refused_to = None if item.get_closest_marker("server") else item.nodeid


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a CI run in which a test was skipped: what did not run proves nothing."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if skipped and os.environ.get("CI") == "true" and session.exitstatus == pytest.ExitCode.OK:
        reporter.ensure_newline()
        reporter.write_line(f"{len(skipped)} skipped: with CI=true this is a failure", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def _servers_are_up(request: pytest.FixtureRequest) -> None:
    """Start a server again that died under an earlier test: one failure stays one failure."""
    for name in _MARKER_OF_FIXTURE.keys() & set(request.fixturenames):
        revive = getattr(request.getfixturevalue(name), "revive", None)
        if revive is not None:
            revive()


def folder_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all processes of this test run have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """Return a folder for a ledger in a file: on a disk, SQLite would wait for it after each change."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def kafka(kafka_sasl: TwoDoorBroker) -> KafkaBroker:
    """Give the open broker of this test run. Take a topic of your own; a test that stops the broker starts one of its own."""
    return kafka_sasl.open


@pytest.fixture(scope="session")
def kafka_sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoDoorBroker]:
    """Give the same broker by its other door, with SASL_SSL, SCRAM-SHA-512 and ACLs. Take a topic of your own here, too."""
    from tests.lab.shared_kafka import shared_kafka

    with shared_kafka(folder_of_the_run(tmp_path_factory) / "kafka") as broker:
        yield broker


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Give what begins tasks in processes of their own, with loaded what each would import for two seconds."""
    from tests.lab.forks import Forks

    tasks = "tests.launch.connect_task", "tests.launchers.worker", "airflow.sdk.execution_time.supervisor"
    ours = "airflow_kafka_offsets.ledger.sql_ledger", "airflow_kafka_offsets.wiring.machine.start"
    spark = "pyspark.sql.connect.session", "pyarrow.dataset"
    with Forks(*tasks, *ours, *spark, "confluent_kafka.admin", "requests") as forks:
        yield forks


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Run a PostgreSQL server."""
    from tests.lab.databases import Postgres

    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """Run a MariaDB server."""
    from tests.lab.databases import MariaDB

    with MariaDB() as server:
        yield server


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Run an open Redis server."""
    from tests.lab.redis import RedisServer

    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="module")
def redis_secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureRedisServer]:
    """Run a Redis server with TLS, a password and users."""
    from tests.lab.redis import SecureRedisServer

    with SecureRedisServer(tmp_path_factory.mktemp("redis-secure")) as server:
        yield server


@pytest.fixture(scope="module")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Run a Redis cluster of three servers."""
    from tests.lab.redis import RedisCluster

    with RedisCluster(tmp_path_factory.mktemp("redis-cluster")) as server:
        yield server


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """Run a ZooKeeper server."""
    from tests.lab.zookeeper import QUICK, ZooKeeperServer

    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), QUICK) as server:
        yield server


@pytest.fixture(scope="module")
def hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBaseServer]:
    """Run an HBase with a Thrift 1 gateway; a test that stops it starts it again."""
    from tests.lab.hbase import HBaseServer

    with HBaseServer(tmp_path_factory.mktemp("hbase")) as server:
        yield server


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """Run a server that speaks S3's protocol."""
    from tests.lab.s3 import S3

    with S3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """Run a name node and a data node. A test that stops one of them starts it again."""
    from tests.lab.hdfs import Hdfs

    with Hdfs(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture(scope="session")
def spark_connector() -> list[Path]:
    """Return the jars of Spark's Kafka source; after this, `spark-submit --packages` needs no network."""
    from tests.lab.jars import spark_connector_jars

    return spark_connector_jars()


@pytest.fixture(scope="session")
def launch_jars() -> Path:
    """Return the operators' cache folder with the connector's jars: no launch needs the network."""
    from tests.lab.jars import jars_for_launches

    return jars_for_launches()


@pytest.fixture(scope="session")
def folder_for_launches() -> Path:
    """Return the operators' cache folder with the connector's jars and the start archive of PySpark."""
    from tests.lab.start import folder_for_launches

    return folder_for_launches()


@pytest.fixture(scope="session")
def table_jars() -> list[Path]:
    """Return the jars of Delta and Iceberg."""
    from tests.lab.jars import table_jars

    return table_jars()


@pytest.fixture(scope="session")
def spark_3() -> OtherSpark:
    """Return Spark 3.5."""
    from tests.lab.sparks import SPARK_3

    return SPARK_3


@pytest.fixture(scope="session")
def spark_connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnect]:
    """Run a Spark Connect server. Its clients are other processes: here, it would be this process's only Spark."""
    from tests.lab.spark_connect import SparkConnect
    from tests.lab.tables import FEW_RECORDS, NO_CHECKSUMS

    with SparkConnect(tmp_path_factory.mktemp("spark-connect"), conf={**FEW_RECORDS, **NO_CHECKSUMS}) as server:
        yield server


@pytest.fixture(scope="session")
def spark_standalone(
    tmp_path_factory: pytest.TempPathFactory, spark_connector: list[Path]
) -> Iterator[SparkStandalone]:
    """Run a Spark master with its REST server, and a worker, to the end: three files of one lane use it. It also knows the drivers of other tests."""
    from tests.lab.spark_standalone import SparkStandalone

    with SparkStandalone(tmp_path_factory.mktemp("spark-standalone")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def start_archive(tmp_path_factory: pytest.TempPathFactory) -> StartArchive:
    """Return a small start archive, and a Spark that has it."""
    from tests.lab.start import make_small_archive

    return make_small_archive(tmp_path_factory.mktemp("start"))


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory, spark_connector: list[Path]) -> Iterator[Yarn]:
    """Run a resource manager and a node manager."""
    from tests.lab.yarn import Yarn

    with Yarn(tmp_path_factory.mktemp("yarn")) as cluster:
        yield cluster


@pytest.fixture
def topic() -> str:
    """Return a topic name that no other test has; the topic is not created."""
    return f"topic-{uuid.uuid4().hex[:12]}"
