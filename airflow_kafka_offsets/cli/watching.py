"""``kafka-offsets watch``: status again and again, in place."""

from __future__ import annotations

import gc
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from datetime import UTC, datetime

from airflow_kafka_offsets.cli.exit_codes import ExitCode
from airflow_kafka_offsets.cli.running import Answer, Answers
from airflow_kafka_offsets.cli.sources import open_ledger
from airflow_kafka_offsets.cli.status import look
from airflow_kafka_offsets.core.errors import KafkaOffsetsError, may_pass

_CLEAR = "\x1b[2J"
_TOP = "\x1b[H"
_REST_OF_LINE, _REST_OF_SCREEN = "\x1b[K", "\x1b[J"
_ABOVE = 2
"""How many lines a frame has above its answer."""
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"


def watch(args: Namespace) -> Answers:
    """Show all groups, or one of them, once per interval."""
    gc.enable()  # `main` turned it off, for commands that end soon
    args.offline = False
    is_in_place = args.output == "table" and sys.__stdout__ is not None and sys.__stdout__.isatty()
    return Answers(
        _looks(args), _frame if is_in_place else _line_by_line, *((_HIDE + _CLEAR, _SHOW) if is_in_place else ("", ""))
    )


def _looks(args: Namespace) -> Iterator[Answer]:
    ledger = open_ledger(args)
    for number in range(args.count or sys.maxsize):
        if number:
            time.sleep(args.interval)
        try:
            yield look(args, ledger)
        except KafkaOffsetsError as exc:
            # The first look fails as `status` does. Later, whoever watches waits for the ledger to come back.
            if not number or not may_pass(exc):
                raise
            said = str(exc)
            yield Answer({"error": said}, lambda said=said: said, ExitCode.UNAVAILABLE)  # type: ignore[misc]


def _line_by_line(answer: Answer) -> str:
    return f"{_now()}\n{_text(answer)}\n"


def _frame(answer: Answer) -> str:
    """Return a text that overwrites the one before it, and is no larger than the terminal."""
    size = shutil.get_terminal_size()
    lines = [f"kafka-offsets watch, {_now()}; Ctrl-C ends", "", *_text(answer).splitlines()]
    if len(lines) >= size.lines:
        left_out = answer.left_out(size.lines - 2 - _ABOVE) if answer.left_out else None
        lines = [*lines[: size.lines - 2], left_out or "... the terminal is too low for the rest"]
    return _TOP + "".join(f"{line[: size.columns]}{_REST_OF_LINE}\n" for line in lines) + _REST_OF_SCREEN


def _text(answer: Answer) -> str:
    return answer.text() + (f"\n\n{answer.error}" if answer.error else "")


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z"
