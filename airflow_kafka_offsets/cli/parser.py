"""The parser of ``kafka-offsets``."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from textwrap import fill
from typing import Any, NoReturn

from airflow_kafka_offsets import __version__
from airflow_kafka_offsets.cli.arguments import COMMANDS, DESCRIPTION, NAME, Command, CommandGroup
from airflow_kafka_offsets.cli.exit_codes import explain
from airflow_kafka_offsets.core.errors import cut


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(cut(message))


def make_parser() -> ArgumentParser:
    """Return the parser; what it parses names the function to run."""
    # The raw formatter keeps the list of exit codes, and then fills nothing else either.
    parser = _Parser(NAME, description=DESCRIPTION, epilog=explain(), formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"{NAME} {__version__}")
    _add(parser, COMMANDS)
    return parser


def _add(parser: ArgumentParser, commands: Sequence[Command | CommandGroup]) -> None:
    below: Any = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in commands:
        if isinstance(command, CommandGroup):
            _add(below.add_parser(command.name, help=command.help, description=command.help), command.commands)
            continue
        one = below.add_parser(
            command.name,
            help=command.help,
            description=fill(command.description, 100),
            epilog=command.epilog,
            formatter_class=RawDescriptionHelpFormatter,
        )
        for argument in command.arguments:
            one.add_argument(*argument.flags, **argument.options)
        one.set_defaults(function=command.function)
