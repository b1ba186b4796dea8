"""What the exit codes mean, in one place: `--help` and docs/reference/cli.md show this text."""

from __future__ import annotations

from enum import IntEnum

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConfirmationError,
    KafkaOffsetsError,
    KafkaUnavailableError,
    LedgerError,
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
    ExitCode.REFUSED: "refused: the state of Kafka or of the ledger does not allow it; nothing was changed (or a bug: see the traceback)",
    ExitCode.USAGE: "usage: correct what you wrote (arguments, an unknown group, window or connection); nothing was changed",
    ExitCode.UNAVAILABLE: "Kafka or the ledger can't be used: no answer, access refused, or tables of another version",
    ExitCode.UNCONFIRMED: "nothing was changed: this was a dry run of a change that wants --yes (or --supersede too)",
}


def explain() -> str:
    """Return the list of exit codes for ``--help``."""
    return "exit codes:\n" + "\n".join(f"  {code.value}  {meaning}" for code, meaning in MEANING.items())


def code_of(error: KafkaOffsetsError) -> ExitCode:
    """Return the exit code of an error: what the reader should do next."""
    match error:
        case BadInputError():
            return ExitCode.USAGE
        case KafkaUnavailableError() | LedgerError():
            return ExitCode.UNAVAILABLE
        case ConfirmationError():
            return ExitCode.UNCONFIRMED
        case _:
            return ExitCode.REFUSED
