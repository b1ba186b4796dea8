"""Install and fetch what the tests need besides Python packages: `python -m tests.lab`.

Afterwards no test waits for a download. What is missing is named before the first test runs.
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from typing import TYPE_CHECKING

from tests.lab.apicurio import apicurio_home
from tests.lab.browser import chromedriver, chromium
from tests.lab.databases import mariadb_program, postgres_program
from tests.lab.debian import MissingProgramError, ensure_program
from tests.lab.jars import SETS, JarError, JarSet, fetch, spark_connector_jars
from tests.lab.java import JavaError, java
from tests.lab.kerberos import kdc_program
from tests.lab.prometheus import prometheus_program
from tests.lab.redis import redis_program
from tests.lab.sparks import SPARK_3
from tests.lab.start import folder_for_launches, start_archive_of
from tests.lab.tiered_kafka import javac

if TYPE_CHECKING:
    from collections.abc import Callable


def _fetch(jar_set: JarSet) -> str:
    return f"{len(fetch(jar_set))} jars"


def _fetch_spark_3() -> str:
    jars = [*SPARK_3.launch_jars(), *SPARK_3.table_jars()]
    return f"{len(jars)} more jars, and its start archive {start_archive_of(SPARK_3.home)}"


_NEEDED: dict[str, Callable[[], object]] = {
    "OpenSSL": lambda: ensure_program(lambda: shutil.which("openssl"), package="openssl"),
    "PostgreSQL": postgres_program,
    "MariaDB": partial(mariadb_program, "mariadbd"),
    "Redis": redis_program,
    "Kerberos": partial(kdc_program, "krb5kdc"),
    "Prometheus": prometheus_program,
    "Chromium": chromium,
    "its driver": chromedriver,
    "Java's compiler": javac,
    "Spark's Kafka source": lambda: f"{len(spark_connector_jars())} jars",
    "Spark's connector and start archive for launches": folder_for_launches,
    "Apicurio": apicurio_home,
    f"Spark {SPARK_3.version}": _fetch_spark_3,
    **{jar_set.name: partial(_fetch, jar_set) for jar_set in SETS},
}


def main() -> None:
    """Find or install Java and the servers, and fetch the jars; end with what failed."""
    try:
        print(f"==> Java: {java()}", flush=True)
    except JavaError as failure:
        sys.exit(str(failure))
    failures = []
    for name, find in _NEEDED.items():
        try:
            print(f"==> {name}: {find()}", flush=True)
        except (JarError, MissingProgramError) as failure:
            failures.append(str(failure))
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
