"""From librdkafka's settings to the options of Spark's reader, with the login apart."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from tempfile import NamedTemporaryFile

import confluent_kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.launch.login import PLANNING_ONLY, reader_options
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
    assert options.with_login_file("/x") == {"kafka.bootstrap.servers": "k:9092"}
    assert not options.secrets


def test_a_login_is_apart_and_the_options_refer_to_its_file() -> None:
    options = reader_options(SCRAM, {})
    assert options.secrets == {
        "kafka.sasl.jaas.config": (
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="pa\\"ss\\\\";'
        )
    }
    written = options.with_login_file("/tmp/login.properties")
    assert written["kafka.sasl.jaas.config"] == "${kafka_offsets_login:/tmp/login.properties:kafka.sasl.jaas.config}"
    assert written["kafka.security.protocol"] == "SASL_SSL"
    assert written["kafka.ssl.truststore.location"] == "/ca.crt"
    assert "alice" not in str(written)


def test_a_login_does_not_show_in_a_repr() -> None:
    assert "alice" not in repr(reader_options(SCRAM, {}))


def test_the_users_own_providers_stay() -> None:
    mine = {"kafka.config.providers": "vault", "kafka.config.providers.vault.class": "my.Vault"}
    written = reader_options({**SCRAM, **CERTIFICATE}, mine).with_login_file("/login")
    assert written["kafka.config.providers"] == "vault,kafka_offsets_folder,kafka_offsets_login"
    assert written["kafka.config.providers.vault.class"] == "my.Vault"


def test_the_users_own_login_wins() -> None:
    mine = {"kafka.sasl.jaas.config": "${file:/etc/client.properties:jaas}"}
    options = reader_options(SCRAM, mine)
    assert not options.secrets
    written = options.with_login_file("/x")
    assert written["kafka.sasl.jaas.config"] == mine["kafka.sasl.jaas.config"]
    assert written["kafka.sasl.mechanism"] == "SCRAM-SHA-512", "without it Java would take the login for Kerberos"


SSL = {**PLAIN, "security.protocol": "SSL"}
CERTIFICATE = {"ssl.certificate.location": "/etc/kafka/lake.crt", "ssl.key.location": "/etc/kafka/lake.key"}


def test_the_job_reads_the_files_of_a_client_certificate_itself() -> None:
    options = reader_options({**SSL, **CERTIFICATE, "ssl.key.password": "hunter2"}, {})
    assert options.options == {
        "kafka.bootstrap.servers": "k:9092",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "${kafka_offsets_folder:/etc/kafka:lake.crt}",
        "kafka.ssl.keystore.key": "${kafka_offsets_folder:/etc/kafka:lake.key}",
        "kafka.config.providers": "kafka_offsets_folder",
        "kafka.config.providers.kafka_offsets_folder.class": (
            "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
        ),
    }
    assert options.secrets == {"kafka.ssl.key.password": "hunter2"}


def test_of_pem_in_the_connection_only_the_key_is_secret() -> None:
    pem = {"ssl.ca.pem": "CA", "ssl.certificate.pem": "CERT", "ssl.key.pem": "-----BEGIN PRIVATE KEY-----\nhunter2"}
    options = reader_options({**SSL, **pem}, {})
    assert options.secrets == {"kafka.ssl.keystore.key": pem["ssl.key.pem"]}
    assert options.options["kafka.ssl.truststore.certificates"] == "CA"
    assert options.options["kafka.ssl.keystore.certificate.chain"] == "CERT"


def test_a_key_in_the_text_of_a_certificate_is_secret_like_any_other() -> None:
    combined = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n-----BEGIN RSA PRIVATE KEY-----\nhunter2\n"
    options = reader_options({**SSL, "ssl.certificate.pem": combined, "ssl.key.pem": combined}, {})
    assert options.secrets == {"kafka.ssl.keystore.certificate.chain": combined, "kafka.ssl.keystore.key": combined}
    with pytest.raises(BadInputError, match=r"certificate\.chain in clear") as error:
        KafkaGroup("g", topics=["t"], spark_options={"kafka.ssl.keystore.certificate.chain": combined})
    assert "hunter2" not in str(error.value)


def test_half_a_certificate_is_refused_and_the_other_half_named() -> None:
    with pytest.raises(BadInputError, match=r"Add ssl.key.location or ssl.key.pem"):
        reader_options({**SSL, "ssl.certificate.location": "/c.pem"}, {})


@pytest.mark.parametrize("what", ["ssl.ca", "ssl.certificate", "ssl.key"])
def test_pem_beside_a_file_is_refused_as_one_client_would_load_both(what: str) -> None:
    connection = {**SSL, **CERTIFICATE, "ssl.ca.location": "/ca.pem", f"{what}.pem": "PEM"}
    with pytest.raises(BadInputError, match=rf"both {re.escape(what)}\.pem and {re.escape(what)}\.location"):
        reader_options(connection, {})
    mine = {"kafka.ssl.truststore.location": "/mine.jks", "kafka.ssl.keystore.location": "/mine.jks"}
    assert reader_options(connection, mine) == reader_options(SSL, mine)


@pytest.mark.parametrize("option", ["kafka.ssl.truststore.type", "kafka.ssl.truststore.password"])
def test_the_authorities_of_the_connection_stay_until_the_job_has_its_own(option: str) -> None:
    connection = {**SSL, "ssl.ca.location": "/ca.pem"}
    assert reader_options(connection, {option: "${env:X}"}).options["kafka.ssl.truststore.location"] == "/ca.pem"
    with pytest.raises(BadInputError, match=r"enable\.ssl\.certificate\.verification=false"):
        reader_options({**SSL, "enable.ssl.certificate.verification": "false"}, {option: "${env:X}"})
    for replacement in ("kafka.ssl.truststore.certificates", "kafka.ssl.engine.factory.class"):
        own = reader_options(connection, {replacement: "x"})
        assert "kafka.ssl.truststore.location" not in own.options


def test_a_users_own_pem_replaces_a_key_store() -> None:
    connection = {**SSL, "ssl.keystore.location": "/lake.p12", "ssl.keystore.password": "hunter2"}
    key = {"kafka.ssl.keystore.key": "${directory:/k:key}"}
    mine = {**key, "kafka.ssl.keystore.certificate.chain": "${directory:/k:crt}"}
    options = reader_options(connection, mine)
    assert not options.secrets
    assert options.options == {**reader_options(SSL, {}).options, **mine, "kafka.ssl.keystore.type": "PEM"}
    with pytest.raises(BadInputError, match=r"half of a client certificate. Add ssl.certificate.location"):
        reader_options(connection, key)


def test_a_users_own_keystore_replaces_the_certificate() -> None:
    mine = {"kafka.ssl.keystore.location": "/lake.jks", "kafka.ssl.keystore.password": "${env:P}"}
    options = reader_options({**SSL, **CERTIFICATE, "ssl.key.password": "hunter2"}, mine)
    assert options.options == {"kafka.bootstrap.servers": "k:9092", "kafka.security.protocol": "SSL", **mine}
    assert not options.secrets


def test_java_verifies_always_so_the_job_needs_the_authority_and_then_skips_the_name_of_the_host() -> None:
    unverified = {**SSL, "enable.ssl.certificate.verification": False}
    with pytest.raises(BadInputError, match=r"enable\.ssl\.certificate\.verification=false") as error:
        reader_options(unverified, {})
    assert "kafka.ssl.truststore.location" in str(error.value)
    assert "spark_options" in str(error.value)
    trusted = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/ca.pem"}
    assert reader_options(unverified, trusted).options["kafka.ssl.endpoint.identification.algorithm"] == ""
    assert "kafka.ssl.endpoint.identification.algorithm" not in reader_options(SSL, trusted).options


def test_probe_means_the_authorities_that_java_knows() -> None:
    assert reader_options({**SSL, "ssl.ca.location": "probe"}, {}) == reader_options(SSL, {})


KERBEROS = {**PLAIN, "security.protocol": "SASL_PLAINTEXT"}  # GSSAPI is librdkafka's default mechanism


@pytest.mark.parametrize(
    ("settings", "login"),
    [
        (
            {"sasl.kerberos.keytab": "/etc/lake.keytab", "sasl.kerberos.principal": "lake@EXAMPLE.ORG"},
            'useKeyTab="true" storeKey="true" keyTab="/etc/lake.keytab" principal="lake@EXAMPLE.ORG"',
        ),
        ({"sasl.kerberos.service.name": "broker"}, 'useTicketCache="true"'),
    ],
)
def test_kerberos_takes_the_key_tab_or_the_ticket_and_has_no_secret(settings: dict[str, str], login: str) -> None:
    options = reader_options({**KERBEROS, **settings}, {})
    assert not options.secrets
    assert options.options["kafka.sasl.jaas.config"] == (
        f"com.sun.security.auth.module.Krb5LoginModule required {login};"
    )
    # Java has no default for it.
    service = settings.get("sasl.kerberos.service.name", "kafka")
    assert options.options["kafka.sasl.kerberos.service.name"] == service


OAUTH = {**PLAIN, "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
OIDC = {
    **OAUTH,
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "lake",
    "sasl.oauthbearer.client.secret": "hunter2",
    "sasl.oauthbearer.token.endpoint.url": "https://idp.example.com/token",
}


def test_oidc_logs_in_with_the_secret_in_the_file() -> None:
    more = {
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
        "https.ca.pem": "A\nB",
    }
    options = reader_options({**OIDC, **more}, {})
    assert options.secrets == {
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'clientId="lake" clientSecret="hunter2" scope="kafka" '
            'extension_logicalCluster="lkc-1" extension_identityPoolId="pool-1" '
            r'ssl.truststore.type="PEM" ssl.truststore.certificates="A\nB";'
        )
    }
    assert options.options == {
        "kafka.bootstrap.servers": "k:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://idp.example.com/token",
    }


def test_on_amazon_and_google_the_job_logs_in_by_their_modules_without_a_secret() -> None:
    amazon = reader_options({**OAUTH, "bootstrap.servers": "b-1.a.c2.kafka.eu-west-1.amazonaws.com:9098"}, {})
    assert amazon.options["kafka.sasl.mechanism"] == "AWS_MSK_IAM"
    assert amazon.options["kafka.sasl.jaas.config"] == "software.amazon.msk.auth.iam.IAMLoginModule required;"
    google = reader_options(
        {**OAUTH, "bootstrap.servers": "bootstrap.lake.europe-west3.managedkafka.p.cloud.goog:9092"}, {}
    )
    assert google.options["kafka.sasl.login.callback.handler.class"].endswith(".GcpLoginCallbackHandler")
    assert not amazon.secrets
    assert not google.secrets


def test_an_own_mechanism_of_the_job_is_not_mixed_with_that_of_the_connection() -> None:
    mine = {"kafka.sasl.mechanism": "AWS_MSK_IAM", "kafka.sasl.jaas.config": "my.Module required;"}
    assert reader_options({**OIDC}, mine).options == {
        "kafka.bootstrap.servers": "k:9092",
        "kafka.security.protocol": "SASL_SSL",
        **mine,
    }


@pytest.mark.parametrize("name", ["kafka.security.protocol", "KAFKA.Security.Protocol"])
def test_the_login_is_that_of_the_protocol_which_the_job_chose(name: str) -> None:
    inside = {name: "plaintext", "kafka.bootstrap.servers": "inside:9094"}
    assert reader_options({**SCRAM, "ssl.curves.list": "x"}, inside) == reader_options(PLAIN, inside)
    outside = reader_options({**SCRAM, "security.protocol": "sasl_plaintext"}, {name: "sasl_ssl"})
    assert outside.options["kafka.ssl.truststore.location"] == "/ca.crt"
    assert list(outside.secrets) == ["kafka.sasl.jaas.config"]
    kerberos = reader_options({**SSL, **CERTIFICATE, "sasl.kerberos.keytab": "/k"}, {name: "sasl_ssl"})
    assert kerberos.options["kafka.sasl.mechanism"] == "GSSAPI"
    assert 'keyTab="/k"' in kerberos.options["kafka.sasl.jaas.config"]


AMAZON = {**OAUTH, "bootstrap.servers": "b-1.a.c2.kafka.eu-west-1.amazonaws.com:9098"}
GOOGLE = {**OAUTH, "bootstrap.servers": "bootstrap.lake.europe-west3.managedkafka.p.cloud.goog:9092"}
ROLE = 'software.amazon.msk.auth.iam.IAMLoginModule required awsRoleArn="arn:aws:iam::1:role/x";'


@pytest.mark.parametrize(
    ("connection", "login"),
    [
        (AMAZON, ROLE),
        ({**AMAZON, "oauth_cb": "company.auth.token"}, ROLE),
        (GOOGLE, "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"),
    ],
)
def test_an_own_login_by_the_module_of_a_cloud_keeps_what_the_module_needs(
    connection: dict[str, str], login: str
) -> None:
    cloud = {name: value for name, value in connection.items() if name != "oauth_cb"}
    translated = reader_options(cloud, {}).options
    own = reader_options(connection, {"kafka.sasl.jaas.config": login}).options
    assert own == {**translated, "kafka.sasl.jaas.config": login}


def test_a_mechanism_of_the_job_is_not_mixed_with_the_module_of_another() -> None:
    assert reader_options(AMAZON, {"kafka.sasl.mechanism": "AWS_MSK_IAM"}) == reader_options(AMAZON, {})
    with pytest.raises(BadInputError, match=r"^sasl\.mechanism=OAUTHBEARER"):
        reader_options(AMAZON, {"kafka.sasl.mechanism": "OAUTHBEARER"})


@pytest.mark.parametrize("connection", [AMAZON, GOOGLE])
def test_an_own_callback_for_a_cloud_is_for_planning_alone_and_the_way_out_works(connection: dict[str, str]) -> None:
    with pytest.raises(BadInputError, match=r"^oauth_cb of the Kafka connection") as refused:
        reader_options({**connection, "oauth_cb": "company.auth.token"}, {})
    login = str(refused.value).rpartition("\n    kafka.sasl.jaas.config=")[2]
    own = reader_options({**connection, "oauth_cb": "company.auth.token"}, {"kafka.sasl.jaas.config": login})
    assert own.options == reader_options(connection, {}).options


def librdkafka_settings() -> dict[str, str]:
    """Return the installed librdkafka's settings of TLS and SASL with their types."""
    [library] = (Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs").glob("librdkafka*")
    rdkafka, libc = ctypes.CDLL(str(library)), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    with NamedTemporaryFile("r") as file:
        stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
        rdkafka.rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        rows = [line.split("|") for line in file]
    names = re.compile(r"(enable\.)?(ssl|sasl|https|oauth)[._a-z].*")
    return {row[0].strip(): row[-1] for row in rows if names.fullmatch(row[0].strip())}


SETTINGS = librdkafka_settings()
REFUSED = {
    "enable.ssl.certificate.verification",
    "enable.sasl.oauthbearer.unsecure.jwt",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.grant.type",
    "sasl.oauthbearer.metadata.authentication.type",
    "sasl.oauthbearer.method",
    "ssl.ca.certificate.stores",
    "ssl.cipher.suites",
    "ssl.crl.location",
    "ssl.curves.list",
    "ssl.engine.id",
    "ssl.engine.location",
    "ssl.sigalgs.list",
    *(name for name in SETTINGS if name.startswith("sasl.oauthbearer.assertion.")),
}
SET_BY_CALLS = {name for name, kind in SETTINGS.items() if "dedicated API" in kind}
VALUES = {
    "enable.ssl.certificate.verification": "false",
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
    "ssl.endpoint.identification.algorithm": "none",
    "sasl.mechanism": "PLAIN",
    "sasl.mechanisms": "PLAIN",
    "sasl.oauthbearer.method": "default",
    "sasl.oauthbearer.extensions": "a=b",
}


def without_and_with(setting: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return a connection in which a setting counts, and the same with another value of it."""
    if setting.startswith("ssl.keystore"):
        context = {**SSL, "ssl.keystore.location": "/lake.p12"}
    elif setting.startswith(("ssl", "enable.ssl")):
        context = {**SSL, **CERTIFICATE}
    elif "oauth" in setting or setting.startswith("https"):
        context = OIDC
    elif "kerberos" in setting:
        context = {**KERBEROS, "sasl.kerberos.keytab": "/k"}
    else:
        context = SCRAM
    twin = setting.replace("client.credentials.", "").replace("mechanisms", "mechanism").replace(".pem", ".location")
    others = {name: value for name, value in context.items() if name != twin}
    return context, {**others, setting: VALUES.get(setting, "/other")}


@pytest.mark.parametrize("setting", sorted(SETTINGS.keys() - REFUSED - SET_BY_CALLS - PLANNING_ONLY))
def test_each_setting_of_librdkafka_reaches_the_job(setting: str) -> None:
    before, after = (reader_options(connection, {}) for connection in without_and_with(setting))
    assert (before.options, before.secrets) != (after.options, after.secrets)


@pytest.mark.parametrize("setting", sorted(REFUSED))
def test_a_setting_that_java_lacks_is_refused_by_its_name_and_what_the_message_suggests_works(setting: str) -> None:
    _, connection = without_and_with(setting)
    with pytest.raises(BadInputError, match=rf"^{re.escape(setting)}\b.* in spark_options$") as refused:
        reader_options(connection, {})
    suggested = re.findall(r"kafka\.[\w.]+", str(refused.value).partition("Set ")[2])
    own = {name + "location" * name.endswith("."): "${env:X}" for name in suggested}
    assert own
    assert reader_options(connection, own).options.items() >= own.items()


@pytest.mark.parametrize("setting", sorted(PLANNING_ONLY))
def test_how_librdkafka_reads_a_key_or_gets_a_ticket_is_nothing_to_the_job(setting: str) -> None:
    before, after = (reader_options(connection, {}) for connection in without_and_with(setting))
    assert before == after


@pytest.mark.parametrize("setting", sorted(SET_BY_CALLS))
def test_planning_refuses_what_no_connection_can_hold(setting: str) -> None:
    with pytest.raises(KafkaException, match=r"settable|dedicated"):
        AdminClient({"bootstrap.servers": "k:9092", setting: "x"})


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
