"""A job that writes to a file how its driver's JVM was started, and with a session, how its executors were."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import psutil


def start_of(jvm: Any) -> dict[str, Any]:
    """Return how a driver's JVM was started."""
    pid = jvm.java.lang.ProcessHandle.current().pid()
    beans = jvm.java.lang.management.ManagementFactory
    diagnostics = beans.getPlatformMXBean(jvm.java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean"))
    return {
        "options": list(beans.getRuntimeMXBean().getInputArguments()),
        "level": diagnostics.getVMOption("TieredStopAtLevel").getValue(),
        "archive": any(
            line.endswith(".jsa") and "archives" in line for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
        ),
        "launcher": os.environ.get("SPARK_LAUNCHER_OPTS"),
        "argv": " ".join(psutil.Process(pid).cmdline()),
    }


def executors(spark: Any) -> list[str]:
    """Return the commands of a session's executors, once they have run something."""
    spark.range(10).count()
    # A process that has just ended has no command.
    processes = [process.info for process in psutil.process_iter(["name", "cmdline"])]
    commands = [" ".join(info["cmdline"] or ()) for info in processes if info["name"] == "java"]
    app = spark.sparkContext.applicationId
    return [command for command in commands if "CoarseGrainedExecutorBackend" in command and app in command]


def without_session() -> dict[str, Any]:
    """Return how the JVM was started, without a session, which would take most of the time."""
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

    # To the JVM that runs this job, as PySpark goes there: all of PySpark would be half of this job's time.
    port, secret = int(os.environ["PYSPARK_GATEWAY_PORT"]), os.environ["PYSPARK_GATEWAY_SECRET"]
    driver = ClientServer(JavaParameters(port=port, auth_token=secret), PythonParameters(port=0, eager_load=False))
    return start_of(driver.jvm)


def with_session() -> dict[str, Any]:
    """Return how the JVM and the executors were started."""
    from pyspark.sql import SparkSession

    with SparkSession.builder.getOrCreate() as spark:
        return {**start_of(spark._jvm), "executors": executors(spark)}


if __name__ == "__main__":
    file, *session = sys.argv[1:]
    Path(file).write_text(json.dumps(with_session() if session else without_session()))
