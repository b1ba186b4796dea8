"""What a run of the tests starts works in long slices."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.lab.slices import SLICE, work_in_long_slices

TELL = """
import json, os, sys
from tests.lab.slices import take_turns_as_usual

if sys.argv[1:]:
    take_turns_as_usual()
with open("/proc/self/sched") as told:
    print(json.dumps([os.sched_getscheduler(0), os.nice(0), told.read()]))
"""


def told_by_a_process(*arguments: str) -> tuple[int, int, int]:
    """Return the policy, the niceness and the slice, in nanoseconds, of a process that a test starts."""
    said = subprocess.run([sys.executable, "-c", TELL, *arguments], capture_output=True, text=True, check=True)
    policy, nice, told = json.loads(said.stdout)
    found = re.search(r"^se\.slice\s*:\s*(\d+)$", told, re.MULTILINE)
    return policy, nice, int(found[1]) if found else 0


def test_what_a_test_starts_interrupts_no_one_and_works_long() -> None:
    policy, nice, slice_ = told_by_a_process()
    is_taken = work_in_long_slices()  # again, to be told whether the kernel takes it here
    assert (policy, nice) == (os.SCHED_BATCH, os.nice(0))
    assert slice_ == SLICE or not is_taken or _linux() < (6, 12)


def test_where_many_shall_meet_they_take_turns_as_usual() -> None:
    policy, nice, slice_ = told_by_a_process("as usual")
    assert (policy, nice) == (os.SCHED_OTHER, os.nice(0))
    assert slice_ < SLICE


def _linux() -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", Path("/proc/sys/kernel/osrelease").read_text())[:2]))
