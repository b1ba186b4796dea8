"""What is downloaded or made once a machine, for all clones of this repository.

It lies in `~/.cache/kafka-offsets-lab`, or below XDG_CACHE_HOME, or where KAFKA_OFFSETS_LAB_CACHE says. The name of each thing
there holds all that it depends on: clones of different versions use the folder side by side.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder that these environment variables name."""
    if named := environment.get("KAFKA_OFFSETS_LAB_CACHE"):
        return Path(named).absolute()
    # The specification of XDG says to ignore what is not absolute.
    xdg = Path(environment.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "kafka-offsets-lab"


CACHE = cache_folder(os.environ)

PROVIDER_CACHE = CACHE / "provider"
"""What the operators of the tests keep between launches: the jars of Spark's Kafka connector, and the archive that Spark starts from."""


@contextlib.contextmanager
def one_at_a_time(what: str) -> Iterator[None]:
    """Let a second thread or process wait until the first one has done this, instead of doing it, too."""
    locks = CACHE / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / what).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def workshop(what: str) -> Iterator[Path]:
    """Lend a folder to make things in; a rename or a link brings them from there to their place, where they are complete or absent.

    To be used by one at a time: what a process that was killed left behind is removed.
    """
    folder = CACHE / "work"
    folder.mkdir(parents=True, exist_ok=True)
    for left_behind in folder.glob(f"{what}.*"):
        shutil.rmtree(left_behind, ignore_errors=True)
    # Never the same name twice: a child of the one that was killed may still be writing.
    with tempfile.TemporaryDirectory(dir=folder, prefix=f"{what}.", ignore_cleanup_errors=True) as work:
        yield Path(work)


def keep(file: Path, text: str) -> None:
    """Write a file that others see complete or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as draft:
        draft.write(text)
    Path(draft.name).replace(file)
