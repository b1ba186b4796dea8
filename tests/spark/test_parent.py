"""A Python job dies with the JVM that started it, and with nothing else; the processes of a worker die with the worker."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from tests.lab.processes import wait_until

# Stands for the JVM: what matters is who is whose parent.
PARENT = """
import subprocess, sys, time
job = "from airflow_kafka_offsets.spark.parent import die_with_jvm as d; d(); print('ready', flush=True); import time; time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", job], stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""


def orphan(**environment: str) -> psutil.Process:
    """Return a job whose parent was killed."""
    ours = {name: value for name, value in os.environ.items() if name != "PYSPARK_GATEWAY_PORT"}
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**ours, **environment}) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    return child


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent's death")
def test_a_job_dies_with_its_jvm() -> None:
    child = orphan(PYSPARK_GATEWAY_PORT="1")
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, what="the job dies")


def test_a_job_that_no_jvm_started_outlives_the_shell_that_did() -> None:
    child = orphan()
    assert child.status() != psutil.STATUS_ZOMBIE
    child.kill()


WORKER = """
import subprocess, sys, time
from airflow_kafka_offsets.spark.parent import dying_with_parent
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], preexec_fn=dying_with_parent())
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent's death")
@pytest.mark.slow
def test_a_child_dies_with_its_killed_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    assert child.is_running()
    parent.kill()
    parent.wait()
    wait_until(lambda: not child.is_running(), what="the child dies")
