"""Waiting that stands bad weather: what takes a while on a quiet machine may take many times as long on a busy one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")

ANSWER = 240
"""Seconds by the clock that a client waits for an answer that comes: on a busy machine, it may take a minute."""
LONGEST = 900
"""Seconds by the clock after which whoever waits for a thread or a process gives up: on a busy machine, it may need minutes."""

_MOST_EXTENSIONS = 5
_SHORTEST_PAUSE = 0.25
_LONGEST_PAUSE = 2.0
_LONGEST_PAUSE_WITH_SIGN = 1.0
"""A dozen who look for their signs four times a second, for minutes, take a tenth of a core."""
_LONGEST_INTERVAL = 0.25


class Patience:
    """A deadline in seconds of a machine that has a core for everything that wants to run.

    While twice as many threads want to run as there are cores, a second counts as half of one. When the seconds are over,
    but something has moved since the last look, they begin again, five times at most.

    Args:
        seconds: How long it may take on a quiet machine.
        progress: Returns a value that changes while whoever is waited for gets on; asked only when the seconds are over.
        sign: Returns a value that changes when another look is worth while; it costs less than the look.
        clock: Returns seconds.
        crowd: Returns how many threads want to run for each core, at least 1.
    """

    def __init__(
        self,
        seconds: float,
        progress: Callable[[], object] | None = None,
        *,
        sign: Callable[[], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        crowd: Callable[[], float] | None = None,
    ) -> None:
        self.seconds = seconds
        self._progress = progress
        self._clock = clock
        self._crowd = crowd or crowd_of_this_machine
        self._left = seconds
        self._extensions = 0 if progress is None else _MOST_EXTENSIONS
        self._seen = None if progress is None else progress()
        self._looked_at = clock()
        self._pause = _SHORTEST_PAUSE
        self._sign = sign
        self._signed = None if sign is None else sign()

    def pause(self) -> None:
        """Wait until the next look: until its sign, or the longer whoever is waited for takes, the more seldom."""
        if self._sign is None:
            time.sleep(self._pause)
            self._pause = min(self._pause * 1.25, _LONGEST_PAUSE)
            return
        before, pause = self._signed, _SHORTEST_PAUSE
        while (now := self._sign()) == before and not self.is_over():
            time.sleep(pause)
            pause = min(pause * 1.25, _LONGEST_PAUSE_WITH_SIGN)
        self._signed = now

    def is_over(self) -> bool:
        """Whether the time is over, and nothing has moved."""
        now = self._clock()
        self._left -= (now - self._looked_at) / self._crowd()
        self._looked_at = now
        return self._left <= 0 and not self._begins_again()

    def _begins_again(self) -> bool:
        if self._progress is None or self._extensions == 0:
            return False
        before, self._seen = self._seen, self._progress()
        if self._seen == before:
            return False
        self._extensions -= 1
        self._left = self.seconds
        return True


def wait_until(
    condition: Callable[[], T],
    *,
    timeout: float,
    what: str,
    interval: float = 0.05,
    progress: Callable[[], object] | None = None,
) -> T:
    """Poll until the condition holds, and return its value; `TimeoutError` says what was waited for.

    Args:
        condition: What is waited for.
        timeout: Seconds that it may take on a quiet machine; see `Patience`.
        what: The condition in words.
        interval: Seconds between two looks at the beginning; later they are more seldom.
        progress: See `Patience`.
    """
    patience = Patience(timeout, progress)
    began = time.monotonic()
    while not (value := condition()):
        if patience.is_over():
            raise TimeoutError(f"waited {timeout:g} s in vain ({time.monotonic() - began:.0f} s by the clock): {what}")
        # Who has waited for long does not have to know at once.
        time.sleep(max(interval, min((time.monotonic() - began) / 20, _LONGEST_INTERVAL)))
    return value


def run_to_end(
    command: Sequence[Any], *, timeout: float, text_in: str | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command and return how it ended and what it said; one that takes too long is killed.

    Args:
        command: The program and its arguments.
        timeout: Seconds that it may take on a quiet machine; see `Patience`.
        text_in: What it reads.
        options: Of `subprocess.Popen`.

    Raises:
        subprocess.TimeoutExpired: It took too long; with what it said.
    """
    pipes = {} if text_in is None else {"stdin": subprocess.PIPE}
    pipes |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes, **options) as process:
        out, err = output_of(process, timeout=timeout, text_in=text_in)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def output_of(process: subprocess.Popen[str], *, timeout: float, text_in: str | None = None) -> tuple[str, str]:
    """Return what a process says until it ends, as `Popen.communicate`; see `run_to_end`."""
    patience = Patience(timeout)
    while True:
        try:
            return process.communicate(text_in, timeout=_LONGEST_PAUSE)
        except subprocess.TimeoutExpired:
            text_in = None  # it is on its way
            if patience.is_over():
                process.kill()
                out, err = process.communicate()
                raise subprocess.TimeoutExpired(process.args, timeout, out, err) from None


def crowd_of_this_machine() -> float:
    """Return how many threads want to run for each core that this process may use, at least 1."""
    return max(1.0, _runnable() / cores())


def cores(groups: Path = Path("/sys/fs/cgroup")) -> float:
    """Return how many cores this thread may use: those of its affinity, or less when its control group gets less of them.

    Args:
        groups: Where control groups (version 2) are.
    """
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        allowed = os.cpu_count() or 1
    return min([float(allowed), *_shares(groups)])


def _shares(groups: Path) -> Iterator[float]:
    """Yield how many cores our control group, and each one around it, gets; in a container, the first to be seen is its own."""
    try:
        own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::/"))
    except (OSError, StopIteration):
        own = "0::/"
    place = groups / own.removeprefix("0::/")
    for group in (place, *place.parents):
        with contextlib.suppress(OSError):
            quota, period = (group / "cpu.max").read_text().split()
            if quota != "max":
                yield int(quota) / int(period)
        if group == groups:
            return


def _runnable() -> float:
    try:
        with open("/proc/loadavg") as file:
            return float(file.read().split()[3].partition("/")[0])
    except FileNotFoundError:  # not Linux
        return psutil.getloadavg()[0]
