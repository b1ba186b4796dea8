"""The jars of the lab's servers, as class paths. The cache keeps each jar once, whatever needs it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.lab import ivy
from tests.lab.cache import CACHE, PROVIDER_CACHE, keep, one_at_a_time, workshop
from tests.lab.java import pyspark_home

if TYPE_CHECKING:
    from collections.abc import Mapping

LIST = Path(__file__).with_name("jars.json")
"""All jars of each set, so that no description of a jar has to be fetched and read to know them."""


@dataclass(frozen=True)
class JarSet:
    """Jars, and all that they need at run time.

    Args:
        name: The set's name.
        roots: The jars, as `group:name:version`.
        without: What to leave out though one of them needs it, as `group:name`; the name may be `*`.
    """

    name: str
    roots: tuple[str, ...]
    without: tuple[str, ...] = ()


_OLD_LOG = ("log4j:*", "org.slf4j:slf4j-log4j12")
KAFKA = JarSet("kafka", ("org.apache.kafka:kafka_2.13:4.2.0", "org.slf4j:slf4j-reload4j:1.7.36"))
# The oldest and the middle one of what people still run. The first is the last that gives no topic ids, while its protocol is that of 2.7;
# the other is the first with remote storage, and the last that interrupts a remote read when a fetch has waited long enough.
KAFKA_2 = JarSet("kafka-2", ("org.apache.kafka:kafka_2.13:2.8.2", "org.slf4j:slf4j-reload4j:1.7.36"), without=_OLD_LOG)
KAFKA_3 = JarSet("kafka-3", ("org.apache.kafka:kafka_2.13:3.7.2", "org.slf4j:slf4j-reload4j:1.7.36"), without=_OLD_LOG)
KAFKA_TOOLS = JarSet("kafka-tools", ("org.apache.kafka:kafka-tools:4.2.0", "org.slf4j:slf4j-reload4j:1.7.36"))
# Without the metrics it dies at its start, without snappy later; it does not say that it needs them.
ZOOKEEPER = JarSet(
    "zookeeper",
    (
        "org.apache.zookeeper:zookeeper:3.9.4",
        "io.dropwizard.metrics:metrics-core:4.1.12.1",
        "org.xerial.snappy:snappy-java:1.1.10.5",
    ),
)
# They need another version of the servlet API than Hadoop's. The driver is large, and not needed.
HBASE = JarSet(
    "hbase",
    ("org.apache.hbase:hbase-server:2.5.8", "org.apache.hbase:hbase-thrift:2.5.8"),
    without=(
        "javax.servlet:servlet-api",
        "org.mortbay.jetty:*",
        "com.sun.jersey:*",
        "com.sun.jersey.contribs:*",
        "com.microsoft.sqlserver:*",
    ),
)
HDFS = JarSet(
    "hdfs", tuple(f"org.apache.hadoop:{name}:3.4.1" for name in ("hadoop-hdfs", "hadoop-hdfs-client", "hadoop-common"))
)
# The resource manager loads classes of the timeline service, and does not say that it needs them.
YARN = JarSet(
    "yarn",
    (
        "org.apache.hadoop:hadoop-yarn-server-resourcemanager:3.4.1",
        "org.apache.hadoop:hadoop-yarn-server-nodemanager:3.4.1",
        "org.apache.hadoop:hadoop-yarn-server-timelineservice:3.4.1",
        "org.apache.hadoop:hadoop-common:3.4.1",
    ),
)
JDBC = JarSet("jdbc", ("org.postgresql:postgresql:42.7.5", "org.mariadb.jdbc:mariadb-java-client:3.5.2"))
# The logins of two clouds. What both need of Kafka, Jackson and logging, Spark has.
_WITHOUT_KAFKA = ("org.apache.kafka:*", "org.slf4j:*", "com.fasterxml.jackson.core:*", "io.confluent:*")
MSK_LOGIN = JarSet("msk-login", ("software.amazon.msk:aws-msk-iam-auth:2.4.0",), without=_WITHOUT_KAFKA)
GOOGLE_LOGIN = JarSet(
    "google-login",
    ("com.google.cloud.hosted.kafka:managed-kafka-auth-login-handler:1.0.6",),
    without=_WITHOUT_KAFKA,
)
# Both are built for one minor version of Spark, which has what is left out; a second Scala library is one too many.
DELTA = JarSet("delta", ("io.delta:delta-spark_2.13:4.0.0",), without=("org.scala-lang:*", "org.antlr:*"))
ICEBERG = JarSet("iceberg", ("org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1",))
# In Spark's own version, which has all that it needs.
AVRO = JarSet(
    "avro",
    ("org.apache.spark:spark-avro_2.13:4.0.0",),
    without=("org.apache.spark:spark-tags_2.13", "org.scala-lang:*", "org.scala-lang.modules:*", "org.tukaani:*"),
)
# For Spark 3.5 with Scala 2.12, which is what PySpark 3.5 brings.
DELTA_3 = JarSet("delta-3", ("io.delta:delta-spark_2.12:3.3.2",), without=("org.scala-lang:*", "org.antlr:*"))
ICEBERG_3 = JarSet("iceberg-3", ("org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.10.1",))
# Since 4.1, Delta names what Spark has as well.
_OF_SPARK = (
    "org.scala-lang:*",
    "org.antlr:*",
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "com.github.luben:*",
    "commons-logging:*",
    "commons-pool:*",
    "io.airlift:*",
    "org.apache.hadoop:*",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.roaringbitmap:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)
SPARK_3_SCALA_13 = JarSet("spark-3-scala-13", ("org.apache.spark:spark-sql_2.13:3.5.4",))
DELTA_3_SCALA_13 = JarSet(
    "delta-3-scala-13", ("io.delta:delta-spark_2.13:3.3.2",), without=("org.scala-lang:*", "org.antlr:*")
)
ICEBERG_3_SCALA_13 = JarSet("iceberg-3-scala-13", ("org.apache.iceberg:iceberg-spark-runtime-3.5_2.13:1.10.1",))
DELTA_41 = JarSet("delta-4.1", ("io.delta:delta-spark_4.1_2.13:4.2.0",), without=_OF_SPARK)
ICEBERG_41 = JarSet("iceberg-4.1", ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",))
DELTA_42 = JarSet("delta-4.2", ("io.delta:delta-spark_4.2_2.13:4.4.0",), without=_OF_SPARK)
SETS = (
    KAFKA,
    KAFKA_2,
    KAFKA_3,
    KAFKA_TOOLS,
    ZOOKEEPER,
    HBASE,
    HDFS,
    YARN,
    JDBC,
    DELTA,
    ICEBERG,
    AVRO,
    DELTA_3,
    ICEBERG_3,
    MSK_LOGIN,
    GOOGLE_LOGIN,
)
"""What `make test` needs."""
SETS_OF_MATRIX = (SPARK_3_SCALA_13, DELTA_3_SCALA_13, ICEBERG_3_SCALA_13, DELTA_41, ICEBERG_41, DELTA_42)
"""What only `make test-matrix` needs."""

# A server without a log binding dies without a word.
_LOG_SETTINGS = """\
log4j.rootLogger=INFO,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %-5p [%t] %c{2}: %m%n
"""


class JarError(Exception):
    """A jar could not be fetched, or no one knows which ones are needed."""


def spark_connector() -> str:
    """Return the Maven coordinates of Spark's Kafka source for the installed PySpark."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')}"


def hbase_classpath() -> str:
    """Return a class path that runs HBase and its Thrift gateway, and lets them log to stdout."""
    return f"{log_settings()}:{class_path(HBASE)}"


def jars_for_launches() -> Path:
    """Return the cache folder of the operators, with the jars of the connector and of Spark's Avro: no launch has to fetch them."""
    folder = fetch_for_launches(pyspark_home())
    if not (folder / "jars" / f"spark-avro_2.13-{version('pyspark')}").exists():
        fetch_for_launches(pyspark_home(), "--avro")
    return folder


def fetch_for_launches(home: Path, *more: str) -> Path:
    """Let `kafka-offsets jars` fetch what launches of a Spark need, and return the cache folder of the operators.

    Args:
        home: The Spark's home.
        more: Options; without any, it is the Kafka connector.
    """
    folder = PROVIDER_CACHE
    folder.mkdir(parents=True, exist_ok=True)
    program = str(Path(sys.executable).parent / "kafka-offsets")
    command = [program, "jars", "--spark-home", str(home), "--to", str(folder), *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise JarError(done.stdout)
    return folder


def jdbc_jars() -> list[Path]:
    """Return the JDBC drivers of PostgreSQL and MariaDB."""
    return fetch(JDBC)


def avro_jars() -> list[Path]:
    """Return the jars of Spark's Avro."""
    return fetch(AVRO)


def table_jars() -> list[Path]:
    """Return the jars of Delta and Iceberg for the installed PySpark."""
    return [*fetch(DELTA), *fetch(ICEBERG)]


def log_settings() -> Path:
    """Return a folder for the class path, which lets a server log to stdout."""
    folder = CACHE / f"log-settings-{hashlib.sha256(_LOG_SETTINGS.encode()).hexdigest()[:12]}"
    if not (folder / "log4j.properties").exists():
        keep(folder / "log4j.properties", _LOG_SETTINGS)
    return folder


def as_xml(properties: Mapping[str, str]) -> str:
    """Return the content of a settings file of Hadoop's."""
    lines = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>\n" for name, value in properties.items()
    )
    return f"<configuration>\n{lines}</configuration>\n"


def class_path(jar_set: JarSet) -> str:
    """Return a class path of the jars of a set."""
    return ":".join(map(str, fetch(jar_set)))


def fetch(jar_set: JarSet) -> list[Path]:
    """Return the jars of a set, and all that they need at run time; what the cache does not have is downloaded."""
    jars = listed(jar_set)
    if _missing(jars):
        with one_at_a_time(jar_set.name):
            # Meanwhile, whoever was first has got them.
            if missing := _missing(jars):
                _download(missing, jar_set)
    return [_place(jar) for jar in jars]


def listed(jar_set: JarSet) -> list[str]:
    """Return the coordinates of all jars of a set, as they were when someone asked for the last time."""
    entry = _list().get(jar_set.name)
    if entry is None or (entry["roots"], entry["without"]) != (list(jar_set.roots), list(jar_set.without)):
        raise JarError(f"{LIST.name} does not list what {', '.join(jar_set.roots)} need: `make lock-jars`")
    return list(entry["jars"])


@cache
def _list() -> dict[str, Any]:
    return json.loads(LIST.read_text())


def _place(jar: str) -> Path:
    return CACHE / "jars" / ivy.file_of(jar)


def _missing(jars: list[str]) -> list[str]:
    return [jar for jar in jars if not _place(jar).exists()]


def _download(jars: list[str], jar_set: JarSet) -> None:
    said = ""
    with workshop(jar_set.name) as work:
        try:
            ivy.download(jars, work)
        except ivy.IvyError as failure:
            said = str(failure)
        # Also after a failure: the next time has the less to do.
        for jar in jars:
            if (work / ivy.file_of(jar)).exists():
                _place(jar).parent.mkdir(parents=True, exist_ok=True)
                # If another set has brought it meanwhile, that one stays: Java takes an archive of classes only with the files it was made from.
                with suppress(FileExistsError):
                    _place(jar).hardlink_to(work / ivy.file_of(jar))
    if missing := _missing(jars):
        which = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise JarError(
            f"could not fetch {len(missing)} of the {len(jars)} jars that {jar_set.name} lacked: {which}\n{said}"
        )


def spark_connector_jars() -> list[Path]:
    """Return the jars of Spark's Kafka source, and make `spark-submit --packages` find them without the network.

    They are resolved by spark-submit itself, into the cache that it uses later.
    """
    known = CACHE / "jars" / f"{spark_connector().replace(':', '_')}.txt"
    with one_at_a_time("spark-connector"):
        if not known.exists() or not all(Path(jar).exists() for jar in known.read_text().splitlines()):
            keep(known, "\n".join(_resolve_with_spark(spark_connector())))
    return [Path(jar) for jar in known.read_text().splitlines()]


def _resolve_with_spark(coordinates: str) -> list[str]:
    environment = {
        **os.environ,
        # Spark's scripts look for `python3` on PATH, and there want the one that has PySpark.
        "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}",
        "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1",
    }
    with tempfile.TemporaryDirectory() as work:
        # An application that does nothing: the packages are resolved before it runs.
        Path(work, "nothing.py").touch()
        command = [str(pyspark_home() / "bin" / "spark-submit"), "--master", "local[1]", "--verbose"]
        done = subprocess.run(
            [*command, "--packages", coordinates, f"{work}/nothing.py"],
            cwd=work,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise JarError(f"could not fetch {coordinates}:\n" + "\n".join(done.stdout.splitlines()[-30:]))
    return re.findall(r"^file://([^\s,]+\.jar)$", done.stdout, re.MULTILINE)
