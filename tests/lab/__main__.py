"""Install and fetch what the tests need besides Python packages: `python -m tests.lab`.

Afterwards no test has to wait for a download, and what is missing is told before the first test runs. It may run beside
tests: whoever needs a thing that is under way waits for that one.
"""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from tests.lab.apicurio import apicurio_home
from tests.lab.browser import chromedriver, chromium
from tests.lab.databases import mariadb_program, postgres_program
from tests.lab.debian import MissingProgramError, ensure_program
from tests.lab.jars import (
    AVRO,
    DELTA,
    HBASE,
    HDFS,
    ICEBERG,
    JDBC,
    KAFKA,
    KAFKA_TOOLS,
    YARN,
    ZOOKEEPER,
    JarError,
    JarSet,
    fetch,
    spark_connector_jars,
)
from tests.lab.java import JavaError, java
from tests.lab.prometheus import prometheus_program
from tests.lab.redis import redis_program
from tests.lab.sparks import SPARK_3
from tests.lab.start import folder_for_launches, start_archive_of

if TYPE_CHECKING:
    from collections.abc import Callable

# Debian's packages can only be installed one after the other.
_PROGRAMS: dict[str, Callable[[], str]] = {
    "OpenSSL": lambda: ensure_program(lambda: shutil.which("openssl"), package="openssl"),
    "PostgreSQL": postgres_program,
    "MariaDB": partial(mariadb_program, "mariadbd"),
    "Redis": redis_program,
    "Prometheus": prometheus_program,
    "Chromium": chromium,
    "its driver": chromedriver,
}
# Beside each other; but of two sets that have most of their jars in common, the second waits for the first one's.
_JARS = ((HBASE,), (HDFS, YARN), (KAFKA, KAFKA_TOOLS), (ICEBERG,), (ZOOKEEPER, JDBC, DELTA, AVRO))


def _say(line: str) -> None:
    # At once, with its end: several speak at a time.
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def install_programs() -> None:
    """Find or install what comes from Debian's packages."""
    for name, find in _PROGRAMS.items():
        _say(f"==> {name}: {find()}")


def fetch_jars(*jar_sets: JarSet) -> None:
    """Fetch sets of jars, one after the other."""
    for jar_set in jar_sets:
        _say(f"==> {jar_set.name}: {len(fetch(jar_set))} jars")


def fetch_spark_connector() -> None:
    """Fetch Spark's Kafka source."""
    _say(f"==> Spark's Kafka source: {len(spark_connector_jars())} jars")


def fetch_registry() -> None:
    """Fetch the schema registry."""
    _say(f"==> Apicurio: {apicurio_home()}")


def prepare_launches() -> None:
    """Get all that makes launches cheap."""
    _say(f"==> Spark's connector and start archive for launches: {folder_for_launches()}")


def prepare_spark_3() -> None:
    """Get another Spark than the installed one, and all that its jobs and cheap launches of them need."""
    jars = [*SPARK_3.launch_jars(), *SPARK_3.table_jars()]
    _say(
        f"==> Spark {SPARK_3.version} with {len(jars)} more jars, and its start archive: {start_archive_of(SPARK_3.home)}"
    )


def main() -> None:
    """Find or install Java and the servers, and fetch the jars."""
    try:
        _say(f"==> Java: {java()}")
    except JavaError as failure:
        sys.exit(str(failure))
    jobs = [
        install_programs,
        fetch_spark_connector,
        prepare_launches,
        fetch_registry,
        prepare_spark_3,
        *(partial(fetch_jars, *jar_sets) for jar_sets in _JARS),
    ]
    with ThreadPoolExecutor(len(jobs)) as pool:
        runs = [pool.submit(job) for job in jobs]
    failures = [failure for run in runs if (failure := run.exception())]
    for failure in failures:
        if not isinstance(failure, JarError | MissingProgramError):
            raise failure
    if failures:
        sys.exit("\n".join(map(str, failures)))


if __name__ == "__main__":
    main()
