"""The connector's jars in a folder: with the real spark-submit and its Ivy, on a repository on loopback."""

from __future__ import annotations

import doctest
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from airflow_kafka_offsets.adapters.machine import submit
from airflow_kafka_offsets.adapters.machine.connector_jars import fetch_jars, kept_jars
from airflow_kafka_offsets.adapters.machine.spark_home import LocalSpark
from airflow_kafka_offsets.core.errors import ConnectorUnavailableError
from airflow_kafka_offsets.spark.connector import SparkBuild, connector_package, folder_name
from tests.lab.java import pyspark_home
from tests.lab.maven import Mirror
from tests.lab.processes import wait_until
from tests.lab.waiting import LONGEST

NAME = folder_name(connector_package())
SPARK = LocalSpark(pyspark_home(), SparkBuild("4.0.0", "2.13", frozenset()), os.environ)
JAR = f"org.apache.spark_{NAME}.jar"
# A worker of Airflow: what it fetches dies with it.
WORKER = """
import sys
from pathlib import Path
import os
from airflow_kafka_offsets.adapters.machine.connector_jars import fetch_jars
from airflow_kafka_offsets.adapters.machine.spark_home import spark_at
folder, home, coordinates, settings = sys.argv[1:]
arguments = ["--conf", f"spark.jars.ivySettings={settings}"]
print(*fetch_jars(Path(folder), spark_at(Path(home), os.environ), coordinates, arguments))
"""


@pytest.fixture
def mirror(spark_connector: list[Path]) -> Iterator[Mirror]:
    """A repository with the real connector."""
    [jar] = [path for path in spark_connector if path.name == JAR]
    with Mirror(jar) as mirror:
        yield mirror


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the jars come to lie."""
    return tmp_path / "cache" / "jars" / NAME


@pytest.fixture
def start(mirror: Mirror, folder: Path, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Return a function that starts a worker that wants the jars."""
    arguments = [str(folder), str(pyspark_home()), connector_package(), str(mirror.settings(tmp_path))]
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WORKER, *arguments]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    mirror.flows.set()
    for worker in started:
        worker.kill()
        worker.communicate()


def fetch(mirror: Mirror, folder: Path, work: Path, **values: float) -> list[Path]:
    arguments = ["--conf", f"spark.jars.ivySettings={mirror.settings(work)}"]
    return fetch_jars(folder, SPARK, connector_package(), arguments, **values)


def left_in(folder: Path) -> list[str]:
    """Return the other files beside the folder and its lock."""
    return sorted({path.name for path in folder.parent.iterdir()} - {folder.name, f".{folder.name}.lock"})


def test_two_workers_at_one_moment_fetch_once_and_have_the_same_jars(
    start: Callable[[], subprocess.Popen[str]], mirror: Mirror, folder: Path
) -> None:
    outputs = [worker.communicate(timeout=LONGEST)[0].split() for worker in [start(), start()]]
    assert outputs == [[str(folder / JAR)]] * 2
    assert len(mirror.asked) == 1
    assert (folder / JAR).read_bytes() == mirror.content
    assert left_in(folder) == []


def test_what_a_killed_worker_left_half_way_is_used_by_nobody_and_removed_by_the_next(
    start: Callable[[], subprocess.Popen[str]], mirror: Mirror, folder: Path
) -> None:
    mirror.flows.clear()
    first = start()
    assert mirror.half_way.wait(LONGEST)
    [staging] = left_in(folder)
    wait_until(lambda: any((folder.parent / staging).rglob("*.jar*")), what="it begins to write")
    [spark_submit] = psutil.Process(first.pid).children()
    second = start()
    lock = folder.with_name(f".{folder.name}.lock")
    wait_until(lambda: _has_open(second, lock), what="the second one waits for the first")
    assert (kept_jars(folder), second.poll()) == ([], None)

    first.kill()
    wait_until(lambda: not spark_submit.is_running(), what="spark-submit dies with its worker")
    mirror.flows.set()
    assert second.communicate(timeout=LONGEST)[0].split() == [str(folder / JAR)]
    assert kept_jars(folder) == [folder / JAR]
    assert left_in(folder) == []


def _has_open(process: subprocess.Popen[str], path: Path) -> bool:
    return str(path) in [opened.path for opened in psutil.Process(process.pid).open_files()]


def test_a_truncated_jar_is_refused_and_nothing_is_left(mirror: Mirror, folder: Path, tmp_path: Path) -> None:
    mirror.content = mirror.content[: len(mirror.content) // 2]
    with pytest.raises(ConnectorUnavailableError, match=f"{JAR} is damaged"):
        fetch(mirror, folder, tmp_path)
    assert not folder.exists()
    assert left_in(folder) == []


def test_a_repository_without_the_connector_is_named_with_the_way_out(
    mirror: Mirror, folder: Path, tmp_path: Path
) -> None:
    mirror.artifact = "another"
    with pytest.raises(ConnectorUnavailableError) as caught:
        fetch(mirror, folder, tmp_path)
    message = str(caught.value)
    assert "spark-submit ended with exit code 1" in message
    assert f"kafka-offsets jars --spark-home {pyspark_home()} --submit-args '--conf spark.jars.ivySettings=" in message
    assert "copy the folder from another machine" in message
    assert f"unresolved dependency: {connector_package().replace(':', '#', 1).replace(':', ';')}: not found" in message
    assert "\tat " not in message


def test_a_repository_that_does_not_answer_is_given_up_after_the_time_limit(
    mirror: Mirror, folder: Path, tmp_path: Path
) -> None:
    mirror.flows.clear()
    before = set(psutil.Process().children(recursive=True))  # servers of other tests
    with pytest.raises(ConnectorUnavailableError, match=r"was stopped after 0\.5 s"):
        fetch(mirror, folder, tmp_path, seconds=0.5)
    assert left_in(folder) == []
    assert not set(psutil.Process().children(recursive=True)) - before


def test_a_spark_that_can_not_be_started_and_a_folder_that_can_not_be_written_are_named(tmp_path: Path) -> None:
    absent = LocalSpark(tmp_path / "spark", SPARK.build, {})
    with pytest.raises(ConnectorUnavailableError, match=f"{tmp_path}/spark/bin/spark-submit: No such file"):
        fetch_jars(tmp_path / "jars" / NAME, absent, connector_package())
    (tmp_path / "file").touch()
    with pytest.raises(ConnectorUnavailableError, match=f"{tmp_path}/file/jars: Not a directory"):
        fetch_jars(tmp_path / "file" / "jars" / NAME, absent, connector_package())


def a_kept_jar(folder: Path) -> Path:
    """Make a folder as a fetch leaves it, and return its jar."""
    folder.mkdir(parents=True)
    jar = folder / JAR
    jar.write_bytes(b"jar")
    for path in (folder.parent, folder, jar):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return jar


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
ANY_GROUP = 65534


@AS_ROOT
@pytest.mark.parametrize("mode", [0o775, 0o2775])
@pytest.mark.parametrize("which", [".", "..", JAR])
def test_what_a_umask_let_a_group_write_is_mended_and_used(folder: Path, which: str, mode: int) -> None:
    jar = a_kept_jar(folder)
    path = (folder / which).resolve()
    os.chown(path, -1, ANY_GROUP)
    path.chmod(mode)
    assert kept_jars(folder) == [jar]
    assert stat.S_IMODE(path.stat().st_mode) == mode & ~0o022  # setgid stays


@pytest.mark.parametrize("which", [".", ".."])
def test_a_folder_of_ones_own_that_everybody_can_write_is_mended(folder: Path, which: str) -> None:
    jar = a_kept_jar(folder)
    (folder / which).resolve().chmod(0o777)
    assert kept_jars(folder) == [jar]
    assert not (folder / which).stat().st_mode & stat.S_IWOTH


def test_a_file_that_everybody_can_write_is_not_used(folder: Path) -> None:
    jar = a_kept_jar(folder)
    jar.chmod(0o646)
    with pytest.raises(ConnectorUnavailableError, match="is not this user's or root's alone") as caught:
        kept_jars(folder)
    assert str(jar) in str(caught.value)
    assert "[kafka_offsets] cache_folder" in str(caught.value)


def test_the_group_of_root_may_write_as_images_have_it(folder: Path) -> None:
    jar = a_kept_jar(folder)
    for path in (folder.parent, folder, jar):
        os.chown(path, -1, 0)
        path.chmod(0o775)
    assert kept_jars(folder) == [jar]
    assert stat.S_IMODE(jar.stat().st_mode) == 0o775


@AS_ROOT
@pytest.mark.parametrize("which", [".", "..", JAR])
def test_jars_of_another_user_are_not_used(folder: Path, which: str) -> None:
    a_kept_jar(folder)
    os.chown(folder / which, 65534, 65534)
    with pytest.raises(ConnectorUnavailableError, match="is not this user's") as caught:
        kept_jars(folder)
    assert "cache_folder" in str(caught.value)


def test_a_link_to_jars_elsewhere_is_not_used(folder: Path, tmp_path: Path) -> None:
    jar = a_kept_jar(folder)
    jar.rename(tmp_path / "elsewhere.jar")
    jar.symlink_to(tmp_path / "elsewhere.jar")
    with pytest.raises(ConnectorUnavailableError, match="is not this user's"):
        kept_jars(folder)


def test_nothing_is_fetched_into_a_folder_of_somebody_else(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    folder.parent.parent.mkdir()
    folder.parent.symlink_to(tmp_path / "shared")
    with pytest.raises(ConnectorUnavailableError, match=f"{folder.parent} is not this user's"):
        fetch_jars(folder, SPARK, connector_package())
    assert list((tmp_path / "shared").iterdir()) == []


def test_what_is_fetched_under_a_generous_umask_is_used(mirror: Mirror, folder: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        fetch(mirror, folder, tmp_path)
    finally:
        os.umask(before)
    assert kept_jars(folder) == [folder / JAR]


def test_the_example_is_true() -> None:
    assert doctest.testmod(submit) == (0, 1)
