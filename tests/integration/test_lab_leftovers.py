"""What killed runs left behind is removed when no one can be at work in it, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab import leftovers
from tests.lab.leftovers import LONG_AGO, hold, sweep

REPOSITORY = Path(__file__).parents[2]
OF_THE_LAB = "import sys; from pathlib import Path; from tests.lab.leftovers import hold; hold(Path(sys.argv[1]))"
OF_A_TASK = "import sys, tempfile; tempfile.tempdir = sys.argv[1]; from airflow_kafka_offsets.launch.job_files import task_folder; task = task_folder(); task.__enter__()"


def age(folder: Path) -> Path:
    """Let a folder be one of long ago."""
    moment = time.time() - LONG_AGO - 1
    os.utime(folder / "lock", (moment, moment))
    return folder


def at_work(code: str, folder: Path) -> subprocess.Popen[str]:
    """Return a process that works in the folder until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}; print(flush=True); sys.stdin.read()", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


Worker = Callable[[str, Path], subprocess.Popen[str]]


@pytest.fixture
def worker() -> Iterator[Worker]:
    """Start processes that are gone in the end."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, folder: Path) -> subprocess.Popen[str]:
        started.append(at_work(code, folder))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("code", [OF_THE_LAB, OF_A_TASK])
def test_the_folder_of_a_killed_process_is_removed_and_not_before(worker: Worker, tmp_path: Path, code: str) -> None:
    if code is OF_THE_LAB:
        (tmp_path / "lab-db-1").mkdir()
    process = worker(code, tmp_path / "lab-db-1" if code is OF_THE_LAB else tmp_path)
    [folder] = tmp_path.iterdir()
    age(folder)
    sweep(tmp_path)
    assert folder.exists(), "it is at work"
    process.kill()
    process.wait()
    sweep(tmp_path)
    assert not folder.exists()


def test_what_is_not_known_to_be_dead_stays(worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        process = worker(OF_THE_LAB, folder)
        process.kill()
        process.wait()
        return folder

    young = dead("lab-db-young")
    elsewhere = dead("lab-db-elsewhere")
    (elsewhere / "lock").write_text("another-machine")
    without_lock = tmp_path / "lab-db-older"
    without_lock.mkdir()
    of_somebody_else = age(dead("someone-else"))
    link = tmp_path / "lab-db-link"
    link.symlink_to(of_somebody_else)
    sweep(tmp_path)
    assert all(folder.exists() for folder in (young, age(elsewhere), without_lock, of_somebody_else, link))
    sweep(tmp_path)
    assert elsewhere.exists()
    age(young)
    with monkeypatch.context() as another_user:
        another_user.setattr(leftovers.os, "geteuid", lambda: os.getuid() + 1)
        sweep(tmp_path)
    assert young.exists()
    sweep(tmp_path)
    assert not young.exists()


def test_the_folder_of_this_process_stays(tmp_path: Path) -> None:
    folder = tmp_path / "lab-db-mine"
    folder.mkdir()
    hold(folder)
    age(folder)
    sweep(tmp_path)
    assert folder.exists()
