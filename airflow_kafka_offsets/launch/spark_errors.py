"""Translates Spark's errors that are not about the job itself, but about its surroundings."""

from __future__ import annotations

import re

from airflow_kafka_offsets.core.errors import BadInputError, KafkaOffsetsError
from airflow_kafka_offsets.spark.errors import BAD_RECORD, DATA_LOSS, BadRecordError, KafkaWindowError, LostRecordsError

_WRONG_SPARK = (
    "This process can only be a client of Spark Connect, and the task names no server. Give the task the conn_id of a connection of "
    "type spark_connect; or, for its own Spark, install pyspark (not pyspark-client), and unset SPARK_REMOTE and "
    "SPARK_CONNECT_MODE_ENABLED in the worker's environment"
)
_CLOSED = (
    "The Spark Connect session of this attempt was closed: by a later try (Airflow counted this one as dead), by on_kill, or by the "
    "server after an hour without use. This attempt commits nothing; the next try runs the window, unless a later one has done it"
)
_GONE = (
    "The Spark Connect server does not answer, or was restarted, and the session is lost. This attempt commits nothing; the retry "
    "runs the same window when the server is back"
)

_LOST = (
    "Kafka no longer holds all offsets of the window: after it was planned, retention removed them, or the topic was recreated. "
    "Nothing is committed; Spark's error names the first of them, and the next run's plan names all of them and what to do"
)

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


def explained_spark_error(exc: Exception) -> Exception | None:
    """Return the error to raise instead; None: the exception itself is clear."""
    if isinstance(exc, KafkaOffsetsError | KafkaWindowError):
        return None
    said = str(exc)
    if "NO_ACTIVE_SESSION" in said:
        # If the server was restarted, PySpark 4.0 closes its client, and raises this while it fetches details of the error.
        said = f"{said} {exc.__context__}"
    if bad := BAD_RECORD.search(said):
        return BadRecordError(
            f"{bad[0]}. Nothing is committed. To go on without such records: on_bad='null', or on_bad='side' with side=..."
        )
    for sign, kind, meaning in _MEANINGS:
        if sign.search(said):
            return kind(meaning)
    return None
