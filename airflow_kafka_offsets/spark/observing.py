"""What Spark observes in a frame's first action. Each version of Spark reports in its own way that there was one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Observation

logger = logging.getLogger(__name__)


def observe(frame: DataFrame, *columns: Column) -> tuple[DataFrame, Observed]:
    """Return the frame with aggregates in it, and the object that holds their values after its first action."""
    observation = Observation()
    frame = frame.observe(observation, *columns)
    _keep_first(observation)
    return frame, Observed(observation)


class Observed:
    """What Spark observes in a frame's first action.

    Args:
        observation: the frame's.

    Attributes:
        is_remote: whether the frame is one of Spark Connect.
    """

    def __init__(self, observation: Observation) -> None:
        self._observation = observation
        self._java: Any = getattr(observation, "_jo", None)
        self.is_remote = self._java is None
        # It starts at once: at the end of the process, Python starts no thread.
        self._blocking = None if self.is_remote or "future" in dir(self._java) else _Blocking(observation)

    def metrics(self, timeout: float) -> Mapping[str, Any]:
        """Return the values; empty if there was no action, if it failed, or if Spark is too late.

        Args:
            timeout: seconds to wait.
        """
        if self._blocking is not None:
            self._blocking.join(timeout)
            return self._blocking.metrics
        deadline = time.monotonic() + timeout
        # `get` blocks until there was an action, possibly forever. Over Spark Connect it never blocks.
        while not self.is_remote and not self._java.future().isCompleted():
            if time.monotonic() > deadline:
                return {}
            time.sleep(0.02)
        return _metrics(self._observation)


class _Blocking(threading.Thread):
    """Asks Spark 3, whose answer blocks until there was an action, possibly as long as the process lives."""

    def __init__(self, observation: Observation) -> None:
        super().__init__(name="kafka-offsets-observation", daemon=True)
        self.metrics: Mapping[str, Any] = {}
        self._observation = observation
        self.start()

    def run(self) -> None:
        self.metrics = _metrics(self._observation)


def _metrics(observation: Observation) -> Mapping[str, Any]:
    try:
        metrics: Mapping[str, Any] = observation.get
    except Exception:  # Spark 4.2 raises what the action failed with
        logger.warning("The frame was not read to its end", exc_info=True)
        return {}
    return metrics


class _First(dict):  # type: ignore[type-arg]  # Python 3.8 can't subscript it
    """The counts of the first action. Later counts do not replace them."""

    def update(self, *args: Any, **kwargs: Any) -> None:
        if not self:
            super().update(*args, **kwargs)


def _keep_first(observation: Observation) -> None:
    # Over Spark Connect each action overwrites the count of the one before: a show() that of the write.
    if getattr(observation, "_result", None) == {}:
        observation._result = _First()
