"""Run one command: print its answer, and turn an error into a sentence and an exit code."""

from __future__ import annotations

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module
from io import TextIOWrapper
from types import FrameType
from typing import Any, NoReturn

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConfirmationError,
    ConnectorUnavailableError,
    KafkaAnswerError,
    KafkaOffsetsError,
    LedgerError,
    NoConnectionError,
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


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command found or did.

    Attributes:
        document: for programs.
        text: for people; made only when it is wanted.
        code: the exit code.
        error: a sentence for stderr, when only a part of the answer is there.
        left_out: returns what is missing below that many lines of the text, or None.
    """

    document: Any
    text: Callable[[], str]
    code: ExitCode = ExitCode.OK
    error: str | None = None
    left_out: Callable[[int], str | None] | None = None


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers that are printed as they come, until there is none, or until Ctrl-C, which is no failure.

    Attributes:
        each: the answers.
        shown: how a person sees one. A program gets one document a line.
        before, after: what is written first and last, whatever happens.
    """

    each: Iterator[Answer]
    shown: Callable[[Answer], str]
    before: str = ""
    after: str = ""


def run(function: str, args: Namespace) -> int:
    """Run a command, and return its exit code."""
    # Without it Airflow takes the process for a task, and does not look for connections in its database.
    os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    args.is_terminal = sys.stdout is not None and sys.stdout.isatty()
    try:
        with _stdout_kept():
            answer = _imported(function)(args)
        output = getattr(args, "output", "table")
        if isinstance(answer, Answers):
            return _print_each(answer, output)
        _print(answer, output)
    except KafkaOffsetsError as exc:
        print(explained(exc), *getattr(exc, "__notes__", ()), sep="\n", file=sys.stderr)
        return code_of(exc)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader has left (`| head`); Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    return answer.code


def explained(exc: KafkaOffsetsError) -> KafkaOffsetsError:
    """Return an error; that of a missing connection with the similar ids that Airflow has."""
    if not isinstance(exc, NoConnectionError):
        return exc
    from airflow_kafka_offsets.cli.airflow_runs import connection_ids

    return exc.with_suggestion(connection_ids())


def _imported(function: str) -> Callable[[Namespace], Answer | Answers]:
    module, _, name = function.partition(".")
    command: Callable[[Namespace], Answer | Answers] = getattr(
        import_module(f"airflow_kafka_offsets.cli.{module}"), name
    )
    return command


def _print_each(answers: Answers, output: str) -> int:
    _print_any_name()
    code = ExitCode.OK
    print(end=answers.before)
    with until_asked_to_stop() as is_asked:
        try:
            while not is_asked() and (answer := _next(answers)) is not None:
                code = answer.code
                print(_as_line(answer) if output == "json" else answers.shown(answer), flush=True, end="")
        finally:
            print(end=answers.after, flush=True)
    return ExitCode.OK if is_asked() else code


@contextmanager
def until_asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C end what is done in here without an error; give a function that returns whether it was pressed.

    Python raises Ctrl-C wherever the program is. In the clean-up of a library it may be swallowed, or become another error.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:  # the shell started it in the background: Ctrl-C is meant for others
        yield lambda: False
        return
    signals: list[int] = []

    def stop(number: int, _: FrameType | None) -> NoReturn:
        signals.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, stop)
    try:
        yield lambda: bool(signals)
    except BaseException:
        if not signals:
            raise
    finally:
        signal.signal(signal.SIGINT, before)


def _next(answers: Answers) -> Answer | None:
    with _stdout_kept():
        return next(answers.each, None)


@contextmanager
def _stdout_kept() -> Iterator[None]:
    """Keep stdout for the answer: what others write there meanwhile goes to stderr."""
    _flush()
    kept = None
    # Not only `sys.stdout`: a handler of Airflow's log may have it already, and a program that is started gets the descriptor.
    with suppress(OSError):  # it is closed
        kept = os.dup(1)
        os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        try:
            _flush()
        finally:
            if kept is not None:
                os.dup2(kept, 1)
                os.close(kept)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _as_line(answer: Answer) -> str:
    from airflow_kafka_offsets.documents import as_json

    return as_json(answer.document, indent=None) + "\n"


def _print_any_name() -> None:
    if isinstance(sys.stdout, TextIOWrapper):
        # All is done: a name that this console can't print is no reason to fail.
        sys.stdout.reconfigure(errors="backslashreplace")


def _print(answer: Answer, output: str) -> None:
    _print_any_name()
    if output == "json":
        from airflow_kafka_offsets.documents import as_json

        print(as_json(answer.document), flush=True)
    else:
        print(answer.text(), flush=True)
    if answer.error:
        print(answer.error, file=sys.stderr)
