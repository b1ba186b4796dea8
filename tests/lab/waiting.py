"""Waiting for what happens in another thread, process or server. Deadlines are generous, as the machine may be busy: they only end what hangs."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

ANSWER = 240
"""Seconds that a client waits for an answer."""
LONGEST = 900
"""Seconds after which whoever waits for a thread, a process or a server gives up."""


def wait_until(condition: Callable[[], T], *, what: str, seconds: float = LONGEST, interval: float = 0.1) -> T:
    """Ask until the condition holds, and return its value.

    Args:
        condition: What is waited for.
        what: The condition in words, for the error.
        seconds: When it is an error.
        interval: Seconds between two questions.

    Raises:
        TimeoutError: It did not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s in vain: {what}")
        time.sleep(interval)
    return value


def run_to_end(
    command: Sequence[Any], *, text_in: str | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command; return its exit code and what it wrote.

    Args:
        command: The program and its arguments.
        text_in: Its standard input; None inherits ours.
        options: Further ones for `subprocess.run`.
    """
    return subprocess.run(
        command, input=text_in, capture_output=True, text=True, timeout=LONGEST, check=False, **options
    )
