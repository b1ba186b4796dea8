"""Processes that can be killed, as forks of one that has loaded already what takes them seconds to import.

That one is `python -m tests.lab.forks MODULE...`, and each MODULE is imported before the first fork. For each line of JSON on
stdin, ``{"call": "module:function", "given": ..., "log": ..., "environment": {...}}``, a fork calls the function with what is given,
and its process id is printed. It has this environment and no other, and writes to the log. When it is over, its exit code lies
in a file beside the log.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import traceback
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import psutil

from tests.lab.sharing import ROOT
from tests.lab.waiting import LONGEST, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping


class Fork:
    """A process of its own.

    Args:
        pid: its id.
        log: the file that it writes to.
    """

    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self._log = log

    @property
    def log(self) -> str:
        """What it wrote."""
        return self._log.read_text(errors="replace")

    @property
    def is_alive(self) -> bool:
        """Whether it goes on."""
        # Who began it writes the file, and may be gone.
        return not _exit_file(self._log, self.pid).exists() and psutil.pid_exists(self.pid)

    def wait(self, timeout: float = 400) -> int:
        """Wait for its end, and return its exit code; the number of a signal is negative."""
        try:
            wait_until(lambda: not self.is_alive, what=f"the end of process {self.pid}")
        except TimeoutError as exc:
            raise TimeoutError(f"{exc}\n{self.log[-6000:]}") from None
        return int(_exit_file(self._log, self.pid).read_text())

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens to one that is over."""
        if self.is_alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, as by the kernel; wait for the end."""
        self.send_signal(signal.SIGKILL)
        self.wait()


class Forks:
    """What begins them.

    Args:
        preloaded: modules.
    """

    def __init__(self, *preloaded: str) -> None:
        # What is imported reads Airflow's settings: not those of whoever runs the tests.
        self._home = TemporaryDirectory(prefix="lab-forks-")
        self._command = [sys.executable, "-m", "tests.lab.forks", *preloaded]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        environment = {**os.environ, "AIRFLOW_HOME": self._home.name}
        return subprocess.Popen(
            self._command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def begin(self, call: str, given: Mapping[str, Any], log: Path, environment: Mapping[str, str]) -> Fork:
        """Begin a process.

        Args:
            call: ``module:function``.
            given: the function's keyword arguments, which JSON can tell.
            log: the file that it appends to.
            environment: all of it.
        """
        asked = {"call": call, "given": given, "log": str(log), "environment": dict(environment)}
        log.touch()
        if self._process.poll() is not None:  # a test's failure is not that of the next one
            self._process = self._start()
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.strip().isdigit():  # what is imported, too, may have something to say
                return Fork(int(line), log)
        raise RuntimeError("there is no one to begin a process any more")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Begin no more."""
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(LONGEST)
        finally:
            self._process.kill()
            self._home.cleanup()


def _exit_file(log: Path, pid: int) -> Path:
    return log.parent / f"exit-{pid}"


def _begin(asked: Mapping[str, Any]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    atexit._clear()
    for number, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY | os.O_APPEND), (2, os.O_WRONLY | os.O_APPEND)):
        os.dup2(os.open(asked["log"] if number else os.devnull, flags), number)
    os.environ.clear()
    os.environ.update(asked["environment"])
    module, _, function = asked["call"].partition(":")
    code = 1
    try:
        getattr(import_module(module), function)(**asked["given"])
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # As the fork of an Airflow worker does: what was registered after the fork runs, and no one waits for threads.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve() -> None:
    logs: dict[int, Path] = {}

    def reap(*_: Any) -> None:
        while logs:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            pid, number = ended.si_pid, ended.si_status
            path = _exit_file(logs.pop(pid), pid)
            path.with_suffix(".draft").write_text(str(number if ended.si_code == os.CLD_EXITED else -number))
            path.with_suffix(".draft").rename(path)
            os.waitpid(pid, 0)  # no one finds it gone, and no file

    signal.signal(signal.SIGCHLD, reap)
    for line in sys.stdin:
        asked = json.loads(line)
        # A child that ends at once must find itself in `logs`.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = os.fork()
        if pid == 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            _begin(asked)
        logs[pid] = Path(asked["log"])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        print(pid, flush=True)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        import_module(name)
    # A fork that looks for garbage in all of it gets a copy of each page, which takes half of its CPU.
    gc.freeze()
    _serve()
