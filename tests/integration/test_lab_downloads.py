"""What the lab downloads: once a machine, whole or not at all, whoever asks at the same moment and whoever dies meanwhile."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab import jars
from tests.lab.airflow import empty_metadata
from tests.lab.cache import CACHE, cache_folder
from tests.lab.jars import DELTA, ICEBERG, JDBC, SETS, SETS_OF_MATRIX, ZOOKEEPER, JarError, JarSet, fetch, listed
from tests.lab.lock_jars import entry
from tests.lab.processes import wait_until
from tests.lab.waiting import LONGEST

REPOSITORY = Path(__file__).parents[2]
NO_NETWORK = "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1"
"""Java's options for a network where no one answers: port 1 is no one's."""
FETCH = """
import sys
from tests.lab import ivy, jars

really_download = ivy.download

def download(coordinates, folder):
    print("downloads", flush=True)
    really_download(coordinates, folder)

ivy.download = download
print("begins", flush=True)
try:
    print(*jars.fetch(getattr(jars, sys.argv[1])), sep="\\n")
except jars.JarError as failure:
    sys.exit(str(failure))
"""

FETCH_BESIDE_ANOTHER_SET = """
from tests.lab import ivy, jars

really_download = ivy.download

def download(coordinates, folder):
    global place, came
    really_download(coordinates, folder)
    place = jars._place(coordinates[0])
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes((folder / ivy.file_of(coordinates[0])).read_bytes())
    came = place.stat().st_ino

ivy.download = download
jars.fetch(jars.AVRO)
print("the same" if place.stat().st_ino == came else "another")
"""


def start(cache: Path, *arguments: str, java_options: str = "") -> subprocess.Popen[str]:
    """Start a Python that has a cache of its own."""
    environment = {**os.environ, "KAFKA_OFFSETS_LAB_CACHE": str(cache), "JAVA_TOOL_OPTIONS": java_options}
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def contents(cache: Path, jar_set: JarSet) -> list[bytes]:
    """Return what the jars of a set hold in this cache."""
    return [(cache / jar.relative_to(CACHE)).read_bytes() for jar in fetch(jar_set)]


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold a lock, as another process would."""
    file.parent.mkdir(parents=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Path.home() / ".cache" / "kafka-offsets-lab"),
        ({"XDG_CACHE_HOME": "/var/cache/me"}, Path("/var/cache/me/kafka-offsets-lab")),
        ({"XDG_CACHE_HOME": "not/absolute"}, Path.home() / ".cache" / "kafka-offsets-lab"),
        ({"XDG_CACHE_HOME": "/var/cache/me", "KAFKA_OFFSETS_LAB_CACHE": "/mnt/lab"}, Path("/mnt/lab")),
    ],
)
def test_the_cache_is_one_folder_of_the_machine_or_the_one_that_is_named(
    environment: dict[str, str], expected: Path
) -> None:
    assert cache_folder(environment) == expected


@pytest.mark.parametrize("jar_set", [*SETS, *SETS_OF_MATRIX], ids=lambda jar_set: jar_set.name)
def test_the_list_has_the_jars_of_each_set(jar_set: JarSet) -> None:
    assert set(jar_set.roots) <= set(listed(jar_set))


def test_a_set_that_is_not_listed_as_it_is_now_names_the_command_that_lists_it() -> None:
    newer = JarSet(JDBC.name, (JDBC.roots[0], "org.mariadb.jdbc:mariadb-java-client:3.5.3"))
    with pytest.raises(JarError, match=r"mariadb-java-client:3\.5\.3 need: `make lock-jars`"):
        fetch(newer)
    with pytest.raises(JarError, match="make lock-jars"):
        fetch(JarSet(DELTA.name, DELTA.roots))


# One has a jar with a classifier, the other one leaves some out.
@pytest.mark.parametrize("jar_set", [ZOOKEEPER, DELTA], ids=lambda jar_set: jar_set.name)
@pytest.mark.server
def test_the_list_has_what_the_jars_say_that_they_need(jar_set: JarSet) -> None:
    assert json.loads(json.dumps(entry(jar_set))) == json.loads(jars.LIST.read_text())[jar_set.name]


@pytest.mark.server
def test_of_two_processes_that_fetch_at_one_moment_one_downloads_and_both_have_it(tmp_path: Path) -> None:
    with locked(tmp_path / "locks" / JDBC.name):
        both = [start(tmp_path, "-c", FETCH, "JDBC") for _ in range(2)]
        for process in both:
            assert process.stdout is not None
            assert process.stdout.readline() == "begins\n"
    said = [process.communicate(timeout=LONGEST)[0].splitlines() for process in both]
    assert sorted(len(lines) - len(listed(JDBC)) for lines in said) == [0, 1]
    assert sum(lines.count("downloads") for lines in said) == 1
    assert contents(tmp_path, JDBC) == contents(CACHE, JDBC)


@pytest.mark.server
def test_a_jar_that_came_meanwhile_with_another_set_stays_the_file_that_it_is(tmp_path: Path) -> None:
    """A JVM takes an archive of classes only with the very files that it was made from."""
    assert start(tmp_path, "-c", FETCH_BESIDE_ANOTHER_SET).communicate(timeout=LONGEST)[0] == "the same\n"


@pytest.mark.parametrize("is_child_killed", [True, False], ids=["with its Ivy", "alone"])
@pytest.mark.server
def test_a_fetch_that_is_killed_leaves_nothing_that_is_used(tmp_path: Path, is_child_killed: bool) -> None:
    killed = start(tmp_path, "-c", FETCH, "ICEBERG")
    part = wait_until(lambda: list(tmp_path.glob("work/*/*/*.part")), what="a jar is there in part")
    if is_child_killed:
        os.killpg(killed.pid, signal.SIGKILL)
    else:
        killed.kill()
    assert killed.wait() == -signal.SIGKILL
    assert list(tmp_path.glob("jars/*/*.jar")) == []
    again = start(tmp_path, "-c", FETCH, "ICEBERG")
    assert "downloads" in again.communicate(timeout=LONGEST)[0]
    assert again.returncode == 0
    assert contents(tmp_path, ICEBERG) == contents(CACHE, ICEBERG)
    assert [path for path in part if path.parent.exists()] == []


@pytest.mark.server
def test_a_fetch_without_a_network_says_what_is_missing_and_why(tmp_path: Path) -> None:
    process = start(tmp_path, "-c", FETCH, "JDBC", java_options=NO_NETWORK)
    said = process.communicate(timeout=LONGEST)[1]
    assert process.returncode == 1
    assert "could not fetch 3 of the 3 jars that jdbc lacked: " in said
    assert ", org.postgresql:postgresql:42.7.5" in said
    assert "Connection refused" in said


@pytest.mark.server
def test_what_came_before_a_failure_is_kept(tmp_path: Path) -> None:
    jar = next(jar for jar in fetch(JDBC) if jar.name.startswith("postgresql"))
    list_ = tmp_path / "list.json"
    odd = {"roots": ["org.example:nothing:1"], "without": [], "jars": ["org.example:nothing:1", *JDBC.roots[:1]]}
    list_.write_text(json.dumps({"odd": odd}))
    code = f"""
import pathlib, sys
from tests.lab import jars

jars.LIST = pathlib.Path({str(list_)!r})
jars.odd = jars.JarSet("odd", ("org.example:nothing:1",))
{FETCH}"""
    process = start(tmp_path / "cache", "-c", code, "odd")
    assert (
        "could not fetch 1 of the 2 jars that odd lacked: org.example:nothing:1\n"
        in process.communicate(timeout=LONGEST)[1]
    )
    assert process.returncode == 1
    assert (tmp_path / "cache" / jar.relative_to(CACHE)).read_bytes() == jar.read_bytes()


@pytest.mark.server
def test_the_lab_fetches_the_rest_and_fails_with_what_failed(
    tmp_path: Path, spark_connector: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # for pip, too, no one answers
    for jar_set in SETS:
        fetch(jar_set)
    (tmp_path / "jars").mkdir()
    for group in (CACHE / "jars").iterdir():
        if group.name != "org.postgresql":
            (tmp_path / "jars" / group.name).symlink_to(group)
    process = start(tmp_path, "-m", "tests.lab", java_options=NO_NETWORK)
    out, err = process.communicate(timeout=LONGEST)
    assert process.returncode == 1
    assert f"==> yarn: {len(listed(jars.YARN))} jars\n" in out
    assert f"==> Spark's Kafka source: {len(spark_connector)} jars\n" in out
    assert "could not fetch 1 of the 1 jars that jdbc lacked: org.postgresql:postgresql:42.7.5\n" in err
    assert "could not install pyspark==3.5.7:\n" in err
    assert "Traceback" not in err


def test_the_lab_needs_java_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    process = start(tmp_path, "-m", "tests.lab")
    assert process.communicate(timeout=LONGEST) == (
        "",
        f"no java in JAVA_HOME={tmp_path}: install Java 17 (Debian: openjdk-17-jre-headless)\n",
    )
    assert process.returncode == 1


@pytest.mark.airflow
def test_the_empty_database_of_airflow_holds_nothing_of_a_clone() -> None:
    content = empty_metadata().read_bytes()
    assert b"CREATE TABLE dag_run" in content
    assert str(REPOSITORY).encode() not in content
