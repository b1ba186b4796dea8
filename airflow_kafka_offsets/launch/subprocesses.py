"""Children that don't outlive their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def dying_with_parent() -> Callable[[], None] | None:
    """Return what Popen runs in the child before exec, so that the kernel kills the child with its parent; else None.

    Without it, the SIGKILL of a worker leaves spark-submit and its driver behind, beside the driver of the retry.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return before_exec
