"""What a job gets in addition to its command line: the window, the login, the job side of this package."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError, CollidingOptionError, KafkaOffsetsError, counted
from airflow_kafka_offsets.core.evidence import NO_REPORT, Report
from airflow_kafka_offsets.core.launch.jobs import CONF_JOB, YARN_WAITS
from airflow_kafka_offsets.core.launch.login import OWN_KEY, TRUSTSTORE_FILE, ReaderOptions, has_tls, reader_options
from airflow_kafka_offsets.core.launch.properties import properties_file
from airflow_kafka_offsets.core.offsets import topics_of
from airflow_kafka_offsets.core.plan.matching import topics_with
from airflow_kafka_offsets.core.schemas import described
from airflow_kafka_offsets.core.spark_json import dump_assign, dump_offsets, without_double_braces
from airflow_kafka_offsets.core.window import Window
from airflow_kafka_offsets.spark.handoff import CONF_WINDOW, CONF_WINDOW_FILE, Handoff, Subject
from airflow_kafka_offsets.wiring.connections import kafka_extra

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.service.plan import Planned

MAX_ARGUMENT = 100_000
"""The largest argument of spark-submit, in bytes. Linux refuses 128 KiB."""

_PREFIX = "kafka-offsets-"
_LOCK = "lock"
_LOGIN = "login.properties"

_DEPLOY_MODE = "spark.submit.deployMode"


@contextmanager
def task_folder() -> Iterator[Path]:
    """Make a folder that only the task's user can enter, and remove it at the end. First remove the logins of killed tasks."""
    _remove_logins_of_killed()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name, _locked(Path(name, _LOCK)):
        yield Path(name)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as lock:
        # Other machines may see this folder, but not this lock.
        lock.write(platform.node())
        lock.flush()
        try:
            # The kernel releases the lock when this process ends, for any reason. A driver does not inherit it.
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:
            file.unlink()  # this file system has no locks: without the file, no other task counts this one as dead
        yield


def _remove_logins_of_killed() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # Other tasks may change or remove their folders at any moment. That must not fail this task.
        with suppress(OSError):
            if _holds_login_of_killed(folder):
                shutil.rmtree(folder)


def _holds_login_of_killed(folder: Path) -> bool:
    state = folder.lstat()
    is_our_folder = stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid()
    # A task writes its login after it has taken the lock. Before that, a free lock does not mean that the task is dead.
    if not is_our_folder or not (folder / _LOGIN).exists():
        return False
    with (folder / _LOCK).open("r+") as lock:
        if lock.read() != platform.node():
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def reader_of(group: KafkaGroup) -> ReaderOptions:
    """Return what Spark's reader needs to reach the group's Kafka.

    Raises:
        BadInputError: the connection can't be translated, or names a file that Java can't read.
    """
    connection: Mapping[str, Any] = kafka_extra(group.kafka_conn_id)
    chosen = {name.lower() for name in group.spark_options}
    if has_tls(connection, group.spark_options) and chosen.isdisjoint(OWN_KEY):
        connection = with_java_key(connection)
    reader = reader_options(connection, group.spark_options)
    authorities = reader.options.get(TRUSTSTORE_FILE, "")
    if TRUSTSTORE_FILE not in chosen and os.path.isdir(authorities):
        raise BadInputError(
            f"{authorities} is a folder, and Java reads certificates from a file. Set ssl.ca.location to a file with all of them"
        )
    return reader


def with_java_key(connection: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a Kafka connection whose private key is PKCS#8 without a password: Java 17 can't read the passwords of today's OpenSSL.

    A key that has this form, or is missing here, stays as it is: Kafka's clients say what is wrong with it.

    Raises:
        BadInputError: the key can't be read.
    """
    file, password = connection.get("ssl.key.location"), str(connection.get("ssl.key.password") or "")
    pem = str(connection.get("ssl.key.pem") or "")
    if pem and file:
        return connection  # which of them counts is not ours to say: the translation refuses both
    if file:
        pem = _text_of(Path(file))
    if not pem or (not password and "-----BEGIN PRIVATE KEY-----" in pem):
        return connection
    from cryptography.hazmat.primitives import serialization as form

    try:
        # OpenSSL ignores a password that a key does not need.
        key = form.load_pem_private_key(pem.encode(), password.encode() if "ENCRYPTED" in pem else None)
    except (ValueError, TypeError) as exc:
        # Not with the text of the error, which may quote the key.
        raise BadInputError(
            "The private key of the Kafka connection can't be read. Correct ssl.key.location (or ssl.key.pem) and ssl.key.password"
        ) from exc
    java = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()).decode()
    others = {name: value for name, value in connection.items() if not name.startswith("ssl.key.")}
    return {**others, "ssl.key.pem": java}


def _text_of(key: Path) -> str:
    try:
        return key.read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""
    except OSError as exc:
        raise BadInputError(
            f"ssl.key.location of the Kafka connection can't be read: {key}: {exc.strerror}. Let the worker's user read this file"
        ) from exc


def with_login(reader: ReaderOptions, directory: Path) -> dict[str, str]:
    """Return the reader's options. If there are secrets, write them to a file that only this user can read, and refer to it."""
    path = directory / _LOGIN
    if reader.secrets:
        with open(path, "x", opener=partial(os.open, mode=0o600)) as file:
            file.write(properties_file(reader.secrets))
    return reader.with_login_file(str(path))


def refuse_login(options: ReaderOptions, conn_id: str, where: str) -> None:
    """Refuse secrets that would have to leave this machine.

    Raises:
        BadInputError: there is one. The message says what to do instead.
    """
    if options.secrets:
        raise BadInputError(
            f"The secret of {conn_id!r} is not sent to {where}. Store it as a secret there, and refer to it in "
            f"KafkaGroup(spark_options=...) by {', '.join(sorted(options.secrets))}: docs/howto/log-in-to-your-kafka.md#on-a-cluster"
        )


def handoff_of(planned: Planned, options: Mapping[str, str], group: KafkaGroup, report: Path | str | None) -> Handoff:
    """Return the handoff of a window.

    Args:
        planned: the window.
        options: for Spark's reader, without secrets.
        group: as the DAG defines it.
        report: the file, or the URI of a folder, for the job's report, or None if it can't report.
    """
    window = planned.window
    topics = ranges_by_topic(window)
    return Handoff(
        window_id=window.id,
        group=window.group,
        seq=window.seq,
        lane=window.lane.value,
        planned_until=window.planned_until.isoformat(),
        is_rerun=planned.is_rerun,
        isolation_level=window.isolation_level.value,
        expect_gaps=group.expect_gaps,
        topics=topics,
        options=options,
        report=str(report) if report else None,
        output_tables=group.output_tables,
        topic_ids={topic: window.topic_ids[topic] for topic in topics},
        at_least=None if group.expect_fewer else planned.read_before,
        schemas=_subjects(planned, group),
        ledgers=planned.ledgers or None,
    )


def _subjects(planned: Planned, group: KafkaGroup) -> list[Subject] | None:
    if group.schema_registry is None:
        return None
    # Also topics without an offset in this window, so that all windows of a group decode alike.
    topics = {topic for topic in planned.topics if topic in group.reads}
    topics |= topics_with(group, planned.window) | set(topics_of(planned.window.ranges.without_empty()))
    return [
        Subject(read.name, read.part.value, read.topics, read.subject.latest, read.subject.schemas)
        for read in described(group.schema_registry, topics, planned.frozen)
    ]


def ranges_by_topic(window: Window) -> dict[str, dict[str, tuple[int, int]]]:
    """Return topic -> partition -> (start, end), ``start <= offset < end``, without empty ranges."""
    topics: dict[str, dict[str, tuple[int, int]]] = {}
    for tp, offsets in window.ranges.without_empty().items():
        topics.setdefault(tp.topic, {})[str(tp.partition)] = (offsets.start, offsets.end)
    return topics


def window_conf(handoff: Handoff, directory: Path) -> tuple[dict[str, str], list[str]]:
    """Return Spark properties with the window, and files to ship. A large window is sent as a file."""
    text = handoff.to_json()
    if len(text.encode()) <= MAX_ARGUMENT:
        return {CONF_WINDOW: text}, []
    file = directory / f"{handoff.window_id}.json"
    file.write_text(text)
    return {CONF_WINDOW_FILE: file.name}, [str(file)]


def refuse_ours(conf: Mapping[str, object]) -> None:
    """Refuse Spark properties that the operator sets.

    Raises:
        CollidingOptionError: `conf` has some of them.
    """
    ours = {name.lower() for name in (CONF_WINDOW, CONF_WINDOW_FILE, CONF_JOB)}
    colliding = [name for name in conf if str(name).lower() in ours]
    if colliding:
        raise CollidingOptionError(f"conf must not have {', '.join(colliding)}: the operator sets it")


def check_spark_conf(conf: Mapping[str, object], *, deploy_mode: str, is_tracked: bool) -> None:
    """Refuse Spark properties that mislead the operator.

    Args:
        conf: the user's Spark properties.
        deploy_mode: the provider's, which ignores `conf`.
        is_tracked: whether the job is watched after spark-submit has ended.

    Raises:
        BadInputError: it has another deploy mode, or lets YARN's spark-submit succeed before its job ends.
    """
    in_conf = conf.get(_DEPLOY_MODE, deploy_mode)
    if in_conf != deploy_mode:
        raise BadInputError(
            f"conf has {_DEPLOY_MODE}={in_conf}, the operator {deploy_mode}. Set deploy_mode={in_conf!r} on the operator"
        )
    if str(conf.get(YARN_WAITS, "")).strip().lower() == "false" and not is_tracked:
        raise BadInputError(
            f"{YARN_WAITS}=false would commit windows unread. Remove it, or set yarn_track_via_rm_api=True"
        )


def refuse_file(window: Window) -> None:
    """Refuse a large window where a job can't get a file.

    Raises:
        BadInputError: always. The message says what to do instead.
    """
    raise BadInputError(
        f"Window {window.id} ({counted(len(window.ranges.without_empty()), 'partition')}), with its schemas and options, is over "
        f"{MAX_ARGUMENT} bytes, too large for a standalone cluster. "
        "Set deploy_mode='client', and clear the task"
    )


def placeholders(window: Window) -> dict[str, str]:
    """Return the values for a user's own job, by name: Spark's options of this window, fit for any command line."""
    ranges = window.ranges.without_empty()
    return {
        "window_id": window.id,
        "seq": str(window.seq),
        "assign": dump_assign(list(ranges)),
        "starting_offsets": without_double_braces(dump_offsets(ranges.starts)),
        "ending_offsets": without_double_braces(dump_offsets(ranges.ends)),
        "isolation_level": window.isolation_level.value,
    }


def fill(arguments: Sequence[object], values: Mapping[str, str]) -> list[str]:
    """Fill the window into the arguments of a user's own job, in place of each ``{name}``.

    Raises:
        BadInputError: an argument is too long for a command line.
    """
    filled = []
    for given in map(str, arguments):
        argument = given
        for name, value in values.items():
            argument = argument.replace("{" + name + "}", value)
        if argument != given:
            argument = without_double_braces(argument)
        if len(argument.encode()) > MAX_ARGUMENT:
            raise BadInputError(
                f"The window's offsets make an argument of {len(argument.encode())} bytes; at most {MAX_ARGUMENT} fit. "
                "Let the job call current_window(spark)"
            )
        filled.append(argument)
    return filled


def read_report(path: Path | None, window: Window) -> Report:
    """Return the job's report; an empty one if there is no file.

    Raises:
        KafkaOffsetsError: the report is about another window.
    """
    if path is None:
        return NO_REPORT
    if not path.exists():
        return Report(took_window=False)
    report = json.loads(path.read_text())
    if report.get("window_id") != window.id:
        raise KafkaOffsetsError(
            f"The job reported window {report.get('window_id')}, not {window.id}; nothing is committed"
        )
    return Report(report["records"], report["counts"], report.get("written"), took_window=True, bad=report.get("bad"))


def joined(*lists: str | None) -> str:
    """Join Spark's comma-separated lists, without empty ones."""
    return ",".join(filter(None, lists))
