"""Runs spark-submit for this package itself: to fetch the connector's jars, to make a start archive. No job of a user starts here."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow_kafka_offsets.spark.parent import dying_with_parent

_OF_OTHER_RUNS = (
    "SPARK_REMOTE",
    "SPARK_CONNECT_MODE_ENABLED",
    "DEPLOY_MODE",
    "MASTER",
    "PYSPARK_SUBMIT_ARGS",
    "PYTHONPATH",
)
"""Environment variables that would change such a run."""

_TAIL_LINES = 25
_USER_IN_URL = re.compile(r"://[^/@\s]+@")


def run_submit(
    home: Path,
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    *,
    began: float | None = None,
) -> tuple[str | None, str]:
    """Run a Spark's own spark-submit, and wait for its end. It dies with this process.

    Args:
        home: of Spark.
        arguments: of spark-submit.
        folder: a folder of this run alone, in which it runs.
        environment: of spark-submit. Variables that would change the run are left out.
        seconds: after which it is stopped.
        began: the time from which they count, if an earlier run used some of them (`time.monotonic`).

    Returns:
        How it failed, or None if it did not, and its output.

    Raises:
        OSError: it can't be started.
    """
    kept = {name: value for name, value in environment.items() if name not in _OF_OTHER_RUNS}
    # A file, not a pipe: processes that spark-submit started could keep a pipe open.
    with (folder / "output.txt").open("w+", errors="replace") as output:
        process = subprocess.Popen(
            [f"{home}/bin/spark-submit", *arguments],
            cwd=folder,
            env={**kept, "SPARK_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=dying_with_parent(),
        )
        code = _wait(process, seconds if began is None else began + seconds - time.monotonic())
        output.seek(0)
        end = f"was stopped after {seconds:.1f} s" if code is None else f"ended with exit code {code}"
        return f"spark-submit {end}" if code != 0 else None, output.read()


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except BaseException as exc:
        os.killpg(process.pid, signal.SIGKILL)  # the group, because it includes the Python of the run
        process.wait()
        if not isinstance(exc, subprocess.TimeoutExpired):
            raise
        return None


def tail_of(output: str) -> str:
    r"""Return the last useful lines of Spark's output, without Java's stack traces and without passwords in URLs.

    >>> tail_of("module not found\n\tat a.b(C.scala:1)\nhttps://me:secret@mirror/x")
    'module not found\nhttps://***@mirror/x'
    """
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith("\tat ")]
    return without_passwords("\n".join(lines[-_TAIL_LINES:]))


def without_passwords(text: str) -> str:
    """Return a text without users and passwords in URLs."""
    return _USER_IN_URL.sub("://***@", text)
