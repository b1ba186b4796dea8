"""How the kernel divides the processors among what a run of the tests starts."""

from __future__ import annotations

import ctypes
import os
import platform

SLICE = 20_000_000
"""Nanoseconds that a process may work before another one has its turn; Linux's own answer is about one and a half milliseconds."""

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


def work_in_long_slices() -> None:
    """Let this process, and all that it starts from now on, work long before another one has its turn, and interrupt no one when it wakes up.

    Ten servers, Sparks and tests share two processors. By default each runs for a millisecond and finds its data gone from the caches of the
    processor when it comes back: a Spark beside five others takes a fifth more CPU. What else runs on the machine has its turn as soon
    as ever. Linux before 6.12 knows no slices of a process, and then takes only the second half; other systems take nothing.
    """
    if not hasattr(os, "SCHED_BATCH"):
        return
    attributes = _Attributes(ctypes.sizeof(_Attributes), os.SCHED_BATCH, runtime=SLICE)
    call = _SCHED_SETATTR.get(platform.machine())
    if call is None or ctypes.CDLL(None).syscall(call, 0, ctypes.byref(attributes), 0) != 0:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
