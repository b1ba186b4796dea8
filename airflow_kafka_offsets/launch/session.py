"""A launch in a task's own process: the Spark session that its function gets, as a value and as a context."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError, KafkaOffsetsError, KafkaRefusedError, error_in_short
from airflow_kafka_offsets.launch.connect import remote_url
from airflow_kafka_offsets.launch.job_files import task_folder, with_login
from airflow_kafka_offsets.spark.errors import (
    BAD_RECORD,
    DATA_LOSS,
    NOT_ALLOWED,
    WITHOUT_BAD,
    BadRecordError,
    KafkaWindowError,
    LostRecordsError,
    not_allowed,
)

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from pyspark.sql import SparkSession

    from airflow_kafka_offsets.core.launch.login import ReaderOptions

_PROGRESS_BAR = "spark.ui.showConsoleProgress"
_NO_TOPIC = "$^"
_CAUSE = re.compile(r"^(?:Caused by)?: (.+)", re.MULTILINE)

_WRONG_SPARK = (
    "The task names no Spark Connect server. Set its conn_id; or, for a Spark of its own, install pyspark (not pyspark-client), and unset "
    "SPARK_REMOTE and SPARK_CONNECT_MODE_ENABLED"
)
_RETRIED = "Nothing is committed; the next try runs the window"
_CLOSED = f"The attempt's Spark Connect session was closed. {_RETRIED}"
_GONE = f"The Spark Connect server does not answer, or was restarted. {_RETRIED}"
_LOST = "Kafka no longer holds all offsets of the window. Nothing is committed; the next run's plan names them"
_MEANINGS = (
    (re.compile("CONNECT_URL_NOT_SET|CANNOT_CONFIGURE_SPARK_CONNECT_MASTER"), BadInputError, _WRONG_SPARK),
    (DATA_LOSS, LostRecordsError, _LOST),
    (re.compile(r"INVALID_HANDLE\.SESSION_CLOSED"), KafkaOffsetsError, _CLOSED),
    (
        re.compile(
            r"StatusCode\.UNAVAILABLE|INVALID_HANDLE\.(SESSION_CHANGED|(SESSION|OPERATION)_NOT_FOUND)|RESPONSE_ALREADY_RECEIVED"
            "|incorrect server side session"
        ),
        KafkaOffsetsError,
        _GONE,
    ),
)


@dataclass(frozen=True, slots=True)
class SessionLaunch:
    """How a task opens its Spark sessions.

    Attributes:
        settings: Spark's.
        remote: the address of the Spark Connect server, or None if the task has its own Spark.
        reader: what Spark's reader needs to reach Kafka.
    """

    settings: Mapping[str, Any]
    remote: str | None
    reader: ReaderOptions


def session_settings(connection: Connection | None, conf: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return Spark's settings as `PySparkOperator` puts them together.

    Args:
        connection: the task's.
        conf: the task's own settings, which override the connection.
        name: the application's.
    """
    extra = connection.extra_dejson if connection is not None else {}
    settings = {"spark.app.name": name, **extra, **conf}
    if remote := remote_url(connection, conf):
        return {**settings, "spark.remote": remote}
    host = connection.host if connection is not None else None
    master = f"{host}:{connection.port}" if connection is not None and connection.port else host or "local[*]"
    # The progress bar has no end of line, so it would come last in the task's log.
    return {_PROGRESS_BAR: "false", "spark.master": master, **settings}


@contextmanager
def open_session(settings: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[SparkSession]:
    """Open a Spark session, and stop it at the end. Errors of Spark about its surroundings are raised in words for a person.

    Args:
        settings: Spark's.
        environment: variables that Spark's own process is started with, and nothing else.
    """
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    from airflow_kafka_offsets.wiring.machine.start import environment_with

    conf = SparkConf()
    for name, value in settings.items():
        conf.set(name, value)
    try:
        with environment_with(environment):
            spark = SparkSession.builder.config(conf=conf).getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
    except Exception as exc:
        explained = explained_spark_error(exc)
        if explained is None:
            raise
        raise explained from exc


def log_in(reader: ReaderOptions, timeout: float) -> None:
    """Log in to Kafka as a job on this machine does, and list its topics. No record is read.

    Args:
        reader: what Spark's reader needs to reach Kafka.
        timeout: seconds after which Kafka's client gives up.

    Raises:
        BadInputError: Spark can't start here, or Java forbids what the login needs.
        ConnectorUnavailableError: Spark's connector is not here, and can't be fetched.
        KafkaRefusedError: the client did not get in, with the last cause that it names.
    """
    from airflow_kafka_offsets.spark.source import load
    from airflow_kafka_offsets.wiring.connections import without_secrets
    from airflow_kafka_offsets.wiring.machine.checks import check_pyspark, check_session
    from airflow_kafka_offsets.wiring.machine.connector import for_session

    check_session(os.environ)
    check_pyspark()
    settings = session_settings(None, {"spark.master": "local[1]", "spark.ui.enabled": "false"}, "try-login")
    settings |= for_session("auto", settings)
    limits = dict.fromkeys(("kafka.request.timeout.ms", "kafka.default.api.timeout.ms"), str(round(timeout * 1000)))
    with task_folder() as folder, open_session(settings, {}) as spark:
        spark.sparkContext.setLogLevel("OFF")
        options = {**with_login(reader, folder), **limits, "fetchOffset.numRetries": "1", "subscribePattern": _NO_TOPIC}
        try:
            load(spark, options, version=2).isEmpty()
        except KafkaWindowError:
            raise
        except Exception as exc:
            if explained := explained_spark_error(exc):
                raise explained from None
            causes = _CAUSE.findall(str(exc)) or [error_in_short(exc)]
            raise KafkaRefusedError(
                f"Spark's Kafka client did not get in: {without_secrets(causes[-1])}. "
                "Check what the connection and spark_options say of it"
            ) from None


def explained_spark_error(exc: Exception) -> Exception | None:
    """Return the error to raise instead, or None if the exception itself is clear."""
    if isinstance(exc, KafkaOffsetsError | KafkaWindowError):
        return None
    text = str(exc)
    if "NO_ACTIVE_SESSION" in text:
        # If the server was restarted, PySpark 4.0 closes its client, and raises this while it fetches details of the error.
        text = f"{text} {exc.__context__}"
    if bad := BAD_RECORD.search(text):
        return BadRecordError(f"{bad[0]}; nothing is committed. {WITHOUT_BAD}")
    if forbidden := NOT_ALLOWED.search(text):
        return BadInputError(not_allowed(forbidden[1], forbidden[2], forbidden[1]))
    return next((kind(meaning) for sign, kind, meaning in _MEANINGS if sign.search(text)), None)
