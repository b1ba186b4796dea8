"""Servers that several processes share: started once, stopped when the last user has left, also when it was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from tests.lab.processes import PART_OF_PORTS, ServerError, free_port
from tests.lab.sharing import ROOT, shared
from tests.lab.waiting import wait_until

# Stands for servers: notes that it was started, and that it has stopped.
SERVERS = """
import os, sys
from pathlib import Path
from tests.lab.sharing import serve
folder = Path(sys.argv[1])
with (folder / "story").open("a") as story:
    print("started", file=story, flush=True)
    serve(folder, os.getpid(), {"pid": os.getpid()}, linger=float(sys.argv[2]))
    print("stopped", file=story, flush=True)
"""
# Stands for servers, too: one that notes each process of its own.
REVIVED = """
import os, sys
from pathlib import Path
from tests.lab.processes import OneServer, Server
from tests.lab.sharing import serve
folder = Path(sys.argv[1])
class Sleeper(OneServer):
    def __init__(self):
        self._server = Server("sleeper", ["sleep", "600"], log=folder / "log", ready=self._note)
    def _note(self):
        with (folder / "story").open("a") as story:
            return print(self.pid, file=story) is None
with Sleeper() as sleeper:
    serve(folder, os.getpid(), sleeper.pid, meanwhile=sleeper.revive)
"""
USER = """
import sys, time
from pathlib import Path
from tests.integration.test_sharing import command_of
from tests.lab.sharing import shared
folder = Path(sys.argv[1])
with shared(folder, command_of(folder, float(sys.argv[2])), what="they") as facts:
    print(facts["pid"], flush=True)
    sys.stdin.read()
"""


def command_of(folder: Path, linger: float = 0) -> list[str]:
    return [sys.executable, "-c", SERVERS, str(folder), str(linger)]


def story(folder: Path) -> list[str]:
    return (folder / "story").read_text().split()


def start_user(folder: Path, linger: float = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", USER, str(folder), str(linger)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def server_of(user: subprocess.Popen[str]) -> int:
    assert user.stdout
    return int(user.stdout.readline())


@pytest.mark.slow
def test_three_who_ask_at_once_share_one_which_stops_after_the_last(tmp_path: Path) -> None:
    users = [start_user(tmp_path) for _ in range(3)]
    (pid,) = {server_of(user) for user in users}
    for user in users[:2]:
        user.communicate()
    assert psutil.pid_exists(pid)
    users[2].communicate()
    wait_until(lambda: story(tmp_path) == ["started", "stopped"], what="it stops")


def test_who_comes_soon_after_the_last_finds_one_that_lingers(tmp_path: Path) -> None:
    pids = []
    for _ in range(2):
        with shared(tmp_path, command_of(tmp_path, linger=3600), what="they") as facts:
            pids.append(facts["pid"])
    psutil.Process(pids[0]).terminate()
    assert pids[0] == pids[1]
    assert story(tmp_path) == ["started"]


@pytest.mark.slow
def test_one_that_lingers_stops_when_the_process_that_started_it_has_ended(tmp_path: Path) -> None:
    user = start_user(tmp_path, linger=3600)
    server_of(user)
    user.communicate()
    wait_until(lambda: story(tmp_path) == ["started", "stopped"], what="it stops")


@pytest.mark.slow
def test_it_stops_also_when_its_last_user_was_killed(tmp_path: Path) -> None:
    user = start_user(tmp_path)
    server_of(user)
    user.send_signal(signal.SIGKILL)
    user.communicate()
    wait_until(lambda: story(tmp_path) == ["started", "stopped"], what="it stops")


@pytest.mark.slow
def test_a_server_of_theirs_that_dies_is_started_again_while_they_are_used(tmp_path: Path) -> None:
    with shared(tmp_path, [sys.executable, "-c", REVIVED, str(tmp_path)], what="they") as pid:
        psutil.Process(pid).kill()
        wait_until(lambda: len(story(tmp_path)) == 2, what="it is started again")
        first, second = map(int, story(tmp_path))
        assert first == pid != second
        assert psutil.Process(second).name() == "sleep"
    wait_until(lambda: not psutil.pid_exists(second), what="it stops with them")


@pytest.mark.slow
def test_who_comes_after_one_that_died_gets_another(tmp_path: Path) -> None:
    first = start_user(tmp_path)
    died = psutil.Process(server_of(first))
    died.kill()
    wait_until(lambda: not died.is_running() or died.status() == psutil.STATUS_ZOMBIE, what="it is dead")
    first.communicate()
    with shared(tmp_path, command_of(tmp_path), what="they") as facts:
        assert facts["pid"] != died.pid
        assert story(tmp_path) == ["started", "started"]


def test_who_asks_for_what_can_not_start_is_told_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such port')"]
    with (
        pytest.raises(ServerError, match=r"(?s)they could not be started.*no such port"),
        shared(tmp_path, command, what="they"),
    ):
        pass


def test_processes_of_a_run_draw_ports_from_parts_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, set[int]] = {}
    monkeypatch.delenv(PART_OF_PORTS, raising=False)
    for process in ("gw0", "gw1", "gw14"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", process)
        drawn[process] = {free_port() for _ in range(50)}
    monkeypatch.setenv(PART_OF_PORTS, "shared")
    drawn["shared"] = {free_port() for _ in range(50)}
    bounds = sorted((min(ports), max(ports)) for ports in drawn.values())
    assert all(before[1] < after[0] for before, after in pairwise(bounds))
