"""What Spark's errors mean for a task: most say what is wrong with the job, a few say what is wrong around it."""

from __future__ import annotations

import re

from airflow_kafka_offsets.core.errors import BadInputError, KafkaOffsetsError
from airflow_kafka_offsets.spark.errors import DATA_LOSS, DataLossError, KafkaWindowError

_WRONG_SPARK = (
    "This process can only be a client of Spark Connect, and the task has no server to talk to: either pyspark-client is "
    "installed and not pyspark, or SPARK_REMOTE or SPARK_CONNECT_MODE_ENABLED is set in the worker's environment. Give the "
    "task the conn_id of a connection of type spark_connect; or, for a Spark of its own, install pyspark and unset these"
)
_CLOSED = (
    "The Spark Connect session of this attempt was closed from elsewhere: by a later try, which took the window over because "
    "Airflow thought this one dead; by on_kill; or by the server, when nobody used it for an hour. Nothing is committed by this "
    "attempt; if no later try has run the window, the next one runs it"
)
_GONE = (
    "The Spark Connect server does not answer, or was started anew, and with it the session is gone. Nothing is committed by "
    "this attempt; the retry runs the same window, as soon as the server is back"
)

_LOST = (
    "Kafka no longer holds all offsets of the window: retention removed them, or the topic was made anew, after it was planned. "
    "Nothing is committed; what Spark says names the first of them. The next run's plan says which are gone, and what to do"
)

_MEANINGS = (
    (re.compile("CONNECT_URL_NOT_SET|CANNOT_CONFIGURE_SPARK_CONNECT_MASTER"), BadInputError, _WRONG_SPARK),
    (DATA_LOSS, DataLossError, _LOST),
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
    """Return the error to raise instead; None: the exception says best itself what it means."""
    if isinstance(exc, KafkaOffsetsError | KafkaWindowError):
        return None
    said = str(exc)
    if "NO_ACTIVE_SESSION" in said:
        # When the server is another than it was, PySpark 4.0 closes its client, and raises this while it looks for details.
        said = f"{said} {exc.__context__}"
    for sign, kind, meaning in _MEANINGS:
        if sign.search(said):
            return kind(meaning)
    return None
