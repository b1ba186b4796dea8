"""Requests to the servers of the tests take no proxy, whatever this machine has for others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from airflow_kafka_offsets.adapters.registry import ConfluentRegistry
from tests.lab.processes import LOOPBACK, free_port, reach_loopback_directly
from tests.lab.registry import Registry


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """Run a server on a machine with a proxy that is away."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://{LOOPBACK}:{free_port()}")
    with Registry() as server:
        server.register("s", '"long"')
        yield server


def test_a_server_is_asked_directly(registry: Registry) -> None:
    assert ConfluentRegistry(registry.url, "registry").subject("s") is not None


def test_a_child_asks_directly(registry: Registry) -> None:
    code = f"from urllib.request import urlopen; print(urlopen('{registry.url}/subjects/s/versions').read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("b'[1]'\n", "")


@pytest.mark.parametrize(
    ("there", "then"),
    [
        (("", "corp.example, 10.0.0.1"), f"corp.example,10.0.0.1,{LOOPBACK},localhost"),
        (("a.example", f"b.example,{LOOPBACK}"), f"a.example,b.example,{LOOPBACK},localhost"),
    ],
)
def test_what_this_machine_says_of_its_proxy_stays(
    monkeypatch: pytest.MonkeyPatch, there: tuple[str, str], then: str
) -> None:
    monkeypatch.setenv("no_proxy", there[0])
    monkeypatch.setenv("NO_PROXY", there[1])
    reach_loopback_directly()
    assert (os.environ["no_proxy"], os.environ["NO_PROXY"]) == (then, then)


def test_a_machine_without_a_proxy_for_anyone_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("NO_PROXY", raising=False)
    reach_loopback_directly()
    assert (os.environ["no_proxy"], "NO_PROXY" in os.environ) == ("*", False)
