"""HDFS: a real name node and a real data node on loopback, with WebHDFS."""

from __future__ import annotations

import getpass
import json
import subprocess
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from tests.lab.jars import HDFS, as_xml, class_path, log_settings
from tests.lab.java import LIGHT, java
from tests.lab.processes import LOOPBACK, Server, ServerError, ServerPair, free_port
from tests.lab.waiting import ANSWER

if TYPE_CHECKING:
    from pathlib import Path

# WebHDFS uses reflection that Java 17 forbids.
_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", *LIGHT, "--add-opens=java.base/java.lang=ALL-UNNAMED")
_NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"


class Hdfs(ServerPair):
    """A name node and a data node. Ports and data stay the same over `stop` and `start`, and over `kill` and `start`.

    Who runs the tests is HDFS's superuser; everybody else is whom he says he is.

    Args:
        folder: Where both keep data, settings and logs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rpc_port, self.port, self.data_port = free_port(), free_port(), free_port()
        self._data_ports = (free_port(), free_port())
        self.user = getpass.getuser()
        self.name_node = Server("name node", [], log=folder / "name-node.log", ready=self._is_listing)
        self.data_node = Server("data node", [], log=folder / "data-node.log", ready=self.takes_files)

    @property
    def url(self) -> str:
        """What clients are given: the name node's WebHDFS."""
        return f"http://{LOOPBACK}:{self.port}"

    def _servers(self) -> tuple[Server, Server]:
        return self.name_node, self.data_node

    def _prepare(self) -> None:
        if not self.name_node.command:
            self._write_settings()
            self._format()

    def kill(self) -> None:
        """SIGKILL both."""
        self.data_node.kill()
        self.name_node.kill()

    def is_in_safe_mode(self) -> bool:
        """Tell whether the name node refuses every change, as it does until it knows where its files are."""
        query = urlencode({"qry": "Hadoop:service=NameNode,name=FSNamesystemState"})
        with urllib.request.urlopen(f"{self.url}/jmx?{query}", timeout=ANSWER) as answer:
            return bool(json.load(answer)["beans"][0]["FSState"] == "safeMode")

    def takes_files(self) -> bool:
        """Tell whether a file can be written."""
        from hdfs.util import HdfsError
        from requests import RequestException

        try:
            self.client().write("/.ready", b"ready", overwrite=True)
        except (HdfsError, RequestException):
            return False
        return True

    def put(self, operation: str, path: str, **parameters: str | int) -> None:
        """Do what the client has no method for, as superuser: a PUT of WebHDFS."""
        with self._request("PUT", operation, path, **parameters):
            pass

    def set_safe_mode(self, *, is_on: bool) -> None:
        """Let the name node refuse every change, as an administrator does, or allow them again."""
        command = [*self.name_node.command[:-1], "org.apache.hadoop.hdfs.tools.DFSAdmin", "-safemode"]
        subprocess.run([*command, "enter" if is_on else "leave"], capture_output=True, check=True)

    def client(self, user: str = "", url: str = "", timeout: float = 10) -> Any:
        """Return a client, of the superuser unless said otherwise."""
        from airflow_kafka_offsets.adapters.stores.hdfs import HdfsLogin, open_client

        return open_client([url or self.url], timeout, HdfsLogin(user=user or self.user))

    def _request(self, method: str, operation: str, path: str, **parameters: str | int) -> Any:
        query = urlencode({"op": operation, "user.name": self.user, **parameters})
        request = urllib.request.Request(f"{self.url}/webhdfs/v1{path}?{query}", method=method)
        return urllib.request.urlopen(request, timeout=ANSWER)

    def _is_listing(self) -> bool:
        with self._request("GET", "LISTSTATUS", "/"):
            return True

    def _format(self) -> None:
        command = [*self.name_node.command, "-format", "-nonInteractive"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServerError(f"The name node could not format its folder:\n{done.stdout}{done.stderr}")

    def _write_settings(self) -> None:
        settings = self.folder / "settings"
        # The servers look for the pages of their web interfaces, which are not in the jars; empty folders do.
        for pages in ("hdfs", "datanode"):
            (settings / "webapps" / pages).mkdir(parents=True)
        (settings / "core-site.xml").write_text(as_xml({"fs.defaultFS": f"hdfs://{LOOPBACK}:{self.rpc_port}"}))
        (settings / "hdfs-site.xml").write_text(as_xml(self._properties()))
        program = [java(), *_JVM, "-cp", f"{settings}:{log_settings()}:{class_path(HDFS)}"]
        self.name_node.command = [*program, _NAME_NODE]
        self.data_node.command = [*program, _DATA_NODE]

    def _properties(self) -> dict[str, str]:
        transfer, ipc = self._data_ports
        return {
            "dfs.namenode.http-address": f"{LOOPBACK}:{self.port}",
            "dfs.namenode.name.dir": str(self.folder / "names"),
            "dfs.namenode.safemode.extension": "0",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.datanode.hostname": LOOPBACK,
            "dfs.datanode.address": f"{LOOPBACK}:{transfer}",
            "dfs.datanode.http.address": f"{LOOPBACK}:{self.data_port}",
            "dfs.datanode.ipc.address": f"{LOOPBACK}:{ipc}",
            "dfs.datanode.data.dir": str(self.folder / "blocks"),
            "dfs.datanode.data.dir.perm": "700",
            "dfs.heartbeat.interval": "1",
            "dfs.replication": "1",
        }
