"""Writes the end of a task's log: what became of its windows, or what failed before it had any."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.airflow_versions import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTerminated,
    TaskDeferred,
)
from airflow_kafka_offsets.core import ending
from airflow_kafka_offsets.core.ending import starts
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    JobUnseenError,
    KafkaOffsetsError,
    NotYetError,
)
from airflow_kafka_offsets.spark.errors import KafkaWindowError

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.run import Run

# After these, Airflow starts no other try.
_AIRFLOW_STOPS = (AirflowFailException, AirflowSensorTimeout, AirflowSkipException, AirflowTaskTerminated)
_FINAL = (*_AIRFLOW_STOPS, BadInputError, JobUnseenError)

SILENT = "The log can't show what became of the task's windows"
"""Logged in place of the end: an error in the log must not change how the task ends."""

logger = logging.getLogger(__name__)


@contextmanager
def until_planned(run: Run, group: str | None, window: Any = None) -> Iterator[None]:
    """If a task fails in here, before it has its windows, let its log end with what failed, and show one traceback.

    Args:
        run: the task's run.
        group: the group that the task plans; None if it plans none.
        window: what the task was given instead of planning.
    """
    try:
        yield
    except (TaskDeferred, AirflowSkipException):  # no failure
        raise
    except BaseException as exc:
        try:
            is_sentence = isinstance(exc, KafkaOffsetsError | KafkaWindowError | AirflowException) and str(exc)
            window_id = window.get("window_id") if isinstance(window, Mapping) else window
            given = f"window {window_id}" if isinstance(window_id, str) else "its window"
            headline = f"This try got no window of group {group}" if window is None else f"This try did not get {given}"
            error = str(exc) if is_sentence else f"{type(exc).__name__}, see below"
            next_try = follows(run, exc)
            logger.error("%s", ending.end_without_window(headline, error, next_try))
        except Exception:
            logger.warning(SILENT, exc_info=True)
        if not isinstance(exc, KafkaOffsetsError):
            raise
        # Our sentences contain what the client said: its traceback would add nothing.
        if exc.__cause__ is not None:
            logger.debug("The cause of what failed", exc_info=exc.__cause__)
        raise exc from None


def follows(run: Run, exc: BaseException, *, was_stopped: bool = False) -> str | None:
    """Say which try Airflow starts by itself after a failure; None if it starts none."""
    is_final = isinstance(exc, _FINAL) and not isinstance(exc, NotYetError)
    return starts(None if is_final else run.next_try, has_policy=run.has_retry_policy, was_stopped=was_stopped)
