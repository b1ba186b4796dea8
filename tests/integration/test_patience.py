"""The deadlines of the lab: generous on a busy machine, and for whoever gets on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lab.patience import Patience, cores, crowd_of_this_machine, run_to_end, wait_until


class Clock:
    """A clock that goes on by a second with each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def seconds_until_over(
    seconds: float, *, crowd: float = 1, progress: Callable[[float], object] | None = None, most: int = 1000
) -> float:
    """Return how long a deadline lasts by the clock."""
    clock = Clock()
    moved = None if progress is None else lambda: progress(clock.now)
    patience = Patience(seconds, moved, clock=clock, crowd=lambda: crowd)
    return next(number for number in range(1, most) if patience.is_over())


def test_on_a_quiet_machine_a_deadline_is_over_after_its_seconds() -> None:
    assert seconds_until_over(10) == 10


def test_while_four_threads_want_each_core_it_lasts_four_times_as_long() -> None:
    assert seconds_until_over(10, crowd=4) == 40


def test_it_begins_again_as_long_as_something_moves_but_not_for_ever() -> None:
    assert seconds_until_over(10, progress=lambda now: now if now < 25 else "stuck") == 40
    assert seconds_until_over(10, progress=lambda now: now) == 60


def test_what_does_not_move_gets_no_more_time() -> None:
    assert seconds_until_over(10, progress=lambda now: "stuck") == 10


def test_who_waits_in_vain_is_told_for_what() -> None:
    with pytest.raises(TimeoutError, match=r"waited 0\.1 s in vain .*: the sun shines"):
        wait_until(lambda: False, timeout=0.1, what="the sun shines")


def test_who_has_a_sign_looks_again_when_it_changes() -> None:
    signs = iter(["waits", "waits", "waits", "done", "done"])
    clock = Clock()
    patience = Patience(100, sign=lambda: next(signs), clock=clock, crowd=lambda: 1)
    patience.pause()
    assert list(signs) == ["done"]


def test_without_a_sign_who_waits_looks_again_when_the_time_is_over() -> None:
    patience = Patience(3, sign=lambda: "waits", clock=Clock(), crowd=lambda: 1)
    patience.pause()
    assert patience.is_over()


def test_a_machine_has_at_least_one_thread_for_each_core() -> None:
    assert crowd_of_this_machine() >= 1


def test_a_command_is_given_what_it_reads_and_its_end_is_told() -> None:
    code = "import sys; print(sys.stdin.read().upper()); print('warned', file=sys.stderr); sys.exit(3)"
    done = run_to_end([sys.executable, "-c", code], text_in="x" * 1_000_000, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "X" * 1_000_000 + "\n", "warned\n")


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_killed_and_what_it_said_is_told() -> None:
    code = "import sys, time; print('begun', flush=True); time.sleep(1000)"
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        run_to_end([sys.executable, "-c", code], timeout=0.1)
    assert caught.value.output == "begun\n"


def test_cores_that_this_thread_may_not_use_do_not_count() -> None:
    def cores_of_a_thread_with_one() -> float:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # of this thread alone
        return cores()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(cores_of_a_thread_with_one).result() == 1


def test_of_a_control_group_that_gets_half_a_core_that_half_counts(tmp_path: Path) -> None:
    assert cores(tmp_path) == len(os.sched_getaffinity(0))
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cores(tmp_path) == len(os.sched_getaffinity(0))
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert cores(tmp_path) == 0.5
