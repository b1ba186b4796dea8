"""A job that tells how its driver's JVM was started, and its executors, into the file that it is given."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession


def tell(spark: Any) -> dict[str, Any]:
    """Return what is known of the JVM, once it has run something."""
    spark.range(10).count()
    jvm = spark._jvm
    pid = jvm.java.lang.ProcessHandle.current().pid()
    beans = jvm.java.lang.management.ManagementFactory
    diagnostics = beans.getPlatformMXBean(jvm.java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean"))
    # Of one that has just ended there is no command.
    processes = [process.info for process in psutil.process_iter(["name", "cmdline"])]
    commands = [" ".join(info["cmdline"] or ()) for info in processes if info["name"] == "java"]
    app = spark.sparkContext.applicationId
    return {
        "options": list(beans.getRuntimeMXBean().getInputArguments()),
        "level": diagnostics.getVMOption("TieredStopAtLevel").getValue(),
        "archive": any(
            line.endswith(".jsa") and "archives" in line for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
        ),
        "launcher": os.environ.get("SPARK_LAUNCHER_OPTS"),
        "argv": " ".join(psutil.Process(pid).cmdline()),
        "executors": [command for command in commands if "CoarseGrainedExecutorBackend" in command and app in command],
    }


if __name__ == "__main__":
    session = SparkSession.builder.getOrCreate()
    Path(sys.argv[1]).write_text(json.dumps(tell(session)))
    session.stop()
