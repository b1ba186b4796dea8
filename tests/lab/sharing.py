"""Servers that several processes of a test run use at once: whoever asks first starts them, and they stop when the last has left.

They run in a process of their own, which writes down what others must know of them. A lock that the kernel lets go with its
holder says who uses them, so that they stop also when all were killed.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import psutil

from tests.lab.processes import PART_OF_PORTS, ServerError
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).parents[2]
_LOOK_SECONDS = 0.5


@contextmanager
def shared(folder: Path, command: Sequence[str], *, what: str) -> Iterator[Any]:
    """Give what the servers of a folder have written of themselves.

    Args:
        folder: Where they say so; made if it is missing.
        command: Starts them if no one did. It calls `serve` when they are up.
        what: Their name, for messages.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "starting").open("a") as starting, (folder / "users").open("a") as users:
        fcntl.flock(starting, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        if not _is_running(folder):
            _start(folder, command, what=what)
        fcntl.flock(starting, fcntl.LOCK_UN)
        yield _read(folder)[1]


def serve(
    folder: Path,
    process_id: int,
    facts: object,
    *,
    meanwhile: Callable[[], object] = lambda: None,
    linger: float = 0,
) -> None:
    """Tell others of servers that are up, and return when no one uses them any more.

    Args:
        folder: As given to `shared`.
        process_id: The process that runs them.
        facts: What others get; must be picklable.
        meanwhile: Called again and again, for example to start again what has died; also after a `ServerError` of it.
        linger: Seconds that they wait for someone after the last user has left, as long as the process that started them
            is there: it may come back.
    """
    draft = _facts(folder).with_suffix(".new")
    draft.write_bytes(pickle.dumps((process_id, facts)))
    starter = os.getppid()
    used = time.monotonic()
    with (folder / "users").open("a") as users:
        draft.rename(_facts(folder))
        while True:
            if not _is_mine(users):
                used = time.monotonic()
            elif time.monotonic() - used >= linger or os.getppid() != starter:
                break
            fcntl.flock(users, fcntl.LOCK_UN)
            try:
                meanwhile()
            except ServerError:  # it may start the next time; in the log there is why it did not
                traceback.print_exc()
            time.sleep(_LOOK_SECONDS)
        # Whoever comes now finds nothing here, and starts others.
        _facts(folder).unlink()


def _is_mine(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _facts(folder: Path) -> Path:
    return folder / "facts.pickle"


def _read(folder: Path) -> tuple[int, Any]:
    found: tuple[int, Any] = pickle.loads(_facts(folder).read_bytes())
    return found


def _is_running(folder: Path) -> bool:
    if not _facts(folder).exists():
        return False
    try:
        return psutil.Process(_read(folder)[0]).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _start(folder: Path, command: Sequence[str], *, what: str) -> None:
    _facts(folder).unlink(missing_ok=True)
    log = folder / "server.log"
    with log.open("ab") as opened:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, PART_OF_PORTS: "shared"},
            stdin=subprocess.DEVNULL,
            stdout=opened,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C is for the tests: they tear down what they have, and let go
        )
    wait_until(
        lambda: _facts(folder).exists() or process.poll() is not None,
        what=f"{what} are started",
        interval=0.2,
    )
    if not _facts(folder).exists():
        raise ServerError(f"{what} could not be started\n--- {log}\n{log.read_text()[-4000:]}")
