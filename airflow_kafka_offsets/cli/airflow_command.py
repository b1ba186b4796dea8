"""``airflow kafka-offsets``: the same commands below Airflow's own. Imported on every ``airflow`` call: keep it light."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.cli.cli_config import CLICommand

    from airflow_kafka_offsets.cli.arguments import Command, CommandGroup


def get_cli_commands() -> list[CLICommand]:
    """Return our commands for Airflow's parser."""
    from airflow.cli.cli_config import GroupCommand

    from airflow_kafka_offsets.cli.arguments import COMMANDS, DESCRIPTION, NAME

    return [GroupCommand(name=NAME, help=DESCRIPTION, subcommands=_theirs(COMMANDS))]


def _theirs(commands: Sequence[Command | CommandGroup]) -> list[CLICommand]:
    from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand

    from airflow_kafka_offsets.cli.arguments import CommandGroup
    from airflow_kafka_offsets.cli.running import explain

    return [
        GroupCommand(name=command.name, help=command.help, subcommands=_theirs(command.commands))
        if isinstance(command, CommandGroup)
        else ActionCommand(
            name=command.name,
            help=command.help,
            description=command.description,
            epilog=explain(),
            func=_run(command.function),
            args=[Arg(argument.flags, **argument.options) for argument in command.arguments],
        )
        for command in commands
    ]


def _run(function: str) -> Callable[[Any], None]:
    def command(args: Any) -> None:
        from airflow_kafka_offsets.cli.running import run

        # Airflow drops what a command returns.
        sys.exit(run(function, args))

    return command
