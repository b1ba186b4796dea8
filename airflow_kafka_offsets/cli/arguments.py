"""The commands and their arguments: the one definition behind ``kafka-offsets`` and ``airflow kafka-offsets``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_kafka_offsets.cli.exit_codes import explain
from airflow_kafka_offsets.core.window import State

NAME = "kafka-offsets"
DESCRIPTION = "Windows of Kafka topics: what was read, what comes next, and the two things that only a person may do."
LEDGER_VARIABLE = "KAFKA_OFFSETS_LEDGER"


@dataclass(frozen=True)
class Argument:
    """One argument: flags (or a positional name) and what argparse is told about it."""

    flags: tuple[str, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        name, help, description: for people.
        function: dotted path of what runs it; imported when it runs.
        arguments: in the order of the help.
    """

    name: str
    help: str
    description: str
    function: str
    arguments: tuple[Argument, ...]

    @property
    def epilog(self) -> str:
        """What stands below the help."""
        return explain()


@dataclass(frozen=True)
class CommandGroup:
    """Commands below a name."""

    name: str
    help: str
    commands: tuple[Command, ...]


def argument(*flags: str, **options: Any) -> Argument:
    """Define an argument."""
    return Argument(flags, options)


def positive(text: str) -> int:
    """Read a number that is at least 1."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def reason(text: str) -> str:
    """Read a text that says something."""
    if not text.strip():
        raise argparse.ArgumentTypeError("say why: the reason is kept in the ledger for whoever finds this later")
    return text


_LEDGER = argument(
    "--ledger",
    metavar="URL_OR_CONNECTION",
    help="the ledger: SQLAlchemy's URL without a password, or an Airflow connection id. "
    f"Default: the environment variable {LEDGER_VARIABLE} (its URL may hold a password), else Airflow's configuration",
)
_OUTPUT = argument(
    "-o", "--output", choices=("table", "json"), default="table", help="table for people (default), json for programs"
)
_SERVERS = argument(
    "--bootstrap-servers",
    metavar="HOST:PORT,...",
    help="ask this Kafka instead of the group's Airflow connection",
)
_KAFKA_CONFIG = argument(
    "--kafka-config",
    metavar="FILE",
    help="properties file with librdkafka's settings (bootstrap.servers, sasl.username, ...), instead of the group's "
    "Airflow connection",
)
_GROUP = argument("group", metavar="GROUP", help="name of the group")
_WHY = argument(
    "--why",
    required=True,
    type=reason,
    metavar="TEXT",
    help="the reason, kept in the ledger together with who and when",
)
_WHO = argument("--who", metavar="NAME", help="who does it (default: the user of the operating system)")
_YES = argument("--yes", action="store_true", help="do it; without this, say what would happen")

_COMMON = (_LEDGER, _OUTPUT)
_KAFKA = (_SERVERS, _KAFKA_CONFIG)
_HERE = "airflow_kafka_offsets.cli"

STATUS = Command(
    "status",
    "groups, their open window, what was committed last, lag",
    "Show every group, or one group by topic-partition: watermark, open window and who holds it, the last committed "
    "window, lag. When Kafka does not answer, the rest is shown and the exit code is 3.",
    f"{_HERE}.status.status",
    (
        argument("group", metavar="GROUP", nargs="?", help="name of the group (default: all groups)"),
        argument("--offline", action="store_true", help="do not ask Kafka: no lag"),
        *_KAFKA,
        *_COMMON,
    ),
)
WINDOWS = Command(
    "windows",
    "windows of a group, or some windows in detail",
    "List the windows of a group, newest first; with --ids (or a window's id instead of the group) show ranges, attempts "
    "and lost ranges.",
    f"{_HERE}.windows.windows",
    (
        argument("group", metavar="GROUP", help="name of the group, or the id of one window"),
        argument("--ids", metavar="IDS", help="windows to show in detail: 12, 12-15, 3,12-15 or a window id"),
        argument(
            "--state",
            action="append",
            choices=[state.value for state in State],
            help="only windows in this state; may be given more than once",
        ),
        argument("--limit", type=positive, default=20, metavar="N", help="at most so many windows (default: 20)"),
        *_COMMON,
    ),
)
PLAN = Command(
    "plan",
    "what the next window would be, and why; or what a replay would run",
    "Show the oldest open window, and the one that would be cut next up to the end offset. With --windows, "
    "--from and --to, or --starting-offsets and --ending-offsets: the windows that a replay of these would run. Writes nothing.",
    f"{_HERE}.plan.plan",
    (
        _GROUP,
        argument("--windows", metavar="IDS", help="replay these windows: 12, 12-15, 3,12-15 or a window id"),
        argument("--from", dest="from_time", metavar="TIME", help="replay a span: after this time, with its zone"),
        argument("--to", dest="to_time", metavar="TIME", help="and up to this time"),
        argument(
            "--starting-offsets", metavar="JSON", help='replay offset ranges: Spark\'s JSON ({"orders":{"0":23}})'
        ),
        argument("--ending-offsets", metavar="JSON", help="and the offsets behind the last ones"),
        *_KAFKA,
        *_COMMON,
    ),
)
ABANDON = Command(
    "abandon",
    "give an unfinished window up",
    "Take the ownership of its offsets from the newest open window: the next run plans them anew, under another id. What "
    "its job has written under the old id has to go. Without --yes: a dry run.",
    f"{_HERE}.abandon.abandon",
    (argument("window_id", metavar="WINDOW_ID", help="such as lake.orders-000012"), _WHY, _WHO, _YES, *_COMMON),
)
RESET = Command(
    "reset",
    "move the watermark of a group",
    "Move the watermark of a group. Forwards leaves a recorded gap; backwards supersedes windows, whose output has to go. "
    "Without --yes: a dry run.",
    f"{_HERE}.reset.reset",
    (
        _GROUP,
        argument(
            "--to",
            metavar="POSITION",
            help="earliest, latest, a time with its zone (2026-01-31T00:00:00+00:00) or Spark's JSON of offsets "
            '({"orders":{"0":23}}); partitions that the JSON does not name stay',
        ),
        argument("--to-window", metavar="ID", help="instead of --to: the start of this window (12, or its whole id)"),
        argument("--topic", action="append", metavar="TOPIC", help="move this topic only; may be given more than once"),
        _WHY,
        _WHO,
        argument(
            "--supersede",
            action="store_true",
            help="confirm that committed windows lose their offsets, and that their output is removed",
        ),
        _YES,
        *_KAFKA,
        *_COMMON,
    ),
)
DB = CommandGroup(
    "db",
    "the ledger's tables",
    (
        Command(
            "upgrade",
            "make or upgrade the ledger's tables",
            "Make the ledger's tables, or bring them to the revision that this package needs; does nothing when they are.",
            f"{_HERE}.db.upgrade",
            _COMMON,
        ),
        Command(
            "current",
            "show the revision of the ledger's tables",
            "Show the revision of the ledger's tables and the one that this package needs; exit code 3 when they differ.",
            f"{_HERE}.db.current",
            _COMMON,
        ),
    ),
)

COMMANDS: tuple[Command | CommandGroup, ...] = (STATUS, WINDOWS, PLAN, ABANDON, RESET, DB)
