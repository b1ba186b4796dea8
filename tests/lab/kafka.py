"""Kafka brokers: one that is open, one with SASL_SSL, SCRAM-SHA-512 and ACLs, one that is both, and older ones; `logins` has one more."""

from __future__ import annotations

import base64
import subprocess
import uuid
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.lab.certificates import CURVE, make_certificates
from tests.lab.jars import KAFKA, KAFKA_2, class_path, log_settings
from tests.lab.java import LIGHT, java
from tests.lab.processes import LOOPBACK, OneServer, Server, ServerError, accepts_connections, free_port
from tests.lab.waiting import ANSWER, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.lab.jars import JarSet
    from tests.lab.zookeeper import ZooKeeperServer

# Retention and compaction within seconds; one replica of everything; few partitions of what Kafka keeps for itself.
# A killed broker may come back only after its old session has expired.
_QUICK = {
    "log.retention.check.interval.ms": "2000",
    "log.cleaner.backoff.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "1000",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # A broker that no one asks lives for long beside the tests, and with Kafka's defaults uses twice the CPU: for a record in its metadata
    # twice a second, and for threads that each wake up several times a second.
    "metadata.max.idle.interval.ms": "60000",
    "num.io.threads": "3",
    "num.network.threads": "2",
    "group.coordinator.threads": "1",
    "background.threads": "2",
}
_JVM = ("-Xmx512m", "-XX:TieredStopAtLevel=1", *LIGHT)


class KafkaBroker(OneServer):
    """One broker, plaintext, that is its own KRaft controller unless it joins another broker.

    Port and data stay the same over `stop` and `start`, and over `kill` and `start`.

    Args:
        folder: Where it keeps its data, settings and log; made if it is missing.
        properties: Broker settings that win over the quick ones of this module.
        joins: A running broker that is the controller for this one too. Partitions that are placed here only (see
            `create_topic`) have no leader while this broker is stopped.
        jvm_options: Options of the JVM; the default starts quickly and is slow in the long run.
        node_id: Its id. By default, it is one more than that of the broker that it joins, so only one can join without an id.
        jars: The jars of its version.
        classes: A folder with more classes.
    """

    def __init__(
        self,
        folder: Path,
        *,
        properties: Mapping[str, str] | None = None,
        joins: KafkaBroker | None = None,
        jvm_options: Sequence[str] = _JVM,
        node_id: int | None = None,
        jars: JarSet = KAFKA,
        classes: Path | None = None,
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self.node_id = node_id or (joins.node_id + 1 if joins else 1)
        self._extra = dict(properties or {})
        self._controller = joins or self
        self._controller_port = free_port()
        self._cluster_id = joins._cluster_id if joins else _new_cluster_id()
        self._jvm_options = jvm_options
        self._jars, self._classes = jars, classes
        self._server = Server(
            f"Kafka broker {self.node_id}",
            [],
            log=folder / "broker.log",
            ready=self._is_serving,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Give another process a copy, which makes an admin client of its own."""
        return {name: value for name, value in self.__dict__.items() if name != "admin"}

    @property
    def bootstrap_servers(self) -> str:
        """Address that clients are given."""
        return f"{LOOPBACK}:{self.port}"

    def client_config(self) -> dict[str, str]:
        """Return librdkafka settings of a client that may do everything."""
        return {"bootstrap.servers": self.bootstrap_servers}

    @cached_property
    def admin(self) -> AdminClient:
        """An admin client that may do everything; it reconnects by itself after a restart."""
        # log_level 0: librdkafka would tell stderr of every refused connection while the broker is down.
        return AdminClient({**self.client_config(), "log_level": 0})

    def start(self) -> Self:
        """Start the broker, on the data of its last run if there is any, and wait until clients are served."""
        if not self._settings.exists():
            self._format()
        self._server.command = self._java("kafka.Kafka", str(self._settings))
        self._server.start()
        return self

    def properties(self) -> dict[str, str]:
        """Return the content of server.properties."""
        return {
            "node.id": str(self.node_id),
            "process.roles": "broker,controller" if self._controller is self else "broker",
            "controller.quorum.voters": f"{self._controller.node_id}@{LOOPBACK}:{self._controller._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder / "data"),
            **self._listeners(),
            **_QUICK,
            **self._extra,
        }

    def _listeners(self) -> dict[str, str]:
        client = f"CLIENT://{LOOPBACK}:{self.port}"
        controller = f",CONTROLLER://{LOOPBACK}:{self._controller_port}" if self._controller is self else ""
        return {
            "listeners": client + controller,
            "advertised.listeners": client,
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "CLIENT",
        }

    @property
    def _settings(self) -> Path:
        return self.folder / "server.properties"

    def _format(self, *arguments: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{name}={value}\n" for name, value in self.properties().items())
        # Written under its own name only when the data folder is formatted: the name means "there is data".
        draft = self.folder / "server.properties.new"
        draft.write_text(text)
        command = self._java("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(draft), *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServerError(f"Kafka could not format {self.folder}:\n{done.stdout}{done.stderr}")
        draft.rename(self._settings)

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        log = f"-Dlog4j.configuration={(log_settings() / 'log4j.properties').as_uri()}"
        classes = class_path(self._jars) + (f":{self._classes}" if self._classes else "")
        return [java(), *self._jvm_options, log, "-cp", classes, main_class, *arguments]

    def _is_serving(self) -> bool:
        if not accepts_connections(self.port):
            return False
        try:
            brokers = self.admin.list_topics(timeout=5).brokers
        except KafkaException:
            return False
        # The list of this broker says so when the controller has let it in.
        return self.node_id in brokers


class OldKafkaBroker(KafkaBroker):
    """A broker of version 2.8, on ZooKeeper. As one of 2.7, it gives no topic ids, and `upgrade` lets it give them.

    Args:
        folder: see `KafkaBroker`.
        zookeeper: A running server.
    """

    def __init__(self, folder: Path, zookeeper: ZooKeeperServer) -> None:
        super().__init__(folder, jars=KAFKA_2)
        self._zookeeper = zookeeper
        self._protocol = "2.7"

    def upgrade(self, protocol: str = "2.8") -> None:
        """Let it be of another version, as a rolling upgrade or a rollback does at its end."""
        self.stop()
        self._protocol = protocol
        self._settings.unlink()
        self.start()

    def properties(self) -> dict[str, str]:
        """Return the content of server.properties."""
        return {
            "broker.id": str(self.node_id),
            "zookeeper.connect": f"{self._zookeeper.hosts}/{self._cluster_id}",  # others may be there, too
            "inter.broker.protocol.version": self._protocol,
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}",
            "log.dirs": str(self.folder / "data"),
            **_QUICK,
        }

    def _format(self, *arguments: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in self.properties().items()))


class SecureKafkaBroker(KafkaBroker):
    """A broker with SASL_SSL, SCRAM-SHA-512 and ACLs: `root` may do everything, the others what `allow` gives them.

    `folder/tls/ca.crt` is the certificate authority to trust, `folder/tls/other-ca.crt` one that did not sign.
    """

    users = ("root", "alice", "bob")

    def __init__(self, folder: Path, *, properties: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, properties=properties)
        self.tls = folder / "tls"
        self._inner_port = free_port()

    @property
    def bootstrap_servers(self) -> str:
        """Address that clients are given; its name is the one in the certificate."""
        return f"localhost:{self.port}"

    def password(self, user: str) -> str:
        """Return the password of a user, which no other broker's user has: it can be searched for."""
        return f"{user}-{self._cluster_id}"

    def client_config(self, user: str = "root") -> dict[str, str]:
        """Return librdkafka settings of a client that logs in as this user."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": self.password(user),
            "ssl.ca.location": str(self.tls / "ca.crt"),
        }

    def allow(
        self,
        user: str,
        operation: AclOperation,
        *,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
    ) -> None:
        """Let a user do this to a topic, to a consumer group or to a transactional id, from now on."""
        kinds = {
            ResourceType.TOPIC: topic,
            ResourceType.GROUP: group,
            ResourceType.TRANSACTIONAL_ID: transactional_id,
        }
        [(kind, name)] = [(kind, name) for kind, name in kinds.items() if name]
        fields = kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW
        for created in self.admin.create_acls([AclBinding(*fields)], request_timeout=ANSWER).values():
            created.result(ANSWER)
        wanted = AclBindingFilter(*fields)
        # The controller has answered, and the broker hears of it a moment later.
        wait_until(
            lambda: self.admin.describe_acls(wanted, request_timeout=ANSWER).result(ANSWER),
            what=f"{user} may {operation.name} {name}",
        )

    def properties(self) -> dict[str, str]:
        """Return the content of server.properties."""
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        inner_login = f'{plain} username="admin" password="admin-pw" user_admin="admin-pw";'
        return {
            **super().properties(),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:root",
            "allow.everyone.if.no.acl.found": "false",
            # Brokers and controller log in with PLAIN: the SCRAM users live in the metadata that they serve.
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            # Mechanisms for each listener, never one list for all: that makes the controller ask for a JAAS file.
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": inner_login,
            "listener.name.inner.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.inner.plain.sasl.jaas.config": inner_login,
            "listener.name.client.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.client.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.client.ssl.keystore.type": "PEM",
            "listener.name.client.ssl.keystore.location": str(self.tls / "broker.pem"),
            "listener.name.client.ssl.truststore.type": "PEM",
            "listener.name.client.ssl.truststore.location": str(self.tls / "ca.crt"),
            **self._extra,
        }

    def _listeners(self) -> dict[str, str]:
        inner = f"INNER://{LOOPBACK}:{self._inner_port}"
        return {
            "listeners": f"CLIENT://{LOOPBACK}:{self.port},{inner},CONTROLLER://{LOOPBACK}:{self._controller_port}",
            "advertised.listeners": f"CLIENT://{self.bootstrap_servers},{inner}",
            "listener.security.protocol.map": "CLIENT:SASL_SSL,INNER:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "inter.broker.listener.name": "INNER",
        }

    def _format(self, *arguments: str) -> None:
        make_certificates(self.tls, CURVE)
        logins = [f"SCRAM-SHA-512=[name={user},password={self.password(user)}]" for user in self.users]
        super()._format(*arguments, *(part for login in logins for part in ("--add-scram", login)))


class TwoDoorBroker(SecureKafkaBroker):
    """A secure broker with a second door: at `open`, it is as an open one, and whoever comes there may do everything."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.open = _OpenDoor(self)

    def properties(self) -> dict[str, str]:
        """Return the content of server.properties."""
        few = dict.fromkeys(
            ("listener.name.client.num.network.threads", "listener.name.inner.num.network.threads"), "1"
        )
        return {**super().properties(), "super.users": "User:admin;User:root;User:ANONYMOUS", **few}

    def _listeners(self) -> dict[str, str]:
        secure, door = super()._listeners(), f",OPEN://{self.open.bootstrap_servers}"
        added = {"listeners": door, "advertised.listeners": door, "listener.security.protocol.map": ",OPEN:PLAINTEXT"}
        return {name: value + added.get(name, "") for name, value in secure.items()}


class _OpenDoor(KafkaBroker):
    """A port of another broker."""

    def __init__(self, broker: TwoDoorBroker) -> None:
        super().__init__(broker.folder, node_id=broker.node_id)
        self._server = broker._server


def _new_cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A", 1)
