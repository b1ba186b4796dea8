"""The command line as a process: quick, and nothing imported that is not used."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Lake, in_a_process, run_program

HEAVY = ("airflow", "pyspark", "confluent_kafka", "alembic", "sqlalchemy", "tabulate")


def imported(*arguments: str) -> list[str]:
    code = f"""
import sys
from airflow_kafka_offsets.cli import main
try:
    main({list(arguments)!r})
except SystemExit as ended:
    assert not ended.code, ended.code
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    done = run_program([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    names: list[str] = eval(done.stdout.splitlines()[-1])
    return names


def test_help_imports_nothing() -> None:
    assert imported("--help") == []
    assert imported("reset", "--help") == []


def test_windows_by_url_need_the_database_only(lake: Lake) -> None:
    assert imported("windows", "lake.orders", "--ledger", lake.url, "-o", "json") == ["sqlalchemy"]
    assert imported("status", "--offline", "--ledger", lake.url) == ["sqlalchemy", "tabulate"]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "seconds"), [(["--help"], 0.3), (["windows", "lake.orders"], 1.5)])
def test_commands_start_quickly(lake: Lake, arguments: list[str], seconds: float) -> None:
    """In seconds of the CPU: a busy machine does not count."""
    program = str(Path(sys.executable).parent / "kafka-offsets")
    environment = {**os.environ, "KAFKA_OFFSETS_LEDGER": lake.url}
    used = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([program, *arguments], env=environment, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(used) < seconds


def test_a_command_collects_no_garbage_of_what_it_imports() -> None:
    code = """
import atexit, gc
atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 0))
from airflow_kafka_offsets.cli import main
main(["version"])
"""
    done = run_program([sys.executable, "-c", code])
    assert done.stdout.splitlines()[-1] == "False True", done.stderr


def test_errors_are_one_sentence_on_stderr(lake: Lake) -> None:
    done = in_a_process("windows", "no one", "--ledger", lake.url)
    assert (done.code, done.out) == (2, "")
    assert done.err == "The ledger has no group no one; it has lake.clicks, lake.orders\n"


def test_a_reader_that_leaves_is_no_error(lake: Lake) -> None:
    program = Path(sys.executable).parent / "kafka-offsets"
    command = f"set -o pipefail; {program} windows lake.orders --ledger {lake.url} | true"
    done = run_program(["bash", "-c", command])
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version(lake: Lake) -> None:
    from airflow_kafka_offsets import __version__

    assert in_a_process("--version").out == f"kafka-offsets {__version__}\n"


@pytest.mark.parametrize("command", [["db", "upgrade"], ["status"], ["watch", "--count", "1"]])
def test_json_is_alone_on_stdout_though_a_handler_of_the_log_has_it_since_before(
    tmp_path: Path, command: list[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    if command[0] != "db":
        assert in_a_process("db", "upgrade", "--ledger", url).code == 0
    code = f"""
import logging, sys
logging.basicConfig(stream=sys.stdout)
for name in ("alembic", "sqlalchemy.engine"):
    logging.getLogger(name).setLevel(logging.INFO)
from airflow_kafka_offsets.cli import main
main({[*command, "--ledger", url, "-o", "json"]!r})
"""
    done = run_program([sys.executable, "-c", code])
    assert isinstance(json.loads(done.stdout), dict), done.stderr
    assert "INFO:sqlalchemy.engine" in done.stderr


def test_a_command_needs_neither_stdout_nor_stderr(lake: Lake) -> None:
    program = Path(sys.executable).parent / "kafka-offsets"
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        done = run_program(["bash", "-c", f"{program} windows lake.orders --ledger {lake.url} {closed}"])
        assert done.returncode == 0, (closed, done.stdout, done.stderr)
