"""Redis servers, from the system's packages: open, with TLS and logins, a replica, a cluster."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Any, Self

from tests.lab.certificates import make_certificates
from tests.lab.debian import ensure_program
from tests.lab.processes import LOOPBACK, OneServer, Server, accepts_connections, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# Every write is on disk before it is confirmed: after `kill` the data is there.
_DURABLE = {"save": '""', "appendonly": "yes", "appendfsync": "always", "repl-diskless-sync-delay": "0"}
_SLOTS = 16_384


class RedisServer(OneServer):
    """One server. Port and data stay the same over `stop` and `start`, and over `kill` and `start`.

    Args:
        folder: where it keeps its data, settings and log; made if it is missing.
        settings: lines of redis.conf that win over those of this module.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.port = free_port()
        self._extra = dict(settings or {})
        self._server = Server("Redis", [], log=folder / "log", ready=self._is_answering)

    def start(self) -> Self:
        """Start the server, on the data of its last run if there is any, and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # In a file: passwords do not belong on a command line.
        file = self.folder / "redis.conf"
        file.write_text("".join(f"{name} {value}\n" for name, value in self.settings().items()))
        self._server.command = [redis_program(), file]
        self._server.start()
        return self

    def settings(self) -> dict[str, str]:
        """Return the content of redis.conf."""
        return {"port": str(self.port), "bind": LOOPBACK, "dir": str(self.folder), **_DURABLE, **self._extra}

    def login(self) -> dict[str, Any]:
        """Return redis-py's settings for someone who may do everything."""
        return {"host": LOOPBACK, "port": self.port}

    def client(self) -> Any:
        """Return a client that may do everything and gets text; close it."""
        from redis import Redis

        return Redis(**self.login(), decode_responses=True, socket_timeout=10)

    def _is_answering(self) -> bool:
        from redis.exceptions import ConnectionError, TimeoutError

        if not accepts_connections(self.port):
            return False
        with self.client() as client:
            try:
                return bool(client.ping())
            except (ConnectionError, TimeoutError):
                return False


class SecureRedisServer(RedisServer):
    """A server with TLS only, a password, and users: `reader` may only read, `writer` has what a store needs.

    `folder/tls/ca.crt` is the certificate authority to trust, `folder/tls/other-ca.crt` one that did not sign.
    """

    password = "default-pw"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.tls = folder / "tls"

    def start(self) -> Self:
        """Start the server and wait until it answers."""
        if not self.tls.exists():
            make_certificates(self.tls)
        super().start()
        return self

    def settings(self) -> dict[str, str]:
        """Return the content of redis.conf."""
        return {
            **super().settings(),
            "port": "0",
            "tls-port": str(self.port),
            "tls-cert-file": str(self.tls / "broker.crt"),
            "tls-key-file": str(self.tls / "broker.key"),
            "tls-ca-cert-file": str(self.tls / "ca.crt"),
            "tls-auth-clients": "no",
            "requirepass": self.password,
            "user reader": "on >reader-pw ~* +@read +@connection +eval",
            "user writer": "on >writer-pw ~offset:* +eval +hgetall +hget +hset",
            "user stranger": "on >stranger-pw ~other:* +@all",
        }

    def login(self, user: str = "default") -> dict[str, Any]:
        """Return redis-py's settings for a user."""
        password = self.password if user == "default" else f"{user}-pw"
        return {
            "host": "localhost",  # the name that the certificate has
            "port": self.port,
            "username": user,
            "password": password,
            "ssl": True,
            "ssl_ca_certs": str(self.tls / "ca.crt"),
        }


class RedisCluster:
    """A cluster of three servers without replicas."""

    def __init__(self, folder: Path) -> None:
        # Its usual port, 10,000 more, could be taken by any outgoing connection.
        self.servers = [
            RedisServer(
                folder / str(number),
                {
                    "cluster-enabled": "yes",
                    "cluster-config-file": "nodes.conf",
                    "cluster-port": str(free_port()),
                    "cluster-node-timeout": "15000",
                },
            )
            for number in range(3)
        ]

    @property
    def port(self) -> int:
        """Port of one of its servers."""
        return self.servers[0].port

    def start(self) -> Self:
        """Start the servers, make them a cluster, and wait until each of them serves it."""
        with contextlib.ExitStack() as stack:
            for server in self.servers:
                stack.enter_context(server)
            self._form()
            stack.pop_all()
        return self

    def revive(self) -> None:
        """Start those servers again that have died; they know their cluster."""
        for server in self.servers:
            server.revive()

    def stop(self) -> None:
        """Stop all servers."""
        for server in self.servers:
            server.stop()

    def _form(self) -> None:
        size = _SLOTS // len(self.servers) + 1
        for number, server in enumerate(self.servers):
            with server.client() as client:
                last = min((number + 1) * size, _SLOTS) - 1
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", number * size, last)
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        with self.servers[0].client() as client:
            for other in self.servers[1:]:
                bus = other.settings()["cluster-port"]
                client.execute_command("CLUSTER", "MEET", LOOPBACK, other.port, bus)
        wait_until(lambda: all(map(_serves_all, self.servers)), what="the Redis cluster is complete")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _serves_all(server: RedisServer) -> bool:
    with server.client() as client:
        info = client.execute_command("CLUSTER", "INFO").split()
    return {"cluster_state:ok", "cluster_known_nodes:3"} <= set(info)


def redis_program() -> str:
    """Return the path of `redis-server`; install it if it is missing."""
    return ensure_program(lambda: shutil.which("redis-server"), package="redis-server")
