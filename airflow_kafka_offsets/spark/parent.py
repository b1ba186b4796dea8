"""A Python job that does not outlive its JVM: who kills a driver kills its JVM, and Python would go on without it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_STARTED_BY_JVM = "PYSPARK_GATEWAY_PORT"


def die_with_jvm() -> None:
    """Let the kernel kill this process when the JVM dies that started it; where no JVM did, or on no Linux, do nothing.

    Spark alone leaves the process behind: it fails at its next word to Spark, and does until then whatever else it does.
    """
    if sys.platform != "linux" or _STARTED_BY_JVM not in os.environ:
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os.kill(os.getpid(), signal.SIGKILL)
