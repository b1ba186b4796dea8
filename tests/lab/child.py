"""A function of the tests in a process of its own, which can be killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.lab.sharing import ROOT
from tests.lab.waiting import LONGEST

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Child:
    """Runs a function in a Python of its own.

    Args:
        call: ``module:function``.
        given: The function's keyword arguments, as JSON takes them.
        log: The file that gets its stdout and stderr.
        environment: All of it.
    """

    def __init__(self, call: str, given: Mapping[str, Any], log: Path, environment: Mapping[str, str]) -> None:
        module, _, function = call.partition(":")
        code = f"import json, sys; from {module} import {function} as call; call(**json.loads(sys.argv[1]))"
        self._log = log
        with log.open("ab") as opened:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, json.dumps(given)],
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=opened,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def log(self) -> str:
        """What it wrote."""
        return self._log.read_text(errors="replace")

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def wait(self) -> int:
        """Wait for its end; return its exit code, or the negative number of the signal that ended it."""
        try:
            return self._process.wait(LONGEST)
        except subprocess.TimeoutExpired as exc:
            raise TimeoutError(f"{exc}\n{self.log[-6000:]}") from None

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens after its end."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it, and wait for its end."""
        self.send_signal(signal.SIGKILL)
        self.wait()
