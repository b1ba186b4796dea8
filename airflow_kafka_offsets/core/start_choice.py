"""What a user chooses about a driver's start: here alone, as the parse of a DAG checks it and needs nothing else of core/start.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from airflow_kafka_offsets.core.errors import BadInputError

Compiler = Literal["auto", "quick", "late", "full"]
StartArchive = Literal["use", "make", "off"]


def check_compiler(value: str) -> None:
    """Refuse another choice than auto, quick, late or full.

    Raises:
        BadInputError: with the four.
    """
    _check("compiler", value, get_args(Compiler))


def check_start_archive(value: str | None, where: str = "start_archive") -> None:
    """Refuse another choice than use, make or off.

    Args:
        value: what was chosen; None: it is chosen elsewhere.
        where: it stands.

    Raises:
        BadInputError: with the three.
    """
    if value is not None:
        _check(where, value, get_args(StartArchive))


def _check(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise BadInputError(f"{name} must be one of {', '.join(choices)}; got {value!r}")
