"""How a process ends that read a window: green only after a check."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.lab.waiting import run_to_end

JOB = """
    import sys
    from airflow_kafka_offsets.spark import exit_code

    class Window:
        id = "lake.orders-000012"
        is_unread = False
        is_unfinished = True
        is_complete = False
        def finish(self):
            print("checked")
            if not self.is_complete:
                raise ValueError("55 of 57")
            self.is_unfinished = False
        def release(self):
            pass

    window = Window()
    exit_code.arm(window)

    unread = Window()
    unread.is_unread, unread.is_unfinished = True, False
"""


def end(tmp_path: Path, rest: str, *options: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(JOB) + textwrap.dedent(rest))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return run_to_end([sys.executable, *options, script], env=environment, text_in=typed)


def test_a_read_without_a_check_that_is_incomplete_ends_red(tmp_path: Path) -> None:
    job = end(tmp_path, "print('buffered')")
    assert job.returncode == 1
    assert job.stdout == "buffered\nchecked\n", "the output is not lost"
    assert "exit code 1, nothing is committed" in job.stderr
    assert "ValueError: 55 of 57" in job.stderr


def test_a_read_without_a_check_that_is_complete_ends_green(tmp_path: Path) -> None:
    job = end(tmp_path, "window.is_complete = True")
    assert (job.returncode, job.stdout, job.stderr) == (0, "checked\n", "")


def test_sys_exit_0_is_no_way_around(tmp_path: Path) -> None:
    assert end(tmp_path, "sys.exit(0)").returncode == 1


def test_a_failed_check_that_was_swallowed_ends_red(tmp_path: Path) -> None:
    job = end(tmp_path, "try: window.finish()\nexcept ValueError: pass")
    assert job.returncode == 1


@pytest.mark.parametrize(("rest", "code"), [("", 0), ("sys.exit(3)", 3)])
def test_after_a_check_the_exit_code_is_the_jobs_own(tmp_path: Path, rest: str, code: int) -> None:
    job = end(tmp_path, f"window.is_unfinished = False\n{rest}")
    assert (job.returncode, job.stdout, job.stderr) == (code, "", "")


@pytest.mark.parametrize(("ending", "code"), [("", 0), ("raise RuntimeError('mine')", 1), ("sys.exit(3)", 3)])
def test_what_spark_keeps_is_released_whatever_the_end(tmp_path: Path, ending: str, code: int) -> None:
    job = end(tmp_path, f"window.is_unfinished, window.release = False, lambda: print('released')\n{ending}")
    assert (job.returncode, job.stdout) == (code, "released\n")


def test_a_release_that_fails_is_no_way_around(tmp_path: Path) -> None:
    job = end(tmp_path, "window.release = lambda: sys.exit(0)")
    assert (job.returncode, job.stdout) == (1, "checked\n")


def test_a_job_that_fails_by_itself_is_left_alone(tmp_path: Path) -> None:
    job = end(tmp_path, "raise RuntimeError('mine')")
    assert job.returncode == 1
    assert "RuntimeError: mine" in job.stderr
    assert job.stdout == "", "no check: it could only hide the reason"
    assert "not committed" not in job.stderr


def test_disarmed_there_is_no_guard(tmp_path: Path) -> None:
    job = end(tmp_path, "exit_code.disarm()")
    assert (job.returncode, job.stdout, job.stderr) == (0, "", "")


def test_armed_again_after_disarm_and_only_once(tmp_path: Path) -> None:
    job = end(tmp_path, "exit_code.disarm(); exit_code.arm(window); exit_code.arm(window); window.is_complete = True")
    assert (job.returncode, job.stdout) == (0, "checked\n")


def test_a_window_that_was_taken_and_never_read_ends_red(tmp_path: Path) -> None:
    job = end(tmp_path, "exit_code.disarm()\nexit_code.arm(unread)")
    assert job.returncode == 1
    assert "took window lake.orders-000012 and did not read it" in job.stderr


def test_a_window_that_is_taken_again_after_it_was_read_is_not_missed(tmp_path: Path) -> None:
    again = "exit_code.arm(unread)"
    job = end(tmp_path, f"exit_code.disarm()\n{again}\nwindow.is_unfinished = False\nexit_code.arm(window)\n{again}")
    assert (job.returncode, job.stderr) == (0, "")


@pytest.mark.parametrize("then", ["unread.is_unread = False", "window.is_unfinished = False\nexit_code.arm(window)"])
def test_a_window_that_is_read_or_handed_to_another_reader_is_not_missed(tmp_path: Path, then: str) -> None:
    job = end(tmp_path, f"exit_code.disarm()\nexit_code.arm(unread)\n{then}")
    assert (job.returncode, job.stderr) == (0, "")


@pytest.mark.parametrize(
    "earlier",
    [
        "sys.last_value = ValueError('of a console, long ago')",
        "import code\ncode.InteractiveConsole().runsource('1 / 0')",
        "try: 1 / 0\nexcept ZeroDivisionError: sys.excepthook(*sys.exc_info())",
        "import ctypes\ntry: ctypes.pythonapi.PyRun_SimpleString(b'1 / 0')\nexcept ZeroDivisionError: pass",
        "import threading\n"
        "def thread():\n"
        "    try: 1 / 0\n"
        "    except ZeroDivisionError: sys.excepthook(*sys.exc_info())\n"
        "other = threading.Thread(target=thread); other.start(); other.join()",
    ],
    ids=["last_value", "a console", "a report of the job's own", "PyErr_Print", "a thread's report"],
)
def test_an_error_that_was_printed_and_did_not_end_the_job_is_no_way_around(tmp_path: Path, earlier: str) -> None:
    job = end(tmp_path, f"exit_code.disarm()\nexit_code.arm(unread)\n{earlier}\nprint('went on')")
    assert (job.returncode, job.stdout) == (1, "went on\n")
    assert "did not read it" in job.stderr


def test_an_error_that_another_exit_callback_reports_does_not_end_the_job(tmp_path: Path) -> None:
    callback = """
    import atexit
    @atexit.register
    def report():
        try: 1 / 0
        except ZeroDivisionError: sys.excepthook(*sys.exc_info())
    """
    job = end(tmp_path, "exit_code.disarm()\nexit_code.arm(unread)\n" + textwrap.dedent(callback))
    assert "ZeroDivisionError" in job.stderr
    assert (job.returncode, "did not read it" in job.stderr) == (1, True)


def test_a_job_that_failed_and_whose_exit_callback_reports_an_error_too_ends_red(tmp_path: Path) -> None:
    callback = "import atexit\natexit.register(lambda: sys.excepthook(OSError, OSError('other'), None))\n"
    job = end(tmp_path, f"{callback}raise RuntimeError('mine')")
    assert job.returncode == 1
    assert "RuntimeError: mine" in job.stderr


@pytest.mark.parametrize("rest", ["raise RuntimeError('mine')", ""], ids=["the job's", "one typed in"])
def test_an_error_after_which_a_console_follows_is_no_way_around(tmp_path: Path, rest: str) -> None:
    job = end(tmp_path, rest, "-i", typed="1 / 0\n")
    assert "ZeroDivisionError" in job.stderr
    assert (job.returncode, "ValueError: 55 of 57" in job.stderr) == (1, True)


@pytest.mark.parametrize("is_chained", [True, False], ids=["a hook that calls ours", "a hook that does not"])
def test_a_hook_of_the_jobs_own_is_called_and_the_job_ends_red(tmp_path: Path, is_chained: bool) -> None:
    call = "before(*error)" if is_chained else "None"
    hook = f"before = sys.excepthook\nsys.excepthook = lambda *error: (print('hook'), {call})"
    job = end(tmp_path, f"{hook}\nexit_code.arm(window)\nraise RuntimeError('mine')")
    assert (job.returncode, job.stdout) == (1, "hook\n" if is_chained else "hook\nchecked\n")


def test_the_hook_of_before_is_called_and_is_back_after_disarm(tmp_path: Path) -> None:
    rest = "exit_code.disarm()\nassert sys.excepthook is sys.__excepthook__\n"
    rest += "sys.excepthook = lambda *error: print('mine')\nexit_code.arm(window)\nraise RuntimeError('x')"
    job = end(tmp_path, rest)
    assert (job.returncode, job.stdout) == (1, "mine\n")
