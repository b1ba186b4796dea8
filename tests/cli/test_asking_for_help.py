"""What someone types who does not know the commands: a slip, ``help``, ``version``, the tab key."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from airflow_kafka_offsets import __version__
from airflow_kafka_offsets.cli.parser import make_parser
from tests.cli.conftest import Cli, run_program


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["stauts"], "status"),
        (["take_over", "g"], "take-over"),
        (["db", "upgarde"], "upgrade"),
        (["windows", "g", "--state", "comitted"], "committed"),
        (["hlep"], "help"),
        (["help", "stauts"], "status"),
    ],
)
def test_a_slip_is_answered_with_what_may_be_meant(cli: Cli, typed: list[str], meant: str) -> None:
    done = cli(*typed)
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith(f"Did you mean {meant}?\n")


def test_what_resembles_nothing_gets_the_list_only(cli: Cli) -> None:
    done = cli("quux")
    assert done.code == 2
    assert "status" in done.err
    assert "Did you mean" not in done.err


def test_an_option_before_the_command_is_told_where_it_belongs(cli: Cli) -> None:
    done = cli("--ledger", "my_ledger", "status")
    assert done.code == 2
    assert done.err.endswith("The command comes first, its options after it\n")


@pytest.mark.parametrize("typed", ["-V", "--version", "version"])
def test_the_version_is_told(cli: Cli, typed: str) -> None:
    assert cli(typed) == cli("--version")
    assert cli(typed).out == f"kafka-offsets {__version__}\n"


def test_help_is_a_command_too(cli: Cli) -> None:
    assert cli("help") == cli("--help")
    assert cli("help", "db", "upgrade") == cli("db", "upgrade", "--help")
    assert cli("help").code == 0
    assert "usage: kafka-offsets" in cli("help").out


def test_a_command_is_needed(cli: Cli) -> None:
    assert cli().code == 2


def completions(line: str, tmp_path: Path) -> set[str]:
    """Return what the tab key offers behind a line, as a shell asks for it: it reads what the program writes to its file 8."""
    folder, program = tmp_path / "completions", Path(sys.executable).parent / "kafka-offsets"
    shell = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    command = ["sh", "-c", 'exec "$0" 8>"$1" 9>/dev/null', str(program), str(folder)]
    assert run_program(command, shell).returncode == 0
    return {word.strip() for word in folder.read_text().splitlines()}


def test_the_tab_key_completes_commands_options_and_choices(tmp_path: Path) -> None:
    assert completions("kafka-offsets re", tmp_path) == {"reset"}
    assert completions("kafka-offsets db ", tmp_path) >= {"current", "upgrade"}
    assert completions("kafka-offsets plan --d", tmp_path) == {"--dag"}
    assert completions("kafka-offsets windows g --state comm", tmp_path) == {"committed", "committing"}


def test_the_help_ends_with_the_exit_codes() -> None:
    assert "exit codes:" in make_parser().format_help()
