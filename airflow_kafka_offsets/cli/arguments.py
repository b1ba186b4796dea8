"""The commands and their arguments: the one definition behind ``kafka-offsets`` and ``airflow kafka-offsets``."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from airflow_kafka_offsets.core.errors import short
from airflow_kafka_offsets.core.fields import is_text
from airflow_kafka_offsets.core.source.offsets import Meaning
from airflow_kafka_offsets.core.window import State

NAME = "kafka-offsets"
DESCRIPTION = "Windows of Kafka topics: what was read, what comes next, and what only a person may do."
LEDGER_VARIABLE = "KAFKA_OFFSETS_LEDGER"

SHORTEST_INTERVAL = 0.1

_DIGITS = 18
"""The most digits of a number that every database can hold."""


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
        function: what runs it, below `airflow_kafka_offsets.cli`; imported when it runs.
        arguments: in the order of the help.
    """

    name: str
    help: str
    description: str
    function: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class CommandGroup:
    """Commands below a name."""

    name: str
    help: str
    commands: tuple[Command, ...]


def argument(*flags: str, **options: Any) -> Argument:
    """Define an argument; unless it has another type, its value is a text that says something."""
    has_value = options.get("action") != "store_true" and "choices" not in options
    return Argument(flags, {"type": text, **options} if has_value else options)


def text(value: str) -> str:
    """Read a text that says something, and that a database can hold."""
    if not value.strip():
        raise argparse.ArgumentTypeError("it is empty")
    if not is_text(value):
        raise argparse.ArgumentTypeError(
            f"{short(value)} has bytes that are not text in the encoding of this console ({sys.getfilesystemencoding()})"
        )
    return value


def path(value: str) -> Path:
    """Read the path of a file or folder; ``~`` is the home of the user."""
    expanded = os.path.expanduser(text(value))
    if expanded.startswith("~"):
        raise argparse.ArgumentTypeError(f"{short(value)} begins with ~, and there is no such user")
    return Path(expanded).absolute()


def positive(value: str) -> int:
    """Read a number that is at least 1."""
    if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS and int(value) > 0):
        raise argparse.ArgumentTypeError(f"{short(value)} is not a whole number above 0 with at most {_DIGITS} digits")
    return int(value)


def interval(value: str) -> float:
    """Read seconds between two looks."""
    if value.isascii() and re.fullmatch(r"\d{1,6}(\.\d{1,3})?", value) and float(value) >= SHORTEST_INTERVAL:
        return float(value)
    raise argparse.ArgumentTypeError(
        f"{short(value)} is not a number of seconds from {SHORTEST_INTERVAL} on, such as 5"
    )


@dataclass(frozen=True)
class Age:
    """A length of time, and how it was written."""

    age: timedelta
    written: str


_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_LONGEST_AGE = timedelta(days=36_500)


def age(value: str) -> Age:
    """Read a length of time such as 90d."""
    number, unit = value[:-1], value[-1:]
    if unit in _UNITS and number.isascii() and number.isdigit() and 0 < len(number) <= 6:
        found = timedelta(**{_UNITS[unit]: int(number)})
        if timedelta(0) < found <= _LONGEST_AGE:
            return Age(found, value)
    raise argparse.ArgumentTypeError(
        f"{short(value)} is not a length of time such as 90d: a whole number above 0 and h (hours), d (days) or w (weeks), at most 100 years"
    )


def ledger_id(value: str) -> str:
    """Read the id of a ledger."""
    if not re.fullmatch("[0-9a-f]{32}", value):
        raise argparse.ArgumentTypeError(
            f"{short(value)} is not the id of a ledger: 32 of the digits 0 to 9 and a to f"
        )
    return value


_LEDGER = argument(
    "--ledger",
    metavar="URL_OR_CONNECTION",
    help="the ledger: SQLAlchemy's URL without a password, or an Airflow connection id. "
    f"Default: the environment variable {LEDGER_VARIABLE} (its URL may have a password), else Airflow's configuration",
)
_OUTPUT = argument(
    "-o", "--output", choices=("table", "json"), default="table", help="table for people (default), json for programs"
)
_SERVERS = argument(
    "--bootstrap-servers",
    metavar="HOST:PORT,...",
    help="use this Kafka, without a login, instead of the group's Airflow connection",
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
    metavar="TEXT",
    help="the reason; the ledger keeps it together with who and when",
)
_WHO = argument("--who", metavar="NAME", help="who does it (default: the user of the operating system)")
_SUPERSEDE = argument(
    "--supersede",
    action="store_true",
    help="confirm that committed windows lose their offsets, and that you remove their output",
)
_LEAVE_GAP = argument(
    "--leave-gap",
    action="store_true",
    help="confirm that no one owns the window's offsets after that, as later windows start where it ends",
)
_YES = argument("--yes", action="store_true", help="do it; without --yes, the command shows what would happen")

_from = partial(
    argument,
    "--from",
    dest="from_source",
    metavar="SOURCE",
    help="where the offsets come from: ledger, the address of an offset store (redis://redis_default; kafka:// is the Kafka "
    "consumer group), checkpoint:DIRECTORY of Structured Streaming (a local path, or a URL that fsspec reads; with "
    "?source=N only one of its sources), or csv:FILE of kafka-consumer-groups (csv:- is stdin)",
)
_AS = argument(
    "--as",
    dest="as_name",
    metavar="NAME",
    help="the name under which the source keeps the offsets (default: the group's name)",
)
_MEANING = argument(
    "--meaning",
    choices=[meaning.value for meaning in Meaning],
    default=Meaning.NEXT.value,
    help="what the numbers of the source are: the next offset to read (default), or the last one that was read",
)
_TOPIC = argument("--topic", action="append", metavar="TOPIC", help="only this topic; may be given more than once")

_WINDOW_ID = argument("window_id", metavar="WINDOW_ID", help="id of the window, such as lake.orders-000012")
_COMMON = (_LEDGER, _OUTPUT)
_ASKING = (_SERVERS, _KAFKA_CONFIG, *_COMMON)
_ASKING_ALL = (_SERVERS, _KAFKA_CONFIG, _LEDGER)
_ACT = (_WHY, _WHO, _YES)
_SOURCE = (_AS, _MEANING, _TOPIC)
_SPARK_HOME = argument(
    "--spark-home",
    type=path,
    metavar="FOLDER",
    help="home of Spark (default: the environment variable SPARK_HOME, else the home of the spark-submit on PATH)",
)
_TO_FOLDER = argument(
    "--to",
    type=path,
    metavar="FOLDER",
    help="store the files below this folder instead of in the cache folder (Airflow's configuration, [kafka_offsets] cache_folder)",
)

COMMANDS: tuple[Command | CommandGroup, ...] = (
    Command(
        "status",
        "show groups: verdict, lag, headroom, open window, last committed window",
        "Show all groups in short, or one group by topic-partition: the verdict (OK, BEHIND, STALLED, NEEDS RERUN, AT RISK, LOST), the lag in "
        "offsets and in time, how long until retention reaches what is unread, the open window and the run that has it, and the "
        "last committed window. If Kafka does not answer, the rest is shown, and the exit code is 3.",
        "status.status",
        (
            argument("group", metavar="GROUP", nargs="?", help="name of the group (default: all groups)"),
            argument("--offline", action="store_true", help="do not ask Kafka; the lag is not shown"),
            *_ASKING,
        ),
    ),
    Command(
        "metrics",
        "show, write or serve where groups stand, for Prometheus",
        "Print metrics of all groups in Prometheus' text format: lag, lag in time, headroom, last commit, open windows and verdict. With "
        "--output, write them into a file, such as one that node_exporter reads. With --listen, serve them until someone stops the "
        "command: a scrape gets the answers of the last collection, and waits for neither Kafka nor the ledger.",
        "metrics.metrics",
        (
            argument("--listen", metavar="HOST:PORT", help="serve the metrics there, such as 127.0.0.1:9310"),
            argument(
                "--output",
                dest="to_file",
                type=path,
                metavar="FILE",
                help="write the metrics into this file at once, such as /var/lib/node_exporter/kafka_offsets.prom",
            ),
            argument("--per-partition", action="store_true", help="show lag and headroom of each partition"),
            argument(
                "--interval",
                type=positive,
                default=60,
                metavar="SECONDS",
                help="with --listen: the time between two collections (default: 60)",
            ),
            *_ASKING_ALL,
        ),
    ),
    Command(
        "watch",
        "show groups again and again: verdict, lag, headroom, open window",
        "Show what status shows, once per interval: in a terminal in place, elsewhere one after the other. Ctrl-C ends it. If Kafka or "
        "the ledger stops answering, the reason is shown, and the next look may find it again.",
        "status.watch",
        (
            argument("group", metavar="GROUP", nargs="?", help="name of the group (default: all groups)"),
            argument(
                "--interval",
                type=interval,
                default=5.0,
                metavar="SECONDS",
                help="seconds between two looks, at least 0.1 (default: 5)",
            ),
            argument("--count", type=positive, metavar="N", help="end after N looks (default: look until Ctrl-C)"),
            *_ASKING,
        ),
    ),
    Command(
        "windows",
        "show the windows of a group, or some windows in detail",
        "Show the windows of a group, newest first. With --ids, or with a window's id instead of the group, each window is shown "
        "in detail: its offset ranges, its attempts, and what was lost to retention before it started.",
        "windows.windows",
        (
            argument("group", metavar="GROUP", help="name of the group, or the id of one window"),
            argument("--ids", metavar="IDS", help="show these windows in detail: 12, 12-15, 3,12-15 or a window id"),
            argument(
                "--state",
                action="append",
                choices=[state.value for state in State],
                help="only windows in this state; may be given more than once",
            ),
            argument("--limit", type=positive, default=20, metavar="N", help="show at most N windows (default: 20)"),
            *_COMMON,
        ),
    ),
    Command(
        "plan",
        "show the next window, and why; or what a replay would run",
        "Show the oldest open window, and the window that would be planned next, up to the end offset. With --dag: as that DAG "
        "defines the group, also before its first run. With --windows, with --from and --to, or with --starting-offsets and "
        "--ending-offsets: the windows that a replay of these would run. Nothing is written.",
        "plan.plan",
        (
            argument(
                "group",
                metavar="GROUP",
                nargs="?",
                help="name of the group; with --dag, required only if several groups are planned there",
            ),
            argument(
                "--dag",
                metavar="FILE",
                help="take the group's definition from this DAG file (default: the definition in the ledger)",
            ),
            argument("--windows", metavar="IDS", help="replay these windows: 12, 12-15, 3,12-15 or a window id"),
            argument(
                "--from", dest="from_time", metavar="TIME", help="replay a time span: after this time, with its zone"
            ),
            argument("--to", dest="to_time", metavar="TIME", help="and up to this time"),
            argument(
                "--starting-offsets", metavar="JSON", help='replay offset ranges: Spark\'s JSON ({"orders":{"0":23}})'
            ),
            argument("--ending-offsets", metavar="JSON", help="and where these ranges end: one past the last offset"),
            *_ASKING,
        ),
    ),
    Command(
        "abandon",
        "abandon an open window",
        "Abandon an open window: it no longer owns its offsets. If it is the newest one, the next run plans them again, under another "
        "id. If it is an older one, they become a recorded gap, which a replay can fill. Remove what the job has written under the "
        "old id. Without --yes: a dry run.",
        "acts.abandon",
        (_WINDOW_ID, *_ACT, _LEAVE_GAP, *_ASKING),
    ),
    Command(
        "commit",
        "commit a window whose job has read all of it",
        "Commit an open window, or one that needs another run, on your word that its job has read all of it. Use this if no run can read it again: its "
        "topic was recreated, or its records expired, and what the job wrote is the only copy. Without --yes: a dry run.",
        "acts.commit",
        (_WINDOW_ID, *_ACT, *_ASKING),
    ),
    Command(
        "reset",
        "move the watermark of a group",
        "Move the watermark of a group. A move forwards leaves a recorded gap. A move backwards supersedes windows: remove their "
        "output. Without --yes: a dry run.",
        "acts.reset",
        (
            _GROUP,
            argument(
                "--to",
                metavar="POSITION",
                help="earliest, latest, a time with its zone (2026-01-31T00:00:00+00:00) or Spark's JSON of offsets "
                '({"orders":{"0":23}}); partitions that the JSON does not name stay',
            ),
            argument(
                "--to-window", metavar="ID", help="instead of --to: the start of this window (12, or its whole id)"
            ),
            _TOPIC,
            *_ACT,
            _SUPERSEDE,
            *_ASKING,
        ),
    ),
    Command(
        "take-over",
        "give a group to another DAG or task",
        "Give a group to another DAG or task, usually after a rename. A group belongs to the task that plans it, and no other task "
        "gets its live windows. Open windows move with the group, as they are. Without --yes: a dry run.",
        "acts.take_over",
        (
            _GROUP,
            argument("--dag", required=True, metavar="DAG_ID", help="the DAG that the group belongs to from now on"),
            argument(
                "--task",
                required=True,
                metavar="TASK_ID",
                help="the task of this DAG that plans; its id has the task groups, as Airflow shows it",
            ),
            *_ACT,
            *_COMMON,
        ),
    ),
    Command(
        "inherit",
        "let a group write beside its output of a lost ledger",
        "Let a group write beside its output of another ledger, which was lost for good. A sink refuses that, as records count twice if "
        "the other ledger still writes there. A group with a name of its own needs no such act. Without --yes: a dry run.",
        "acts.inherit",
        (
            _GROUP,
            argument(
                "--ledger-id",
                required=True,
                type=ledger_id,
                metavar="ID",
                help="the id of the lost ledger, as the sink's error names it",
            ),
            *_ACT,
            *_COMMON,
        ),
    ),
    Command(
        "prune",
        "take old windows out of the ledger that Kafka no longer holds",
        "Take windows out of the ledger, from the oldest on: those that are closed, were not used for a while, and whose offsets Kafka no "
        "longer holds. The first window that has to stay ends it, and the answer says why that one stays. The watermark and all output "
        "stay as they are, and no id is given again. It is done in many short transactions: DAGs may run meanwhile, and if it is "
        "stopped, the next one continues. Without --yes: a dry run.",
        "prune.prune",
        (
            argument("group", metavar="GROUP", nargs="?", help="name of the group"),
            argument("--all", action="store_true", help="all groups of the ledger"),
            argument(
                "--older-than",
                required=True,
                type=age,
                metavar="AGE",
                help="only windows to which nothing has happened for this long: 90d, 12w or 48h",
            ),
            argument(
                "--deleted-topics",
                action="store_true",
                help="confirm that topics which Kafka does not have under their last known id were deleted, and that this is the right "
                "Kafka",
            ),
            argument(
                "--why",
                metavar="TEXT",
                help="the reason; the ledger keeps it together with who and when (default: the age)",
            ),
            _WHO,
            _YES,
            *_ASKING,
        ),
    ),
    Command(
        "import",
        "set the watermark of a group to the offsets of another source",
        "Set the watermark of a group to the offsets that a store, a Kafka consumer group, a checkpoint of Structured Streaming or "
        "a CSV file holds. If the ledger does not know the group, the group is made. If it does, this is a reset. First stop "
        "whoever still reads these topics from that source. Without --yes: a dry run.",
        "moves.import_offsets",
        (
            _GROUP,
            _from(required=True),
            *_SOURCE,
            argument(
                "--kafka-conn-id",
                metavar="ID",
                help="the Airflow connection of a group that the ledger does not know (default: kafka_default)",
            ),
            argument(
                "--skip-lost",
                action="store_true",
                help="where retention has removed what would come next, continue at the beginning offset, and record what was lost",
            ),
            argument(
                "--leave-gap",
                action="store_true",
                help="take the offsets of the group's own store, also if the ledger may be older than the store: what is between becomes "
                "a recorded gap. If the ledger was restored from an older copy, new windows get ids that have output",
            ),
            *_ACT,
            _SUPERSEDE,
            *_ASKING,
        ),
    ),
    Command(
        "export",
        "write next offsets as the CSV that kafka-consumer-groups reads",
        "Print the next offsets of a group, or write them into a new file. They come from the ledger, or from the source of --from. "
        "kafka-consumer-groups --reset-offsets --from-file reads them. Into a file, without --yes: a dry run.",
        "moves.export",
        (
            _GROUP,
            _from(default="ledger"),
            *_SOURCE,
            argument(
                "--to", metavar="FILE", default="-", help="a file that does not exist yet, or - for stdout (default)"
            ),
            argument(
                "--why",
                metavar="TEXT",
                help="the reason; required for a file, because such an export is recorded",
            ),
            _WHO,
            _YES,
            *_ASKING,
        ),
    ),
    Command(
        "copy",
        "advance an offset store to the offsets of another source",
        "Advance an offset store to the offsets that the ledger, another store, a consumer group, a checkpoint or a file holds. The "
        "write is a compare-and-set from what the store holds now. After it, the store is read back and compared. Without --yes: a "
        "dry run.",
        "moves.copy",
        (
            _GROUP,
            _from(required=True),
            *_SOURCE,
            argument("--to", required=True, metavar="STORE", help="address of the offset store"),
            *_ACT,
            *_ASKING,
        ),
    ),
    Command(
        "verify",
        "compare the ledger, the offset store and Kafka",
        "Compare the watermark of a group with what its offset store holds, and with what Kafka has. Only the partitions that "
        "differ are shown. If some differ, the exit code is 1. Nothing is written.",
        "moves.verify",
        (
            _GROUP,
            argument("--store", metavar="STORE", help="address of an offset store (default: the group's own)"),
            *_ASKING,
        ),
    ),
    Command(
        "audit",
        "check that a table has each record of the windows once",
        "Compare the committed windows of a group with what a table has of their topics. Missing and doubled ranges are named with "
        "their windows. If there are any, the exit code is 1. --table takes a CSV of the table's unbroken ranges of offsets: "
        '"Audit a table" in the docs (docs/howto/audit-a-table.md) has the query for it. Only the ledger is asked, and nothing is '
        "written.",
        "audit.audit",
        (
            _GROUP,
            argument(
                "--table",
                required=True,
                action="append",
                metavar="FILE",
                help="a CSV file, a folder of such files as Spark writes it, or - for stdin; the columns are "
                "topic,partition,first_offset,last_offset,copies; may be given more than once, for tables that belong together",
            ),
            argument("--windows", metavar="IDS", help="only these windows: 12, 12-15, 3,12-15 or a window id"),
            *_COMMON,
        ),
    ),
    Command(
        "try-login",
        "try the login of a Kafka connection, and the rights that a group needs",
        "Log in to Kafka as planning does, and translate the login as a job will, or with --job log in as a job does. Show the user's "
        "rights on topics and, for a group, on what its offset store needs. Each line is right, or says which setting or right to correct. If one has to be corrected, the "
        "exit code is 1. No record is read, and no offset is written.",
        "try_login.try_login",
        (
            argument("connection", metavar="CONNECTION", help="id of the Airflow connection, of type kafka"),
            argument(
                "--topic",
                action="append",
                metavar="TOPIC",
                help="a topic that will be read; may be given more than once (default: the group's)",
            ),
            argument(
                "--group",
                metavar="GROUP",
                help="name of a group that the ledger has, with its topics, options and store",
            ),
            argument(
                "--job",
                action="store_true",
                help="log in with Spark's Kafka client, too: Spark starts on this machine, which takes some seconds",
            ),
            argument(
                "--timeout",
                type=positive,
                default=10,
                metavar="SECONDS",
                help="seconds after which a question to Kafka gives up (default: 10)",
            ),
            *_COMMON,
        ),
    ),
    Command(
        "jars",
        "fetch the jars of Spark's Kafka connector ahead of time",
        "Show the jars of the Kafka connector that fits Spark. If they are missing, Spark's own spark-submit fetches them. Launches "
        "in client mode find them there, and use no network. Neither the ledger nor Kafka is asked.",
        "setup.jars",
        (
            _SPARK_HOME,
            _TO_FOLDER,
            argument(
                "--avro",
                action="store_true",
                help="in place of the connector, the jars of Spark's Avro, which launches need for a group with a schema registry",
            ),
            argument(
                "--submit-args",
                metavar="TEXT",
                help="more options for spark-submit, for example '--repositories URL' if Spark's own settings name no mirror",
            ),
            _OUTPUT,
        ),
    ),
    Command(
        "archive",
        "make the archive from which drivers start, ahead of time",
        "Show the archive of classes from which the JVM of a driver in client mode starts. If it is missing, a small Spark job makes "
        "it. This takes half a minute of one core, and 170 MB. It requires Java 17 or later. Neither the ledger nor Kafka is asked.",
        "setup.archive",
        (
            _SPARK_HOME,
            _TO_FOLDER,
            argument("--again", action="store_true", help="make it even if there is one"),
            _OUTPUT,
        ),
    ),
    CommandGroup(
        "db",
        "make or show the ledger's tables",
        (
            Command(
                "upgrade",
                "make the ledger's tables",
                "Make the ledger's tables, or bring them to the revision that this package needs. If they have it, nothing is changed.",
                "setup.upgrade",
                (
                    argument(
                        "--beside-others",
                        action="store_true",
                        help="make the ledger even in a SQLite file that has only tables of another application",
                    ),
                    *_COMMON,
                ),
            ),
            Command(
                "current",
                "show the revision of the ledger's tables",
                "Show the revision of the ledger's tables, and the revision that this package needs. If they differ, the exit code is 3.",
                "setup.current",
                _COMMON,
            ),
        ),
    ),
)
