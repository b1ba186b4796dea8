"""Install and fetch what the tests need besides Python packages: `python -m tests.lab`.

Afterwards no test has to wait for a download, and what is missing is told before the first test runs.
"""

from __future__ import annotations

import shutil

from tests.lab.browser import chromedriver, chromium
from tests.lab.databases import mariadb_program, postgres_program
from tests.lab.debian import ensure_program
from tests.lab.hdfs import hdfs_jars
from tests.lab.jars import (
    hbase_classpath,
    jars_for_launches,
    java,
    jdbc_jars,
    kafka_classpath,
    spark_connector_jars,
    table_jars,
)
from tests.lab.kafka_tools import kafka_tools_classpath
from tests.lab.redis import redis_program
from tests.lab.yarn import yarn_jars
from tests.lab.zookeeper import zookeeper_classpath


def main() -> None:
    """Find or install Java and the servers, and fetch the jars."""
    print(f"==> Java: {java()}")
    ensure_program(lambda: shutil.which("openssl"), package="openssl")
    print(f"==> PostgreSQL: {postgres_program()}")
    print(f"==> MariaDB: {mariadb_program('mariadbd')}")
    print(f"==> Redis: {redis_program()}")
    print(f"==> ZooKeeper: {zookeeper_classpath()}")
    print(f"==> Chromium: {chromium()}, {chromedriver()}")
    print(f"==> Kafka: {kafka_classpath()}")
    print(f"==> Kafka's tools: {kafka_tools_classpath()}")
    print(f"==> HBase: {hbase_classpath()}")
    print(f"==> HDFS: {hdfs_jars()}")
    print(f"==> JDBC drivers: {len(jdbc_jars())} jars")
    print(f"==> YARN: {yarn_jars()}")
    print(f"==> Spark's Kafka source: {len(spark_connector_jars())} jars")
    print(f"==> the same for launches: {jars_for_launches()}")
    print(f"==> Delta and Iceberg: {len(table_jars())} jars")


if __name__ == "__main__":
    main()
