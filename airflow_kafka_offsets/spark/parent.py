"""Processes that Linux kills together with their parent. On another system, nothing happens."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_STARTED_BY_JVM = "PYSPARK_GATEWAY_PORT"


def die_with_jvm() -> None:
    """Let the kernel kill this process with the JVM that started it, if there is one.

    Otherwise the process fails only at its next call to Spark, and does other work until then.
    """
    if _STARTED_BY_JVM in os.environ:
        _dying_with(os.getppid())()


def dying_with_parent() -> Callable[[], None]:
    """Return a function for Popen's preexec_fn that lets the kernel kill the child with this process.

    Otherwise a worker killed by SIGKILL leaves spark-submit and its driver running, next to the driver of the retry.
    """
    return _dying_with(os.getpid())


def _dying_with(parent: int) -> Callable[[], None]:
    if sys.platform != "linux":
        return lambda: None
    libc = ctypes.CDLL(None)  # not in the child: between fork and exec, it may wait for a lock that no one releases

    def die_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os.kill(os.getpid(), signal.SIGKILL)

    return die_with_parent
