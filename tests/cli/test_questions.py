"""docs/design.md, Layers: a question writes nothing; a dry run is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_kafka_offsets.cli.running import ExitCode
from tests.cli.conftest import Cli, Lake
from tests.cli.test_definition import NAMED

# What writes without a word: the tables of the ledger, or the cache folder of this machine.
WRITERS = {"db upgrade", "jars", "archive"}
ELSEWHERE = {"audit", "try-login"}  # they want a table, and a Kafka: test_audit.py, test_try_login.py

QUESTIONS = (
    "status",
    "status lake.orders",
    "metrics",
    "watch lake.orders --count 1",
    "windows lake.orders",
    "windows lake.orders-000001",
    "plan lake.orders",
    "plan lake.orders --windows 1-2",
    "abandon lake.orders-000003 --why test",
    "commit lake.orders-000003 --why test",
    "reset lake.clicks --to latest --why test",
    "take-over lake.orders --dag other --task load --why test",
    "inherit lake.orders --ledger-id 0123456789abcdef0123456789abcdef --why test",
    "prune lake.orders --older-than 1d",
    "prune lake.orders --older-than 1h --deleted-topics",
    "import lake.new --from ledger --as lake.orders --topic orders --why test",
    "export lake.orders",
    "copy lake.orders --from ledger --to files://{folder} --why test",
    "verify lake.orders",
    "db current",
)


def test_each_command_that_asks_or_shows_is_here() -> None:
    covered = {name for name in NAMED for line in QUESTIONS if f"{line} ".startswith(f"{name} ")}
    assert covered == NAMED.keys() - WRITERS - ELSEWHERE


@pytest.mark.parametrize("line", QUESTIONS)
def test_a_question_leaves_the_ledger_as_it_is(cli: Cli, lake: Lake, tmp_path: Path, line: str) -> None:
    before, files = lake.dump(), sorted(tmp_path.rglob("*"))
    done = cli(*line.format(folder=tmp_path).split())
    assert done.code in (ExitCode.OK, ExitCode.UNCONFIRMED), done.err
    assert lake.dump() == before
    assert sorted(tmp_path.rglob("*")) == files
