"""The schema registry behind an Airflow connection."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_kafka_offsets.core.errors import BadInputError, short
from airflow_kafka_offsets.wiring.connections import connection_of_type, is_true, mask

if TYPE_CHECKING:
    from airflow_kafka_offsets.ports import SchemaRegistry

# Of Airflow's own HTTP connections; all else in their extra is a header of each request.
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


def open_registry(conn_id: str) -> SchemaRegistry:
    """Open a schema registry, without a request to it yet.

    Args:
        conn_id: a connection of type ``http``: its host may be a whole address, with a path. Its extra has headers, and ``verify`` and
            ``cert`` as Airflow's HTTP hook reads them.

    Raises:
        BadInputError: the connection is missing, of another type, names no host, or has what no header may have.
    """
    from airflow_kafka_offsets.adapters.registry import ConfluentRegistry

    connection = connection_of_type(conn_id, "http", "https", host_of="the schema registry")
    host, scheme, extra = str(connection.host), connection.schema or connection.conn_type, connection.extra_dejson
    if scheme not in ("http", "https"):
        raise BadInputError(
            f"Connection {conn_id!r}: its schema is {scheme!r}, and must be http, https or empty. A path belongs into the host: "
            "https://registry:8081/apis/ccompat/v7"
        )
    if "@" in host:
        raise BadInputError(
            f"Connection {conn_id!r}: put the user and the password into its fields, and not into the host"
        )
    # Without the end of a line, which a token from a file has.
    headers = {name: str(value).strip() for name, value in extra.items() if name not in _NO_HEADERS}
    for name, value in headers.items():
        mask(value)  # a token may be in any of them
        if not (value.isascii() and value.isprintable()):  # the client would quote it
            raise BadInputError(
                f"Connection {conn_id!r}: {short(name)} in its extra has a character that no header may have"
            )
    address = urlsplit(host if "://" in host else f"{scheme}://{host}")
    if connection.port and address.port is None:
        address = address._replace(netloc=f"{address.netloc}:{connection.port}")
    login = (connection.login or "", connection.password or "") if connection.login or connection.password else None
    verify = extra.get("verify", True)
    is_file = isinstance(verify, str) and verify.lower() not in ("true", "false", "")
    return ConfluentRegistry(
        address.geturl(),
        conn_id,
        login=login,
        headers=headers,
        verify=verify if is_file else is_true(verify),
        cert=extra.get("cert"),
    )
