"""YARN: a real resource manager and a real node manager on loopback, with the local file system for HDFS."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import requests

from tests.lab.jars import YARN, as_xml, class_path, log_settings
from tests.lab.java import LIGHT, java, pyspark_home
from tests.lab.processes import LOOPBACK, Server, ServerPair, free_port
from tests.lab.waiting import ANSWER

if TYPE_CHECKING:
    from pathlib import Path

# Guice makes classes at run time, which Java 17 forbids.
_JVM = (
    *("-Xmx384m", "-XX:TieredStopAtLevel=1", *LIGHT),
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "net", "util")),
)
_RESOURCE_MANAGER = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
_NODE_MANAGER = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
_OVER = ("FINISHED", "FAILED", "KILLED")


class Yarn(ServerPair):
    """A resource manager and a node manager. A resource manager that is started again knows no application.

    Args:
        folder: Where both keep data, settings and logs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = folder / "settings"
        self.webapp_port = free_port()
        # What containers get of it comes from the node manager's own environment.
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        environment = {**ours, **self.environment}
        self.resource_manager = Server(
            "resource manager", [], log=folder / "rm.log", ready=self._is_answering, environment=environment
        )
        self.node_manager = Server(
            "node manager", [], log=folder / "nm.log", ready=self._has_node, environment=environment
        )

    @property
    def webapp(self) -> str:
        """Address of the resource manager's web application and REST API."""
        return f"http://{LOOPBACK}:{self.webapp_port}"

    @property
    def environment(self) -> dict[str, str]:
        """What spark-submit needs to find YARN, and to stay on loopback."""
        return {
            "HADOOP_CONF_DIR": str(self.settings),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "PYSPARK_PYTHON": sys.executable,
        }

    @property
    def conf(self) -> dict[str, str]:
        """Spark settings of a job here: every node has PySpark's own jars, so none are uploaded.

        An application that runs no Spark job has no executor: each is a JVM.
        """
        return {
            "spark.yarn.jars": f"local:{pyspark_home()}/jars/*",
            "spark.yarn.stagingDir": f"file://{self.folder}/staging",
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.maxExecutors": "1",
        }

    def connection(self, **extra: Any) -> dict[str, Any]:
        """Return an Airflow connection for cluster mode."""
        settings = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": self.webapp}
        return {"conn_type": "spark", "host": "yarn", "extra": {**settings, **extra}}

    def apps(self, tag: str | None = None) -> dict[str, dict[str, Any]]:
        """Return all applications, or those with a tag, oldest first."""
        tagged = tag and {"applicationTags": tag}
        answer = requests.get(f"{self.webapp}/ws/v1/cluster/apps", params=tagged, timeout=ANSWER)
        found = (answer.json()["apps"] or {}).get("app", [])
        return {app["id"]: app for app in sorted(found, key=lambda app: app["id"])}

    def alive(self) -> list[str]:
        """Return the applications that are not over."""
        return [name for name, app in self.apps().items() if app["state"] not in _OVER]

    def _servers(self) -> tuple[Server, Server]:
        return self.resource_manager, self.node_manager

    def _prepare(self) -> None:
        if not self.resource_manager.command:
            self._write_settings()

    def _is_answering(self) -> bool:
        return requests.get(f"{self.webapp}/ws/v1/cluster/info", timeout=10).ok

    def _has_node(self) -> bool:
        nodes = requests.get(f"{self.webapp}/ws/v1/cluster/nodes", timeout=10).json().get("nodes") or {}
        return any(node["state"] == "RUNNING" for node in nodes.get("node", []))

    def _write_settings(self) -> None:
        self.settings.mkdir(parents=True)
        files = {"core-site": self._core(), "yarn-site": self._yarn(), "capacity-scheduler": _SCHEDULER}
        for name, properties in files.items():
            (self.settings / f"{name}.xml").write_text(as_xml(properties))
        directories = [f"-Dhadoop.log.dir={self.folder}/logs", f"-Dyarn.log.dir={self.folder}/logs"]
        program = [java(), *_JVM, *directories, "-cp", f"{self.settings}:{log_settings()}:{class_path(YARN)}"]
        self.resource_manager.command = [*program, _RESOURCE_MANAGER]
        self.node_manager.command = [*program, _NODE_MANAGER]

    def _core(self) -> dict[str, str]:
        return {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(self.folder / "tmp")}

    def _yarn(self) -> dict[str, str]:
        manager, node = "yarn.resourcemanager", "yarn.nodemanager"
        names = [*(f"{manager}.{name}address" for name in ("", "scheduler.", "resource-tracker.", "admin."))]
        names += [f"{node}.{name}address" for name in ("", "localizer.", "webapp.", "collector-service.")]
        addresses = {name: f"{LOOPBACK}:{free_port()}" for name in names}
        return {
            **addresses,
            f"{manager}.hostname": LOOPBACK,
            f"{manager}.webapp.address": f"{LOOPBACK}:{self.webapp_port}",
            f"{manager}.scheduler.class": (
                "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler"
            ),
            f"{node}.hostname": LOOPBACK,
            f"{node}.resource.memory-mb": "8192",
            f"{node}.resource.cpu-vcores": "8",
            f"{node}.vmem-check-enabled": "false",
            f"{node}.pmem-check-enabled": "false",
            f"{node}.local-dirs": str(self.folder / "local"),
            f"{node}.log-dirs": str(self.folder / "containers"),
            f"{node}.delete.debug-delay-sec": "600",
            f"{node}.disk-health-checker.max-disk-utilization-per-disk-percentage": "99",
            f"{node}.env-whitelist": "SPARK_LOCAL_HOSTNAME,SPARK_LOCAL_IP,JAVA_HOME,HADOOP_CONF_DIR,PATH,LANG",
            "yarn.scheduler.minimum-allocation-mb": "256",
        }


_SCHEDULER = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.root.default.maximum-capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "0.8",
}
