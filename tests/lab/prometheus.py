"""A Prometheus on loopback, from the system's packages; and `promtool`, which comes with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import requests

from tests.lab.debian import ensure_program
from tests.lab.processes import LOOPBACK, OneServer, Server, free_port
from tests.lab.waiting import ANSWER, run_to_end


class Prometheus(OneServer):
    """One server that scrapes every second.

    Args:
        folder: where it keeps its data, settings and log; made if it is missing.
        targets: what it scrapes, as ``host:port``.
        rules: files with rules, which it evaluates every second.
    """

    def __init__(self, folder: Path, targets: Sequence[str], rules: Sequence[Path] = ()) -> None:
        self.folder = folder
        self.url = f"http://{LOOPBACK}:{free_port()}"
        self._settings = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "scrape_configs": [{"job_name": "kafka_offsets", "static_configs": [{"targets": list(targets)}]}],
            "rule_files": [str(file) for file in rules],
        }
        self._server = Server("Prometheus", [], log=folder / "log", ready=self._is_ready)

    def start(self) -> Self:
        """Start the server and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "prometheus.yml"
        file.write_text(json.dumps(self._settings))  # JSON is YAML, too
        self._server.command = [
            prometheus_program(),
            f"--config.file={file}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
        ]
        self._server.start()
        return self

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return what an expression is now: ``metric`` with the labels, and ``value`` as (time, text)."""
        found: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return found

    def values(self, expression: str, label: str) -> dict[str, str]:
        """Return the values of an expression by one label."""
        return {one["metric"].get(label, ""): one["value"][1] for one in self.query(expression)}

    def alerts(self) -> set[str]:
        """Return the names of the alerts that are pending or fire."""
        return {alert["labels"]["alertname"] for alert in self._get("alerts")["alerts"]}

    def _get(self, what: str, **asked: str) -> Any:
        answer = requests.get(f"{self.url}/api/v1/{what}", params=asked, timeout=ANSWER).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def _is_ready(self) -> bool:
        return requests.get(f"{self.url}/-/ready", timeout=10).ok


def prometheus_program() -> str:
    """Return the path of `prometheus`; install it if it is missing."""
    return ensure_program(lambda: shutil.which("prometheus"), package="prometheus")


def promtool(*arguments: str | Path, given: str | None = None) -> str:
    """Run `promtool`, with a text on its stdin, and return what it said; what it refuses is an AssertionError."""
    program = ensure_program(lambda: shutil.which("promtool"), package="prometheus")
    command = [program, *map(str, arguments)]
    done = run_to_end(command, text_in=given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
