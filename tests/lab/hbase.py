"""HBase: a standalone server (ZooKeeper, master and region server in one process) and its Thrift 1 gateways."""

from __future__ import annotations

import contextlib
import getpass
import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self

from tests.lab.jars import as_xml, hbase_classpath
from tests.lab.java import LIGHT, java, pyspark_home
from tests.lab.processes import LOOPBACK, Server, accepts_connections, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# What HBase and its Hadoop reach into, and Java 17 keeps closed.
_OPENED = (
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in (
            "java.lang",
            "java.lang.reflect",
            "java.net",
            "java.nio",
            "java.util",
            "java.util.concurrent",
            "jdk.internal.ref",
            "sun.nio.ch",
        )
    ),
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
)
_JVM = ("-XX:TieredStopAtLevel=1", *LIGHT, *_OPENED)
_ACCESS_CONTROLLER = "org.apache.hadoop.hbase.security.access.AccessController"
# Without web pages; waits for one region server only, and not for long.
_QUICK = {
    "hbase.master.info.port": "-1",
    "hbase.regionserver.info.port": "-1",
    "hbase.thrift.info.port": "-1",
    "hbase.regionserver.handler.count": "6",
    "hbase.master.wait.on.regionservers.interval": "50",
    "hbase.master.wait.on.regionservers.timeout": "500",
    "hbase.regionserver.msginterval": "100",
    # Small, so that it is reached.
    "hbase.client.keyvalue.maxsize": "2097152",
}
# A local disk is no HDFS, and HBase wants to be told that this is meant.
_LOCAL_DISK = {"hbase.unsafe.stream.capability.enforce": "false", "hbase.wal.provider": "filesystem"}
# Users are who they say they are, and yet each may do only what it is allowed to.
_RIGHTS = {
    "hbase.security.authorization": "true",
    "hbase.coprocessor.master.classes": _ACCESS_CONTROLLER,
    "hbase.coprocessor.region.classes": _ACCESS_CONTROLLER,
    "hbase.coprocessor.regionserver.classes": _ACCESS_CONTROLLER,
}


class HBaseServer:
    """A standalone HBase, whose gateway may do everything; see `gateway` for one that may not.

    Ports and data stay the same over `stop` and `start`, and over `kill` and `start`.

    Args:
        folder: Where it keeps its data, settings and logs; made if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._ports = {name: free_port() for name in ("zookeeper", "master", "regionserver")}
        self._core = Server(
            "HBase", [], log=folder / "hbase.log", ready=lambda: accepts_connections(self._ports["zookeeper"])
        )
        self._gateway = self._thrift(self.port, getpass.getuser())

    @property
    def master_port(self) -> int:
        """Port of the master, which speaks another protocol than the gateway."""
        return self._ports["master"]

    def start(self) -> Self:
        """Start the server, on the data of its last run if there is any, and wait until a Thrift call answers."""
        if not self._settings.exists():
            self._write_settings()
        self._core.command = self._java("-Xmx768m", "org.apache.hadoop.hbase.master.HMaster", "start")
        self._core.start()
        self._gateway.start()
        return self

    def revive(self) -> None:
        """Start it again if a part of it has died."""
        if not (self._core.is_running and self._gateway.is_running):
            self.stop()
            self.start()

    def stop(self) -> None:
        """Shut down in good order."""
        self._gateway.stop()
        self._core.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self._core.kill()
        self._gateway.kill()

    def suspend(self) -> None:
        """Let the gateway accept requests, and no one behind it answer."""
        self._core.suspend()

    def resume(self) -> None:
        """Answer again."""
        self._core.resume()

    @contextlib.contextmanager
    def gateway(self, *options: str, user: str | None = None) -> Iterator[int]:
        """Run one more gateway and give its port.

        Args:
            options: The Thrift server's: `-f` for the framed transport, `-c` for the compact protocol.
            user: As whom it acts; None is the one that started HBase, others have only the rights that `allow` gives.
        """
        port = free_port()
        with self._thrift(port, user or getpass.getuser(), options):
            yield port

    @contextlib.contextmanager
    def admin(self) -> Iterator[HBaseAdmin]:
        """Give what Thrift has no call for; it runs in a JVM of its own."""
        from py4j.java_gateway import GatewayParameters, JavaGateway

        port = free_port()
        command = self._java("-Xmx128m", "py4j.GatewayServer", str(port))
        log = self.folder / "admin.log"
        with Server("HBase's Java client", command, log=log, ready=lambda: accepts_connections(port)):
            # It lives shortly, so no one needs to tell it, at some later moment, what is garbage here.
            parameters = GatewayParameters(port=port, enable_memory_management=False)
            java_client = JavaGateway(gateway_parameters=parameters)
            yield HBaseAdmin(java_client)
            java_client.shutdown()

    def _thrift(self, port: int, user: str, options: Sequence[str] = ()) -> Server:
        main = "org.apache.hadoop.hbase.thrift.ThriftServer"
        arguments = ["start", "-p", str(port), "-b", LOOPBACK, "--infoport", "-1", *options]
        return Server(
            f"HBase's Thrift gateway of {user}",
            self._java("-Xmx256m", main, *arguments),
            log=self.folder / f"thrift-{port}.log",
            ready=lambda: _answers(port, options),
            environment={**os.environ, "HADOOP_USER_NAME": user},
        )

    def _java(self, memory: str, main_class: str, *arguments: str) -> list[str]:
        classes = f"{self._settings.parent}:{hbase_classpath()}:{pyspark_home()}/jars/py4j-{version('py4j')}.jar"
        return [java(), memory, *_JVM, "-cp", classes, main_class, *arguments]

    @property
    def _settings(self) -> Path:
        return self.folder / "conf" / "hbase-site.xml"

    def _write_settings(self) -> None:
        self._settings.parent.mkdir(parents=True, exist_ok=True)
        values = {**_QUICK, **_LOCAL_DISK, **_RIGHTS, **self._addresses(), **self._folders()}
        self._settings.write_text(as_xml(values))

    def _addresses(self) -> dict[str, str]:
        addresses = {
            "hbase.zookeeper.quorum": LOOPBACK,
            "hbase.zookeeper.property.clientPort": str(self._ports["zookeeper"]),
            "hbase.zookeeper.property.clientPortAddress": LOOPBACK,
        }
        for part in ("master", "regionserver"):
            addresses[f"hbase.{part}.hostname"] = "localhost"
            addresses[f"hbase.{part}.ipc.address"] = LOOPBACK
            addresses[f"hbase.{part}.port"] = str(self._ports[part])
        return addresses

    def _folders(self) -> dict[str, str]:
        return {
            "hbase.rootdir": (self.folder / "root").absolute().as_uri(),
            "hbase.tmp.dir": str(self.folder / "tmp"),
            "hbase.zookeeper.property.dataDir": str(self.folder / "zookeeper"),
        }

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class HBaseAdmin:
    """HBase's own administration.

    Args:
        java_client: The gateway of py4j to a JVM with HBase's classes.
    """

    def __init__(self, java_client: Any) -> None:
        self._java = java_client
        self._hbase = java_client.jvm.org.apache.hadoop.hbase
        settings = self._hbase.HBaseConfiguration.create()
        self._admin = self._hbase.client.ConnectionFactory.createConnection(settings).getAdmin()

    def allow(self, user: str, *actions: str, table: str, family: str | None = None) -> None:
        """Let a user do this (`READ`, `WRITE`) to a table, or to one column family of it."""
        permission = self._hbase.security.access.Permission
        wanted = self._java.new_array(permission.Action, len(actions))
        for number, action in enumerate(actions):
            wanted[number] = permission.Action.valueOf(action)
        on = permission.newBuilder(self._hbase.TableName.valueOf(table)).withActions(wanted)
        if family:
            on = on.withFamily(family.encode())
        self._admin.grant(self._hbase.security.access.UserPermission(user, on.build()), True)

    def make_read_only(self, table: str) -> None:
        """Let no one write a table any more."""
        old = self._admin.getDescriptor(self._hbase.TableName.valueOf(table))
        self._admin.modifyTable(self._hbase.client.TableDescriptorBuilder.newBuilder(old).setReadOnly(True).build())


def _answers(port: int, options: Sequence[str]) -> bool:
    import happybase
    from thriftpy2.thrift import TException

    if not accepts_connections(port):
        return False
    modes = {
        "transport": "framed" if "-f" in options else "buffered",
        "protocol": "compact" if "-c" in options else "binary",
    }
    try:
        # It listens long before the master is there, and then blocks.
        happybase.Connection(LOOPBACK, port, timeout=5000, **modes).tables()
    except (TException, OSError):
        return False
    return True
