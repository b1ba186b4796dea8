"""From librdkafka's settings to the options of Spark's reader, with the login apart."""

from __future__ import annotations

import pytest

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.launch.login import reader_options
from airflow_kafka_offsets.core.launch.properties import properties_file

PLAIN = {"bootstrap.servers": "k:9092"}
SCRAM = {
    **PLAIN,
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "alice",
    "sasl.password": 'pa"ss\\',
    "ssl.ca.location": "/ca.crt",
}


def test_an_open_broker_needs_its_servers_only() -> None:
    options = reader_options(PLAIN, {})
    assert options.with_jaas_file("/x") == {"kafka.bootstrap.servers": "k:9092"}
    assert options.jaas is None


def test_a_login_is_apart_and_the_options_refer_to_its_file() -> None:
    options = reader_options(SCRAM, {})
    assert options.jaas == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="pa\\"ss\\\\";'
    )
    written = options.with_jaas_file("/tmp/login.properties")
    assert written["kafka.sasl.jaas.config"] == "${kafka_offsets_login:/tmp/login.properties:jaas}"
    assert written["kafka.security.protocol"] == "SASL_SSL"
    assert written["kafka.ssl.truststore.location"] == "/ca.crt"
    assert "alice" not in str(written)


def test_a_login_does_not_show_in_a_repr() -> None:
    assert "alice" not in repr(reader_options(SCRAM, {}))


def test_the_users_own_providers_stay() -> None:
    mine = {"kafka.config.providers": "vault", "kafka.config.providers.vault.class": "my.Vault"}
    written = reader_options(SCRAM, mine).with_jaas_file("/login")
    assert written["kafka.config.providers"] == "vault,kafka_offsets_login"
    assert written["kafka.config.providers.vault.class"] == "my.Vault"


def test_the_users_own_login_wins() -> None:
    mine = {"kafka.sasl.jaas.config": "${file:/etc/client.properties:jaas}"}
    options = reader_options(SCRAM, mine)
    assert options.jaas is None
    written = options.with_jaas_file("/x")
    assert written["kafka.sasl.jaas.config"] == mine["kafka.sasl.jaas.config"]
    assert written["kafka.sasl.mechanism"] == "SCRAM-SHA-512", "without it Java would take the login for Kerberos"


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"sasl.mechanism": "GSSAPI"}, "GSSAPI"), ({"ssl.certificate.location": "/c.pem"}, "client certificate")],
)
def test_what_can_not_be_translated_is_an_error_that_says_where_to_write_it(
    settings: dict[str, str], says: str
) -> None:
    with pytest.raises(BadInputError, match=says) as error:
        reader_options({**SCRAM, **settings}, {})
    assert "spark_options" in str(error.value)


def test_the_login_file_keeps_what_properties_take_for_syntax() -> None:
    assert properties_file({"jaas": " a=b:c#d!e\\f\n"}) == "jaas=\\u0020a=b:c#d!e\\u005cf\\u000a\n"


JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.mark.parametrize(
    "name",
    [
        "kafka.sasl.jaas.config",
        "KAFKA.ssl.keystore.password",
        "kafka.ssl.keystore.key",
        "kafka.sasl.oauthbearer.assertion.private.key.passphrase",
        "kafka.ssl.key.pass-phrase",
        "kafka.basic.auth.user.info",
        "kafka.schema.registry.basic.auth.user.info",
        "kafka.aws.access.key",
        "kafka.aws.accessKeyId",
        "kafka.apikey",
        "kafka.api-key",
        "kafka.bearer.auth.credentials",
    ],
)
def test_a_group_holds_no_secret_in_clear(name: str) -> None:
    with pytest.raises(BadInputError, match="in clear") as error:
        KafkaGroup("g", topics=["t"], spark_options={name: "hunter2-secret"})
    assert "hunter2" not in str(error.value)
    KafkaGroup("g", topics=["t"], spark_options={name: "${file:/etc/kafka:x}"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.ssl.keystore.password", "hunter2${"),
        ("kafka.ssl.keystore.password", "hunter2${x}"),
        ("kafka.ssl.keystore.password", "${password}"),
        ("kafka.ssl.keystore.password", "hunter2${file:/etc/kafka:x}"),
        ("kafka.ssl.keystore.password", "${file:/etc/kafka:x}hunter2"),
        ("kafka.sasl.jaas.config", JAAS + ' username="${env:USER}" password="hunter2";'),
        ("kafka.sasl.jaas.config", JAAS + ' username="${env:USER}" password = hunter2;'),
        ("kafka.sasl.jaas.config", JAAS + ' password="hunter2\\"${env:PASSWORD}";'),
        ("kafka.sasl.jaas.config", JAAS + ' clientId="${env:USER}" clientSecret="hunter2" scope="all";'),
        ("kafka.sasl.jaas.config", JAAS + ' username="${env:USER}" password "hunter2";'),
        ("kafka.sasl.jaas.config", JAAS + ' username="${env:U}" pw="hunter2";'),
        ("kafka.sasl.jaas.config", JAAS + ' username="${env:U}" password="${env:P}" pin=hunter2;'),
        ("kafka.sasl.jaas.config", JAAS + ' username="${env:U}" pw=true other=hunter2;'),
        ("kafka.sasl.jaas.config", JAAS + ' oauth.token.endpoint.uri="https://lake:hunter2@login/token";'),
        ("kafka.sasl.jaas.config", JAAS + ' oauth.token.endpoint.uri="https://login/token?key=hunter2";'),
        ("kafka.sasl.jaas.config", JAAS + ' oauth.client.id="lake" oauth.client.secret="hunter2";'),
    ],
)
def test_a_reference_beside_a_secret_does_not_hide_it(name: str, value: str) -> None:
    with pytest.raises(BadInputError, match=f"{name} in clear") as error:
        KafkaGroup("g", topics=["t"], spark_options={name: value})
    assert "hunter2" not in str(error.value)


def test_the_option_of_a_login_that_is_refused_is_named() -> None:
    login = JAAS + ' username="lake" pw="hunter2" password="${env:P}";'
    with pytest.raises(BadInputError, match=r"kafka.sasl.jaas.config in clear text \(pw\)\. Write a reference"):
        KafkaGroup("g", topics=["t"], spark_options={"kafka.sasl.jaas.config": login})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kafka.ssl.keystore.password", " ${directory:/etc/kafka:password} "),
        ("kafka.ssl.key.password", "${env:FIRST_HALF}${env:SECOND_HALF}"),
        ("kafka.sasl.jaas.config", "${file:/etc/kafka/client.properties:jaas}"),
        ("kafka.sasl.jaas.config", JAAS + ' username="lake" password="${env:PASSWORD}";'),
        ("kafka.sasl.jaas.config", JAAS + "\n  username='lake'\n  password='${file:/etc/p:key}' ;\n"),
        ("kafka.sasl.jaas.config", JAAS + ' username="id" password="${env:HMAC}" tokenauth=true;'),
        ("kafka.sasl.jaas.config", JAAS + ' clientId="lake" clientSecret="${env:S}" scope="all" extension_pool="p1";'),
        ("kafka.sasl.jaas.config", JAAS + ' username="lake" password="${env:P}" pw="${env:Q}" debug="true";'),
        (
            "kafka.sasl.jaas.config",
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            'keyTab="/etc/lake.keytab" principal="lake@EXAMPLE.ORG";',
        ),
        ("kafka.sasl.jaas.config", 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="lake";'),
        (
            "kafka.sasl.jaas.config",
            JAAS
            + ' oauth.client.id="lake" oauth.client.secret="${env:S}" oauth.token.endpoint.uri="https://login/token"'
            ' oauth.scope="all" oauth.audience="kafka";',
        ),
        (
            "kafka.sasl.jaas.config",
            'software.amazon.msk.auth.iam.IAMLoginModule required awsRoleArn="${env:ARN}" awsMaxRetries="3"'
            ' awsMaxBackOffTimeMs="500";',
        ),
        ("kafka.basic.auth.credentials.source", "USER_INFO"),
        ("kafka.sasl.oauthbearer.token.endpoint.url", "https://login/token"),
    ],
)
def test_references_are_taken_where_a_secret_would_stand(name: str, value: str) -> None:
    assert KafkaGroup("g", topics=["t"], spark_options={name: value}).spark_options == {name: value}


@pytest.mark.parametrize(
    ("spark_options", "servers"),
    [({}, "k1:9092,k2:9092"), ({"kafka.bootstrap.servers": "inside:9092"}, "inside:9092")],
)
def test_the_servers_are_those_that_the_job_gets(spark_options: dict[str, str], servers: str) -> None:
    assert reader_options({"bootstrap.servers": "k1:9092,k2:9092"}, spark_options).servers == servers
