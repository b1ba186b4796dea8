"""The schema registry behind an Airflow connection."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_kafka_offsets.core.errors import short
from airflow_kafka_offsets.wiring.connections import bad_connection, connection_of_type, is_true, mask
from airflow_kafka_offsets.wiring.oauth import check_header, client_of, divided, headers_of

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_kafka_offsets.ports import SchemaRegistry

# Fields of Airflow's own HTTP connections. All else in their extra is a header of each request.
_NO_HEADERS = frozenset(
    {
        "verify",
        "cert",
        "timeout",
        "proxies",
        "stream",
        "allow_redirects",
        "max_redirects",
        "trust_env",
        "check_response",
    }
)

_LOGINS = ("authorization", "proxy-authorization")
"""Headers whose value is a word, and then a secret."""

# https://www.rfc-editor.org/rfc/rfc9110#name-tokens
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def open_registry(conn_id: str) -> SchemaRegistry:
    """Open a schema registry, without a request to it yet.

    Args:
        conn_id: a connection of type ``http``: its host may be a whole address, with a path. Its extra has headers, and ``verify`` and
            ``cert`` as Airflow's HTTP hook reads them, and the settings of `wiring.oauth`. White space around a name or a value counts for
            nothing.

    Raises:
        BadInputError: the connection can't be used.
    """
    from airflow_kafka_offsets.adapters.registry import ConfluentRegistry

    connection = connection_of_type(conn_id, "http", "https", host_of="the schema registry")
    host = str(connection.host).strip()
    extra = {name.strip(): _stripped(value) for name, value in connection.extra_dejson.items()}
    scheme = (connection.schema or "").strip() or connection.conn_type
    if scheme not in ("http", "https"):
        raise bad_connection(conn_id, f"its schema is {scheme!r}, not http or https")
    if "@" in host:
        raise bad_connection(conn_id, "user and password belong into its fields, not its host")
    address = urlsplit(host if "://" in host else f"{scheme}://{host}")
    if connection.port and address.port is None:
        address = address._replace(netloc=f"{address.netloc}:{connection.port}")
    oauth, rest = divided(conn_id, extra)
    headers, login = _headers_of(conn_id, rest), _login_of(connection)
    if oauth and (login or any(name.lower() == "authorization" for name in headers)):
        raise bad_connection(conn_id, "it has bearer.auth settings and another login")
    verify, cert = _verify_of(extra), extra.get("cert")
    _check_files(conn_id, verify=verify, cert=cert)
    return ConfluentRegistry(
        address.geturl(),
        conn_id,
        login=client_of(conn_id, oauth, verify) if oauth else login,
        headers={**headers, **headers_of(oauth)},
        verify=verify,
        cert=tuple(cert) if isinstance(cert, list) else cert,  # the client hashes it, and JSON has no tuples
    )


def _stripped(value: Any) -> Any:
    """Return a text, or the texts of a list, without white space around them."""
    if isinstance(value, list):
        return [_stripped(part) for part in value]
    return value.strip() if isinstance(value, str) else value


def _verify_of(extra: Mapping[str, Any]) -> bool | str:
    """Return whether to check a certificate, or the file with the authorities to check it with."""
    verify = extra.get("verify", True)
    if isinstance(verify, str) and verify.lower() not in ("true", "false", ""):
        return verify
    return is_true(verify)


def _check_files(conn_id: str, **named: object) -> None:
    """Refuse missing files for TLS: the client's own error names no connection."""
    for name, value in named.items():
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, str) and path and not os.path.exists(path):
                raise bad_connection(conn_id, f"this machine can't read {name}={short(path)}")


def _login_of(connection: Connection) -> tuple[str, str] | None:
    """Return user and password, or None if there is neither."""
    # A password from a file ends with a line break. Airflow masks only the text with it.
    user, password = (connection.login or "").strip(), (connection.password or "").strip()
    if not (user or password):
        return None
    mask(password)
    mask(b64encode(f"{user}:{password}".encode()).decode())  # as it is sent: a proxy's page of errors may show it
    return user, password


def _headers_of(conn_id: str, extra: Mapping[str, Any]) -> dict[str, str]:
    headers = {name: str(value) for name, value in extra.items() if name not in _NO_HEADERS}
    for name, value in headers.items():
        mask(value)  # a token may be in any of them
        if " " in value and name.lower() in _LOGINS:
            mask(value.split(maxsplit=1)[1])  # without the word Bearer or Basic
        check_header(conn_id, short(name), value)
        if not _NAME.fullmatch(name):
            raise bad_connection(conn_id, f"{short(name)} in its extra names no header")
    return headers
