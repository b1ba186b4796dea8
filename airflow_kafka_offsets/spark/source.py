"""Frames of Spark's Kafka source, in a classic session and over Spark Connect."""

from __future__ import annotations

import logging
import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.spark.errors import ReaderOptionError, not_allowed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

STOPPED = "Spark was stopped too early. Call window.check() before spark.stop()"

_ALLOWED_PROVIDERS = "org.apache.kafka.automatic.config.providers"
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_OUR_URLS = "kafka_offsets.allowed.urls"  # the same list, if it was written here
_TOKEN_URL = "kafka.sasl.oauthbearer.token.endpoint.url"

_V1_SOURCES = "spark.sql.sources.useV1SourceList"
_PLAN_CACHE = "spark.connect.session.planCache.enabled"
_SPLITS = re.compile(r"splits=(\d+)")

# All threads share a session's settings: two that read at once would restore each other's.
_switching = threading.Lock()


def load(spark: SparkSession, options: Mapping[str, str], version: int) -> DataFrame:
    """Return a frame of Spark's Kafka source.

    Args:
        spark: the session.
        options: the reader's.
        version: the source's, 1 or 2. An engine without this choice ignores it.
    """
    if is_classic(spark):
        _prepare_login(spark, options)
    with _switching, _version(spark, version):
        frame = spark.read.format("kafka").options(**options).load()
        return frame if is_classic(spark) else _resolved(spark, frame)


def _prepare_login(spark: SparkSession, options: Mapping[str, str]) -> None:
    """Refuse what the driver's JVM forbids Kafka's client, and allow the address that gives it a token."""
    java: Any = java_class(spark, "java.lang.System")
    allowed = java.getProperty(_ALLOWED_PROVIDERS)
    needed = [
        value for name, value in options.items() if re.fullmatch(r"kafka\.config\.providers\..+\.class", name.lower())
    ]
    missing = [name for name in needed if allowed is not None and name not in re.split(r"[\s,]+", allowed)]
    if missing:
        raise ReaderOptionError(not_allowed(missing[0], _ALLOWED_PROVIDERS, ",".join(needed)))
    if url := options.get(_TOKEN_URL):
        _allow(spark, java, url)


def _allow(spark: SparkSession, java: Any, url: str) -> None:
    """Allow an address that gives tokens, unless the user's list says which. From version 4 on, Kafka's client asks no address without a list."""
    allowed, ours = java.getProperty(_ALLOWED_URLS), java.getProperty(_OUR_URLS)
    if allowed not in (None, ours) or (allowed is None and _client(spark).startswith(("2.", "3."))):
        return
    listed = ",".join(dict.fromkeys([*filter(None, (allowed or "").split(",")), url]))
    for name in (_ALLOWED_URLS, _OUR_URLS):
        java.setProperty(name, listed)


def _client(spark: SparkSession) -> str:
    """Return the version of Kafka's client in the driver, or an empty text."""
    try:
        return str(java_class(spark, "org.apache.kafka.common.utils.AppInfoParser").getVersion())
    except Exception:  # the platform has it under another name
        return ""


def is_classic(spark: SparkSession) -> bool:
    """Whether the session's driver is this process, and not a Spark Connect server."""
    return hasattr(spark, "sparkContext")


def java_class(spark: SparkSession, name: str) -> Any:
    """Return a class of the driver's JVM, by its whole name.

    Python resolves `jvm.org.apache.Name` step by step: for `org`, for `org.apache` and so on, the JVM looks through all of Spark's jars.
    """
    session: Any = spark
    return getattr(session._jvm, name)


def empty_frame(spark: SparkSession, schema: StructType | str) -> DataFrame:
    """Return a frame without rows and tasks. Tasks of an empty list would start Python, which takes a second, and executors may lack it."""
    rows: Any = spark.sparkContext.emptyRDD() if is_classic(spark) else []
    return spark.createDataFrame(rows, schema)


def application_id(spark: SparkSession) -> str | None:
    """Return Spark's id of the application, or None if the platform hides it."""
    return _conf(spark, "spark.app.id")


def is_stopped(spark: SparkSession) -> bool:
    """Whether the session was stopped."""
    return spark.sparkContext._jsc is None if is_classic(spark) else bool(spark.is_stopped)


def parallelism(spark: SparkSession) -> int | None:
    """Return how many tasks can run at once, or None if it is unknown yet."""
    # With Spark's own default: without one, a Connect client logs the missing setting as an error, after two more requests.
    if (_conf(spark, "spark.dynamicAllocation.enabled", "false") or "").lower() == "true":
        return None
    tasks = spark.sparkContext.defaultParallelism if is_classic(spark) else _explained_parallelism(spark)
    # Spark also reports 2 for a cluster before the first executor has registered.
    is_local = (_conf(spark, "spark.master") or "").startswith("local")
    return tasks if is_local or (tasks or 0) > 2 else None


def _resolved(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """Let a Connect server resolve the frame once, as a classic session does.

    Otherwise each action would send all options and offsets, and the server would resolve them with the settings of that moment.
    """
    # With this cache, a server reports no count for a frame that was analyzed (columns, schema) before its first action.
    _try_to_set(spark, _PLAN_CACHE, "false")
    view = f"kafka_offsets_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(view)
    return spark.table(view)


@contextmanager
def _version(spark: SparkSession, version: int) -> Iterator[None]:
    before = _conf(spark, _V1_SOURCES)
    changed = _with_kafka(before or "", version == 1)
    if before is None or changed == before or not _try_to_set(spark, _V1_SOURCES, changed):
        yield
        return
    try:
        yield
    finally:
        # At once: with version 2, Spark refuses to write to Kafka in the default mode.
        spark.conf.set(_V1_SOURCES, before)


def _conf(spark: SparkSession, name: str, *default: str) -> str | None:
    try:
        # A default given here would hide Spark's own.
        return str(spark.conf.get(name, *default))
    except Exception:  # it is not set, or the platform hides it
        return None


def _with_kafka(sources: str, is_in: bool) -> str:
    """Return the list of sources with or without Kafka.

    >>> _with_kafka("avro,Kafka,csv", False), _with_kafka("kafka,csv", True), _with_kafka("", True)
    ('avro,csv', 'kafka,csv', 'kafka')
    """
    names = [name.strip() for name in sources.split(",") if name.strip()]
    others = [name for name in names if name.lower() != "kafka"]
    return ",".join(([*others, "kafka"] if names == others else names) if is_in else others)


def _try_to_set(spark: SparkSession, name: str, value: str) -> bool:
    try:
        spark.conf.set(name, value)
    except Exception:
        logger.info("%s can't be set here", name)
        return False
    return True


def _explained_parallelism(spark: SparkSession) -> int | None:
    # Without a job, nothing else on a server shows it.
    try:
        explained = str(spark.sql("EXPLAIN SELECT * FROM range(1)").first())
    except Exception:
        return None
    splits = _SPLITS.search(explained)
    return int(splits[1]) if splits else None
