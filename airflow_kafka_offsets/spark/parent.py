"""A Python job that does not outlive its JVM: whoever kills a driver kills its JVM, and Python would continue without it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_STARTED_BY_JVM = "PYSPARK_GATEWAY_PORT"


def die_with_jvm() -> None:
    """Let the kernel kill this process when the JVM that started it dies; without such a JVM, or without Linux, do nothing.

    Spark alone leaves the process running: it fails at its next call to Spark, and continues with other work until then.
    """
    if sys.platform != "linux" or _STARTED_BY_JVM not in os.environ:
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os.kill(os.getpid(), signal.SIGKILL)
