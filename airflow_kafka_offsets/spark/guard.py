"""A job that took a window and did not read it, or read it and did not check it, must not end green.

The launcher commits when the job's exit code is 0. So at the end of the process the check is made up for, and when the read
turns out to be incomplete, or was never run, the process ends with exit code 1.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_kafka_offsets.spark.reading import WindowReading

EXIT_CODE = 1

_guarded: list[WindowReading] = []
_hook_before: Callable[..., Any] | None = None
_is_failing = False
"""Whether the process ends by an exception that no one caught."""


def arm(window: WindowReading) -> None:
    """Look at this window when the process ends."""
    _register()
    if window not in _guarded:
        _guarded.append(window)


def _register() -> None:
    global _hook_before
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)
    if _hook_before is None:
        _hook_before, sys.excepthook = sys.excepthook, _note_uncaught


def _note_uncaught(kind: type[BaseException], exc: BaseException, traceback: TracebackType | None) -> None:
    global _is_failing
    _is_failing = _ends_process(exc) and not _is_program_running(sys._getframe())
    if _hook_before is not None:
        _hook_before(kind, exc, traceback)


def _ends_process(exc: BaseException) -> bool:
    """Tell whether Python reports the error that ends the process; others call the hook, too, and the job goes on or ends green."""
    # Python notes the error before it calls the hook; an exit callback of the job's own, which reports one, does not.
    is_noted = getattr(sys, "last_value", None) is exc
    # After python -i comes a console, and the exit code is that of the console.
    return is_noted and not sys.flags.inspect and threading.current_thread() is threading.main_thread()


def _is_program_running(frame: FrameType | None) -> bool:
    """Tell whether the program's own module is still among the callers: of a C library, say, that prints an error (PyErr_Print)."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            return True
        frame = frame.f_back
    return False


def disarm() -> None:
    """Forget all windows until one is taken or read again, for a process that does not end with its job: a notebook, a test."""
    global _hook_before, _is_failing
    atexit.unregister(_at_exit)
    if _hook_before is not None and sys.excepthook is _note_uncaught:
        sys.excepthook, _hook_before = _hook_before, None
    _is_failing = False
    _guarded.clear()


def _at_exit() -> None:
    # An uncaught exception has said already what is wrong, and has its own exit code. After sys.exit(n) there is no way to
    # see n: a read that is not complete turns it into ours, which is not 0 either way.
    if _is_failing:
        return
    for window in _guarded:
        _finish_or_exit(window)
    # Of a window that was taken twice, as in two sessions, one read is enough.
    unread = {window.id for window in _guarded} - {window.id for window in _guarded if not window.is_unread}
    if unread:
        _end_red(
            f"it took window {', '.join(sorted(unread))} and never called read(); a job that reads by other means takes "
            "the window's starting_offsets and ending_offsets"
        )


def _finish_or_exit(window: WindowReading) -> None:
    try:
        if window.is_unfinished:
            window.finish()
    except BaseException as exc:
        _end_red(f"its window is not finished: {type(exc).__name__}: {exc}")


def _end_red(why: str) -> None:
    print(
        f"airflow_kafka_offsets: the job ends with exit code {EXIT_CODE}, so that its window is not committed: {why}",
        file=sys.stderr,
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_CODE)  # sys.exit() has no effect here
