"""Children that don't outlive their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def dying_with_parent() -> Callable[[], None] | None:
    """Return a function for Popen's preexec_fn that lets the kernel kill the child with its parent; None: not on this system.

    Without it, a worker that is killed by SIGKILL leaves spark-submit and its driver running, next to the driver of the retry.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    parent = os.getpid()

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the line above
            os._exit(1)

    return before_exec
