"""OAuth to a schema registry (client credentials): settings in the extra of its Airflow connection.

They have the names that Confluent's client for Python uses, so they can be taken over as they are.
https://github.com/confluentinc/confluent-kafka-python/blob/master/src/confluent_kafka/schema_registry/common/_oauthbearer.py
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_kafka_offsets.core.errors import name_some, short
from airflow_kafka_offsets.wiring.connections import bad_connection, mask, mask_secrets

if TYPE_CHECKING:
    from airflow_kafka_offsets.adapters.oauth import ClientCredentials

_BEARER = "bearer.auth."
_SOURCE = "bearer.auth.credentials.source"
_ENDPOINT = "bearer.auth.issuer.endpoint.url"
_NEEDED = (_ENDPOINT, "bearer.auth.client.id", "bearer.auth.client.secret")
_SENT = {
    "bearer.auth.logical.cluster": "target-sr-cluster",
    "bearer.auth.identity.pool.id": "Confluent-Identity-Pool-Id",
}
"""Settings that are headers of each request to the registry."""
_OPTIONAL = ("bearer.auth.scope", *_SENT)
_ALL = (_SOURCE, *_NEEDED, *_OPTIONAL)


def divided(conn_id: str, extra: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Divide an extra into the settings of OAuth and the rest. There is no white space around its names and values any more.

    Raises:
        BadInputError: a setting of OAuth is missing, unknown, or can't be used. No value is shown.
    """
    # In any spelling: a secret that is not recognized would be sent as a header.
    oauth = {name: str(value) for name, value in extra.items() if _is_oauth(name)}
    rest = {name: value for name, value in extra.items() if not _is_oauth(name)}
    mask_secrets(oauth)
    if oauth:
        _check(conn_id, oauth)
    return oauth, rest


def _is_oauth(name: str) -> bool:
    return name.lower().startswith(_BEARER) or _spelled(name) in _ALL


def _spelled(name: str) -> str:
    """Return a name as a setting of OAuth is spelled.

    >>> _spelled("Bearer_Auth-Client.Secret")
    'bearer.auth.client.secret'
    """
    return re.sub(r"[-_.\s]+", ".", name.lower())


def _check(conn_id: str, oauth: Mapping[str, str]) -> None:
    if other := sorted(name for name in oauth if name not in _ALL and _spelled(name) in _ALL):
        named = [f"{_spelled(name)} instead of {short(name)}" for name in other]
        raise bad_connection(conn_id, f"its extra must have {name_some(named, ', ')}")
    if unknown := sorted(oauth.keys() - set(_ALL)):
        named = [short(name) for name in unknown]
        raise bad_connection(conn_id, f"there is no setting {name_some(named, ', ')}, only {', '.join(_ALL)}")
    if oauth.get(_SOURCE) != "OAUTHBEARER":
        raise bad_connection(conn_id, f"set {_SOURCE} to OAUTHBEARER")
    if missing := [name for name in _NEEDED if not oauth.get(name)]:
        raise bad_connection(conn_id, f"its extra lacks {' and '.join(missing)}")
    if not _is_endpoint(oauth[_ENDPOINT]):
        raise bad_connection(conn_id, f"{_ENDPOINT} must be a whole address, without login and query")
    for name in _SENT:
        check_header(conn_id, name, oauth.get(name, ""))


def check_header(conn_id: str, name: str, value: str) -> None:
    """Refuse the value of a header that the client would quote.

    Raises:
        BadInputError: it has such a character. The value is not shown.
    """
    if not (value.isascii() and value.isprintable()):
        raise bad_connection(conn_id, f"{name} has a character that no header has")


def _is_endpoint(text: str) -> bool:
    try:
        address = urlsplit(text)
    except ValueError:
        return False
    # The part before an @ or after a ? may be a secret, and messages show the address.
    return address.scheme in ("http", "https") and bool(address.hostname) and not {"@", "?"} & set(text)


def headers_of(oauth: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of OAuth that each request to the registry has as headers."""
    return {header: oauth[name] for name, header in _SENT.items() if oauth.get(name)}


def client_of(conn_id: str, oauth: Mapping[str, str], verify: bool | str) -> ClientCredentials:
    """Return what fetches a token, and gives it to each request.

    Args:
        conn_id: the connection, for messages.
        oauth: its settings of OAuth.
        verify: whether to check the certificate of the token endpoint, or the file with the authorities to check it with.
    """
    from airflow_kafka_offsets.adapters.oauth import ClientCredentials

    endpoint, client_id, secret = (oauth[name] for name in _NEEDED)
    scope = oauth.get("bearer.auth.scope", "")
    return ClientCredentials(endpoint, client_id, secret, conn_id, scope=scope, verify=verify, on_token=mask)
