"""Which files of the package a process goes through. A job of Spark imports this too, so nothing else is imported here."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PACKAGE = "airflow_kafka_offsets/"


@contextmanager
def traced(files: set[str]) -> Iterator[None]:
    """Collect the files of the package whose functions are called, or whose values are made. What an import runs does not count."""

    def note(frame: Any, event: str, _: object) -> None:
        # A dataclass makes its values by a function that is in no file, but has the names of one.
        file = frame.f_globals.get("__file__") or ""
        if event == "call" and f"/{PACKAGE}" in file and not is_importing(frame):
            files.add(file.rpartition(PACKAGE)[2])

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def is_importing(frame: Any) -> bool:
    """Whether an import runs this."""
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None
