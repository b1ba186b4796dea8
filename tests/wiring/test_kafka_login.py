"""Planning has the client's settings from the Kafka provider's hook, whichever supported version is installed."""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.adapters.kafka.client import digest, opened
from airflow_kafka_offsets.core.errors import BadInputError, KafkaRefusedError, KafkaUnavailableError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.wiring.connections import kafka_extra
from airflow_kafka_offsets.wiring.kafka_login import kafka_config
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import LOOPBACK, free_port
from tests.lab.topics import create_topic

MSK = "b-1.demo.abcde1.c2.kafka.eu-central-1.amazonaws.com:9098"
GOOGLE = "bootstrap.lake.europe-west3.managedkafka.example.cloud.goog:9092"
TOKENS = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
SIGNER = "aws_msk_iam_sasl_signer"
OF_GOOGLE = "airflow.providers.google.cloud.hooks.managed_kafka"


def token(config: str) -> tuple[str, float]:
    """Return a token that is not signed, as Kafka's own handler takes it, and when it expires."""
    now = time.time()
    parts = {"alg": "none"}, {"sub": "lake", "iat": now, "exp": now + 3600}
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts
    ) + ".", now + 3600


def foreign_token(config: str) -> tuple[str, float]:
    """Return a token that the broker does not take."""
    return "hunter2", time.time() + 3600


def no_token(config: str) -> tuple[str, float]:
    """Fail as a callback without credentials does."""
    raise RuntimeError(f"no credentials in the environment; tried {config}")


class Signer:
    """What Amazon's signer gives: milliseconds, where confluent-kafka takes seconds."""

    regions: list[str]

    @classmethod
    def generate_auth_token(cls, region: str) -> tuple[str, int]:
        """Return a token for a region."""
        cls.regions.append(region)
        text, expires = token("")
        return text, int(expires * 1000)


class ManagedKafkaHook:
    """What the Google provider gives."""

    def get_confluent_token(self, config: str) -> tuple[str, float]:
        """Return a token."""
        return token(config)


def connect(monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], **fields: Any) -> None:
    """Let Airflow have the connection ``kafka``."""
    document = {"conn_type": "kafka", "extra": extra, **fields}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA", json.dumps(document))


def install(monkeypatch: pytest.MonkeyPatch, module: str, **names: object) -> None:
    """Let a module be there that has these names, and its packages."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        if name not in sys.modules or count == len(parts):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
    vars(sys.modules[module]).update(names)


def allow(monkeypatch: pytest.MonkeyPatch, *callbacks: str) -> None:
    """Let the provider import these callbacks."""
    monkeypatch.setenv("AIRFLOW__APACHE_KAFKA__CALLBACK_ALLOWLIST", ",".join(callbacks))


@pytest.mark.parametrize(
    ("extra", "fields", "words"),
    [
        ({}, {}, "its extra lacks bootstrap.servers$"),
        ({}, {"host": "kafka", "port": 9092}, "host and port of a Kafka connection are not read"),
        ({"bootstrap.server": "kafka:9092"}, {}, "rename 'bootstrap.server' to bootstrap.servers"),
        ({"bootstrap_servers": "kafka:9092"}, {"host": "kafka"}, "rename 'bootstrap_servers' to bootstrap.servers"),
        ({"bootstrapServers": "kafka:9092"}, {}, "rename 'bootstrapServers' to"),
        ({"metadata.broker.list": "kafka:9092"}, {}, "rename 'metadata.broker.list' to"),
        ({"bootstrap.servers": ["kafka:9092"]}, {}, "must be a text in its extra, such as host:9092,host2:9092"),
    ],
)
def test_servers_that_no_one_would_read_are_named(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], fields: dict[str, Any], words: str
) -> None:
    connect(monkeypatch, extra, **fields)
    for ask in (kafka_config, kafka_extra):
        with pytest.raises(BadInputError, match=words):
            ask("kafka")


def test_a_callback_that_the_provider_allows_is_a_function_for_planning_and_text_for_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extra = {"bootstrap.servers": "kafka:9092", "oauth_cb": f"{__name__}.token", "error_cb": f"{__name__}.no_token"}
    connect(monkeypatch, extra)
    allow(monkeypatch, *(extra[name] for name in ("oauth_cb", "error_cb")))
    config = kafka_config("kafka")
    assert (config["oauth_cb"].__name__, config["error_cb"].__name__) == ("token", "no_token")
    assert kafka_extra("kafka") == extra
    assert digest(config) == digest(kafka_config("kafka"))


@pytest.mark.parametrize(
    ("callback", "allowed", "words"),
    [
        (f"{__name__}.token", "", r"\[apache_kafka\] callback_allowlist is empty. List the whole path"),
        (f"{__name__}.token", "company.auth.token", r"callback_allowlist \(company.auth.token\). List the whole path"),
        ("company.auth.token", "company.auth.token", "No module named 'company'. Correct its path in the extra"),
        (f"{__name__}.tokn", f"{__name__}.tokn", "tokn.*Correct its path in the extra"),
    ],
)
def test_a_callback_that_can_not_be_used_is_refused_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch, callback: str, allowed: str, words: str
) -> None:
    connect(monkeypatch, {"bootstrap.servers": "kafka:9092", "oauth_cb": callback})
    allow(monkeypatch, allowed)
    with pytest.raises(BadInputError, match=words):
        kafka_config("kafka")


@pytest.mark.parametrize(
    ("servers", "module", "names"),
    [(MSK, SIGNER, {"MSKAuthTokenProvider": Signer}), (GOOGLE, OF_GOOGLE, {"ManagedKafkaHook": ManagedKafkaHook})],
    ids=["MSK", "Google"],
)
def test_a_managed_kafka_gets_its_token_and_stays_one_client(
    monkeypatch: pytest.MonkeyPatch, servers: str, module: str, names: dict[str, object]
) -> None:
    Signer.regions = []
    install(monkeypatch, module, **names)
    connect(monkeypatch, {"bootstrap.servers": servers, **TOKENS})
    first, second = kafka_config("kafka"), kafka_config("kafka")
    assert abs(first["oauth_cb"]("")[1] - time.time() - 3600) < 60  # seconds
    assert digest(first) == digest(second)
    assert Signer.regions == (["eu-central-1"] if servers == MSK else [])


@pytest.mark.parametrize(
    ("servers", "module", "command"),
    [
        (MSK, SIGNER, "    pip install 'apache-airflow-providers-apache-kafka[msk]'"),
        (GOOGLE, OF_GOOGLE, "    pip install apache-airflow-providers-google"),
    ],
    ids=["MSK", "Google"],
)
def test_a_package_that_is_missing_for_a_login_is_named(
    monkeypatch: pytest.MonkeyPatch, servers: str, module: str, command: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # the import fails
    connect(monkeypatch, {"bootstrap.servers": servers, **TOKENS})
    with pytest.raises(BadInputError) as caught:
        kafka_config("kafka")
    assert str(caught.value).splitlines()[-1] == command


class TokenBroker(KafkaBroker):
    """A broker that has a second door, for tokens."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.door = f"{LOOPBACK}:{free_port()}"

    def properties(self) -> dict[str, str]:
        """Return the content of server.properties."""
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        tokens = {"sasl.enabled.mechanisms": "OAUTHBEARER", "oauthbearer.sasl.jaas.config": module}
        return {**super().properties(), **{f"listener.name.tokens.{name}": value for name, value in tokens.items()}}

    def _listeners(self) -> dict[str, str]:
        address = f",TOKENS://{self.door}"
        added = {
            "listeners": address,
            "advertised.listeners": address,
            "listener.security.protocol.map": ",TOKENS:SASL_PLAINTEXT",
        }
        return {name: value + added.get(name, "") for name, value in super()._listeners().items()}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenBroker]:
    """Run a broker that takes tokens, with a topic."""
    with TokenBroker(tmp_path_factory.mktemp("tokens")) as broker:
        create_topic(broker, "orders")
        yield broker


GROUP = KafkaGroup("lake.orders", topics=["orders"], kafka_conn_id="kafka", offset_store="kafka://", kafka_timeout=20)


@pytest.mark.server
@pytest.mark.kafka
def test_planning_and_the_offset_store_log_in_with_the_token_of_a_callback(
    monkeypatch: pytest.MonkeyPatch, tokens: TokenBroker
) -> None:
    connect(monkeypatch, {"bootstrap.servers": tokens.door, **TOKENS, "oauth_cb": f"{__name__}.token"})
    allow(monkeypatch, f"{__name__}.token")
    log = wiring.open_log(GROUP)
    assert log.topics() >= {"orders"}
    assert log.topic_ids(["orders"])
    store = wiring.open_offset_store(GROUP)
    assert store is not None
    [partition] = log.partitions(["orders"])
    store.advance("lake.orders", {}, {partition: 5}, "lake.orders-000001")
    assert store.read("lake.orders", ["orders"]) == {partition: 5}


@pytest.mark.server
@pytest.mark.kafka
def test_planning_logs_in_with_the_token_of_amazons_signer(
    monkeypatch: pytest.MonkeyPatch, tokens: TokenBroker
) -> None:
    Signer.regions = []
    install(monkeypatch, SIGNER, MSKAuthTokenProvider=Signer)
    # The hook goes by the name; the broker behind the other address takes the token.
    connect(monkeypatch, {"bootstrap.servers": f"{tokens.door},{MSK}", **TOKENS})
    assert wiring.open_log(GROUP).topic_ids(["orders"])
    assert Signer.regions


@pytest.mark.server
@pytest.mark.kafka
def test_a_token_that_kafka_refuses_is_a_refusal_that_names_where_tokens_come_from(
    monkeypatch: pytest.MonkeyPatch, tokens: TokenBroker
) -> None:
    connect(monkeypatch, {"bootstrap.servers": tokens.door, **TOKENS, "oauth_cb": f"{__name__}.foreign_token"})
    allow(monkeypatch, f"{__name__}.foreign_token")
    with pytest.raises(KafkaRefusedError, match=r"refused the login .*for OAUTHBEARER, oauth_cb") as caught:
        wiring.open_log(GROUP).topic_ids(["orders"])
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "login",
    [
        {"security.protocol": "PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"},
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"},
    ],
)
def test_a_callback_that_the_login_does_not_use_is_not_called(login: dict[str, str]) -> None:
    config = {"bootstrap.servers": f"{LOOPBACK}:{free_port()}", "log_level": 0, **login, "oauth_cb": no_token}
    began = time.monotonic()
    assert opened(AdminClient, config) is not None
    assert time.monotonic() - began < 8  # confluent-kafka waits for a token for 10 s, whatever the login


def test_a_callback_that_fails_is_told_at_once_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"oauth_cb": f"{__name__}.no_token", "sasl.oauthbearer.config": "hunter2"}
    connect(monkeypatch, {"bootstrap.servers": f"{LOOPBACK}:{free_port()}", **TOKENS, **extra})
    allow(monkeypatch, f"{__name__}.no_token")
    began = time.monotonic()
    with pytest.raises(KafkaUnavailableError, match=r"no credentials in the environment; tried \*\*\*") as caught:
        wiring.open_log(KafkaGroup("g", topics=["orders"], kafka_conn_id="kafka", kafka_timeout=1)).topic_ids(
            ["orders"]
        )
    assert time.monotonic() - began < 8  # confluent-kafka waits for 10 s
    assert "hunter2" not in str(caught.value)
