"""Servers for the tests, as fixtures. A server starts when a test first uses it, and stops after the file or at the end.

CONTRIBUTING.md says how to add a test.
"""

from __future__ import annotations

import os
import signal
import uuid
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from airflow_kafka_offsets.core.launch.start import SUBMIT_OPTIONS
from tests.lab import processes
from tests.lab.cache import PROVIDER_CACHE
from tests.lab.java import SPARK
from tests.lab.leftovers import sweep
from tests.lab.memory import IN_MEMORY

# By itself, pytest shows the compared values only for the asserts of tests and of conftest.py.
pytest.register_assert_rewrite(
    *("tests.ledger.examples", "tests.service.simulation", "tests.spark.sinks.contract"),
    *("tests.stores.across", "tests.stores.contract"),
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdist.remote import Producer

    from tests.lab.databases import MariaDB, Postgres
    from tests.lab.kafka import KafkaBroker, TwoDoorBroker
    from tests.lab.spark_connect import SparkConnect
    from tests.lab.spark_standalone import SparkStandalone
    from tests.lab.sparks import OtherSpark
    from tests.lab.start import StartArchive
    from tests.lab.yarn import Yarn

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
# The files of such a folder share a server that is slow to start, so they run in one process. The first match counts.
_FOLDERS_OF_ONE_PROCESS = ("tests/spark/sinks/", "tests/spark/", "tests/page/")
_MARKERS_OF_SERVERS = frozenset({"server", "airflow", *_MARKER_OF_FIXTURE.values()})

# How many examples a law sees in the whole run, and with `--hypothesis-profile=quick`. A law with a number of its own takes the smaller one.
settings.register_profile("deep", deadline=None, max_examples=50)
settings.register_profile("quick", settings.get_profile("deep"), max_examples=8, stateful_step_count=12)
settings.load_profile("deep")


def pytest_configure() -> None:
    """Tidy up after killed runs, and set what all processes of the tests have in common."""
    sweep()
    processes.reach_loopback_directly()
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # it ends the fixtures, as Ctrl-C does, so their servers stop
    os.environ[SUBMIT_OPTIONS] = " ".join(SPARK)
    os.environ["AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER"] = str(PROVIDER_CACHE)


class _FoldersAndFiles(LoadFileScheduling):
    """Gives each process a whole folder of `_FOLDERS_OF_ONE_PROCESS`, or a whole file."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return next((folder for folder in _FOLDERS_OF_ONE_PROCESS if file.startswith(folder)), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _FoldersAndFiles | None:
    """Let `--dist=loadfile` keep such folders together."""
    return _FoldersAndFiles(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test that uses a server, before `-m` selects."""
    for item in items:
        for fixture in _MARKER_OF_FIXTURE.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(_MARKER_OF_FIXTURE[fixture])
        if not _MARKERS_OF_SERVERS.isdisjoint(marker.name for marker in item.iter_markers()):
            item.add_marker("server")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse servers to a test without a marker, because `make test-unit` would run it."""
    processes.refused_to = None if item.get_closest_marker("server") else item.nodeid


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a CI run in which a test was skipped."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if skipped and os.environ.get("CI") == "true" and session.exitstatus == pytest.ExitCode.OK:
        reporter.ensure_newline()
        reporter.write_line(f"{len(skipped)} skipped: with CI=true this is a failure", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def _servers_are_up(request: pytest.FixtureRequest) -> None:
    """Start a server again that died in an earlier test, so that one failure stays one failure."""
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


def _runs(module: str, name: str) -> Any:
    """Return a fixture that runs a server of the lab, in a folder of its own, for the tests of a file."""

    @pytest.fixture(scope="module")
    def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
        kind = getattr(import_module(f"tests.lab.{module}"), name)
        with kind(tmp_path_factory.mktemp(module)) as server:
            yield server

    return run


redis = _runs("redis", "RedisServer")
redis_secure = _runs("redis", "SecureRedisServer")  # with TLS, a password and users
redis_cluster = _runs("redis", "RedisCluster")
zookeeper = _runs("zookeeper", "ZooKeeperServer")
hbase = _runs("hbase", "HBaseServer")
s3 = _runs("s3", "S3")
hdfs = _runs("hdfs", "Hdfs")


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


@pytest.fixture(scope="module")
def spark_connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkConnect]:
    """Run a Spark Connect server. Its clients are other processes: here, it would be this process's only Spark."""
    from tests.lab.spark_connect import SparkConnect
    from tests.lab.tables import FEW_RECORDS, NO_CHECKSUMS

    with SparkConnect(tmp_path_factory.mktemp("spark-connect"), conf={**FEW_RECORDS, **NO_CHECKSUMS}) as server:
        yield server


@pytest.fixture(scope="module")
def spark_standalone(
    tmp_path_factory: pytest.TempPathFactory, spark_connector: list[Path]
) -> Iterator[SparkStandalone]:
    """Run a Spark master with its REST server, and a worker."""
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
