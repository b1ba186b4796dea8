"""A ZooKeeper server, from Maven's jars."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Self

from tests.lab.certificates import make_certificates
from tests.lab.jars import ZOOKEEPER, class_path
from tests.lab.java import LIGHT, java
from tests.lab.processes import LOOPBACK, OneServer, Server, accepts_connections, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", *LIGHT)


class ZooKeeperServer(OneServer):
    """One server, with a second port for TLS. Ports and data stay the same over `stop` and `start`, `kill` and `start`.

    `folder/tls/ca.crt` is the certificate authority to trust, `folder/tls/other-ca.crt` one that did not sign.

    Args:
        folder: where it keeps its data, settings and log; made if it is missing.
        properties: Java's system properties, such as `jute.maxbuffer`.
    """

    def __init__(self, folder: Path, properties: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.port = free_port()
        self.tls_port = free_port()
        self.tls = folder / "tls"
        self._properties = [f"-D{name}={value}" for name, value in (properties or {}).items()]
        self._server = Server("ZooKeeper", [], log=folder / "log", ready=self._is_serving)

    @property
    def hosts(self) -> str:
        """What a client is given."""
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> Self:
        """Start the server, on the data of its last run if there is any, and wait until it answers."""
        if not self.tls.exists():
            make_certificates(self.tls)
        settings = self.folder / "zoo.cfg"
        settings.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._server.command = [java(), *_JVM, *self._properties, "-cp", class_path(ZOOKEEPER), main, settings]
        self._server.start()
        return self

    def client(self) -> Any:
        """Return a connected client of no one in particular; stop and close it."""
        from kazoo.client import KazooClient

        client = KazooClient(self.hosts)
        client.start(20)
        return client

    def ask(self, word: str) -> str:
        """Send one of ZooKeeper's four-letter words and return the answer; empty: there is none."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=5) as connection:
                connection.sendall(word.encode())
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        except OSError:
            return ""

    def _is_serving(self) -> bool:
        # It says that it is well ("ruok") before it serves.
        return "Mode:" in self.ask("srvr") and accepts_connections(self.tls_port)

    def _settings(self) -> dict[str, str]:
        return {
            "tickTime": "2000",
            "dataDir": str(self.folder / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": LOOPBACK,
            "secureClientPort": str(self.tls_port),
            "secureClientPortAddress": LOOPBACK,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.type": "PEM",
            "ssl.keyStore.location": str(self.tls / "broker.pem"),
            "ssl.trustStore.type": "PEM",
            "ssl.trustStore.location": str(self.tls / "ca.crt"),
            "ssl.clientAuth": "none",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,cons",
            "maxClientCnxns": "0",
        }
