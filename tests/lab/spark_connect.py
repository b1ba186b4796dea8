"""A Spark Connect server with Spark's Kafka source, Delta and Iceberg, from PySpark's own jars: its wheel has no script for one."""

from __future__ import annotations

import os
import sys
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import requests

from tests.lab.jars import avro_jars, jdbc_jars, spark_connector_jars, table_jars
from tests.lab.processes import LOOPBACK, OneServer, Server, accepts_connections, free_port, wait_until
from tests.lab.start import java_command
from tests.lab.tables import table_settings
from tests.lab.waiting import ANSWER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.lab.sparks import OtherSpark

# What Spark's own scripts open (org.apache.spark.launcher.JavaModuleOptions), without them Arrow dies at the first result.
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref"),
    *("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)
OPENS = tuple(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED)


class SparkConnect(OneServer):
    """One server with Spark on two threads of its own process, which keeps nothing over a restart but its port.

    Args:
        folder: Where it runs, so where it leaves what Spark leaves in a working directory, and its log.
        conf: Spark settings that win over those of this module.
        spark: Another Spark than the installed PySpark.
    """

    def __init__(self, folder: Path, *, conf: Mapping[str, str] | None = None, spark: OtherSpark | None = None) -> None:
        self.folder = folder
        self._spark = spark
        self.port = free_port()
        self._ui_port = free_port()
        self._conf = dict(conf or {})
        self._server = Server(
            "Spark Connect",
            [],
            log=folder / "spark-connect.log",
            ready=lambda: accepts_connections(self.port),
            environment=self._environment(),
            directory=folder,
        )

    @property
    def url(self) -> str:
        """Address for `SparkSession.builder.remote`."""
        return f"sc://{LOOPBACK}:{self.port}"

    @property
    def ui_url(self) -> str:
        """Address of its web pages."""
        return f"http://{LOOPBACK}:{self._ui_port}"

    def threads(self) -> str:
        """Return what the driver's threads are doing, with their stacks."""
        apps = f"{self.ui_url}/api/v1/applications"
        (app,) = requests.get(apps, timeout=ANSWER).json()
        return requests.get(f"{apps}/{app['id']}/executors/driver/threads", timeout=ANSWER).text

    @property
    def events(self) -> Path:
        """The folder of its event logs."""
        return self.folder / "events"

    def start(self) -> Self:
        """Start the server and wait until it is quick enough to tell what it has counted; see docs/launchers/connect.md."""
        self.events.mkdir(parents=True, exist_ok=True)
        self._server.command = self._command()
        self._server.start()
        wait_until(self._tells_counts, what="Spark Connect tells what it has counted")
        return self

    def _tells_counts(self) -> bool:
        import grpc
        from pyspark.sql.connect import proto

        one = proto.Expression(literal=proto.Expression.Literal(integer=1))
        count = proto.Expression.UnresolvedFunction(function_name="count", arguments=[one])
        alias = proto.Expression.Alias(expr=proto.Expression(unresolved_function=count), name=["records"])
        observed = proto.CollectMetrics(
            input=proto.Relation(sql=proto.SQL(query="SELECT 1")), name="seen", metrics=[proto.Expression(alias=alias)]
        )
        try:
            with executing(self.url, proto.Relation(collect_metrics=observed), timeout=30) as told:
                answers = list(told)
        except grpc.RpcError:
            return False
        return any(metrics.values for answer in answers for metrics in answer.observed_metrics)

    def _command(self) -> list[str]:
        settings = [f"-D{name}={value}" for name, value in self._settings().items()]
        # Spark's jars first: where both bring a library, Spark's version is the one that it was built with.
        spark = self._spark
        jars = (
            [*spark.launch_jars(), *spark.table_jars()]
            if spark
            else [*spark_connector_jars(), *table_jars(), *avro_jars()]
        )
        home = spark.home if spark else None
        main = "org.apache.spark.sql.connect.service.SparkConnectServer"
        return [*java_command(*jars, *jdbc_jars(), home=home), "-Xmx2g", *OPENS, *settings, main]

    def _settings(self) -> dict[str, str]:
        return {
            "spark.master": "local[2]",
            "spark.app.name": "lab",
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.port": str(self._ui_port),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.local.dir": str(self.folder / "local"),
            **table_settings(self.folder / "iceberg"),
            **self._conf,
        }

    def _environment(self) -> dict[str, str]:
        # None of our Spark settings may reach it: SPARK_REMOTE, for one, makes a server look for a server.
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        return {**ours, "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable}


@contextmanager
def executing(
    url: str, relation: Any, *, conf: Mapping[str, str] | None = None, timeout: float | None = None
) -> Iterator[Iterator[Any]]:
    """Have rows written to nowhere, without a session of PySpark's; give the server's answers as they come."""
    from pyspark.sql.connect import proto
    from pyspark.sql.connect.client import DefaultChannelBuilder

    builder = DefaultChannelBuilder(url)
    user = proto.UserContext(user_id=builder.userId or "")
    session: dict[str, Any] = {"session_id": builder.session_id or str(uuid.uuid4()), "user_context": user}
    pairs = [proto.KeyValue(key=key, value=value) for key, value in (conf or {}).items()]
    settings = proto.ConfigRequest.Operation(set=proto.ConfigRequest.Set(pairs=pairs))
    mode = proto.WriteOperation.SAVE_MODE_OVERWRITE
    write = proto.WriteOperation(input=relation, source="noop", mode=mode)
    plan = proto.Plan(command=proto.Command(write_operation=write))
    request = proto.ExecutePlanRequest(operation_id=str(uuid.uuid4()), plan=plan, **session)
    request.request_options.add(reattach_options=proto.ReattachOptions(reattachable=True))
    with builder.toChannel() as channel:
        server = proto.SparkConnectServiceStub(channel)
        server.Config(proto.ConfigRequest(operation=settings, **session), metadata=builder.metadata(), timeout=timeout)
        yield server.ExecutePlan(request, metadata=builder.metadata(), timeout=timeout)
