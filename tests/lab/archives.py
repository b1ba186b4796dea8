"""Archives of classes: a JVM that starts from one has them loaded and checked already, which saves a server a third of its start.

They are made once a machine (`python -m tests.lab`). Where there is none, or one that does not fit, a JVM starts without it.
"""

from __future__ import annotations

import hashlib
import subprocess
from typing import TYPE_CHECKING

from tests.lab.cache import CACHE, one_at_a_time, workshop
from tests.lab.java import java, java_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

# What a JVM has to say of archives goes to stdout, where the answers of programs are.
_QUIETLY = "-Xlog:disable"


def archive_options(class_path: str) -> list[str]:
    """Return the options of a JVM that starts from the archive of its class path; none if there is no archive.

    Args:
        class_path: Jars only: Java takes no folder that holds anything.
    """
    archive = _archive_of(class_path)
    return _options(archive) if archive.exists() else []


def make_archive(class_path: str, run: Callable[[Sequence[str], Path], object]) -> Path | None:
    """Make the archive of a class path if there is none, and return it; None: it was not written, or is damaged.

    Args:
        class_path: As given to `archive_options`.
        run: Runs a JVM with this class path until it ends by itself, with the options that it gets, in a folder of its own.
    """
    archive = _archive_of(class_path)
    with one_at_a_time(archive.name), workshop(archive.name) as work:
        if not archive.exists():
            draft = work / "draft.jsa"
            run([f"-XX:ArchiveClassesAtExit={draft}", _QUIETLY], work)
            if not _is_good(draft, class_path):
                return None
            archive.parent.mkdir(parents=True, exist_ok=True)
            draft.rename(archive)
    return archive


def _options(archive: Path) -> list[str]:
    # It is checked at each start, as a JVM believes a damaged one and dies of it.
    return [f"-XX:SharedArchiveFile={archive}", "-XX:+VerifySharedSpaces", _QUIETLY]


def _is_good(archive: Path, class_path: str) -> bool:
    command = [java(), *_options(archive), "-Xshare:on", "-XX:+UseSerialGC", "-cp", class_path, "-version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _archive_of(class_path: str) -> Path:
    depends_on = f"{java_version(java())}\n{class_path}"
    return CACHE / "archives" / f"{hashlib.sha256(depends_on.encode()).hexdigest()[:16]}.jsa"
