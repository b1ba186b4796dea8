"""What a run of the tests starts works in long slices."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from tests.lab.slices import SLICE


def test_what_a_test_starts_interrupts_no_one_and_works_long() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        policy = os.sched_getscheduler(process.pid)
        told = re.search(r"^se\.slice\s*:\s*(\d+)$", Path(f"/proc/{process.pid}/sched").read_text(), re.MULTILINE)
        process.kill()
    assert policy == os.SCHED_BATCH
    # Linux before 6.12 tells of no slice.
    assert told is None or int(told[1]) == SLICE
