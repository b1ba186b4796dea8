"""Which settings of a Kafka client hold secrets. Airflow does not know Kafka's names."""

from __future__ import annotations

import re

from airflow_kafka_offsets.spark.shared import is_secret

# A login module may give its secrets any name. So in a login every option that is not listed here is secret.
_HARMLESS = frozenset(
    (
        *("username", "user", "principal", "servicename", "clientid", "client_id", "scope"),
        *("keytab", "ticketcache", "serviceprincipal"),
        *("awsprofilename", "awsrolearn", "awsrolesessionname", "awsstsregion", "awsmaxretries", "awsmaxbackofftimems"),
        *("oauth.client.id", "oauth.scope", "oauth.audience"),
    )
)

# An address may hold a password before its host, or after a question mark.
_ENDPOINT = re.compile(r"oauth\.[\w.]*endpoint\.uri")
_NO_PLAIN_ADDRESS = re.compile(r"[@?#]")

# ${provider:key} or ${provider:path:key}; without a colon, Kafka reads it as plain text.
# https://github.com/apache/kafka/blob/trunk/clients/src/main/java/org/apache/kafka/common/config/ConfigTransformer.java
_REFERENCE = re.compile(r"\$\{[^}:]+:[^}]*\}")
_ELSEWHERE = "\0"

# A Java login, after its references became _ELSEWHERE: Module required name="value" name='value' name=value;
_OPTION = re.compile(r"""\s+([\w.$-]+)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s;"'=]+)""")
_LOGIN = re.compile(rf"\s*[\w.$-]+\s+[A-Za-z]+(?:{_OPTION.pattern})*\s*;\s*")


def is_in_clear(name: str, value: str) -> bool:
    """Whether a setting holds a secret itself, instead of a reference that the cluster resolves.

    A reference next to a secret does not hide it. In a login (``sasl.jaas.config``), user names and switches are not secret.

    >>> is_in_clear("ssl.key.password", "${file:/etc/kafka:password}"), is_in_clear("ssl.key.password", "hunter2${")
    (False, True)
    """
    referring = _REFERENCE.sub(_ELSEWHERE, value.strip())
    if not is_secret(name, referring):
        return False
    if set(referring) == {_ELSEWHERE}:
        return False
    return not _is_login(name, referring) or bool(options_in_clear(name, value))


def options_in_clear(name: str, value: str) -> list[str]:
    """Return the names of a login's options that must be references but are plain text.

    >>> options_in_clear("kafka.sasl.jaas.config", 'Module required username="lake" pw="hunter2" password="${env:P}";')
    ['pw']
    """
    referring = _REFERENCE.sub(_ELSEWHERE, value.strip())
    if not _is_login(name, referring):
        return []
    return [option for option, given in _OPTION.findall(referring) if _is_option_in_clear(option, given)]


def _is_login(name: str, referring: str) -> bool:
    return "jaas" in name.lower() and _LOGIN.fullmatch(referring) is not None


def _is_option_in_clear(name: str, value: str) -> bool:
    bare = value.strip("\"'")
    is_switch = bare in ("true", "false")  # tokenauth=true
    is_harmless = name.lower() in _HARMLESS or name.lower().startswith("extension_")
    is_endpoint = _ENDPOINT.fullmatch(name.lower()) is not None and not _NO_PLAIN_ADDRESS.search(bare)
    return not (is_harmless or is_switch or is_endpoint or set(bare) == {_ELSEWHERE})
