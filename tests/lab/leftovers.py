"""Folders of runs that were killed: they hold a lock as long as they live, so whoever can have it knows that they are dead."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from tests.lab.memory import IN_MEMORY

LAB_DB = "lab-db-"
"""How the folders of our database servers begin."""

LONG_AGO = 3600
"""Seconds. A lock is held an instant after its file is there: only a young file says nothing when it can be had."""

_PREFIXES = (
    LAB_DB,
    "kafka-offsets-",
)  # the second: of tasks (`operators.job_files.task_folder`), which lock theirs likewise
_LOCK = "lock"

_held: list[IO[str]] = []


def hold(folder: Path) -> None:
    """Say until the end of this process, however that comes, that someone works in a folder."""
    lock = (folder / _LOCK).open("w")
    lock.write(platform.node())
    lock.flush()
    fcntl.flock(lock, fcntl.LOCK_EX)
    _held.append(lock)


def sweep(*places: Path) -> None:
    """Remove what no living process works in; without places, where the lab and its tasks make their folders."""
    for place in places or {Path(tempfile.gettempdir()), Path(IN_MEMORY or tempfile.gettempdir())}:
        for prefix in _PREFIXES:
            for folder in place.glob(f"{prefix}*"):
                # It may go at any moment: another run sweeps too.
                with suppress(OSError):
                    if _is_dead(folder):
                        shutil.rmtree(folder)


def _is_dead(folder: Path) -> bool:
    if not stat.S_ISDIR(folder.lstat().st_mode):
        return False
    with (folder / _LOCK).open("r+") as lock:
        found = os.fstat(lock.fileno())
        is_ours = found.st_uid == os.geteuid() and lock.read() == platform.node()
        if not is_ours or time.time() - found.st_mtime < LONG_AGO:
            return False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # an OSError: someone has it
    return True
