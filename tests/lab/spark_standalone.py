"""A Spark standalone cluster from PySpark's own jars: a master with its REST server, and one worker."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import requests

from tests.lab.java import pyspark_home
from tests.lab.processes import LOOPBACK, Server, ServerPair, free_port
from tests.lab.spark_connect import OPENS
from tests.lab.start import java_command
from tests.lab.waiting import ANSWER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_ALIVE = ("SUBMITTED", "RUNNING", "RELAUNCHING")


class SparkStandalone(ServerPair):
    """A master and a worker. Ports stay the same over `stop` and `start`; a master that is started again knows no driver.

    Args:
        folder: Where the worker keeps what it runs, and both their logs.
        rest: Whether the master has a REST server; Spark's own default is no.
        cores: What the worker says it has.
    """

    def __init__(self, folder: Path, *, rest: bool = True, cores: int = 6) -> None:
        self.folder = folder
        self.port, self.rest_port, self.webui_port, self.worker_port = (free_port() for _ in range(4))
        self._rest = rest
        self._cores = cores
        self.master = Server(
            "Spark master",
            self._master_command(),
            log=folder / "master.log",
            ready=self._master_is_alive,
            environment=self._environment(),
        )
        self.worker = Server(
            "Spark worker",
            self._worker_command(),
            log=folder / "worker.log",
            ready=lambda: self.state()["aliveworkers"] == 1,
            environment=self._environment(),
        )

    @property
    def url(self) -> str:
        """Address for `--master`."""
        return f"spark://{LOOPBACK}:{self.port}"

    @property
    def rest_url(self) -> str:
        """Address of the REST server."""
        return f"http://{LOOPBACK}:{self.rest_port}"

    @property
    def webui_url(self) -> str:
        """Address of the master's page."""
        return f"http://{LOOPBACK}:{self.webui_port}"

    def connection(self, **extra: Any) -> dict[str, Any]:
        """Return an Airflow connection for cluster mode."""
        ports = {"rest-port": self.rest_port, "webui-port": self.webui_port}
        return {"conn_type": "spark", "host": self.url, "extra": {"deploy-mode": "cluster", **ports, **extra}}

    def state(self) -> dict[str, Any]:
        """Return what the master's page says, as JSON."""
        state: dict[str, Any] = requests.get(f"{self.webui_url}/json/", timeout=ANSWER).json()
        return state

    def drivers(self) -> dict[str, str]:
        """Return all drivers, oldest first, with their states."""
        state = self.state()
        found = [*state["activedrivers"], *state["completeddrivers"]]
        return {driver["id"]: driver["state"] for driver in sorted(found, key=lambda driver: driver["id"])}

    def alive(self) -> list[str]:
        """Return the drivers that are not over."""
        return [name for name, state in self.drivers().items() if state in _ALIVE]

    def log_of(self, driver: str) -> str:
        """Return what a driver wrote, for people."""
        paths = [self.folder / "work" / driver / name for name in ("stdout", "stderr")]
        return "\n".join(path.read_text(errors="replace") for path in paths if path.exists())

    def _servers(self) -> tuple[Server, Server]:
        return self.master, self.worker

    def _prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def _master_command(self) -> list[str]:
        rest = [
            f"-Dspark.master.rest.enabled={str(self._rest).lower()}",
            f"-Dspark.master.rest.host={LOOPBACK}",
            f"-Dspark.master.rest.port={self.rest_port}",
        ]
        ports = ["--host", LOOPBACK, "--port", str(self.port), "--webui-port", str(self.webui_port)]
        return [*_java(*rest), "org.apache.spark.deploy.master.Master", *ports]

    def _worker_command(self) -> list[str]:
        place = ["--host", LOOPBACK, "--webui-port", str(self.worker_port), "-d", str(self.folder / "work")]
        size = ["-c", str(self._cores), "-m", "8g"]
        return [*_java(), "org.apache.spark.deploy.worker.Worker", *place, *size, self.url]

    def _environment(self) -> Mapping[str, str]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        # Without the Scala version every executor dies: "Cannot find any build directories."
        spark = {"SPARK_HOME": str(pyspark_home()), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": LOOPBACK}
        return {**ours, **spark, "PYSPARK_PYTHON": sys.executable}

    def _master_is_alive(self) -> bool:
        return bool(self.state()["status"] == "ALIVE")


def _java(*settings: str) -> list[str]:
    return [*java_command(), "-Xmx256m", *OPENS, *settings]


class Drivers:
    """The drivers that come after this moment."""

    def __init__(self, cluster: SparkStandalone) -> None:
        self._cluster = cluster
        self._before = set(cluster.drivers())

    def all(self) -> dict[str, str]:
        """Return them with their states, oldest first."""
        return {name: state for name, state in self._cluster.drivers().items() if name not in self._before}

    def alive(self) -> list[str]:
        """Return those at work."""
        return [name for name in self.all() if name in self._cluster.alive()]
