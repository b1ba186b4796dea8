"""``kafka-offsets watch``."""

from __future__ import annotations

import gc
import json
import os
import pickle
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_kafka_offsets.core.errors import LedgerError, LedgerUnavailableError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.ledger.ledger import Ledger
from tests.cli.conftest import ORDERS_1, Cli, Lake, at_each_pause, ctrl_c_is
from tests.lab.waiting import wait_until

ROOT = Path(__file__).parents[2]
TWICE = ("--count", "2", "--interval", "0.1")


@pytest.fixture(autouse=True)
def aging(lake: Lake) -> None:
    """Let orders keep its records for a week, as topics do."""
    lake.log.configure("orders", retention_ms="604800000")


def test_without_a_terminal_each_look_follows_the_one_before(cli: Cli) -> None:
    done = cli("watch", *TWICE)
    assert (done.code, done.err) == (0, "")
    assert done.out.count("lake.orders  AT RISK") == 2
    assert "\x1b" not in done.out


def test_each_look_shows_what_is_there_then(cli: Cli, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    at_each_pause(monkeypatch, "status", lambda _: lake.log.expire(ORDERS_1, 400))
    before, after = cli("watch", "lake.orders", *TWICE).out.split("\ngroup: ")[1:]
    assert "verdict:        AT RISK: " in before
    assert "verdict:        LOST: 100 offsets expired before they were read: orders-1 [300, 400)" in after


def test_for_programs_each_look_is_one_line(cli: Cli) -> None:
    documents = [json.loads(line) for line in cli("watch", "-o", "json", *TWICE).out.splitlines()]
    assert [[group["verdict"] for group in document["groups"]] for document in documents] == [["OK", "AT RISK"]] * 2


def test_while_kafka_is_away_the_rest_is_shown(cli: Cli, lake: Lake) -> None:
    lake.log.is_down = True
    done = cli("watch", *TWICE)
    assert done.code == 3
    assert done.out.count("Kafka at nowhere:9092 did not answer") == 2
    assert done.out.count("lake.orders-000003") == 2


def test_a_ledger_that_goes_away_is_waited_for_but_not_one_that_never_was_there(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, looks = Ledger.groups, iter([None, LedgerUnavailableError("the ledger did not answer"), None])

    def flaky(ledger: Ledger) -> Sequence[KafkaGroup]:
        if error := next(looks):
            raise error
        return groups(ledger)

    monkeypatch.setattr(Ledger, "groups", flaky)
    done = cli("watch", "--count", "3", "--interval", "0.1")
    assert done.code == 0
    assert done.out.count("the ledger did not answer") == 1
    assert done.out.count("lake.orders  AT RISK") == 2
    looks = iter([LedgerUnavailableError("the ledger did not answer")])
    done = cli("watch", *TWICE)
    assert (done.code, done.err) == (3, "the ledger did not answer\n")


def test_an_error_that_does_not_pass_ends_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: Iterator[int] = iter(range(2))

    def damaged(ledger: Ledger) -> Sequence[KafkaGroup]:
        if next(looks):
            raise LedgerError("a row is damaged")
        return []

    monkeypatch.setattr(Ledger, "groups", damaged)
    done = cli("watch", *TWICE)
    assert (done.code, done.err) == (3, "a row is damaged\n")


@pytest.mark.parametrize("becomes", [None, AssertionError("a transaction that is half closed")])
def test_ctrl_c_ends_it_also_if_a_library_swallows_it_in_its_clean_up(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, becomes: Exception | None
) -> None:
    groups = Ledger.groups

    def cleaning_up(ledger: Ledger) -> Sequence[KafkaGroup]:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            if becomes:
                raise becomes from None
        return groups(ledger)

    monkeypatch.setattr(Ledger, "groups", cleaning_up)
    with ctrl_c_is(signal.default_int_handler):
        done = cli("watch", "--count", "5", "--interval", "0.1")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert (done.code, done.err) == (0, "")
    assert done.out.count("lake.orders  AT RISK") == (0 if becomes else 1)


def test_in_the_background_ctrl_c_is_meant_for_others(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    at_each_pause(monkeypatch, "status", lambda _: signal.raise_signal(signal.SIGINT))
    with ctrl_c_is(signal.SIG_IGN):
        assert cli("watch", *TWICE).out.count("lake.orders  AT RISK") == 2


def test_memory_is_collected_while_it_runs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    at_each_pause(monkeypatch, "status", lambda _: seen.append(gc.isenabled()))
    cli("watch", *TWICE)
    assert seen == [True]


@pytest.mark.parametrize("value", ["0", "0.01", "-1", "x", "1e3", "", "9999999"])
def test_an_interval_is_a_number_of_seconds(cli: Cli, value: str) -> None:
    done = cli("watch", "--interval", value)
    assert done.code == 2
    assert "is not a number of seconds" in done.err


def test_an_unknown_group_is_named(cli: Cli) -> None:
    done = cli("watch", "lake.order", *TWICE)
    assert done.code == 2
    assert "did you mean lake.orders?" in done.err


@contextmanager
def in_a_terminal(program: Sequence[str], url: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run ``kafka-offsets watch`` on a ledger, in a terminal of its own with ten lines."""
    ours, theirs = pty.openpty()
    command = [*program, "watch", "--ledger", url, "--interval", "0.1"]
    environment = {**os.environ, "LINES": "10", "COLUMNS": "40", "_AIRFLOW_PROCESS_CONTEXT": "server"}
    with ctrl_c_is(signal.default_int_handler):  # a program that ignores it starts programs that ignore it
        process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=ROOT, start_new_session=True
        )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, text: str, times: int = 1) -> str:
    """Read what a program writes into its terminal, until a text was there so often."""
    seen = ""
    while seen.count(text) < times:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the program has ended
            break
        seen += part.decode()
    assert seen.count(text) >= times, seen
    return seen


def test_in_a_terminal_a_look_overwrites_the_one_before_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    Ledger(url, create=True)
    with in_a_terminal([str(Path(sys.executable).parent / "kafka-offsets")], url) as (process, terminal):
        seen = read_until(terminal, "\x1b[H", 3)
        assert seen.startswith("\x1b[?25l\x1b[2J\x1b[H")
        process.send_signal(2)
        rest = read_until(terminal, "\x1b[?25h")
        wait_until(lambda: process.poll() is not None, what="it ends")
        assert process.returncode == 0
    assert "Traceback" not in seen + rest
    frame = seen.split("\x1b[H")[1]
    assert frame.count("\n") < 10
    assert "The ledger has no groups yet" in frame
    assert max(len(line.split("\x1b")[0]) for line in frame.splitlines()) <= 40


WITH_KAFKA_IN_A_FILE = """
import pickle, sys
from pathlib import Path
from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.cli import main
log = pickle.loads(Path(sys.argv[1]).read_bytes())
wiring.open_log = lambda group, config=None: log
main(sys.argv[2:])
"""


def test_in_a_low_terminal_the_sick_groups_are_there_and_the_others_are_counted(lake: Lake, tmp_path: Path) -> None:
    for number in range(9):
        lake.commit(KafkaGroup(f"lake.a{number}", topics=["clicks"]), 1)
    kafka = tmp_path / "kafka"
    kafka.write_bytes(pickle.dumps(lake.log))
    with in_a_terminal([sys.executable, "-c", WITH_KAFKA_IN_A_FILE, str(kafka)], lake.url) as (_, terminal):
        frame = read_until(terminal, "\x1b[J").split("\x1b[H")[1]
    lines = [line.removesuffix("\x1b[K") for line in frame.splitlines()]
    rows = [line.split()[0] for line in lines[4:8]]
    assert rows == ["lake.orders", "lake.a0", "lake.a1", "lake.a2"], "orders is at risk"
    assert lines[8] == "... and 7 more groups"
