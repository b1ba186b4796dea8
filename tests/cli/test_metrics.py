"""``kafka-offsets metrics``: printed and written; tests/monitoring lets it serve."""

from __future__ import annotations

import gc
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from airflow_kafka_offsets.cli.running import ExitCode
from airflow_kafka_offsets.ledger.schema import VERSION_TABLE
from tests.cli.conftest import Cli, Lake, at_each_pause, ctrl_c_is
from tests.lab.processes import LOOPBACK

SCRAPED = "kafka_offsets_scrape_timestamp_seconds"


def values(text: str) -> dict[tuple[str, str], float]:
    """Return the values of a text by metric and group; of several series of one group, the sum."""
    series: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (family.name.removeprefix("kafka_offsets_"), sample.labels.get("group", ""))
            series[key] = series.get(key, 0) + sample.value
    return series


def test_all_groups_are_shown(cli: Cli) -> None:
    done = cli("metrics")
    assert done.code == 0, done.err
    series = values(done.out)
    assert (series["lag", "lake.orders"], series["lag", "lake.clicks"]) == (4700, 0)
    assert (series["open_windows", "lake.orders"], series["open_windows", "lake.clicks"]) == (1, 0)
    assert series["ledger_up", ""] == series["up", "lake.orders"] == series["verdict", "lake.clicks"] == 1


def test_a_kafka_that_does_not_answer_is_told_and_the_rest_is_shown(cli: Cli, lake: Lake) -> None:
    lake.log.is_down = True
    done = cli("metrics")
    assert done.code == ExitCode.UNAVAILABLE
    assert done.err == "Kafka at nowhere:9092 did not answer within 1.0 s\n"
    series = values(done.out)
    assert (series["up", "lake.orders"], series["open_windows", "lake.orders"]) == (0, 1)
    assert ("lag", "lake.orders") in series


def test_a_file_is_replaced_at_once(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "kafka_offsets.prom"
    file.write_text("old")
    done = cli("metrics", "--output", str(file))
    assert (done.code, done.out) == (0, f"Written: {file}\n")
    assert values(file.read_text())["lag", "lake.orders"] == 4700
    assert [path.name for path in tmp_path.glob("kafka_offsets.prom*")] == ["kafka_offsets.prom"]


@pytest.mark.parametrize("more", [(), ("--per-partition",)])
def test_a_file_keeps_the_last_answer_of_a_kafka_that_is_down(
    cli: Cli, lake: Lake, tmp_path: Path, more: tuple[str, ...]
) -> None:
    lake.log.configure("orders", retention_ms="604800000")
    file = tmp_path / "kafka_offsets.prom"
    command = ("metrics", "--output", str(file), *more)
    cli(*command)
    before = file.read_text()
    at_risk = 'kafka_offsets_verdict{group="lake.orders",verdict="AT RISK"} 1.0'
    assert at_risk in before
    lake.log.is_down = True
    for _ in range(2):
        done = cli(*command)
        assert (done.code, done.err) == (ExitCode.UNAVAILABLE, "Kafka at nowhere:9092 did not answer within 1.0 s\n")
        assert at_risk in file.read_text()
        lines = zip(before.splitlines(), file.read_text().splitlines(), strict=True)
        changed = {old.partition("{")[0].partition(" ")[0] for old, new in lines if old != new}
        assert changed == {"kafka_offsets_up", "kafka_offsets_open_window_age_seconds", SCRAPED}


@pytest.mark.parametrize("before", [None, "old", 'kafka_offsets_lag{group="lake.orders"} 5\n'])
def test_a_file_that_holds_no_answer_keeps_none(cli: Cli, lake: Lake, tmp_path: Path, before: str | None) -> None:
    lake.log.is_down = True
    file = tmp_path / "kafka_offsets.prom"
    if before is not None:
        file.write_text(before)
    assert cli("metrics", "--output", str(file)).code == ExitCode.UNAVAILABLE
    assert 'kafka_offsets_lag{group="lake.orders",topic="orders"} NaN' in file.read_text()


def test_a_file_stays_if_the_ledger_does_not_answer(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "kafka_offsets.prom"
    file.write_text("old")
    done = cli("metrics", "--output", str(file), "--ledger", f"sqlite:///{tmp_path}/none.db")
    assert done.code == ExitCode.UNAVAILABLE
    assert file.read_text() == "old"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--listen", "127.0.0.1:0", "--output", "x.prom"), "Use either --listen or --output"),
        (("--listen", "9310"), "is not HOST:PORT, such as 127.0.0.1:9310"),
        (("--listen", "127.0.0.1:99999"), "is not HOST:PORT"),
        (("--listen", "127.0.0.1:" + "9" * 5000), "is not HOST:PORT"),
        (("--listen", "x" * 300 + ":80"), "Can't listen on"),
        (("--output", "/nowhere/at/all.prom"), "Can't write /nowhere/at/all.prom: No such file or directory"),
    ],
)
def test_what_can_not_work_is_refused(cli: Cli, arguments: tuple[str, ...], message: str) -> None:
    done = cli("metrics", *arguments)
    assert done.code == ExitCode.USAGE
    assert message in done.err


def test_a_port_that_is_in_use_is_refused(cli: Cli) -> None:
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        port = other.getsockname()[1]
        done = cli("metrics", "--listen", f"{LOOPBACK}:{port}")
    assert done.code == ExitCode.USAGE
    assert f"Can't listen on {LOOPBACK}:{port}: Address already in use" in done.err


def test_memory_is_collected_while_it_serves(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def stop(_: float) -> None:
        seen.append(gc.isenabled())
        raise KeyboardInterrupt

    at_each_pause(monkeypatch, "metrics", stop)
    done = cli("metrics", "--listen", f"{LOOPBACK}:0")
    assert seen == [True], done.err


@pytest.mark.parametrize(
    "damage", ["UPDATE kafka_offsets_windows SET ranges = 'x'", f"UPDATE {VERSION_TABLE} SET version_num = '9999'"]
)
def test_a_ledger_that_can_not_be_read_any_more_is_told_and_asked_again(
    cli: Cli, lake: Lake, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    pauses: list[float] = []

    def break_it(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt
        with sqlite3.connect(lake.path) as connection:
            connection.execute(damage)

    at_each_pause(monkeypatch, "metrics", break_it)
    done = cli("metrics", "--listen", f"{LOOPBACK}:0")
    assert len(pauses) == 3, done.err
    assert done.code == 130
    assert len(done.err.splitlines()) == 2, "the address, and what is wrong, once"


def test_a_ledger_that_could_never_be_read_ends_it(cli: Cli, lake: Lake) -> None:
    with sqlite3.connect(lake.path) as connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    done = cli("metrics", "--listen", f"{LOOPBACK}:0")
    assert "Another version of airflow-kafka-offsets made the ledger" in done.err


def test_ctrl_c_ends_it_also_if_a_library_swallows_it_in_its_clean_up(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def swallow(seconds: float) -> None:
        assert not slept, "it went on"
        slept.append(seconds)
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    at_each_pause(monkeypatch, "metrics", swallow)
    with ctrl_c_is(signal.default_int_handler):
        assert cli("metrics", "--listen", f"{LOOPBACK}:0").code == 130
    assert slept


WITHOUT_THE_LIBRARY = """
import sys
sys.modules["prometheus_client"] = None
from airflow_kafka_offsets.cli import main
main(["metrics"])
"""


@pytest.mark.slow
def test_without_the_library_the_extra_is_named(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_OFFSETS_LEDGER", lake.url)
    command = [sys.executable, "-c", WITHOUT_THE_LIBRARY]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (ExitCode.USAGE, ExitCode.UNAVAILABLE)
    assert "pip install 'airflow-kafka-offsets[metrics]'" in done.stderr
