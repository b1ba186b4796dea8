"""A frame that Spark keeps for longer than a block of code: until the job lets go of it."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)


class Kept(threading.Thread):
    """Waits until the job no longer needs a frame that Spark keeps, and then lets Spark forget it.

    A Spark Connect server keeps a frame also after its session has ended. So whoever ends a job has to let go.

    Args:
        frame: one that is persisted.

    Attributes:
        frame: as given.
    """

    def __init__(self, frame: DataFrame) -> None:
        super().__init__(name="kafka-offsets-kept", daemon=True)
        self.frame = frame
        self._is_over = threading.Event()
        self.start()  # now, and not in `release`: at the end of the process, Python starts no thread

    def run(self) -> None:
        self._is_over.wait()
        try:
            self.frame.unpersist()
        except Exception as exc:  # Spark was stopped, or is gone
            logger.info("Spark was not told to forget a frame: %s", type(exc).__name__)

    def release(self, timeout: float) -> None:
        """Let Spark forget the frame; it is not an error if Spark can't be asked.

        Args:
            timeout: seconds to wait for its answer. PySpark asks a Connect server that is gone for 10 minutes.
        """
        self._is_over.set()
        self.join(timeout)
