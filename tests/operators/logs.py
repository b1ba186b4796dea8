"""What a task's log shows of an error."""

from __future__ import annotations

from structlog.tracebacks import Stack, extract


def as_logged(error: BaseException) -> list[Stack]:
    """Return the chain of tracebacks that Airflow's log shows of an error: its task runner logs by structlog, with all causes."""
    return extract(type(error), error, error.__traceback__).stacks
