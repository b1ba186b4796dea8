"""How the kernel divides the processors among what a run of the tests starts."""

from __future__ import annotations

import ctypes
import os
import platform
from contextlib import suppress

SLICE = 20_000_000
"""Nanoseconds that a thread may work before another one has its turn. Linux by itself takes 1.4 milliseconds on two processors."""

# The C library has no function for it before 2.41.
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}


class _Attributes(ctypes.Structure):
    """`struct sched_attr`, see sched_setattr(2)."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def work_in_long_slices() -> bool:
    """Let this thread, and all that it starts from now on, work long before another one has its turn, and interrupt no one when it wakes up.

    Ten servers, Sparks and tests share two processors. If each works for a millisecond, it finds its data gone from the processor's caches when
    it comes back: a Spark beside five others took a fifth more CPU. Another process that wakes up still interrupts them; one that only
    computes waits for up to 20 ms.

    Returns:
        Whether the kernel took it: a container may forbid it, or someone has chosen otherwise. Linux before 6.12 takes it, and has no slice for each
        thread.
    """
    if not hasattr(os, "SCHED_BATCH") or os.sched_getscheduler(0) not in (os.SCHED_OTHER, os.SCHED_BATCH):
        return False
    return _set(os.SCHED_BATCH, SLICE)


def take_turns_as_usual() -> None:
    """Let this thread, and all that it starts from now on, have the kernel's own slices again: where many shall meet in one moment."""
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_BATCH:
        _set(os.SCHED_OTHER, 0)


def _set(policy: int, runtime: int) -> bool:
    """Set both, or where the kernel refuses that, the policy alone; return whether it took both."""
    call = _SCHED_SETATTR.get(platform.machine())
    if call is not None:
        attributes = _Attributes(size=ctypes.sizeof(_Attributes), policy=policy, nice=os.nice(0), runtime=runtime)
        if ctypes.CDLL(None).syscall(call, 0, ctypes.byref(attributes), 0) == 0:
            return True
    with suppress(OSError):  # a container may forbid it
        os.sched_setscheduler(0, policy, os.sched_param(0))
    return False
