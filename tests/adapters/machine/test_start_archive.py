"""The archive from which a driver's JVM starts: made, used and refused by a real Java and a real Spark.

Each start here is that of spark-submit with Spark's own class path, which prints its version: as much as a JVM needs to take an archive or to refuse it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from airflow_kafka_offsets.adapters.machine import archives
from airflow_kafka_offsets.adapters.machine.archives import (
    FOLDER,
    find_archive,
    make_archive,
    name_now,
    start_options,
)
from airflow_kafka_offsets.adapters.machine.cache import took_lock
from airflow_kafka_offsets.adapters.machine.programs import Spark, find_java, spark_at
from airflow_kafka_offsets.core.errors import StartArchiveError
from airflow_kafka_offsets.core.launch.start import (
    QUICK,
    options_to_check,
    options_to_use,
    with_options,
)
from tests.lab.java import LIGHT, java, pyspark_home
from tests.lab.processes import wait_until
from tests.lab.start import PROGRAM, StartArchive, home_like, ours

ROOT = Path(__file__).parents[2]
# As by Java's default, and not as in LIGHT: at the address that it was made for, Java takes an archive whose end is damaged, as it never reads that.
CHEAP = [QUICK, *LIGHT, "-XX:ArchiveRelocationMode=1"]
JAVA_25 = Path("/usr/lib/jvm/temurin-25-jdk-amd64")


def spark_in(home: Path, **added: str) -> Spark:
    spark = spark_at(home, ours(**added))
    assert spark is not None
    return spark


@dataclass(frozen=True)
class Started:
    """How a JVM started: its exit code, what it said, and how many classes came from the archive."""

    code: int
    said: str
    archived: int


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Started]:
    def start(
        options: Sequence[str], spark: Spark, arguments: Sequence[str | Path] = ("--version",), **added: str
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
def spark(start_archive: StartArchive) -> Spark:
    return spark_in(start_archive.home)


@pytest.fixture(scope="module")
def without(start: Callable[..., Started], spark: Spark) -> Started:
    """How a JVM starts without an archive."""
    return start([], spark)


@pytest.fixture
def cache(start_archive: StartArchive) -> Path:
    return start_archive.cache


@pytest.fixture
def archive(cache: Path, spark: Spark) -> Path:
    found = find_archive(spark, cache)
    assert found is not None
    return found


@pytest.fixture
def copy(tmp_path: Path, archive: Path) -> Iterator[Path]:
    """Return another archive of the same Spark, in a cache folder of the test's own: ``copy.parent.parent``."""
    folder = tmp_path / "cache" / FOLDER
    folder.mkdir(parents=True, mode=0o755)
    path = folder / archive.name
    shutil.copy(archive, path)
    yield path
    shutil.rmtree(folder)  # dozens of MB


def test_of_two_processes_one_makes_it_and_the_other_does_not_wait(start_archive: StartArchive, archive: Path) -> None:
    said, cache = start_archive.said, start_archive.cache
    assert sorted(text.split(":")[0].split(" ")[0] for text in said) == ["Another", "Made"]
    # The run of it has left nothing, here or elsewhere.
    assert [path for path in (cache / FOLDER).iterdir() if not path.name.startswith(".lock")] == [archive]
    assert list(start_archive.temporary.iterdir()) == []
    assert start_archive.watched == ""
    assert start_archive.launcher.split() == ["-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Dmine=1"]
    assert archive.stat().st_mode & 0o777 == 0o644


def test_a_driver_starts_from_it_and_says_what_it_says_without(
    start: Callable[..., Started], spark: Spark, cache: Path, without: Started
) -> None:
    with_it = start(start_options(spark, cache), spark)
    assert without.archived == 0
    assert with_it.archived > 1000
    assert (with_it.code, with_it.said) == (without.code, without.said)


def test_what_runs_for_an_archive_has_what_a_window_needs_and_the_next_one_takes_it_from_there(
    start: Callable[..., Started], folder_for_launches: Path, tmp_path: Path
) -> None:
    spark = spark_in(pyspark_home())
    job = ["--master", "local[2]", "--conf", "spark.ui.enabled=false", archives._JOB, tmp_path]
    again = start(start_options(spark, folder_for_launches), spark, job)
    assert again.code == 0, again.said
    assert list((tmp_path / "parquet").glob("*.parquet"))
    assert again.archived > 10_000


def test_folders_after_sparks_jars_are_no_reason_against_it(
    start: Callable[..., Started], spark: Spark, cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "hadoop").mkdir()
    (tmp_path / "hadoop" / "core-site.xml").write_text("<configuration/>")
    assert start(start_options(spark, cache), spark, HADOOP_CONF_DIR=str(tmp_path / "hadoop")).archived > 1000


def test_a_folder_of_settings_is_on_the_class_path_first_so_there_is_none_and_nothing_is_tried(
    start: Callable[..., Started], spark: Spark, archive: Path, cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "conf").mkdir()
    with_conf = spark_in(spark.home, SPARK_CONF_DIR=str(tmp_path / "conf"))
    # One that is empty is on the class path, too: with it there is another archive, and Java refuses this one.
    assert find_archive(with_conf, cache) is None
    forced = start(options_to_use(str(archive), spark.java), spark, SPARK_CONF_DIR=str(tmp_path / "conf"))
    assert (forced.code, forced.archived) == (0, 0)
    (tmp_path / "conf" / "spark-defaults.conf").touch()
    assert start_options(with_conf, cache) == []
    with pytest.raises(StartArchiveError, match=r"Set SPARK_CONF_DIR to an empty folder"):
        make_archive(with_conf, tmp_path, ours())
    # And this is why: Java refuses it, in silence.
    forced = start(options_to_use(str(archive), spark.java), spark, SPARK_CONF_DIR=str(tmp_path / "conf"))
    assert (forced.code, forced.archived) == (0, 0)


@pytest.mark.parametrize("at", [40, 300, 0.2, 0.5, 0.9, 0.999])
def test_one_that_was_damaged_since_is_refused_in_silence(
    start: Callable[..., Started], spark: Spark, copy: Path, without: Started, at: float
) -> None:
    offset = int(at * copy.stat().st_size) if at < 1 else int(at)
    with copy.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0x10]))
    assert start(start_options(spark, copy.parents[1]), spark) == without


@pytest.mark.parametrize("size", [0, 100, 1_000_000, -4096])
def test_one_that_is_not_whole_is_not_even_opened(spark: Spark, copy: Path, size: int) -> None:
    os.truncate(copy, size if size >= 0 else copy.stat().st_size + size)
    assert start_options(spark, copy.parents[1]) == []


def test_one_that_everyone_can_write_is_not_used(spark: Spark, copy: Path) -> None:
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
from airflow_kafka_offsets.adapters.machine.programs import spark_at
home, copy = map(Path, sys.argv[1:])
spark = spark_at(home, os.environ)
for mode in (0o644, 0o200):
    copy.chmod(mode)
    print(find_archive(spark, copy.parents[1]) == copy)
"""


def test_one_that_can_not_be_read_is_not_used(spark: Spark, copy: Path) -> None:
    # Root can read it, unless it gives up what makes it root.
    unless = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    command = [*unless, sys.executable, "-c", _FIND_IT, spark.home, copy]
    done = subprocess.run(command, env=ours(), cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_one_that_somebody_else_made_is_not_used_unless_that_is_root(spark: Spark, copy: Path) -> None:
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
    built = name_now(spark_in(tmp_path))
    os.utime(jar, ns=(0, 1_700_000_000_000_000_000))
    assert name_now(spark_in(tmp_path)) == built
    os.utime(jar, ns=(0, 1_700_000_001_000_000_000))
    assert name_now(spark_in(tmp_path)) != built


def test_one_of_a_machine_that_is_updated_later_stays_for_a_week(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    made = replace(name_now(spark_in(tmp_path)), size=5)
    for state, days in (("a" * 16, 6), ("b" * 16, 8)):
        path = tmp_path / str(replace(made, state=state))
        path.touch()
        os.utime(path, (0, time.time() - days * 86_400))
    (tmp_path / ".draft").write_bytes(b"12345")
    assert archives._publish(tmp_path / ".draft", tmp_path, made) == tmp_path / str(made)
    assert {path.name for path in tmp_path.glob("*.jsa")} == {str(made), str(replace(made, state="a" * 16))}


def test_a_link_is_not_used(spark: Spark, copy: Path, archive: Path) -> None:
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
    forced = start(options_to_use(str(archive), changed.java), changed)
    assert (forced.code, forced.archived) == (0, 0)
    assert "warning" not in forced.said


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
    tmp_path: Path, spark: Spark, cache: Path, release: str | None, has: bool
) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "bin" / "java")
    if release is not None:
        (tmp_path / "release").write_text(release)
    found = find_java({"JAVA_HOME": str(tmp_path)})
    assert found is not None
    assert found.has_archives is has
    other = replace(spark, java=found)
    assert start_options(other, cache) == []
    if not has:
        with pytest.raises(StartArchiveError, match="must be Java 17 or later"):
            make_archive(other, tmp_path, ours())


def test_the_java_is_the_one_that_sparks_scripts_start(tmp_path: Path) -> None:
    found = find_java(ours())
    assert found is not None
    assert Path(found.program).samefile(java())
    assert find_java({"PATH": str(tmp_path)}) is None
    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]}) is None


if JAVA_25.exists():  # where there is a second Java

    def test_another_java_refuses_it_in_silence(start: Callable[..., Started], spark: Spark, archive: Path) -> None:
        other = find_java({"JAVA_HOME": str(JAVA_25)})
        assert other is not None
        forced = start(options_to_use(str(archive), other), spark, JAVA_HOME=str(JAVA_25))
        assert (forced.code, forced.archived) == (0, 0)
        assert "[aot" not in forced.said
        assert "[cds" not in forced.said


def test_what_a_maker_checks_a_draft_with_ends_a_jvm_that_can_not_use_it(
    start: Callable[..., Started], spark: Spark, archive: Path, copy: Path
) -> None:
    assert start(options_to_check(str(archive), spark.java), spark).code == 0
    with copy.open("r+b") as file:
        file.seek(copy.stat().st_size // 2)
        file.write(bytes(range(256)))
    assert start(options_to_check(str(copy), spark.java), spark).code != 0


def test_a_maker_that_takes_too_long_is_ended_and_leaves_what_was_there(spark: Spark, copy: Path) -> None:
    cache = copy.parents[1]
    with pytest.raises(StartArchiveError, match=r"took longer than 0.5 s and was stopped"):
        make_archive(spark, cache, ours(), time_limit=0.5)
    assert find_archive(spark, cache) == copy
    assert [path.name for path in copy.parent.iterdir() if path.name.startswith(".draft")] == []


def test_a_maker_that_is_killed_leaves_nothing_that_is_used_nor_in_the_way(spark: Spark, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from airflow_kafka_offsets.spark.parent import dying_with_parent\n"
        "from airflow_kafka_offsets.wiring.machine.start import make_archive\n"
        "import os\nmake_archive(Path(sys.argv[1]), os.environ, folder=Path(sys.argv[2]), before_exec=dying_with_parent())\n"
    )
    maker = subprocess.Popen([sys.executable, "-c", code, spark.home, tmp_path], env=ours(), cwd=ROOT)
    wait_until(lambda: psutil.Process(maker.pid).children(), timeout=120, what="the maker runs Spark")
    children = psutil.Process(maker.pid).children(recursive=True)
    draft = tmp_path / FOLDER / f".draft-{name_now(spark).place}-{maker.pid}.jsa"
    draft.write_bytes(b"a half")
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    wait_until(lambda: not psutil.wait_procs(children, timeout=0)[1], timeout=60, what="Spark ends with its maker")
    # spark-submit's helpers, which may have started since, hold the lock until they end.
    wait_until(
        lambda: _is_free(draft.parent / f".lock-{name_now(spark).place}"), timeout=60, what="no process holds the lock"
    )
    assert find_archive(spark, tmp_path) is None
    with pytest.raises(StartArchiveError, match="took longer than"):
        make_archive(spark, tmp_path, ours(), time_limit=0.1)
    assert not draft.exists()


def test_nobody_waits_for_another_maker(spark: Spark, tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    place = name_now(spark).place
    with (folder / f".lock-{place}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert make_archive(spark, tmp_path, ours()) is None


def test_a_run_that_fails_is_told_with_its_last_lines(spark: Spark, tmp_path: Path) -> None:
    with pytest.raises(StartArchiveError, match=r"ended with \d+\. Correct [\s\S]*no-such-python"):
        make_archive(spark, tmp_path, ours(PYSPARK_PYTHON="no-such-python"))
    assert find_archive(spark, tmp_path) is None


def test_a_cache_folder_that_can_not_be_written_is_told(spark: Spark, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartArchiveError, match="can't be written"):
        make_archive(spark, tmp_path / "file", ours())
    assert start_options(spark, tmp_path / "file") == []
    assert start_options(spark, tmp_path / "nowhere") == []


def test_a_folder_of_others_is_no_place_for_one(spark: Spark, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    (tmp_path / FOLDER).mkdir()
    os.chown(tmp_path / FOLDER, 12345, 12345)
    with pytest.raises(StartArchiveError, match="belongs to another user"):
        make_archive(spark, tmp_path, ours())


def test_the_command_tells_what_is_there_and_needs_neither_ledger_nor_kafka(spark: Spark, cache: Path) -> None:
    command: list[str | Path] = [PROGRAM, "archive", "--spark-home", spark.home, "--to", cache]
    done = subprocess.run([*command, "-o", "json"], env=_nothing(), capture_output=True, text=True, check=True)
    assert '"made": false' in done.stdout
    refused = subprocess.run(command, env=_nothing(SPARK_CONF_DIR="/etc"), capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("No start archive for the Spark in")


def test_one_that_is_there_is_made_again_only_if_the_command_is_told_to(spark: Spark, copy: Path) -> None:
    command: list[str | Path] = [PROGRAM, "archive", "--spark-home", spark.home, "--to", copy.parents[1]]
    # Another one is at work, so whoever sets out to make it is told at once: a whole run would take half a minute.
    with (copy.parent / f".lock-{name_now(spark).place}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        there, again = (
            subprocess.run([*command, *more], env=ours(), capture_output=True, text=True, check=True).stdout
            for more in ([], ["--again"])
        )
    assert there.startswith(f"Already there: {copy}")
    assert again.startswith("Another process is making the archive now")


def _is_free(lock: Path) -> bool:
    with lock.open() as file:
        return took_lock(file.fileno())


def _nothing(**added: str) -> Mapping[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": "/nowhere",
        **({"JAVA_HOME": os.environ["JAVA_HOME"]} if "JAVA_HOME" in os.environ else {}),
        **added,
    }
