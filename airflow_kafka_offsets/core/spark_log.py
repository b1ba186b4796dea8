"""What the output of Spark says of a failure: the last exception, as Java and Python end a trace with what began it or with their last word."""

from __future__ import annotations

import re

# "ValueError: no such day", "Caused by: java.io.IOException", ": org.apache.spark.SparkException: ..." (of Py4J), "Error: no class".
_EXCEPTION = re.compile(
    r'(Exception in thread "[^"]*" |Caused by: |: )?([A-Za-z_$][\w$]*\.)*([A-Z_][\w$]*)?(Error|Exception)(:|$)'
)
_LOGGED = re.compile(r"[\d/:., TZ-]+ ERROR ")  # as Spark's own log4j settings write it
_EXIT_CODE = "SparkUserAppException"
"""By which Spark only says that the Python of a job ended with an exit code: Python has said why."""


def more_telling(before: str | None, line: str) -> str | None:
    """Return what says most of a failure: the last exception, or else the last error that was logged.

    >>> more_telling("ValueError: no such day", "26/11/23 07:18:44 ERROR Inbox: Ignoring error")
    'ValueError: no such day'

    Args:
        before: the line that said most until now; None: none.
        line: the next one.
    """
    line = line.rstrip()
    if _EXCEPTION.match(line) and _EXIT_CODE not in line:
        return line.removeprefix(": ")
    is_first = before is None or _LOGGED.match(before) is not None
    return line if is_first and _LOGGED.match(line) else before
