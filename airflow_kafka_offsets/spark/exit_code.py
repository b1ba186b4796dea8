"""Ends a job with exit code 1 if it took a window and did not read all of it.

The launcher commits the window if the job's exit code is 0. So at the end of the process, this module checks each read that the
job did not check. If a read is incomplete, or was never run, the process ends with exit code 1.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Protocol

EXIT_CODE = 1

_HAS_CONSOLE = bool(sys.flags.inspect)
"""Whether a console follows the job (python -i). Python 3.14 takes the flag back when the console begins."""


class Reading(Protocol):
    """What this module needs of a window."""

    id: str

    @property
    def is_unread(self) -> bool:
        """Whether the job did not begin to read it."""

    @property
    def is_unfinished(self) -> bool:
        """Whether a read was not checked, or a write failed."""

    def finish(self) -> None:
        """Check the read."""

    def release(self) -> None:
        """Let Spark forget kept frames."""


_guarded: list[Reading] = []
_hook_before: Callable[..., Any] | None = None
_is_failing = False
"""Whether the process ends by an uncaught exception."""


def arm(window: Reading) -> None:
    """Check this window when the process ends."""
    global _hook_before
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)
    if _hook_before is None:
        _hook_before, sys.excepthook = sys.excepthook, _note_uncaught
    if window not in _guarded:
        _guarded.append(window)


def _note_uncaught(kind: type[BaseException], exc: BaseException, traceback: TracebackType | None) -> None:
    global _is_failing
    _is_failing = _ends_process(exc) and not _is_program_running(sys._getframe())
    if _hook_before is not None:
        _hook_before(kind, exc, traceback)


def _ends_process(exc: BaseException) -> bool:
    """Whether this error ends the process: a job may call the hook itself, and then continue."""
    # Python notes the error before it calls the hook. An exit callback of the job, which reports an error, does not.
    is_noted = getattr(sys, "last_value", None) is exc
    return is_noted and not _HAS_CONSOLE and threading.current_thread() is threading.main_thread()


def _is_program_running(frame: FrameType | None) -> bool:
    """Whether the program's own module is among the callers, for example of a C library that calls PyErr_Print."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            return True
        frame = frame.f_back
    return False


def disarm() -> None:
    """Forget all windows until one is taken or read again: for a notebook or a test, whose process does not end with its job."""
    global _hook_before, _is_failing
    atexit.unregister(_at_exit)
    if _hook_before is not None and sys.excepthook is _note_uncaught:
        sys.excepthook, _hook_before = _hook_before, None
    _is_failing = False
    _guarded.clear()


def _at_exit() -> None:
    try:
        for window in _guarded:
            window.release()
    finally:
        _check()


def _check() -> None:
    # An uncaught exception has its own message and exit code. After sys.exit(n) nothing shows n: an incomplete read replaces it by
    # ours, which is not 0 either.
    if _is_failing:
        return
    for window in _guarded:
        try:
            if window.is_unfinished:
                window.finish()
        except BaseException as exc:
            _fail(f"{type(exc).__name__}: {exc}")
    # If a window was taken twice, for example in two sessions, one read is enough.
    unread = {window.id for window in _guarded} - {window.id for window in _guarded if not window.is_unread}
    if unread:
        _fail(f"the job took window {', '.join(sorted(unread))} and did not read it")


def _fail(why: str) -> None:
    print(
        f"airflow_kafka_offsets: exit code {EXIT_CODE}, nothing is committed: {why}",
        file=sys.stderr,
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_CODE)  # sys.exit() has no effect here
