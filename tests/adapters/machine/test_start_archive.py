"""The archive from which a driver's JVM starts: made, used and refused by a real Java and a real Spark.

Each start here is that of spark-submit with Spark's own class path, which prints its version: as much as a JVM needs to take an archive or to refuse it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from airflow_kafka_offsets.adapters.machine import archives
from airflow_kafka_offsets.adapters.machine.archives import (
    FOLDER,
    archive_name,
    find_archive,
    make_archive,
    start_options,
)
from airflow_kafka_offsets.adapters.machine.spark_home import LocalSpark, find_java, spark_at
from airflow_kafka_offsets.core.errors import StartArchiveError
from airflow_kafka_offsets.core.launch.start import (
    QUICK,
    archive_options,
    with_options,
)
from tests.lab.java import LIGHT, java, pyspark_home
from tests.lab.processes import wait_until
from tests.lab.start import NO_JOB, PROGRAM, StartArchive, home_like, ours

ROOT = Path(__file__).parents[2]
CHEAP = [QUICK, *LIGHT]
JAVA = int(
    subprocess.run([java(), "-version"], capture_output=True, text=True, check=True).stderr.split('"')[1].split(".")[0]
)
JAVA_25 = Path("/usr/lib/jvm/temurin-25-jdk-amd64")


def spark_in(home: Path, **added: str) -> LocalSpark:
    spark = spark_at(home, ours(**added))
    assert spark is not None
    return spark


@dataclass(frozen=True)
class Started:
    """How a JVM started: its exit code, its output, and how many classes came from the archive."""

    code: int
    output: str
    archived: int


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Started]:
    def start(
        options: Sequence[str], spark: LocalSpark, arguments: Sequence[str | Path] = ("--version",), **added: str
    ) -> Started:
        classes = tmp_path_factory.mktemp("classes") / "classes.log"
        logged = with_options([*options, *CHEAP, f"-Xlog:class+load:file={classes}:none:filesize=0"], None)
        done = subprocess.run(
            [spark.home / "bin" / "spark-submit", *arguments],
            env=ours(SPARK_HOME=str(spark.home), SPARK_SUBMIT_OPTS=logged, SPARK_LAUNCHER_OPTS=QUICK, **added),
            cwd=tmp_path_factory.mktemp("started"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        loaded = classes.read_text() if classes.exists() else ""
        return Started(done.returncode, done.stdout, loaded.count("shared objects file (top)"))

    return start


@pytest.fixture(scope="module")
def spark(start_archive: StartArchive) -> LocalSpark:
    return spark_in(start_archive.home)


@pytest.fixture(scope="module")
def without(start: Callable[..., Started], spark: LocalSpark) -> Started:
    """How a JVM starts without an archive."""
    return start([], spark)


@pytest.fixture
def cache(start_archive: StartArchive) -> Path:
    return start_archive.cache


@pytest.fixture
def archive(cache: Path, spark: LocalSpark) -> Path:
    archive = find_archive(spark, cache)
    assert archive is not None
    return archive


@pytest.fixture
def copy(tmp_path: Path, archive: Path) -> Iterator[Path]:
    """Return another archive of the same Spark, in a cache folder of the test's own: ``copy.parent.parent``."""
    folder = tmp_path / "cache" / FOLDER
    folder.mkdir(parents=True, mode=0o755)
    path = folder / archive.name
    shutil.copy(archive, path)
    yield path
    shutil.rmtree(folder)  # dozens of MB


def test_the_command_makes_it_and_leaves_nothing_else(start_archive: StartArchive, archive: Path) -> None:
    assert start_archive.output.startswith(f"Made: {archive} (")
    assert list((start_archive.cache / FOLDER).iterdir()) == [archive]
    assert list(start_archive.temporary.iterdir()) == []
    assert start_archive.launcher.split() == [QUICK, "-Dmine=1"]
    assert archive.stat().st_mode & 0o777 == 0o644


def test_a_driver_starts_from_it_and_says_what_it_says_without(
    start: Callable[..., Started], spark: LocalSpark, cache: Path, without: Started
) -> None:
    with_it = start(start_options(spark, cache), spark)
    assert without.archived == 0
    assert with_it.archived > 1000
    assert (with_it.code, with_it.output) == (without.code, without.output)


def test_what_runs_for_an_archive_has_what_a_window_needs_and_the_next_one_takes_it_from_there(
    start: Callable[..., Started], folder_for_launches: Path, tmp_path: Path
) -> None:
    spark = spark_in(pyspark_home())
    job = ["--master", "local[2]", "--conf", "spark.ui.enabled=false", archives._JOB, tmp_path]
    again = start(start_options(spark, folder_for_launches), spark, job)
    assert again.code == 0, again.output
    assert list((tmp_path / "parquet").glob("*.parquet"))
    assert again.archived > 10_000


def test_folders_after_sparks_jars_are_no_reason_against_it(
    start: Callable[..., Started], spark: LocalSpark, cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "hadoop").mkdir()
    (tmp_path / "hadoop" / "core-site.xml").write_text("<configuration/>")
    assert start(start_options(spark, cache), spark, HADOOP_CONF_DIR=str(tmp_path / "hadoop")).archived > 1000


def test_a_folder_of_settings_is_on_the_class_path_first_so_there_is_none_and_nothing_is_tried(
    start: Callable[..., Started], spark: LocalSpark, archive: Path, cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "conf").mkdir()
    with_conf = spark_in(spark.home, SPARK_CONF_DIR=str(tmp_path / "conf"))
    # One that is empty is on the class path, too: with it there is another archive, and Java refuses this one.
    assert find_archive(with_conf, cache) is None
    forced = start(archive_options(str(archive), JAVA), spark, SPARK_CONF_DIR=str(tmp_path / "conf"))
    assert (forced.code, forced.archived) == (0, 0)
    (tmp_path / "conf" / "spark-defaults.conf").touch()
    assert start_options(with_conf, cache) == []
    with pytest.raises(StartArchiveError, match=r"set SPARK_CONF_DIR to an empty folder"):
        make_archive(with_conf, tmp_path)
    # And this is why: Java refuses it, in silence.
    forced = start(archive_options(str(archive), JAVA), spark, SPARK_CONF_DIR=str(tmp_path / "conf"))
    assert (forced.code, forced.archived) == (0, 0)


@pytest.mark.parametrize("at", [40, 300, 0.2, 0.5, 0.9, 0.999])
def test_one_that_was_damaged_since_is_refused_in_silence(
    start: Callable[..., Started], spark: LocalSpark, copy: Path, without: Started, at: float
) -> None:
    offset = int(at * copy.stat().st_size) if at < 1 else int(at)
    with copy.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0x10]))
    assert start(start_options(spark, copy.parents[1]), spark) == without


@pytest.mark.parametrize("size", [0, 100, 1_000_000, -4096])
def test_one_that_is_not_whole_is_not_even_opened(spark: LocalSpark, copy: Path, size: int) -> None:
    os.truncate(copy, size if size >= 0 else copy.stat().st_size + size)
    assert start_options(spark, copy.parents[1]) == []


def test_one_that_everyone_can_write_is_not_used(spark: LocalSpark, copy: Path) -> None:
    cache = copy.parents[1]
    assert find_archive(spark, cache) == copy
    for bad in (0o646, 0o666):
        copy.chmod(bad)
        assert find_archive(spark, cache) is None, oct(bad)
    copy.chmod(0o644)
    copy.parent.chmod(0o777)  # others could only have put files of their own there
    assert find_archive(spark, cache) == copy
    assert not copy.parent.stat().st_mode & 0o002


_FIND_IT = """
import os, sys
from pathlib import Path
from airflow_kafka_offsets.adapters.machine.archives import find_archive
from airflow_kafka_offsets.adapters.machine.spark_home import spark_at
home, copy = map(Path, sys.argv[1:])
spark = spark_at(home, os.environ)
for mode in (0o644, 0o200):
    copy.chmod(mode)
    print(find_archive(spark, copy.parents[1]) == copy)
"""


def test_one_that_can_not_be_read_is_not_used(spark: LocalSpark, copy: Path) -> None:
    # Root can read it, unless it gives up what makes it root.
    unless = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    command = [*unless, sys.executable, "-c", _FIND_IT, spark.home, copy]
    done = subprocess.run(command, env=ours(), cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_one_that_somebody_else_made_is_not_used_unless_that_is_root(spark: LocalSpark, copy: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    somebody = 12345
    os.chown(copy, somebody, somebody)
    assert find_archive(spark, copy.parents[1]) is None
    os.chown(copy, 0, 0)
    os.chown(copy.parent, somebody, somebody)
    assert find_archive(spark, copy.parents[1]) is None


def test_an_image_whose_files_have_lost_the_fractions_of_their_seconds_keeps_its_archive(tmp_path: Path) -> None:
    jar = tmp_path / "jars" / "spark-core_2.13-4.0.0.jar"
    jar.parent.mkdir()
    jar.touch()
    os.utime(jar, ns=(0, 1_700_000_000_987_654_321))
    built = archive_name(spark_in(tmp_path))
    os.utime(jar, ns=(0, 1_700_000_000_000_000_000))
    assert archive_name(spark_in(tmp_path)) == built
    os.utime(jar, ns=(0, 1_700_000_001_000_000_000))
    assert archive_name(spark_in(tmp_path)) != built


def test_a_link_is_not_used(spark: LocalSpark, copy: Path, archive: Path) -> None:
    copy.unlink()
    copy.symlink_to(archive)
    assert find_archive(spark, copy.parents[1]) is None


def test_one_of_a_spark_that_was_changed_since_is_not_used_and_java_would_refuse_it(
    start: Callable[..., Started], cache: Path, archive: Path, tmp_path: Path
) -> None:
    changed = spark_in(home_like(tmp_path))
    # The same names and sizes at another place.
    assert start_options(changed, cache) == []
    (tmp_path / "jars" / "aaa.jar").symlink_to(next((pyspark_home() / "jars").glob("slf4j-api-*.jar")))
    forced = start(archive_options(str(archive), JAVA), changed)
    assert (forced.code, forced.archived) == (0, 0)
    assert "warning" not in forced.output


@pytest.mark.parametrize(
    ("release", "has"),
    [
        ('JAVA_VERSION="1.8.0_402"\n', False),
        ('JAVA_VERSION="11.0.22"\n', False),
        ('JAVA_VERSION="17.0.15"\n', True),
        ('IMPLEMENTOR="Eclipse Adoptium"\nJAVA_VERSION="21.0.2"\nJVM_VARIANT="Hotspot"\n', True),
        ('JAVA_VERSION="21-ea"\n', True),
        ('JAVA_VERSION="17.0.15"\nJVM_VARIANT="Openj9"\n', False),
        ('IMPLEMENTOR="no one"\n', False),
        ("", False),
        (None, False),
    ],
)
def test_a_java_that_is_old_or_does_not_say_what_it_is_gets_no_option(
    tmp_path: Path, spark: LocalSpark, cache: Path, release: str | None, has: bool
) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "bin" / "java")
    if release is not None:
        (tmp_path / "release").write_text(release)
    java = find_java({"JAVA_HOME": str(tmp_path)})
    assert java is not None
    assert java.has_archives is has
    other = spark_in(spark.home, JAVA_HOME=str(tmp_path))
    assert start_options(other, cache) == []
    if not has:
        with pytest.raises(StartArchiveError, match="it needs Java 17 or later"):
            make_archive(other, tmp_path)


def test_the_java_is_the_one_that_sparks_scripts_start(tmp_path: Path) -> None:
    real_java = find_java(ours())
    assert real_java is not None
    assert Path(real_java.program).samefile(java())
    assert find_java({"PATH": str(tmp_path)}) is None
    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]}) is None


if JAVA_25.exists():  # where there is a second Java

    def test_another_java_refuses_it_in_silence(
        start: Callable[..., Started], spark: LocalSpark, archive: Path
    ) -> None:
        other = find_java({"JAVA_HOME": str(JAVA_25)})
        assert other is not None
        forced = start(archive_options(str(archive), other.version), spark, JAVA_HOME=str(JAVA_25))
        assert (forced.code, forced.archived) == (0, 0)
        assert "[aot" not in forced.output
        assert "[cds" not in forced.output


def test_what_a_maker_checks_a_draft_with_ends_a_jvm_that_can_not_use_it(
    start: Callable[..., Started], spark: LocalSpark, archive: Path, copy: Path
) -> None:
    assert start([*archive_options(str(archive), JAVA), "-Xshare:on"], spark).code == 0
    with copy.open("r+b") as file:
        file.seek(copy.stat().st_size // 2)
        file.write(bytes(range(256)))
    assert start([*archive_options(str(copy), JAVA), "-Xshare:on"], spark).code != 0


def test_a_maker_that_takes_too_long_is_ended_and_leaves_what_was_there(spark: LocalSpark, copy: Path) -> None:
    cache = copy.parents[1]
    with pytest.raises(StartArchiveError, match=r"was stopped after 0\.5"):
        make_archive(spark, cache, seconds=0.5)
    assert find_archive(spark, cache) == copy
    assert list(copy.parent.iterdir()) == [copy]


def test_a_maker_that_is_killed_leaves_nothing_that_is_used_nor_in_the_way(spark: LocalSpark, tmp_path: Path) -> None:
    maker = subprocess.Popen([PROGRAM, "archive", "--spark-home", spark.home, "--to", tmp_path], env=ours())
    wait_until(lambda: psutil.Process(maker.pid).children(), what="the maker runs Spark")
    children = psutil.Process(maker.pid).children(recursive=True)
    (work,) = (tmp_path / FOLDER).iterdir()
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    wait_until(lambda: not psutil.wait_procs(children, timeout=0)[1], what="Spark ends with its maker")
    assert find_archive(spark, tmp_path) is None
    # Another process may still be at work in a young one.
    os.utime(work, (0, time.time() - 90_000))
    with pytest.raises(StartArchiveError, match="was stopped after"):
        make_archive(spark, tmp_path, seconds=0.1)
    assert not work.exists()


def test_a_run_that_fails_shows_its_last_lines(spark: LocalSpark, tmp_path: Path) -> None:
    with pytest.raises(StartArchiveError, match=r"ended with exit code \d+\. [\s\S]*no-such-python"):
        make_archive(spark_in(spark.home, PYSPARK_PYTHON="no-such-python"), tmp_path)
    assert find_archive(spark, tmp_path) is None


def test_a_cache_folder_that_can_not_be_written_is_named(spark: LocalSpark, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartArchiveError, match="Can't write to"):
        make_archive(spark, tmp_path / "file")
    assert start_options(spark, tmp_path / "file") == []
    assert start_options(spark, tmp_path / "nowhere") == []


def test_a_folder_of_others_is_no_place_for_one(spark: LocalSpark, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    (tmp_path / FOLDER).mkdir()
    os.chown(tmp_path / FOLDER, 12345, 12345)
    with pytest.raises(StartArchiveError, match="is not this user's"):
        make_archive(spark, tmp_path)


def test_the_command_shows_what_is_there_and_needs_neither_ledger_nor_kafka(spark: LocalSpark, cache: Path) -> None:
    command: list[str | Path] = [PROGRAM, "archive", "--spark-home", spark.home, "--to", cache]
    done = subprocess.run([*command, "-o", "json"], env=_nothing(), capture_output=True, text=True, check=True)
    assert '"made": false' in done.stdout
    refused = subprocess.run(command, env=_nothing(SPARK_CONF_DIR="/etc"), capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"No start archive for {spark.home}")


@pytest.mark.slow
def test_the_command_replaces_it_only_with_again(spark: LocalSpark, copy: Path) -> None:
    old = copy.rename(copy.with_name(f"{archive_name(spark).partition('-')[0]}-{'a' * 16}-5.jsa"))
    command: list[str | Path] = [PROGRAM, "archive", "--spark-home", spark.home, "--to", copy.parents[1]]
    environment = ours(PYSPARK_PYTHON=NO_JOB)
    outputs = [
        subprocess.run([*command, *more], env=environment, capture_output=True, text=True, check=True).stdout
        for more in ([], [], ["--again"])
    ]
    assert [text.partition(":")[0] for text in outputs] == ["Made", "Already there", "Made"]
    assert not old.exists()  # it was made before an update of Java or Spark
    assert list(copy.parent.iterdir()) == [find_archive(spark, copy.parents[1])]


def _nothing(**added: str) -> Mapping[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": "/nowhere",
        **({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}),
        **added,
    }
