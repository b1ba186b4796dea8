"""The parser of ``kafka-offsets``."""

from __future__ import annotations

import re
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from textwrap import fill
from typing import Any, NoReturn

from airflow_kafka_offsets import __version__
from airflow_kafka_offsets.cli.arguments import COMMANDS, DESCRIPTION, NAME, Command, CommandGroup
from airflow_kafka_offsets.cli.running import explain
from airflow_kafka_offsets.core.errors import cut


class _Parser(ArgumentParser):
    """Suggests what a slip may have meant, as argparse can from Python 3.14 on."""

    def error(self, message: str) -> NoReturn:
        if slip := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message):
            typed, choices = slip.groups()
            near = get_close_matches(typed, re.findall(r"[\w.-]+", choices), n=1)
            message += f". Did you mean {near[0]}?" if near else ""
            if not near and message.startswith("argument COMMAND"):
                message += ". The command comes first, its options after it"
        super().error(cut(message))


def spelled_out(argv: Sequence[str]) -> list[str]:
    """Return a command line with the options for ``help`` and ``version``."""
    match list(argv):
        case ["help", *command]:
            return [*command, "--help"]
        case ["version"]:
            return ["--version"]
        case other:
            return other


@cache
def make_parser() -> ArgumentParser:
    """Return the parser; what it parses names the function to run."""
    # The raw formatter keeps the list of exit codes, and then fills nothing else either.
    parser = _Parser(NAME, description=DESCRIPTION, epilog=explain(), formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("-V", "--version", action="version", version=f"{NAME} {__version__}")
    below = _add(parser, COMMANDS)
    # To be listed and completed; `spelled_out` replaces them.
    below.add_parser("help", help="show this help, or the help of the command that follows")
    below.add_parser("version", help="show the version")
    return parser


def _add(parser: ArgumentParser, commands: Sequence[Command | CommandGroup]) -> Any:
    below: Any = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in commands:
        if isinstance(command, CommandGroup):
            _add(below.add_parser(command.name, help=command.help, description=command.help), command.commands)
            continue
        subparser = below.add_parser(
            command.name,
            help=command.help,
            description=fill(command.description, 100),
            epilog=explain(),
            formatter_class=RawDescriptionHelpFormatter,
        )
        for argument in command.arguments:
            subparser.add_argument(*argument.flags, **argument.options)
        subparser.set_defaults(function=command.function)
    return below
