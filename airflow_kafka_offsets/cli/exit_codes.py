"""What the exit codes mean, in one place: `--help` and docs/reference/cli.md show this text."""

from __future__ import annotations

from enum import IntEnum

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConfirmationError,
    ConnectorUnavailableError,
    KafkaAnswerError,
    KafkaOffsetsError,
    LedgerError,
    RegistryError,
    StoreAnswerError,
    StoreBehindError,
)


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    REFUSED = 1
    USAGE = 2
    UNAVAILABLE = 3
    UNCONFIRMED = 4


MEANING = {
    ExitCode.OK: "done, or answered",
    ExitCode.REFUSED: "refused: what Kafka holds or the state of a window does not allow it; nothing was changed",
    ExitCode.USAGE: "wrong usage: a bad argument, or an unknown group, window or connection; nothing was changed",
    ExitCode.UNAVAILABLE: "Kafka, the ledger, the offset store, the schema registry or Spark's connector can't be used: no answer, no access, or another version",
    ExitCode.UNCONFIRMED: "not confirmed, nothing was changed: add --yes, and the other flags that the answer names (--supersede, --leave-gap)",
}


def explain() -> str:
    """Return the list of exit codes for ``--help``."""
    codes = "\n".join(f"  {code.value}  {meaning}" for code, meaning in MEANING.items())
    return f"exit codes:\n{codes}"


def code_of(error: KafkaOffsetsError) -> ExitCode:
    """Return the exit code of an error: what the reader should do next."""
    match error:
        case BadInputError():
            return ExitCode.USAGE
        case KafkaAnswerError() | LedgerError() | StoreAnswerError() | StoreBehindError():
            return ExitCode.UNAVAILABLE
        case RegistryError() | ConnectorUnavailableError():
            return ExitCode.UNAVAILABLE
        case ConfirmationError():
            return ExitCode.UNCONFIRMED
        case _:
            return ExitCode.REFUSED
