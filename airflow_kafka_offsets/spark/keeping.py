"""A frame that Spark keeps for longer than a block of code: until the job lets go of it."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

_TO_LET_GO = 5.0
"""Seconds to wait until a Connect server has forgotten a frame; nothing depends on it."""


class Kept:
    """A frame that is persisted. A Spark Connect server keeps it also after its session has ended, so the end of a job lets go of it.

    Args:
        frame: the frame. Whoever makes this persists it.
        is_remote: whether it is one of Spark Connect.

    Attributes:
        frame: as given.
    """

    def __init__(self, frame: DataFrame, *, is_remote: bool) -> None:
        self.frame = frame
        self._is_over = threading.Event()
        # From now on, and not in `release`: at the end of the process, Python starts no thread.
        self._thread = (
            threading.Thread(target=self._wait, name="kafka-offsets-kept", daemon=True) if is_remote else None
        )
        if self._thread is not None:
            self._thread.start()

    def release(self, timeout: float = _TO_LET_GO) -> None:
        """Let Spark forget the frame; it is not an error if Spark can't be asked.

        Args:
            timeout: seconds to wait for a Connect server. PySpark asks one that is gone for 10 minutes.
        """
        if self._thread is None:
            self._forget()
            return
        self._is_over.set()
        self._thread.join(timeout)

    def _wait(self) -> None:
        self._is_over.wait()
        self._forget()

    def _forget(self) -> None:
        try:
            self.frame.unpersist()
        except Exception as exc:  # Spark was stopped, or is gone
            logger.info("Spark may still keep a frame: %s", type(exc).__name__)
