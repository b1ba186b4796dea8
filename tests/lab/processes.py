"""Run a server program in its own session, wait until it answers, stop it by its process id."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

import psutil

from tests.lab import guard
from tests.lab.waiting import LONGEST, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

LOOPBACK = "127.0.0.1"

# Below Linux's ephemeral range: there, any outgoing connection could take the port of a server that is stopped for a while.
_PORTS = range(20_000, 32_000)
_PARTS = 16
_given_out: set[int] = set()

PART_OF_PORTS = "KAFKA_OFFSETS_LAB_PORTS"
"""Environment variable: which part of the ports a process draws from, if it is none of pytest-xdist's: `shared`."""

_NO_PROXY = ("no_proxy", "NO_PROXY")

refused_to: str | None = None
"""The test that is running, if it has no marker of a server."""


class ServerError(Exception):
    """A server that did not start, or died; its message ends with the last lines of the server's log."""


def reach_loopback_directly() -> None:
    """Keep requests to our servers away from the proxy of this machine, if it has one: those of this process and of its children."""
    there = [host.strip() for name in _NO_PROXY for host in os.environ.get(name, "").split(",") if host.strip()]
    if "*" in there:  # it works only alone
        return
    direct = ",".join(dict.fromkeys([*there, LOOPBACK, "localhost"]))
    for name in _NO_PROXY:
        if os.environ.get(name) != direct:  # threads may read the environment meanwhile
            os.environ[name] = direct


def free_port() -> int:
    """Return a loopback port that no one listens on, and that this process did not hand out before."""
    while True:
        port = random.choice(_own_ports(os.environ.get(PART_OF_PORTS) or os.environ.get("PYTEST_XDIST_WORKER")))
        if port not in _given_out and _can_bind(port):
            _given_out.add(port)
            return port


def _own_ports(process: str | None) -> range:
    """Return the part of a process: what another one has drawn and not used yet, no one can see.

    Args:
        process: `gw0` and so on, or `shared`. None is a process that has all ports.
    """
    if process is None:
        return _PORTS
    size = len(_PORTS) // _PARTS
    part = 0 if process == "shared" else 1 + int(process.removeprefix("gw")) % (_PARTS - 1)
    return _PORTS[part * size : (part + 1) * size]


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def accepts_connections(port: int) -> bool:
    """Tell whether something listens on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _start_guard(pid: int) -> subprocess.Popen[bytes]:
    # In a session of its own: what kills our process group must not kill the guard.
    return subprocess.Popen([sys.executable, guard.__file__, str(pid)], stdin=subprocess.PIPE, start_new_session=True)


def is_dead(process: psutil.Process) -> bool:
    """Tell whether a process has ended, also if no one reaps it: a container's first process may leave its orphans alone."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Server:
    """One process in a session of its own, and everything it starts itself.

    Args:
        name: How messages call it.
        command: Program and arguments.
        log: File that gets stdout and stderr; a restart appends.
        ready: Tells whether the server answers; an OSError, as of a client that got no answer, says no. Asked until it does.
        timeout: Seconds that it may take to get ready.
        stop_timeout: Seconds that it may take to stop; then it is killed.
        environment: The whole environment; None inherits ours.
        directory: Working directory; None inherits ours.
        user: Account to run as; None keeps ours.
        stop_signal: What the program takes as a request to stop soon.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | os.PathLike[str]],
        *,
        log: Path,
        ready: Callable[[], bool],
        timeout: float = LONGEST,
        stop_timeout: float = 60,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        user: str | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.command = command
        self.log = log
        self._timeout = timeout
        self._stop_timeout = stop_timeout
        self._ready = ready
        self._refusal = ""
        self._environment = environment
        self._directory = directory
        self._user = user
        self._stop_signal = stop_signal
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._left_behind: list[psutil.Process] | None = None
        self._pid_elsewhere: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Give another process a copy that knows the server's id; only whoever started it can stop it."""
        mine = dict.fromkeys(("_process", "_guard", "_left_behind", "_ready"))
        return {**self.__dict__, **mine, "_pid_elsewhere": self._process.pid if self._process else None}

    @property
    def pid(self) -> int:
        """Id of the running process, which is the id of its session and process group too."""
        if self._process is not None:
            return self._process.pid
        if self._pid_elsewhere is not None:
            return self._pid_elsewhere
        raise ServerError(f"{self.name} is not running")

    @property
    def is_ours(self) -> bool:
        """Tell whether this process starts and stops it, and another one does not."""
        return self._process is not None or self._pid_elsewhere is None

    @property
    def is_running(self) -> bool:
        """Tell whether the process was started and has not ended."""
        return self._process is not None and not self._has_ended()

    def start(self) -> Self:
        """Start the program and wait until it is ready."""
        self.launch()
        self.wait_ready()
        return self

    def launch(self) -> None:
        """Start the program and return at once, so that several can get ready side by side."""
        if refused_to is not None:
            raise ServerError(f"{refused_to} starts {self.name}, and has no marker of a server: mark it `server`")
        if self.is_running:
            raise ServerError(f"{self.name} is running already, process {self.pid}")
        reach_loopback_directly()  # not only for tests: the demo and the benchmark start servers, too
        self.log.parent.mkdir(parents=True, exist_ok=True)
        account = {"user": self._user, "group": self._user, "extra_groups": []} if self._user else {}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [os.fspath(part) for part in self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=self._environment,
                start_new_session=True,
                **account,  # type: ignore[arg-type]
            )
        # Two nets under the context manager: for an exit that unwinds no stack, and for our own sudden death.
        atexit.register(self.kill)
        self._guard = _start_guard(self.pid)

    def wait_ready(self) -> None:
        """Return when the server answers; stop it and raise `ServerError` when it dies or takes too long."""
        try:
            wait_until(
                lambda: self._has_ended() or self._answers(),
                seconds=self._timeout,
                what=f"{self.name} is ready",
            )
            if self._has_ended():
                raise ServerError(
                    f"{self.name} ended with status {self._status()} before it was ready\n{self.log_tail()}"
                )
        except TimeoutError as overdue:
            self.kill()
            raise ServerError(
                f"{self.name} did not answer within {self._timeout:g} s{self._refusal}\n{self.log_tail()}"
            ) from overdue
        except BaseException:
            self.kill()
            raise

    def _answers(self) -> bool:
        try:
            return bool(self._ready())
        except OSError as error:  # every `requests.RequestException` is one
            self._refusal = f", at last {error!r}"
            return False

    def ask_to_stop(self) -> None:
        """Send the stop signal and return at once, so that several can stop side by side; `stop` waits."""
        if self._process is None or self._left_behind is not None:
            return
        self._left_behind = self._offspring()  # taken now: later they are no one's children
        if not self._has_ended():
            self._process.send_signal(signal.SIGCONT)  # a suspended process would not see the next signal
            self._process.send_signal(self._stop_signal)

    def stop(self) -> None:
        """Ask the process to stop and wait for it; kill what it left behind. Does nothing when it is not running."""
        if self._process is None:
            return
        try:
            self.ask_to_stop()
            wait_until(self._has_ended, seconds=self._stop_timeout, what=f"{self.name} stops")
        except TimeoutError:
            pass
        finally:
            self._kill_with(self._left_behind or [])

    def kill(self) -> None:
        """SIGKILL the process and all that it started, as a crash of its machine would."""
        if self._process is not None:
            self._kill_with(self._offspring())

    def _kill_with(self, offspring: list[psutil.Process]) -> None:
        assert self._process is not None
        atexit.unregister(self.kill)
        # The leader is not reaped yet, also when it has ended: so its id cannot belong to someone else's group.
        self._signal_group(signal.SIGKILL)
        for (
            process
        ) in offspring:  # those that made a session of their own; psutil knows when an id was given to another
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        # Until then they have its ports and its shared memory, and a start on the same data is refused.
        wait_until(lambda: all(map(is_dead, offspring)), what=f"all that {self.name} started has ended", interval=0.01)
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
        self._guard = None
        self._process = None
        self._left_behind = None

    def _offspring(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def suspend(self) -> None:
        """Halt the process and its session: connections stay open, nothing answers."""
        self._signal_group(signal.SIGSTOP)
        # On a busy machine its threads go on for a while, until the one that takes the signal is given a processor.
        leader = psutil.Process(self.pid)
        wait_until(lambda: leader.status() == psutil.STATUS_STOPPED, what=f"{self.name} halts")

    def resume(self) -> None:
        """Let a suspended process go on."""
        self._signal_group(signal.SIGCONT)

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of the log under a line that names the file."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join([f"--- last lines of {self.log}", *text.splitlines()[-lines:]])

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS says "not permitted" for a group of zombies
            if number is not signal.SIGKILL:
                raise

    def _has_ended(self) -> bool:
        return self._exit() is not None

    def _status(self) -> int | None:
        ended = self._exit()
        return ended.si_status if ended else None

    def _exit(self) -> os.waitid_result | None:
        assert self._process is not None
        # WNOWAIT leaves the zombie, see kill().
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class ServerPair:
    """What is two processes, of which the second works for the first."""

    def _servers(self) -> tuple[Server, Server]:
        raise NotImplementedError

    def revive(self) -> None:
        """Start both again if one of them has died."""
        if not all(server.is_running for server in self._servers()):
            self.stop()
            self.start()

    def _prepare(self) -> None:
        """Get ready for a start."""

    def start(self) -> Self:
        """Start both, on the data of their last run if there is any, and wait until they answer."""
        self._prepare()
        for server in self._servers():
            server.launch()
        for server in self._servers():
            server.wait_ready()
        return self

    def stop(self) -> None:
        """Stop both, and with the second whatever it runs."""
        servers = self._servers()[::-1]
        for server in servers:
            server.ask_to_stop()
        for server in servers:
            server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class OneServer:
    """What is one process, and what can be done to it; `start` prepares it where there is more to do."""

    _server: Server

    @property
    def pid(self) -> int:
        """Id of the running process."""
        return self._server.pid

    def start(self) -> Self:
        """Start it, on the data of its last run if there is any, and wait until it answers."""
        self._server.start()
        return self

    def revive(self) -> None:
        """Start it again if it has died; what another process started, that one revives."""
        if self._server.is_ours and not self._server.is_running:
            self.stop()
            self.start()

    def stop(self) -> None:
        """Shut down in good order."""
        self._server.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self._server.kill()

    def suspend(self) -> None:
        """Keep the connections open but answer nothing."""
        self._server.suspend()

    def resume(self) -> None:
        """Answer again."""
        self._server.resume()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def command_lines() -> list[str]:
    """Return the command line of every process of this machine."""
    lines = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            lines.append(" ".join(process.cmdline()))
    return lines
