"""Whatever people type, or have in their files: a sentence and the right exit code, never a traceback.

The console is one that can only print ASCII; a command that asks to correct what was typed has changed nothing.
"""

from __future__ import annotations

import io
import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from airflow.sdk import BaseHook
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.airflow_versions import AirflowNotFoundException
from airflow_kafka_offsets.cli import airflow_runs, main
from airflow_kafka_offsets.cli.arguments import COMMANDS, Argument, Command
from airflow_kafka_offsets.cli.running import ExitCode
from airflow_kafka_offsets.core.errors import MAX_MESSAGE
from tests.cli.conftest import Done, Lake
from tests.lab.memory import IN_MEMORY

NOT_UTF8 = os.fsdecode(b"lake\xff")
LONG = "9" * 100_000


class Shell:
    """The command line on a copy of the lake, with files of the user's in the working folder."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._ledger = lake.path.read_bytes()
        with self.new():
            # What people did is a part of a ledger, too.
            assert self.run("take-over", "lake.clicks", "--dag=d", "--task=t", "--why=moved", "--yes").code == 0
            self._ledger = Path("ledger.db").read_bytes()

    @contextmanager
    def new(self) -> Iterator[None]:
        """Be in a folder of one's own, with the ledger as it was."""
        before = os.getcwd()
        with TemporaryDirectory(dir=IN_MEMORY) as folder:
            os.chdir(folder)
            try:
                Path("ledger.db").write_bytes(self._ledger)
                Path("there.csv").write_text("orders,0,5\n")
                Path("dangling").symlink_to("nowhere/at/all")
                yield
            finally:
                os.chdir(before)

    def run(self, *arguments: str, ledger: str = "sqlite:///ledger.db", stdin: bytes = b"") -> Done:
        """Run a command; what it raises, the test raises."""
        out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
        err = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace", write_through=True)
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setenv("KAFKA_OFFSETS_LEDGER", ledger)
            patch.setenv("AIRFLOW_HOME", os.getcwd())
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            patch.setattr(wiring, "open_log", lambda group, config=None: self._lake.log)
            patch.setattr(airflow_runs, "is_over", lambda claim: None)
            patch.setattr(BaseHook, "get_connection", _no_connection)
            with pytest.raises(SystemExit) as ended:
                main(arguments)
        out_text, err_text = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
        return Done(int(ended.value.code or 0), out_text, err_text)

    def check(self, *arguments: str, **more: Any) -> Done:
        """Run a command, and see that it ends as commands do."""
        before = _contents()
        done = self.run(*arguments, **more)
        assert done.code in set(ExitCode), done
        if done.code:
            # What argparse refuses comes behind the usage.
            err_text = done.err.rpartition("error: ")[2]
            assert err_text.strip() or done.out, done
            assert len(err_text) <= MAX_MESSAGE, f"{len(err_text)} characters: {err_text[:200]}"
            assert "Traceback" not in err_text
        if done.code == ExitCode.USAGE:
            assert done.out == ""
            assert _contents() == before, f"changed, and yet: {err_text}"
        return done


def _no_connection(conn_id: str) -> None:
    raise AirflowNotFoundException(conn_id)


def _contents() -> list[str]:
    if not Path("ledger.db").exists():
        return []
    connection = sqlite3.connect("ledger.db")
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def shell(filled: Lake) -> Shell:
    """The command line."""
    return Shell(filled)


def commands() -> Iterator[tuple[tuple[str, ...], Command]]:
    """Return all commands that need neither Spark nor the network, with their names."""
    for entry in COMMANDS:
        if isinstance(entry, Command):
            if entry.name not in ("jars", "archive"):
                yield (entry.name,), entry
        else:
            yield from (((entry.name, below.name), below) for below in entry.commands)


PLACES = [
    "ledger", "csv:there.csv", "csv:-", "csv:", "csv:nowhere", "csv:.", "checkpoint:.", "checkpoint:there.csv", "checkpoint:",
    "checkpoint:~no one/x", "checkpoint:nosuch://a/b", "checkpoint:file:///nowhere?source=1", "checkpoint:s3://u:p@b/c",
    "redis://nobody", "kafka://", "sql://nobody/a/b?create=x", "files:///nowhere/at/all?keep=10", "files://x", "s3://[", "://",
    "redis://x?timeout=1e999", "files:///x?keep=" + "9" * 30, "zookeeper://x?layout=", "hbase://\u00eb", "kafka://?commit=no",
]  # fmt: skip
LEDGERS = [
    "sqlite:///ledger.db", "sqlite://", "sqlite:///nowhere/at/all.db", "sqlite:///.", "sqlite:///there.csv", "no one",
    "sqlite+nonsense:///ledger.db", "sqlite+aiosqlite:///ledger.db", "nonsense://x", "mysql+nonsense://u@127.0.0.1:1/d",
    "sqlite:////", "sqlite:///..", "sqlite:///file:new.db?uri=true", "sqlite:///%00", "sqlite:///" + "x" * 5000, "postgresql://u@127.0.0.1:99999/d", "mysql://u@127.0.0.1:99999/d",
    "mysql://u@" + "x" * 300 + ":1/d", "postgresql+x://", "://", "a://b:c", "sqlite:///ledger.db?", "oracle://u@h/d",
]  # fmt: skip
_OPTIONS = {
    "sqlite:///ledger.db": [
        "timeout", "isolation_level", "detect_types", "check_same_thread", "cached_statements", "uri", "factory", "nonsense",
        "autocommit", "database",
    ],
    "postgresql://u@127.0.0.1:1/d": [
        "connect_timeout", "sslmode", "host", "port", "options", "nonsense", "autocommit", "prepare_threshold", "row_factory",
        "cursor_factory", "context", "client_encoding", "keepalives",
    ],
    "mysql://u@127.0.0.1:1/d": [
        "connect_timeout", "read_timeout", "write_timeout", "charset", "ssl", "ssl_ca", "ssl_key", "ssl_check_hostname", "init_command",
        "client_flag", "cursorclass", "conv", "use_unicode", "compress", "defer_connect", "unix_socket", "local_infile",
        "autocommit", "read_default_file", "port", "host", "nonsense", "max_allowed_packet", "named_pipe", "bind_address",
        "auth_plugin_map", "server_public_key",
    ],
}  # fmt: skip
_OPTION_VALUES = [
    "",
    "x",
    "0",
    "-1",
    "1",
    "true",
    "9" * 30,
    "nan",
    "inf",
    "%00",
    "127.0.0.1",
    "\u00eb",
    "a&b=c",
    "1&timeout=2",
]
WORDS = [
    "", " ", "lake.orders", "lake.clicks", "lake.orders-000003", "lake.orders-000001", "no one", "-1", "0", "3", "1-3", "1,,2", "orders",
    NOT_UTF8, "zo\u00eb", "\U0001f4a9", "a/b", "'; DROP TABLE x", "%s", "{}", "\\", "\n", LONG, "9" * 19, "9" * 18, "1" + "0" * 30,
    "2026-01-31T00:00:00+00:00", "2026-01-31", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "1969-01-01T00:00:00Z",
    "earliest", "latest", "90d", "nan", "inf", "none", "there.csv", "dangling", "new.csv", "nowhere/x", ".", "~", "x" * 5000,
    '{"orders":{"0":5}}', '{"orders":{"0":900,"1":1}}', '{"orders":{"0":-1}}', '{"orders":{"0":1,"0":2}}', '{"x":{"0":5}}', "[" * 5000,
    '{"orders":{"0":1e999}}', '{"orders":{"0":Infinity}}', '{"orders":' * 900, '{"orders":{"99999999999":1}}', "csv:dangling", "csv:-",
]  # fmt: skip

ledgers = st.sampled_from(LEDGERS) | st.one_of(
    [
        st.builds(lambda url, name, value: f"{url}?{name}={value}", st.just(url), st.sampled_from(names), st.sampled_from(_OPTION_VALUES))
        for url, names in _OPTIONS.items()
    ]
)  # fmt: skip
arguments_of_shells = st.text(st.characters(exclude_characters="\0"), max_size=8)
words = st.sampled_from(WORDS) | st.sampled_from(PLACES) | arguments_of_shells


def likely(argument: Argument) -> st.SearchStrategy[str]:
    """Return values for an argument, some of them good."""
    if choices := argument.options.get("choices"):
        return st.sampled_from(list(choices)) | words
    if argument.flags in (("--from",), ("--to",), ("--store",)):
        return st.sampled_from(PLACES) | words
    if argument.flags == ("--ledger",):
        return ledgers
    return words


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """Return a command with some of its arguments."""
    name, command = draw(st.sampled_from(list(commands())))
    line = list(name)
    for argument in command.arguments:
        flag = argument.flags[-1]
        if flag == "--listen":  # if it can, the command runs until someone stops it
            continue
        is_flag = flag.startswith("-")
        is_wanted = argument.options.get("required", not is_flag)
        if draw(st.integers(0, 9)) >= (9 if is_wanted else 2):
            continue
        if argument.options.get("action") == "store_true":
            line.append(flag)
        elif is_flag:
            line.append(f"{flag}={draw(likely(argument))}")
        else:
            line.append(draw(st.sampled_from(["lake.orders", "lake.orders-000003"]) | words))
    return [*line, "--count=1"] if name == ("watch",) else line  # else it would look for ever


@given(command_lines())
@example(["status", NOT_UTF8, "--offline"])
@example(["abandon", "lake.orders-000003", f"--why={NOT_UTF8}", "--yes"])
@example(["windows", "lake.orders", f"--limit={2**63}"])
@example(["windows", "lake.orders", f"--limit={LONG}"])
@example(["windows", "lake.orders", f"--ids={LONG}"])
@example(["windows", "lake.orders", "--ids="])
@example(["windows", LONG])
@example(["status", ""])
@example(["status", "--offline", "--ledger="])
@example(["take-over", "lake.orders", "--dag=zo\u00eb", "--task=t", "--why=\u00e9", "--who=Zo\u00eb", "--yes"])
@example(["export", "lake.orders", "--to=dangling", "--why=w", "--yes"])
@example(["export", "lake.orders", "--to=" + "x" * 300, "--why=w", "--yes"])
@example(["export", "lake.orders", "--to=", "--why=w", "--yes"])
@example(["audit", "lake.orders", "--table=" + "x" * 300])
@example(["plan", "--dag=" + "x" * 300 + ".py"])
@example(["export", "lake.orders", "--from=csv:-", "--as="])
@example(["import", "new", "--from=csv:there.csv", "--kafka-conn-id=", "--why=w", "--yes"])
@settings(max_examples=2 * settings.default.max_examples)
def test_every_command_line_ends_in_a_sentence(shell: Shell, line: list[str]) -> None:
    with shell.new():
        shell.check(*line, stdin=b"orders,0,5\n")


@given(ledgers, st.booleans())
@example("sqlite:///ledger.db?timeout=abc", True)
@example("sqlite+nonsense:///ledger.db", False)
@example("sqlite:///.", False)
@example("sqlite:////", True)
@example("sqlite:///file:new.db?uri=true", False)
@pytest.mark.filterwarnings("ignore:Query string argument")
def test_every_ledger_opens_or_says_why_not(shell: Shell, url: str, in_environment: bool) -> None:
    with shell.new():
        more = [] if in_environment else [f"--ledger={url}"]
        for command in (("status", "--offline"), ("db", "current")):
            done = shell.check(*command, *more, **({"ledger": url} if in_environment else {}))
            assert done.code in (ExitCode.OK, ExitCode.USAGE, ExitCode.UNAVAILABLE)


def _columns() -> list[tuple[str, str]]:
    from airflow_kafka_offsets.ledger.tables import acts, attempts, claims, groups, windows

    documents = {groups: ["definition", "origin", "created_at"], claims: ["scope"], acts: ["details", "at"]}
    documents |= {
        windows: ["ranges", "lost", "lane", "state", "planned_until", "isolation_level", "planned_at", "committed_at"],
        attempts: ["outcome", "started_at"],
    }
    return [(table.name, column) for table, columns in documents.items() for column in columns]


DAMAGED = [
    "", "x", "{", "[]", "{}", "null", "5", '"x"', "[" * 3000, '{"orders":5}', '{"orders":{"id":null,"partitions":[0],"start":[5]}}',
    '{"orders":{"id":5,"partitions":["x"],"start":[1],"span":[1]}}', '{"orders":{"id":null,"partitions":[0],"start":[-5],"span":[1]}}',
    '{"orders":{"id":null,"partitions":[0],"start":[1,2],"span":[1]}}', '{"name":"lake.orders"}', '{"name":"lake.orders","topics":5}',
    '{"orders":{"id":null,"partitions":[0],"start":["1"],"span":["1"]}}', '{"name":5,"topics":["orders"]}',
    '{"name":"lake.orders","topics":["orders"],"max_offsets":"x"}', '{"name":"lake.orders","topics":["orders"],"grace":1e300}',
    '{"name":"lake.orders","topics":["orders"],"starting_offsets":5,"kafka_timeout":[]}', "2026-13-41 00:00:00", "planned", "Infinity",
    '{"name":"lake.orders","topics":["orders"],"until":"never"}', '{"name":"lake.orders","topics":["orders"],"output_tables":5}',
]  # fmt: skip
DAMAGED_ACTS = [
    '{"left":{"clicks":5}}', '{"left":5}', '{"superseded":5}', '{"superseded":[1]}', '{"kept_from":"x"}', '{"next_window":"x"}',
    '{"left_open":5}', '{"left_open":[5]}', '{"founded":5}', '{"founded":{"clicks-0":"x"}}', '{"founded":{"clicks-0":-1}}',
    '{"ledger":5}',
]  # fmt: skip
LOOKS = [
    ("status",), ("status", "lake.orders"), ("windows", "lake.orders"), ("windows", "lake.orders", "--ids=1-3", "-o=json"),
    ("plan", "lake.orders"), ("plan", "lake.orders", "--windows=1"), ("verify", "lake.orders"), ("export", "lake.orders"),
    ("reset", "lake.orders", "--to=latest", "--why=w"), ("commit", "lake.orders-000003", "--why=w", "--yes"),
    ("abandon", "lake.orders-000003", "--why=w", "--yes"), ("take-over", "lake.orders", "--dag=d", "--task=t", "--why=w"),
    ("import", "lake.orders", "--from=csv:there.csv", "--why=w"),
]  # fmt: skip


@given(st.sampled_from(_columns()), st.sampled_from(DAMAGED), st.sampled_from(LOOKS))
@example(("kafka_offsets_windows", "ranges"), '{"orders":{"id":null', ("status", "lake.orders"))
@example(
    ("kafka_offsets_windows", "ranges"), '{"orders":{"id":null,"partitions":[0],"start":["1"],"span":["1"]}}', LOOKS[1]
)
@example(("kafka_offsets_windows", "ranges"), "{}", ("plan", "lake.orders", "--windows=1"))
@example(("kafka_offsets_windows", "state"), "x", ("windows", "lake.orders"))
@example(("kafka_offsets_windows", "planned_until"), "x", ("windows", "lake.orders"))
@example(("kafka_offsets_groups", "definition"), "{", ("status",))
@example(("kafka_offsets_acts", "details"), "{", ("status", "lake.clicks"))
@settings(max_examples=2 * settings.default.max_examples)
def test_a_damaged_row_is_named(shell: Shell, column: tuple[str, str], value: str, look: tuple[str, ...]) -> None:
    with shell.new():
        connection = sqlite3.connect("ledger.db")
        with connection:
            connection.execute(f"UPDATE {column[0]} SET {column[1]} = ?", [value])
        connection.close()
        done = shell.check(*look)
        assert done.code != ExitCode.USAGE, f"nothing to correct in the arguments: {done.err}"


@pytest.mark.parametrize("details", DAMAGED_ACTS)
@pytest.mark.parametrize("look", [("status", "lake.clicks"), ("reset", "lake.clicks", "--to=latest", "--why=w")])
def test_a_damaged_act_is_named(shell: Shell, details: str, look: tuple[str, ...]) -> None:
    with shell.new():
        connection = sqlite3.connect("ledger.db")
        with connection:
            connection.execute("UPDATE kafka_offsets_acts SET kind = 'reset', details = ?", [details])
        connection.close()
        done = shell.check(*look)
        assert (done.code, done.err[:25]) == (ExitCode.UNAVAILABLE, "The ledger has act 1 of g"), done.err


KAFKA_SETTINGS = [
    "error_cb",
    "stats_cb",
    "throttle_cb",
    "oauth_cb",
    "logger",
    "log_cb",
    "on_commit",
    "socket.timeout.ms",
    "nonsense",
    "a b",
    "\0",
]
contents = st.one_of(
    st.binary(max_size=30),
    st.builds(lambda name, value: f"bootstrap.servers=127.0.0.1:1\n{name}={value}\n".encode(), st.sampled_from(KAFKA_SETTINGS), st.sampled_from(["x", "", "1"])),
    st.lists(st.sampled_from(["orders", "0", "1", "-1", "5", "x", "", '"', "9" * 30, " 7 ", "lake.orders", "zo\u00eb", "\0", LONG]), max_size=5).map(
        lambda row: "\n".join([",".join(row)] * 2).encode()
    ),
    st.sampled_from([b"", b"\xef\xbb\xbforders,0,5", b"\xff\xfe", b"v1\n{}\n" + b"[" * 5000, b"v1\n{}\n{\"orders\":{\"0\":7}}"]),
)  # fmt: skip


@given(contents, st.integers(0, 3))
@example(b"bootstrap.servers=127.0.0.1:1\nerror_cb=x\n", 0)
@settings(max_examples=2 * settings.default.max_examples)
def test_every_file_is_read_or_refused(shell: Shell, content: bytes, way: int) -> None:
    with shell.new():
        Path("file").write_bytes(content)
        for log in ("offsets", "commits"):
            Path(log).mkdir()
            Path(log, "0").write_bytes(content)
        take = ("import", "lake.new", "--topic=orders", "--why=w")
        lines = [
            ("status", "--kafka-config=file"),
            (*take, "--from=csv:file"),
            (*take, "--from=csv:-"),
            (*take, "--from=checkpoint:."),
        ]
        shell.check(*lines[way], stdin=content)


def test_the_places_of_this_test_are_good_enough(shell: Shell) -> None:
    with shell.new():
        assert json.loads(shell.check("status", "-o", "json").out)["groups"]
        assert shell.check("export", "lake.orders", "--to=new.csv", "--why=w", "--yes").code == 0
