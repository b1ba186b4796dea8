"""Finds what ended a job in Spark's output. An exception that was caught and logged did not end it.

Python and Java print an exception that no one caught in their own way: below ``Traceback`` or ``Exception in thread "main"``. A caught
exception may be logged with its trace, below a log line, and the job continues: a lost task that is tried again, or a time-out. So a
trace below a log line counts only if Spark itself reports in that line that the application is over. When Spark begins another job,
nothing before that has ended the application. If no line is left, none is reported. An error of this package is kept with the
commands below it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum, auto

_LOGGED = re.compile(r"[\d/:., TZ+-]+ \[?(TRACE|DEBUG|INFO|WARN|ERROR|FATAL)\]? ")
"""A line of log4j, as Spark's own settings write it, or with the time in another form."""

_LOGGED_BY_PYTHON = re.compile(
    r"(DEBUG|INFO|WARNING|ERROR|CRITICAL):|\d{4}-\d\d-\d\d .*\b(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b"
)
"""A line of Python's logging, below which it writes the trace of what was caught."""

_OVER = re.compile(
    r"[\d/:., TZ+-]+ \[?(ERROR|FATAL)\]? (\[[^]]*\] )?([\w.]+\.)?(SparkContext|ApplicationMaster|SparkSubmit)\b"
)
_GOES_ON = re.compile(r".* (SparkContext|\S+\.SparkContext): (Starting job|Running Spark version)\b")
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_SYNTAX_ERROR = re.compile(r'  File "[^"]*", line \d+$')
"""What Python prints about a file that it can't compile, without a ``Traceback`` line. In a trace, such a line is longer."""

# "org.apache.spark.SparkException: ...", "Caused by: java.io.IOException", ": org.apache.spark.SparkException: ..." (of Py4J).
_EXCEPTION = re.compile(r"(Caused by: |: )?([A-Za-z_$][\w$]*\.)+[\w$]*(Error|Exception)(:|$)")
_CAUSE = re.compile(rf"(?=Caused by: |: ){_EXCEPTION.pattern}")
OWN_ERRORS = "airflow_kafka_offsets.spark.errors."
"""The module of this package's errors, with which Python begins the line of an uncaught one."""

_AT_EXIT = "airflow_kafka_offsets: exit code "
"""How this package ends a job that did not read its window."""

_EXIT_CODE = re.compile(r"SparkUserAppException|exited with")
"""Spark reports with these words that a job's Python ended with an exit code. Python itself has printed why."""


class _Place(Enum):
    """Where in the output a line is."""

    ANYWHERE = auto()
    LOGGED_BY_PYTHON = auto()
    """Below a line of Python's logging."""
    LOGGED = auto()
    """In a trace that was logged."""
    OVER = auto()
    """Below the line with which Spark ends the application."""
    TRACEBACK = auto()
    """In what Python prints of an exception that no one caught, before its last line."""
    UNCAUGHT = auto()
    """Below the line with such an exception, of Python or Java: its causes follow."""
    OWN = auto()
    """Below the first line of an error of this package: its commands follow, on indented lines."""


@dataclass(frozen=True, slots=True)
class SparkOutput:
    """Spark's output so far.

    Attributes:
        error: the line that names what ended the job, or None if there is none. An error of this package has all of its lines.
        place: where the next line is.
    """

    error: str | None = None
    place: _Place = _Place.ANYWHERE


def after_line(before: SparkOutput, line: str) -> SparkOutput:
    """Return the output after one more line.

    >>> lines = ["Traceback (most recent call last):", "ValueError: no such day", "26/11/23 07:18:44 ERROR Inbox: Ignoring error"]
    >>> output = SparkOutput()
    >>> for line in lines:
    ...     output = after_line(output, line)
    >>> output.error
    'ValueError: no such day'
    """
    line = line.rstrip()
    if _GOES_ON.match(line):
        return SparkOutput()
    if _LOGGED.match(line) or _LOGGED_BY_PYTHON.match(line):
        return _below_log(before, line)
    if line.startswith("Exception in thread "):
        return _below_thread(before, line)
    if line == _TRACEBACK or _SYNTAX_ERROR.match(line):
        is_logged = before.place is _Place.LOGGED_BY_PYTHON
        return replace(before, place=_Place.LOGGED if is_logged else _Place.TRACEBACK)
    if line.startswith(_CHAINED) and before.place is _Place.LOGGED:
        return replace(before, place=_Place.LOGGED_BY_PYTHON)
    if line.startswith("Error: "):  # of spark-submit or java, before there is a job
        return SparkOutput(line, _Place.UNCAUGHT)
    if before.place is _Place.OWN and line.startswith("    "):
        return replace(before, error=f"{before.error}\n{line}")
    if line.startswith(_AT_EXIT):
        return SparkOutput(line, _Place.OWN)
    return _in_trace(before, line)


def is_own(error: str) -> bool:
    """Whether an error of Spark's output is one of this package, which says what to do."""
    return error.startswith((OWN_ERRORS, _AT_EXIT))


def _below_log(before: SparkOutput, line: str) -> SparkOutput:
    if _OVER.match(line) and not _EXIT_CODE.search(line):
        return SparkOutput(line, _Place.OVER)
    # Below any other log line, Python's own ``Traceback`` line belongs to an exception that no one caught.
    return replace(before, place=_Place.LOGGED_BY_PYTHON if _LOGGED_BY_PYTHON.match(line) else _Place.ANYWHERE)


def _below_thread(before: SparkOutput, line: str) -> SparkOutput:
    # The application continues when any other thread dies.
    if line.startswith('Exception in thread "main" ') and not _EXIT_CODE.search(line):
        return SparkOutput(line, _Place.UNCAUGHT)
    return replace(before, place=_Place.LOGGED)


def _in_trace(before: SparkOutput, line: str) -> SparkOutput:
    is_head = line[:1].strip() != ""
    match before.place:
        case _Place.TRACEBACK if is_head:
            return SparkOutput(line, _Place.OWN if is_own(line) else _Place.UNCAUGHT)
        case _Place.OWN:
            return replace(before, place=_Place.UNCAUGHT)
        case _Place.OVER if _EXCEPTION.match(line):
            return SparkOutput(line, _Place.UNCAUGHT)
        case _Place.UNCAUGHT if _CAUSE.match(line):
            of_python = line.endswith(_TRACEBACK)
            return SparkOutput(line.removeprefix(": "), _Place.TRACEBACK if of_python else _Place.UNCAUGHT)
        case _Place.ANYWHERE | _Place.LOGGED_BY_PYTHON if is_head:
            return replace(before, place=_Place.LOGGED if _EXCEPTION.match(line) else _Place.ANYWHERE)
        case _:
            return before
