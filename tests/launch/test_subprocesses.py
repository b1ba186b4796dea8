"""A killed parent takes its child along."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from tests.lab.processes import wait_until

PARENT = """
import subprocess, sys, time
from airflow_kafka_offsets.launch.subprocesses import dying_with_parent
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], preexec_fn=dying_with_parent())
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent's death")
@pytest.mark.slow
def test_a_child_dies_with_its_killed_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    assert child.is_running()
    parent.kill()
    parent.wait()
    wait_until(lambda: not child.is_running(), timeout=10, what="the child dies")
