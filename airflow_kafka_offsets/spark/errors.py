"""Every error of the job side, grouped by what the reader should do next.

::

    KafkaWindowError
    ├── NoWindowError         the job was not started with a window: start it through Airflow
    ├── HandoffError          what the launcher handed over can't be used: launcher and job are of different versions
    ├── ReaderOptionError     an option of read() that the window fixes: take it out
    ├── WriteOptionError      a write was asked for that a rerun could not replace, or that would replace another: correct the call
    ├── OtherWindowError      under the window's id lies another window's output: bring the right ledger back, or write elsewhere
    ├── UnfinishedReadError   read() was called again before the first frame was checked
    ├── IncompleteReadError   fewer offsets were read than planned; the message says whether something was published
    ├── DataLossError         Kafka no longer holds the planned offsets; the write failed
    ├── TargetError           the table to write to is not there, or is not what it has to be, or nobody would publish it
    ├── PublishError          the output could not be put in its place, or a job went on without it
    └── ConnectorError        no Spark here whose version says which Kafka connector fits
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# Py4J gives Java's exception as text, with all causes; its condition KAFKA_DATA_LOSS is not part of it in Spark 4.0.
DATA_LOSS = re.compile(r"KAFKA_DATA_LOSS|Some data may have been lost")
"""What Spark's error says, in a classic session and over Spark Connect, when Kafka no longer holds what was to be read."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun. No job has the function of this name in the package's core."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


class KafkaWindowError(Exception):
    """Anything that the job side raises on purpose."""


class NoWindowError(KafkaWindowError):
    """The job was not started with a window."""


class HandoffError(KafkaWindowError, ValueError):
    """What the launcher handed over can't be used."""


class ReaderOptionError(KafkaWindowError, ValueError):
    """An option would change what the window fixes."""


class WriteOptionError(KafkaWindowError, ValueError):
    """A write was asked for that a rerun could not replace, or that would replace another one of the same job."""


class OtherWindowError(KafkaWindowError):
    """The output that a write would replace is of another window of the same id; it was not replaced."""


class UnfinishedReadError(KafkaWindowError):
    """The frame of an earlier read() was not checked yet."""


class IncompleteReadError(KafkaWindowError):
    """Fewer offsets were read than planned.

    Attributes:
        missing: for each topic-partition (or topic) that is short, how many records were read and how many planned.
    """

    def __init__(self, message: str, missing: Mapping[str, tuple[int, int]] | None = None) -> None:
        super().__init__(message)
        self.missing = dict(missing or {})


class DataLossError(KafkaWindowError):
    """Kafka no longer holds all offsets of the window."""


class TargetError(KafkaWindowError, ValueError):
    """The table to write to is not there, or is not what it has to be; nothing was written."""


class PublishError(KafkaWindowError):
    """The output could not be put in its place, or a job went on without an output that failed."""


class ConnectorError(KafkaWindowError):
    """The version of Spark is not known here."""
