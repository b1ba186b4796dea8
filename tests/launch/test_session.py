"""Errors of Spark that are about its surroundings, in words for a person."""

from __future__ import annotations

import pytest

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.launch.session import explained_spark_error
from airflow_kafka_offsets.spark.errors import BadRecordError

SENTENCE = "Kafka record shop.orders-3 offset 17: its value can't be decoded: it has 0 bytes, fewer than a header"


@pytest.mark.parametrize(
    "said",
    [
        f"[USER_RAISED_EXCEPTION] {SENTENCE} SQLSTATE: P0001\n\tat org.apache.spark",
        f"An error occurred while calling o1.save.\n: java.lang.RuntimeException: {SENTENCE}\n\tat org.apache.spark",
        SENTENCE,
    ],
)
def test_a_record_that_can_not_be_decoded_is_named(said: str) -> None:
    explained = explained_spark_error(RuntimeError(said))
    assert isinstance(explained, BadRecordError)
    assert str(explained).startswith(f"{SENTENCE}; nothing is committed.")
    assert str(explained).endswith("To go on without such records: on_bad='null', or on_bad='side' with side=...")


URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
DISALLOWED = "org.apache.kafka.disallowed.login.modules"
TOKEN_URL, MODULE = "https://idp/oauth2/token", "com.sun.security.auth.module.Krb5LoginModule"


@pytest.mark.parametrize(
    ("said", "forbidden", "remedy"),
    [
        (f"{TOKEN_URL} is not allowed. Update system property '{URLS}' to allow {TOKEN_URL}", TOKEN_URL, f"-D{URLS}="),
        (
            f"Invalid value {TOKEN_URL} for configuration sasl.oauthbearer.token.endpoint.url: The URL cannot be accessed due "
            f"to restrictions. Update the system property '{URLS}' to allow the URL to be accessed.",
            TOKEN_URL,
            f"-D{URLS}=",
        ),
        (f"{MODULE} is not allowed. Update System property '{DISALLOWED}' to allow {MODULE}", MODULE, "Remove it from"),
        (
            f"{MODULE} is not allowed. The system property '{DISALLOWED}' is deprecated. Use the "
            "org.apache.kafka.allowed.login.modules to allow this module.",
            MODULE,
            "Remove it from",
        ),
    ],
    ids=["URL 3.9.1", "URL 4.2", "module", "module 4.2"],
)
def test_what_a_property_of_the_jvm_forbids_is_named_with_what_to_change(
    said: str, forbidden: str, remedy: str
) -> None:
    explained = explained_spark_error(RuntimeError(f"org.apache.kafka.common.config.ConfigException: {said}\n\tat x"))
    assert isinstance(explained, BadInputError)
    assert f" forbids Kafka's client {forbidden}, " in str(explained)
    assert remedy in str(explained)
    assert (f"-D{DISALLOWED}" in str(explained)) is False


def test_what_is_clear_by_itself_stays() -> None:
    assert explained_spark_error(RuntimeError("Kafka record orders-3")) is None
    assert explained_spark_error(BadRecordError(SENTENCE)) is None
