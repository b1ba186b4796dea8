"""The jars of Spark's Kafka connector in a folder of this machine. Spark's own spark-submit fetches them once.

A folder ``<artifact>-<version>`` is complete or absent. Ivy works in a staging folder next to it, and a rename puts the jars in place.
A list of their sizes shows whether a file was removed later. A lock lets one process fetch at a time, and the kernel releases it when
the process ends. A killed process leaves a staging folder, which is never read, and which the next process removes.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from airflow_kafka_offsets.adapters.machine.cache import NAME_ANOTHER, make_folder, secured, sync, took_lock
from airflow_kafka_offsets.adapters.machine.submit import run_submit, tail_of, without_passwords
from airflow_kafka_offsets.core.errors import ConnectorUnavailableError, counted

LIST = "jars.json"
"""The file that lists a folder's jars with their sizes in bytes."""

_POLL_SECONDS = 0.2
_STAGING = ".staging-"
# Files that an administrator gives to every job. Fetching does not need them, and they may be on another machine.
_WITHOUT = ("spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fetching:
    """How jars are fetched.

    Attributes:
        home: the home of Spark.
        coordinates: ``group:artifact:version`` of the connector.
        arguments: of spark-submit: the repositories of its Ivy.
        environment: of spark-submit.
        seconds: how long it may take, including the wait for another process that fetches the same.
        before_exec: called in the child before spark-submit runs.
    """

    home: Path
    coordinates: str
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    seconds: float = 600
    before_exec: Callable[[], None] | None = None


def kept_jars(folder: Path) -> list[Path] | None:
    """Return the jars of a folder, sorted by name; None: the folder is absent or not complete.

    Raises:
        ConnectorUnavailableError: users other than this one and root can write to them.
    """
    try:
        sizes: dict[str, int] = json.loads((folder / LIST).read_text())["jars"]
        is_whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
        jars = [folder / name for name in sorted(sizes)] if is_whole else None
        for path in (folder.parent, folder, folder / LIST, *jars) if jars else ():
            if not secured(path):
                raise _foreign(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return jars


def _foreign(path: Path) -> ConnectorUnavailableError:
    return ConnectorUnavailableError(
        f"{path} belongs to another user, or others can write to it, or it is a link: so the Kafka connector in it is not used, and nothing was "
        "planned or launched. Give the folder to this user, or in an image to root (chown -R root:0, chmod -R a+rX,go-w; "
        '"Quickstart" in the docs (docs/quickstart.md#the-cache-folder)), '
        f"or {NAME_ANOTHER}"
    )


def fetch_jars(folder: Path, how: Fetching) -> list[Path]:
    """Return the jars of a folder, sorted by name. Fetch them first if they are not there.

    Raises:
        ConnectorUnavailableError: they can't be fetched. The message ends with Spark's last lines; the folder is unchanged.
    """
    deadline = time.monotonic() + how.seconds
    try:
        if not make_folder(folder.parent):
            raise _foreign(folder.parent)
        with _lock(folder, how, deadline):
            return kept_jars(folder) or _fetch(folder, how, deadline)
    except OSError as exc:
        why = f"{exc.filename or folder.parent}: {exc.strerror}. If this user can't write there, {NAME_ANOTHER}"
        raise _unavailable(how, folder, why) from exc


def _fetch(folder: Path, how: Fetching, deadline: float) -> list[Path]:
    for left in folder.parent.glob(f".{folder.name}{_STAGING}*"):
        shutil.rmtree(left, ignore_errors=True)
    logger.info("Fetching %s into %s; later launches find it there", how.coordinates, folder)
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}{_STAGING}", dir=folder.parent))
    try:
        said = _run_spark_submit(staging, how, folder, deadline)
        jars = sorted((staging / "ivy" / "jars").glob("*.jar"))
        if wrong := _what_is_wrong(jars, folder.name):
            raise _unavailable(how, folder, wrong, said)
        _put_in_place(jars, folder, staging, how.coordinates)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return [folder / jar.name for jar in jars]


def _run_spark_submit(staging: Path, how: Fetching, folder: Path, deadline: float) -> str:
    (staging / "nothing.py").touch()  # packages are resolved before the application runs
    seconds = max(deadline - time.monotonic(), 0)
    try:
        code, said = run_submit(how.home, _arguments(staging, how), staging, how.environment, seconds, how.before_exec)
    except OSError as exc:
        raise _unavailable(how, folder, f"{how.home}/bin/spark-submit: {exc.strerror}") from exc
    if code is None:
        raise _unavailable(how, folder, f"it was not finished after {how.seconds:g} s", said)
    if code != 0:
        raise _unavailable(how, folder, f"spark-submit ended with exit code {code}", said)
    return said


def _arguments(staging: Path, how: Fetching) -> list[str]:
    # As properties, because a Python in Spark's defaults takes precedence over environment variables.
    python = dict.fromkeys(("spark.pyspark.python", "spark.pyspark.driver.python"), sys.executable)
    conf = {"spark.jars.ivy": f"{staging}/ivy", **python, **dict.fromkeys(_WITHOUT, "")}
    return [
        *("--master", "local[1]", "--deploy-mode", "client"),
        *how.arguments,
        *("--packages", how.coordinates),
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
        f"{staging}/nothing.py",
    ]


def _what_is_wrong(jars: Sequence[Path], connector: str) -> str | None:
    """Return why fetched jars can't be used; None: they can.

    Args:
        jars: the jars in the staging folder.
        connector: ``<artifact>-<version>`` of the connector, which must be one of them.
    """
    if not any(jar.name.endswith(f"{connector}.jar") for jar in jars):
        return f"{connector}.jar is not among the {counted(len(jars), 'jar')} that it fetched"
    for jar in jars:
        try:
            with zipfile.ZipFile(jar) as archive:
                damaged = archive.testzip()
        except (zipfile.BadZipFile, OSError) as exc:
            return f"{jar.name} is damaged ({exc})"
        if damaged:
            return f"{jar.name} is damaged (in {damaged})"
    return None


def _put_in_place(jars: Sequence[Path], folder: Path, staging: Path, coordinates: str) -> None:
    ready = staging / "ready"
    ready.mkdir()
    for jar in jars:
        jar.rename(ready / jar.name)
    sizes = {jar.name: (ready / jar.name).stat().st_size for jar in jars}
    (ready / LIST).write_text(json.dumps({"coordinates": coordinates, "jars": sizes}, indent=2))
    for path, mode in (*((file, 0o644) for file in ready.iterdir()), (ready, 0o755)):
        path.chmod(mode)  # with any umask: a file that others can write is not used
        sync(path)
    if folder.exists():  # it is not complete, so no one uses it
        folder.rename(staging / "old")
    ready.rename(folder)
    sync(folder.parent)  # after a crash the rename itself may be missing


@contextmanager
def _lock(folder: Path, how: Fetching, deadline: float) -> Iterator[None]:
    with folder.with_name(f".{folder.name}.lock").open("a") as file:
        while not took_lock(file.fileno()):
            if time.monotonic() > deadline:
                raise _unavailable(how, folder, f"another process still fetches it after {how.seconds:g} s")
            time.sleep(_POLL_SECONDS)
        yield


def _unavailable(how: Fetching, folder: Path, why: str, said: str = "") -> ConnectorUnavailableError:
    tail = tail_of(said)
    return ConnectorUnavailableError(
        f"{_what(how.coordinates)} {how.coordinates} is neither in {how.home}/jars nor in {folder}, and could not be fetched: {why}. "
        f"Nothing was planned or launched. When its repository can be reached, type: {_command_for_people(how)}. "
        f"Without network, do that on another machine with --to FOLDER, and copy FOLDER/{folder.parent.name} to {folder.parent}"
        + (f"\nSpark's last lines:\n{tail}" if tail else "")
    )


def _is_avro(coordinates: str) -> bool:
    return ":spark-avro_" in coordinates


def _what(coordinates: str) -> str:
    if _is_avro(coordinates):
        return "Spark's Avro, which a group with a schema registry requires,"
    return "Spark's Kafka connector"


def _command_for_people(how: Fetching) -> str:
    where = ["--submit-args", shlex.join(how.arguments)] if how.arguments else []
    avro = ["--avro"] if _is_avro(how.coordinates) else []
    return without_passwords(shlex.join(["kafka-offsets", "jars", "--spark-home", str(how.home), *avro, *where]))
