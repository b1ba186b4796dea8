"""Translates a Kafka connection (librdkafka's settings) to the options of Spark's Kafka reader (Java's settings).

Secrets go into a file that the job's Kafka client reads through a config provider (KIP-297). Plan, UI, event log and argv
hold only a reference to it. Files that the connection names (``ssl.key.location``) are read by that client, too, where it runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.secrets import is_in_clear

_SERVERS = "kafka.bootstrap.servers"
_PROTOCOL = "kafka.security.protocol"
_MECHANISM = "kafka.sasl.mechanism"
_JAAS = "kafka.sasl.jaas.config"
_LOGIN_HANDLER = "kafka.sasl.login.callback.handler.class"
_KEYSTORE, _TRUSTSTORE = "kafka.ssl.keystore.", "kafka.ssl.truststore."
TRUSTSTORE_FILE = f"{_TRUSTSTORE}location"
OWN_KEY = frozenset({f"{_KEYSTORE}location", f"{_KEYSTORE}key", "kafka.ssl.key.password"})
"""Options with which the job has another key than the connection's, or reads the connection's in its own way."""
_ENGINE = "kafka.ssl.engine.factory.class"

_SECURITY = "org.apache.kafka.common.security"
_SCRAM = f"{_SECURITY}.scram.ScramLoginModule"
_PASSWORD_MODULES = {
    "PLAIN": f"{_SECURITY}.plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
}
_OAUTH_MODULE = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule"
_OIDC_HANDLER = f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
_KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_MSK_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"

# The logins of clouds, whose modules find the credentials of the machine where the job runs.
_MSK = {
    _MECHANISM: "AWS_MSK_IAM",
    _JAAS: f"{_MSK_MODULE} required;",
    "kafka.sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}
_GOOGLE = {
    _JAAS: f"{_OAUTH_MODULE} required;",
    _LOGIN_HANDLER: "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler",
}

# As the Kafka provider knows them (`KafkaBaseHook`), which gives such a connection its token.
_MSK_SERVERS = re.compile(r"\.kafka(?:-serverless)?\.[a-z0-9-]+\.amazonaws\.com", re.IGNORECASE)
_GOOGLE_SERVERS = re.compile(r"managedkafka.*cloud\.goog")

_PROVIDERS = "kafka.config.providers"
_FILE, _FOLDER = "kafka_offsets_login", "kafka_offsets_folder"
_PROVIDER_CLASSES = {
    _FILE: "org.apache.kafka.common.config.provider.FileConfigProvider",
    _FOLDER: "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
}

_TLS_WITHOUT_TRANSLATION = {
    "ssl.cipher.suites": "kafka.ssl.cipher.suites",
    "ssl.curves.list": _ENGINE,
    "ssl.sigalgs.list": _ENGINE,
    "ssl.crl.location": _ENGINE,
    "ssl.ca.certificate.stores": _TRUSTSTORE,
    "ssl.engine.location": _KEYSTORE,
    "ssl.engine.id": _KEYSTORE,
}
"""Settings of TLS that Java has in another form or not at all -> what in spark_options replaces them: an option, or options that begin so."""

_OAUTH_WITHOUT_TRANSLATION = re.compile(
    r"sasl\.oauthbearer\.(config|assertion\..+)|enable\.sasl\.oauthbearer\.unsecure\.jwt"
)
_OAUTH_DEFAULTS = {
    "sasl.oauthbearer.grant.type": "client_credentials",
    "sasl.oauthbearer.metadata.authentication.type": "none",
}
"""Settings of OAuth that can only be translated with these values."""

PLANNING_ONLY = frozenset({"ssl.providers", "sasl.kerberos.kinit.cmd"})
"""Settings of how librdkafka itself reads a key, or gets a ticket."""


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """What Spark's reader needs to reach Kafka.

    Attributes:
        options: the options without secrets.
        secrets: option -> value: what goes into a file that only the job can read.
    """

    options: Mapping[str, str]
    secrets: Mapping[str, str] = field(repr=False)

    @property
    def servers(self) -> str:
        """Kafka's servers, with commas between them."""
        return spark_servers({}, self.options)

    def with_login_file(self, path: str) -> dict[str, str]:
        """Return the options with references to the file that holds the secrets."""
        references = {name: f"${{{_FILE}:{path}:{name}}}" for name in self.secrets}
        return _with_providers({**self.options, **references})


def spark_servers(connection: Mapping[str, Any], spark_options: Mapping[str, str]) -> str:
    """Return the Kafka servers that Spark gets: those of the user's option, whatever its case, or else of the connection.

    >>> spark_servers({"bootstrap.servers": "kafka:9092"}, {"kafka.Bootstrap.servers": "inside:9094"})
    'inside:9094'
    """
    chosen = [value for name, value in spark_options.items() if name.lower() == _SERVERS]
    return chosen[0] if chosen else str(connection["bootstrap.servers"])


def reader_options(connection: Mapping[str, Any], spark_options: Mapping[str, str]) -> ReaderOptions:
    """Translate a connection. Options that the user set for Spark take precedence.

    Args:
        connection: librdkafka's settings, as in the extra of an Airflow connection of type ``kafka``.
        spark_options: the group's own options for the reader.

    Raises:
        BadInputError: a setting can't be translated, and spark_options does not replace it.
    """
    # An empty value is librdkafka's default.
    given = {name: str(value) for name, value in connection.items() if value not in (None, "")}
    chosen = {name.lower(): str(value) for name, value in spark_options.items()}
    derived = {_SERVERS: given["bootstrap.servers"]}
    protocol = _protocol(given, chosen)
    if protocol != "PLAINTEXT":
        derived[_PROTOCOL] = protocol
    if protocol.endswith("SSL"):
        derived |= _tls(given, chosen)
    if protocol.startswith("SASL"):
        derived |= _sasl(given, chosen)
    derived = {name: value for name, value in derived.items() if name not in chosen}
    secrets = {name: value for name, value in derived.items() if is_in_clear(name, value)}
    options = {name: value for name, value in derived.items() if name not in secrets}
    return ReaderOptions(_with_providers({**options, **spark_options}), secrets)


def has_tls(connection: Mapping[str, Any], spark_options: Mapping[str, str]) -> bool:
    """Whether the job speaks TLS with Kafka."""
    return _protocol(connection, {name.lower(): value for name, value in spark_options.items()}).endswith("SSL")


def _protocol(given: Mapping[str, Any], chosen: Mapping[str, str]) -> str:
    return str(chosen.get(_PROTOCOL) or given.get("security.protocol") or "plaintext").upper()


def _with_providers(options: Mapping[str, str]) -> dict[str, str]:
    """Add the config providers that options refer to, beside those of the user."""
    used = [name for name in _PROVIDER_CLASSES if any(f"${{{name}:" in str(value) for value in options.values())]
    if not used:
        return dict(options)
    listed = {name: value for name, value in options.items() if name.lower() == _PROVIDERS}
    names = dict.fromkeys([*",".join(listed.values()).split(","), *used])
    others = {name: value for name, value in options.items() if name not in listed}
    classes = {f"{_PROVIDERS}.{name}.class": _PROVIDER_CLASSES[name] for name in used}
    return {**classes, **others, _PROVIDERS: ",".join(filter(None, names))}


def _tls(given: Mapping[str, str], chosen: Mapping[str, str]) -> dict[str, str]:
    for setting, replacement in _TLS_WITHOUT_TRANSLATION.items():
        if setting in given and not _has(chosen, replacement):
            raise _untranslatable(setting, replacement)
    options = {} if _has(chosen, _TRUSTSTORE) else _authorities(given)
    if f"{_KEYSTORE}location" not in chosen:
        options |= _certificate(given, chosen)
    is_verified = _is_on(given, "enable.ssl.certificate.verification", "true")
    if not is_verified and not _has(chosen, _TRUSTSTORE):
        raise BadInputError(
            "enable.ssl.certificate.verification=false has no counterpart in Java, which always verifies the broker's certificate. "
            f"Set {_TRUSTSTORE}type and {_TRUSTSTORE}location, or {_TRUSTSTORE}certificates, in spark_options"
        )
    if not is_verified or given.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        options["kafka.ssl.endpoint.identification.algorithm"] = ""
    return options


def _authorities(given: Mapping[str, str]) -> dict[str, str]:
    """Return whom the job trusts. Without a setting, as with ``probe``, these are the authorities that Java knows."""
    without_probe = {name: value for name, value in given.items() if (name, value) != ("ssl.ca.location", "probe")}
    pem, location = _pem_and_location(without_probe, "ssl.ca")
    if not (pem or location):
        return {}
    where = {f"{_TRUSTSTORE}certificates": pem} if pem else {TRUSTSTORE_FILE: location}
    return {f"{_TRUSTSTORE}type": "PEM", **where}


def _certificate(given: Mapping[str, str], chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the client's certificate, from PEM or a PKCS#12 file."""
    parts = {f"{_KEYSTORE}certificate.chain": "ssl.certificate", f"{_KEYSTORE}key": "ssl.key"}
    options = {option: _pem(given, setting) for option, setting in parts.items() if option not in chosen}
    has_own = len(options) < len(parts)
    if (store := given.get("ssl.keystore.location")) and not has_own:
        where = {f"{_KEYSTORE}type": "PKCS12", f"{_KEYSTORE}location": store}
        return {**where, **_same(given, "ssl.keystore.password")}
    if not any(options.values()) and not has_own:
        return {}
    for option, pem in options.items():
        if not pem:
            raise BadInputError(
                f"There is half of a client certificate. Add {parts[option]}.location or {parts[option]}.pem to the Kafka connection"
            )
    # The password is that of the connection's key.
    password = {} if f"{_KEYSTORE}key" in chosen else _same(given, "ssl.key.password")
    return {f"{_KEYSTORE}type": "PEM", **options, **password}


def _pem(given: Mapping[str, str], setting: str) -> str:
    """Return PEM, or a reference to the file with it; empty if there is neither."""
    pem, location = _pem_and_location(given, setting)
    path = PurePosixPath(location)
    return f"${{{_FOLDER}:{path.parent}:{path.name}}}" if location else pem


def _pem_and_location(given: Mapping[str, str], setting: str) -> tuple[str, str]:
    pem, location = given.get(f"{setting}.pem", ""), given.get(f"{setting}.location", "")
    if pem and location:
        raise BadInputError(
            f"The Kafka connection has both {setting}.pem and {setting}.location. Remove one of them: Java reads only one"
        )
    return pem, location


def _sasl(given: Mapping[str, str], chosen: Mapping[str, str]) -> dict[str, str]:
    of_connection = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "GSSAPI"
    mechanism = chosen.get(_MECHANISM, of_connection).upper()
    default = _MSK[_JAAS] if mechanism == _MSK[_MECHANISM] else ""
    if _MSK_MODULE in chosen.get(_JAAS, default):
        return _MSK
    if mechanism in _PASSWORD_MODULES:
        options = _password_login(mechanism, given)
    elif mechanism == "GSSAPI":
        options = _kerberos_login(given)
    elif mechanism == "OAUTHBEARER":
        options = _oauth_login(given, chosen)
    elif _JAAS in chosen:
        options = {}
    else:
        raise _untranslatable(f"sasl.mechanism={mechanism}", _JAAS)
    return {_MECHANISM: mechanism, **options}


def _password_login(mechanism: str, given: Mapping[str, str]) -> dict[str, str]:
    user, password = given.get("sasl.username", ""), given.get("sasl.password", "")
    return {_JAAS: _login(_PASSWORD_MODULES[mechanism], {"username": user, "password": password})}


def _kerberos_login(given: Mapping[str, str]) -> dict[str, str]:
    """Return a login with the key tab, or with the ticket that the user of the job has. A token of Spark's takes precedence over it."""
    principal = given.get("sasl.kerberos.principal")
    if key_tab := given.get("sasl.kerberos.keytab"):
        source = {"useKeyTab": "true", "storeKey": "true", "keyTab": key_tab, "principal": principal or "kafkaclient"}
    else:
        source = {"useTicketCache": "true", **({"principal": principal} if principal else {})}
    return {
        _JAAS: _login(_KERBEROS_MODULE, source),
        "kafka.sasl.kerberos.service.name": given.get("sasl.kerberos.service.name", "kafka"),
        **_same(given, "sasl.kerberos.min.time.before.relogin"),
    }


def _oauth_login(given: Mapping[str, str], chosen: Mapping[str, str]) -> dict[str, str]:
    if given.get("sasl.oauthbearer.method", "default").lower() != "oidc":
        return _managed_login(given, chosen)
    if _JAAS not in chosen:
        _check_oauth(given)
    login = {
        "clientId": _either(given, "client.id"),
        "clientSecret": _either(given, "client.secret"),
        "scope": given.get("sasl.oauthbearer.scope", ""),
        **{f"extension_{name}": value for name, value in _pairs(given.get("sasl.oauthbearer.extensions", "")).items()},
        **{name.removeprefix("kafka."): value for name, value in _authorities(_of_https(given)).items()},
    }
    return {
        _JAAS: _login(_OAUTH_MODULE, {name: value for name, value in login.items() if value}),
        _LOGIN_HANDLER: _OIDC_HANDLER,
        **_same(given, "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.sub.claim.name"),
    }


def _check_oauth(given: Mapping[str, str]) -> None:
    for setting, value in given.items():
        is_off = setting == "enable.sasl.oauthbearer.unsecure.jwt" and value.lower() == "false"
        is_other = value != _OAUTH_DEFAULTS.get(setting, value)
        if is_other or (_OAUTH_WITHOUT_TRANSLATION.fullmatch(setting) and not is_off):
            raise _untranslatable(setting, _JAAS, _LOGIN_HANDLER)


def _managed_login(given: Mapping[str, str], chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the login of a cloud, or {} if the job has its own."""
    servers = given["bootstrap.servers"]
    is_msk, is_google = _MSK_SERVERS.search(servers), _GOOGLE_SERVERS.search(servers)
    if _JAAS in chosen:
        return _GOOGLE if is_google and _OAUTH_MODULE in chosen[_JAAS] else {}
    # Amazon's module has a mechanism of its own.
    cloud = _GOOGLE if is_google else _MSK if is_msk and _MECHANISM not in chosen else {}
    if cloud and "oauth_cb" in given:
        raise BadInputError(
            "oauth_cb of the Kafka connection is for planning alone. To let the job log in by the cloud's module, set in spark_options:\n"
            f"    {_JAAS}={cloud[_JAAS]}"
        )
    if cloud:
        return cloud
    _check_oauth(given)
    setting = next(
        (name for name in ("oauth_cb", "sasl.oauthbearer.method") if name in given), "sasl.mechanism=OAUTHBEARER"
    )
    raise _untranslatable(setting, _JAAS, _LOGIN_HANDLER)


def _of_https(given: Mapping[str, str]) -> dict[str, str]:
    """Return the authorities of the identity provider, as if they were the broker's."""
    return {name.replace("https.", "ssl."): value for name, value in given.items() if name.startswith("https.ca.")}


def _either(given: Mapping[str, str], name: str) -> str:
    """Return a setting of OAuth by its older or its newer name."""
    return given.get(f"sasl.oauthbearer.{name}") or given.get(f"sasl.oauthbearer.client.credentials.{name}", "")


def _pairs(text: str) -> dict[str, str]:
    """Read ``name=value,name=value``."""
    return {
        name.strip(): value.strip()
        for name, _, value in (pair.partition("=") for pair in text.split(","))
        if name.strip()
    }


def _same(given: Mapping[str, str], *settings: str) -> dict[str, str]:
    """Return the settings that Java knows by the same name."""
    return {f"kafka.{setting}": given[setting] for setting in settings if setting in given}


def _login(module: str, options: Mapping[str, str]) -> str:
    return " ".join([module, "required", *(f"{name}={_quote(value)}" for name, value in options.items())]) + ";"


def _quote(value: str) -> str:
    # Java's StreamTokenizer ends a text at the end of a line.
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r") + '"'


def _has(chosen: Mapping[str, str], option: str) -> bool:
    """Whether an option was chosen; of a store, whether one was chosen that has its certificates or key."""
    if not option.endswith("."):
        return option in chosen
    return any(name in chosen for name in (f"{option}location", f"{option}certificates", f"{option}key", _ENGINE))


def _is_on(given: Mapping[str, str], setting: str, default: str) -> bool:
    return given.get(setting, default).lower() in ("true", "t", "1")


def _untranslatable(setting: str, *replacements: str) -> BadInputError:
    options = " and ".join(name + "*" * name.endswith(".") for name in replacements)
    return BadInputError(
        f"{setting} of the Kafka connection can't be translated for Spark. Set {options} in spark_options"
    )
