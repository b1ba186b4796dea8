"""Short HTTP requests to clusters. Each failure is a `ClusterUnavailableError`."""

from __future__ import annotations

from typing import Any

import requests
from requests.utils import get_auth_from_url, urldefragauth
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from airflow_kafka_offsets.core.errors import ClusterUnavailableError

TIMEOUT = (5.0, 30.0)
"""Seconds to connect, and seconds to wait for an answer."""


def ask(method: str, url: str, *, hint: str = "", **options: Any) -> requests.Response:
    """Send a request and return the answer, with any status.

    Raises:
        ClusterUnavailableError: there is no answer.
    """
    try:
        return requests.request(method, url, timeout=TIMEOUT, **options)
    except requests.RequestException as exc:
        raise ClusterUnavailableError(f"{url} does not answer ({type(exc).__name__}: {exc}){hint}") from exc


def split_login(url: str) -> tuple[str, tuple[str, str] | None]:
    """Split an address into one that errors may show, and the user and password in it, as requests reads them.

    >>> split_login("http://me:hunter%202@rm:8088/"), split_login("http://rm:8088"), split_login("http://TOKEN@rm:8088")
    (('http://rm:8088/', ('me', 'hunter 2')), ('http://rm:8088', None), ('http://rm:8088', None))
    """
    user, password = get_auth_from_url(url)
    return urldefragauth(url), (user, password) if user or password else None


def was_never_sent(exc: ClusterUnavailableError) -> bool:
    """Whether no server accepted the connection, so that the request has certainly had no effect."""
    cause = exc.__cause__
    reason = (
        getattr(cause.args[0], "reason", None) if isinstance(cause, requests.ConnectionError) and cause.args else None
    )
    return isinstance(reason, NewConnectionError | ConnectTimeoutError)


def document(answer: requests.Response, *, hint: str = "") -> dict[str, Any]:
    """Return the JSON document of an answer.

    Raises:
        ClusterUnavailableError: the answer is not a JSON document.
    """
    try:
        content = answer.json()
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ClusterUnavailableError(
            f"{answer.url} answered {answer.status_code} without JSON: {answer.text[:200]!r}{hint}"
        )
    return content
