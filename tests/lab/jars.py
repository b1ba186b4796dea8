"""Find Java, and fetch jars with the Ivy that PySpark ships; everything is kept in `.cache/jars` of the repository."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CACHE = Path(__file__).parents[2] / ".cache"

HBASE = ("org.apache.hbase:hbase-server:2.5.8", "org.apache.hbase:hbase-thrift:2.5.8")
# Of the servlet API they need another version than the one that Hadoop brings along; the driver is a large one for nothing.
HBASE_WITHOUT = (
    "javax.servlet:servlet-api",
    "org.mortbay.jetty:*",
    "com.sun.jersey:*",
    "com.sun.jersey.contribs:*",
    "com.microsoft.sqlserver:*",
)
JDBC = ("org.postgresql:postgresql:42.7.5", "org.mariadb.jdbc:mariadb-java-client:3.5.2")
# Both are built for one minor version of Spark.
DELTA = ("io.delta:delta-spark_2.13:4.0.0",)
# Spark has them; a second Scala library is one too many.
DELTA_WITHOUT = ("org.scala-lang:*", "org.antlr:*")
ICEBERG = ("org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1",)
KAFKA = ("org.apache.kafka:kafka_2.13:4.2.0", "org.slf4j:slf4j-reload4j:1.7.36")

# The namespace is the one by which Ivy knows Maven's classifiers.
_IVY = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="lab" module="lab"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconfmapping="default->default">
{dependencies}
  </dependencies>
</ivy-module>
"""
# A server without a log binding dies without a word.
_LOG_SETTINGS = """\
log4j.rootLogger=INFO,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %-5p [%t] %c{2}: %m%n
"""


class JavaError(Exception):
    """There is no Java 17 or later here."""


class JarError(Exception):
    """Ivy could not fetch a jar."""


@cache
def java() -> str:
    """Return the path of `java`, version 17 or later: the one in JAVA_HOME, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if program is None:
        where = f"in JAVA_HOME={home}" if home else "on PATH"
        raise JavaError(f"no java {where}: install Java 17 (Debian: openjdk-17-jre-headless)")
    said = subprocess.run([program, "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < 17:
        raise JavaError(f"Java 17 or later is needed, {program} is: {said.strip()}")
    return program


def spark_connector() -> str:
    """Return the Maven coordinates of Spark's Kafka source for the installed PySpark."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')}"


def kafka_classpath() -> str:
    """Return a class path that runs a Kafka broker and lets it log to stdout."""
    return f"{log_settings()}:{fetch(*KAFKA)}/*"


def hbase_classpath() -> str:
    """Return a class path that runs HBase and its Thrift gateway, and lets them log to stdout."""
    return f"{log_settings()}:{fetch(*HBASE, without=HBASE_WITHOUT)}/*"


def jars_for_launches() -> Path:
    """Return the cache folder of the operators, with the connector's jars in it: no launch has to fetch them."""
    folder = CACHE / "kafka_offsets"
    folder.mkdir(exist_ok=True)
    _run([str(Path(sys.executable).parent / "kafka-offsets"), "jars", "--to", str(folder)], what=spark_connector())
    return folder


def jdbc_jars() -> list[Path]:
    """Return the JDBC drivers of PostgreSQL and MariaDB."""
    return sorted(fetch(*JDBC).glob("*.jar"))


def table_jars() -> list[Path]:
    """Return the jars of Delta and Iceberg for the installed PySpark."""
    return [jar for folder in (fetch(*DELTA, without=DELTA_WITHOUT), fetch(*ICEBERG)) for jar in folder.glob("*.jar")]


def log_settings() -> Path:
    """Return a folder for the class path, which lets a server log to stdout."""
    settings = CACHE / "kafka-log" / "log4j.properties"
    if not settings.exists():
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(_LOG_SETTINGS)
    return settings.parent


def as_xml(properties: Mapping[str, str]) -> str:
    """Return the content of a settings file of Hadoop's."""
    lines = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>\n" for name, value in properties.items()
    )
    return f"<configuration>\n{lines}</configuration>\n"


def fetch(*coordinates: str, without: Sequence[str] = ()) -> Path:
    """Return a folder with these artifacts and all that they need at run time.

    Args:
        coordinates: `group:name:version`, or `group:name:version:classifier`; what each of them needs comes with it.
        without: What to leave out though somebody needs it, as `group:name`; the name may be `*`.
    """
    folder = CACHE / "jars" / _key([*coordinates, *(f"-{module}" for module in without)])
    with _one_at_a_time():
        if not folder.exists():
            _retrieve(_dependencies(coordinates, without), folder, what=", ".join(coordinates))
    return folder


def _key(parts: Sequence[str]) -> str:
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return f"{parts[0].split(':')[1]}-{digest}"


def _retrieve(dependencies: str, folder: Path, *, what: str) -> None:
    # Beside its destination, so that the rename at the end is atomic: a folder is complete or absent.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as work:
        Path(work, "ivy.xml").write_text(_IVY.format(dependencies=dependencies))
        pattern = f"{work}/jars/[artifact]-[revision](-[classifier]).[ext]"
        ivy = [java(), "-cp", f"{pyspark_home()}/jars/*", "org.apache.ivy.Main", "-ivy", f"{work}/ivy.xml"]
        _run([*ivy, "-cache", f"{work}/ivy", "-retrieve", pattern], what=what)
        Path(work, "jars").rename(folder)


def _dependencies(coordinates: Sequence[str], without: Sequence[str]) -> str:
    """Return Ivy's XML for them: one element a module, as a second one of the same module would replace the first."""
    classifiers: dict[str, list[str]] = {}
    for coordinate in coordinates:
        group, name, revision, *classifier = coordinate.split(":")
        classifiers.setdefault(f"{group}:{name}:{revision}", []).extend(classifier or [""])
    excludes = "".join('\n    <exclude org="{}" module="{}"/>'.format(*module.split(":")) for module in without)
    return "\n".join(_dependency(*module.split(":"), of) for module, of in classifiers.items()) + excludes


def _dependency(group: str, name: str, revision: str, classifiers: Sequence[str]) -> str:
    head = f'    <dependency org="{group}" name="{name}" rev="{revision}"'
    if classifiers == [""]:
        return f"{head}/>"
    of = {classifier: f' m:classifier="{classifier}"' if classifier else "" for classifier in classifiers}
    artifacts = "".join(f'<artifact name="{name}" type="jar" ext="jar"{extra}/>' for extra in of.values())
    return f"{head}>{artifacts}</dependency>"


def spark_connector_jars() -> list[Path]:
    """Return the jars of Spark's Kafka source, and make `spark-submit --packages` find them without the network.

    They are resolved by spark-submit itself, into the cache that it uses later.
    """
    known = CACHE / "jars" / f"{_key([spark_connector()])}.txt"
    with _one_at_a_time():
        if not known.exists() or not all(Path(jar).exists() for jar in known.read_text().splitlines()):
            known.write_text("\n".join(_resolve_with_spark(spark_connector())))
    return [Path(jar) for jar in known.read_text().splitlines()]


def _resolve_with_spark(coordinates: str) -> list[str]:
    with tempfile.TemporaryDirectory() as work:
        # An application that does nothing: the packages are resolved before it runs.
        Path(work, "nothing.py").touch()
        command = [str(pyspark_home() / "bin" / "spark-submit"), "--master", "local[1]", "--verbose"]
        said = _run([*command, "--packages", coordinates, f"{work}/nothing.py"], what=coordinates, directory=work)
    return re.findall(r"^file://([^\s,]+\.jar)$", said, re.MULTILINE)


def _run(command: list[str], *, what: str, directory: str | None = None) -> str:
    # Spark's scripts look for `python3` on PATH, and there want the one that has PySpark.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"}
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise JarError(f"could not fetch {what}:\n" + "\n".join(done.stdout.splitlines()[-30:]))
    return done.stdout


def pyspark_home() -> Path:
    """Return the folder of the installed PySpark: what its scripts call SPARK_HOME."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise JarError("PySpark is not installed here: `make setup`")
    return Path(found.origin).parent


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Let a second process wait for the first one's download instead of repeating it."""
    folder = CACHE / "jars"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
