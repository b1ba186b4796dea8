"""Kill a server when the process that started it is gone: `python guard.py PID`, with a pipe from that process as stdin.

A test run that is killed itself (SIGKILL, out of memory) cannot stop its servers any more.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

import psutil


def main() -> None:
    """Wait for the end of stdin, then kill the process, its session and its descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):
        # Opened before the wait: an id that is given to another process later is not this process.
        leader = psutil.Process(int(sys.argv[1]))
        sys.stdin.read()
        offspring = leader.children(recursive=True)
        os.killpg(leader.pid, signal.SIGKILL)
        for process in offspring:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


if __name__ == "__main__":
    main()
