"""What counts as a secret: by the name of a setting, and by its value."""

from __future__ import annotations

import time

import pytest

from airflow_kafka_offsets.adapters.kafka.messages import masked
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.secrets import is_in_clear
from airflow_kafka_offsets.spark.shared import is_secret
from tests.core.examples import group

SECRET = [
    ("kafka.proxy.pwd", "hunter2"),
    ("kafka.http.proxy.Authorization", "Basic bGFrZTpodW50ZXIy"),
    ("kafka.sasl.oauthbearer.client.assertion", "eyJhbGciOi"),
    ("kafka.client_assertion", "eyJhbGciOi"),
    ("kafka.schema.registry.url", "https://lake:hunter2@registry:8081"),
    ("kafka.proxy.url", "http://:hunter2@proxy:3128/path"),
    ("kafka.registries", "https://a:8081,https://lake:hunter2@b:8081"),
    ("kafka.store.url", "jdbc:postgresql://db/offsets?user=lake&password=hunter2"),
    ("kafka.store.url", "jdbc:sqlserver://db;user=lake;PWD=hunter2"),
]
NO_SECRET = [
    ("kafka.schema.registry.url", "https://registry:8081"),
    ("kafka.schema.registry.url", "https://lake@registry:8081"),
    ("kafka.schema.registry.url", "https://registry:8081/a@b"),
    ("kafka.mail", "mailto:ada@example.org"),
    ("kafka.sasl.oauthbearer.client.assertion.type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
    ("kafka.sasl.oauthbearer.client.assertion.file", "/etc/kafka/assertion"),
    ("kafka.client.id", "lake"),
    ("spark.hadoop.hadoop.security.authorization", "true"),
]
REFERENCES = [
    ("kafka.proxy.pwd", "${env:PWD}"),
    ("kafka.schema.registry.url", "https://lake:${env:PASSWORD}@registry:8081"),
    ("kafka.store.url", "jdbc:postgresql://db/offsets?user=lake&password=${env:PASSWORD}"),
]


@pytest.mark.parametrize(("name", "value"), SECRET)
def test_a_secret_is_known_by_its_name_or_its_value(name: str, value: str) -> None:
    assert is_secret(name, value)
    assert is_in_clear(name, value)
    assert masked(f"{name} {value} failed", {name: value}) == f"{name} *** failed"
    with pytest.raises(BadInputError, match=f"must not hold {name} in clear text") as caught:
        group(spark_options={name: value})
    assert value not in str(caught.value)


@pytest.mark.parametrize(("name", "value"), NO_SECRET)
def test_other_settings_are_shown(name: str, value: str) -> None:
    assert not is_secret(name, value)
    group(spark_options={name: value})


@pytest.mark.parametrize(("name", "value"), REFERENCES)
def test_a_reference_is_no_secret_in_clear(name: str, value: str) -> None:
    assert not is_in_clear(name, value)
    group(spark_options={name: value})


def test_the_look_for_a_password_takes_no_longer_than_the_value_is_long() -> None:
    began = time.process_time()
    assert not is_secret("kafka.client.id", "//" + "a:" * 20_000)
    assert time.process_time() - began < 1
