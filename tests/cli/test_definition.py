"""One definition of the commands, and a page that documents it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_kafka_offsets.cli.arguments import COMMANDS, Argument, Command, CommandGroup
from airflow_kafka_offsets.cli.parser import make_parser
from airflow_kafka_offsets.cli.running import MEANING, ExitCode, code_of
from airflow_kafka_offsets.core import errors
from airflow_kafka_offsets.core.offsets import TopicPartition
from tests.cli.conftest import ORDERS_0, Cli, Stores

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()


def all_commands(
    commands: tuple[Command | CommandGroup, ...] = COMMANDS, above: str = ""
) -> Iterator[tuple[str, Command]]:
    for command in commands:
        if isinstance(command, CommandGroup):
            yield from all_commands(command.commands, f"{command.name} ")
        else:
            yield above + command.name, command


NAMED = dict(all_commands())


def section(name: str) -> str:
    match = re.search(rf"^## {name}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert match, f"the page has no section {name}"
    return match[1]


def flags(argument: Argument) -> set[str]:
    return {flag for flag in argument.flags if flag.startswith("--")}


def shared(command: Command) -> set[str]:
    return set.union(*map(flags, command.arguments)) & {"--ledger", "--output", "--bootstrap-servers", "--kafka-config"}


@pytest.mark.parametrize("name", NAMED)
def test_the_page_tells_each_argument_of_a_command_and_no_other(name: str) -> None:
    command = NAMED[name]
    documented = set(re.findall(r"--[a-z][a-z-]*", section(f"`{name}`")))
    defined = set().union(*map(flags, command.arguments))
    assert defined - shared(command) <= documented
    assert documented <= defined


def test_the_page_tells_the_shared_arguments() -> None:
    documented = set(re.findall(r"--[a-z][a-z-]*", section("For all commands")))
    assert set.union(*(shared(command) for command in NAMED.values())) <= documented


def test_the_page_has_no_other_command() -> None:
    assert set(re.findall(r"^## `(.*)`$", PAGE, re.MULTILINE)) == NAMED.keys()


def test_the_page_and_the_help_tell_the_exit_codes() -> None:
    for code, meaning in MEANING.items():
        assert f"| {code.value} | {meaning} |" in PAGE
        assert f"{code.value}  {meaning}" in make_parser().format_help()
    assert MEANING.keys() == set(ExitCode)


def keys_in_page(name: str) -> set[str]:
    return set(re.findall(r"`([a-z_]+)`", section(f"`{name}`").split("JSON:")[1]))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("status", ("status", "lake.orders")),
        ("windows", ("windows", "lake.orders", "--ids", "2")),
        ("windows", ("windows", "lake.orders")),
        ("plan", ("plan", "lake.orders")),
        ("abandon", ("abandon", "lake.orders-000003", "--why", "w")),
        ("commit", ("commit", "lake.orders-000003", "--why", "w")),
        ("prune", ("prune", "lake.orders", "--older-than", "1d")),
        ("import", ("import", "new", "--from", "ledger", "--as", "lake.clicks", "--why", "w")),
        ("export", ("export", "lake.orders")),
        ("copy", ("copy", "lake.orders", "--from", "ledger", "--to", "redis://redis_default", "--why", "w")),
        ("verify", ("verify", "lake.orders", "--store", "redis://redis_default")),
        ("db upgrade", ("db", "upgrade")),
        ("db current", ("db", "current")),
    ],
)
def test_the_page_tells_the_keys_of_the_json(cli: Cli, stores: Stores, name: str, arguments: tuple[str, ...]) -> None:
    stores["redis://redis_default"].groups["lake.orders"] = {ORDERS_0: 5, TopicPartition("orders", 9): 7}
    assert keys_of(cli(*arguments, "-o", "json").json) <= keys_in_page(name) | window_keys()


def test_the_page_tells_the_keys_of_a_reset(cli: Cli, quiet: object) -> None:
    document = cli("reset", "lake.orders", "--to", "earliest", "--why", "w", "-o", "json").json
    assert keys_of(document) <= keys_in_page("reset") | window_keys()


def window_keys() -> set[str]:
    return set(re.findall(r"`([a-z_]+)`", section("Windows, ranges and runs in JSON")))


def keys_of(document: object) -> set[str]:
    if isinstance(document, list):
        return set().union(*map(keys_of, document))
    if not isinstance(document, dict):
        return set()
    below = (keys_of(value) for key, value in document.items() if key != "topic_ids")  # its keys are topics
    return set(document).union(*below)


def below(error: type[errors.KafkaOffsetsError]) -> Iterator[type[errors.KafkaOffsetsError]]:
    """Return an error and all its descendants, also those of an adapter."""
    yield error
    for child in error.__subclasses__():
        yield from below(child)


# The exit code of an error and of all below it, but for those that are named here themselves.
CODES = {
    errors.KafkaOffsetsError: ExitCode.REFUSED,
    errors.BadInputError: ExitCode.USAGE,
    errors.KafkaAnswerError: ExitCode.UNAVAILABLE,
    errors.LedgerError: ExitCode.UNAVAILABLE,
    errors.StoreAnswerError: ExitCode.UNAVAILABLE,
    errors.StoreBehindError: ExitCode.UNAVAILABLE,
    errors.RegistryError: ExitCode.UNAVAILABLE,
    errors.ConnectorUnavailableError: ExitCode.UNAVAILABLE,
    errors.ConfirmationError: ExitCode.UNCONFIRMED,
}


def test_every_error_has_the_exit_code_of_its_kind() -> None:
    for error in below(errors.KafkaOffsetsError):
        expected = next(CODES[kind] for kind in error.__mro__ if kind in CODES)
        assert code_of(error.__new__(error)) is expected, error.__name__


def test_no_exit_code_takes_back_what_a_parent_says() -> None:
    for error in below(errors.KafkaOffsetsError):
        code = code_of(error.__new__(error))
        if error.may_pass:
            assert code is ExitCode.UNAVAILABLE, error.__name__
        if code is not ExitCode.REFUSED:  # the code of what has none of its own
            assert {code_of(child.__new__(child)) for child in below(error)} == {code}, error.__name__


def test_airflow_gets_the_same_commands_and_arguments() -> None:
    from airflow.cli.cli_config import GroupCommand
    from airflow.cli.cli_parser import _add_command

    from airflow_kafka_offsets.cli.airflow_command import get_cli_commands

    [group] = get_cli_commands()
    assert isinstance(group, GroupCommand)
    theirs = argparse.ArgumentParser()
    _add_command(theirs.add_subparsers(), group)
    for line in (
        ["status", "lake.orders", "--offline", "-o", "json"],
        ["plan", "--dag", "dags/orders.py", "lake.orders"],
        ["windows", "lake.orders", "--state", "planned", "--state", "committed", "--limit", "3"],
        ["reset", "lake.orders", "--to", "earliest", "--why", "w", "--topic", "orders", "--supersede", "--yes"],
        [
            "import",
            "lake.orders",
            "--from",
            "csv:-",
            "--as",
            "old",
            "--meaning",
            "last-read",
            "--why",
            "w",
            "--skip-lost",
        ],
        ["export", "lake.orders", "--to", "offsets.csv", "--why", "w"],
        ["copy", "lake.orders", "--from", "ledger", "--to", "redis://r", "--why", "w", "--yes"],
        ["verify", "lake.orders", "--store", "redis://r"],
        ["db", "current", "--ledger", "sqlite://"],
    ):
        ours, other = (vars(p) for p in (make_parser().parse_args(line), theirs.parse_args([group.name, *line])))
        assert {k: v for k, v in ours.items() if k != "function"} == {
            k: v for k, v in other.items() if k not in ("func", "subcommand")
        }
