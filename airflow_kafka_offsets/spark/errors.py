"""Every error of the job side, grouped by what the reader should do next: docs/reference/errors.md has a paragraph on each."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Py4J gives Java's exception as text, with all causes; its condition KAFKA_DATA_LOSS is not part of it in Spark 4.0.
DATA_LOSS = re.compile(r"KAFKA_DATA_LOSS|Some data may have been lost")
"""The words of Spark's error, in a classic session and over Spark Connect, if Kafka no longer holds the planned offsets."""

BAD_RECORD = re.compile(r"Kafka record \S+ offset \d+: its (?:key|value) can't be decoded: .*?(?= SQLSTATE|[\r\n]|$)")
"""The sentence in Spark's error, if a record can't be decoded (`values`)."""

NOT_ALLOWED = re.compile(
    r"(?<![^\s(])([^\s(]+?)\)?(?: is not allowed\.| for configuration \S+ The \w+ cannot be accessed due to restrictions\.)"
    r" (?:Update (?:the )?[Ss]ystem|The system) property '([\w.]+)'"
)
"""The words of Kafka's clients if the JVM forbids a config provider, a login module, an address or a file."""

WITHOUT_BAD = "To go on without such records: on_bad='null', or on_bad='side' with side=..."


def not_allowed(what: str, name: str, values: str) -> str:
    """Return the message if a property of the JVM forbids what a login needs.

    Args:
        what: the class, address or file.
        name: the property's.
        values: what it has to allow.
    """
    if "disallowed" in name:
        return (
            f"{name} forbids Kafka's client {what}, which the login needs. "
            "Remove it from that list in spark.driver.extraJavaOptions and spark.executor.extraJavaOptions"
        )
    return (
        f"{name} forbids Kafka's client {what}, which the login needs. "
        "Allow it in spark.driver.extraJavaOptions and spark.executor.extraJavaOptions, beside what they allow now:\n"
        f"    -D{name}={values}"
    )


class KafkaWindowError(Exception):
    """Anything that the job side raises on purpose."""


class NoWindowError(KafkaWindowError):
    """The job was not started with a window."""


class HandoffError(KafkaWindowError, ValueError):
    """The launcher's handoff can't be used."""


class ReaderOptionError(KafkaWindowError, ValueError):
    """An option would change what the window fixes, or needs what the JVM forbids."""


class DecodeError(KafkaWindowError, ValueError):
    """Keys or values can't be decoded in this way."""


class BadRecordError(KafkaWindowError):
    """A record can't be decoded."""


class WriteOptionError(KafkaWindowError, ValueError):
    """A rerun could not replace this write, or the write would replace another one of the same job."""


class OtherWindowError(KafkaWindowError):
    """The output belongs to another window of the same id; it was not replaced."""


class UnfinishedReadError(KafkaWindowError):
    """The frame of an earlier read() is not checked yet."""


class IncompleteReadError(KafkaWindowError):
    """Fewer offsets were read than planned.

    Attributes:
        missing: for each topic-partition (or topic) that is short, how many records were read and how many planned.
    """

    def __init__(self, message: str, missing: Mapping[str, tuple[int, int]] | None = None) -> None:
        super().__init__(message)
        self.missing = dict(missing or {})


class LostRecordsError(KafkaWindowError):
    """Kafka no longer holds all offsets of the window."""


class TargetError(KafkaWindowError, ValueError):
    """The table to write to does not exist, or has the wrong form; nothing was written."""


class PublishError(KafkaWindowError):
    """The output could not be published, or a job continued without an output that failed."""


class ReportError(KafkaWindowError):
    """The job can't report what it read."""


class ConnectorError(KafkaWindowError):
    """The version of Spark is not known here."""
