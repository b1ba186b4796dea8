"""A token of an identity provider, for a client that has an id and a secret (OAuth 2.0, client credentials).

https://www.rfc-editor.org/rfc/rfc6749#section-4.4
"""

from __future__ import annotations

import math
import re
import time
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth

from airflow_kafka_offsets.adapters.registry import RETRIES, TIMEOUT, status_of
from airflow_kafka_offsets.core.errors import RegistryRefusedError, RegistryUnavailableError, short

USED_FOR = 0.8
"""The part of its life for which a token is used, as Confluent's client does: the registry's clock may be ahead."""

UNKNOWN_LIFE = 60.0
"""Seconds for which a token without a stated life is used."""

_RETRIES = RETRIES.new(allowed_methods=None)
"""As for the registry, also for a POST: a second token does no harm."""

_CODE = re.compile(r"[a-z_]{1,60}")
_TOKEN = re.compile(r"[\x21-\x7e]+")

# https://www.rfc-editor.org/rfc/rfc6749#section-5.2
_MEND = {
    "invalid_client": "Correct bearer.auth.client.id and bearer.auth.client.secret",
    "invalid_scope": "Correct bearer.auth.scope",
    **dict.fromkeys(("unauthorized_client", "unsupported_grant_type"), "Let it grant client_credentials"),
}
_MEND_ANY = "Correct bearer.auth.client.id, bearer.auth.client.secret and bearer.auth.scope"


class ClientCredentials(AuthBase):
    """Gives each request a token. The token is fetched with the first request, and kept until shortly before its end.

    Args:
        endpoint: the address where the identity provider gives tokens.
        client_id: the client's id.
        secret: the client's secret.
        conn_id: the Airflow connection that has all this, for messages.
        scope: what the token is for; empty: the identity provider decides.
        verify: as for the registry itself.
        on_token: gets each new token; it is a secret.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        endpoint: str,
        client_id: str,
        secret: str,
        conn_id: str,
        *,
        scope: str = "",
        verify: bool | str = True,
        on_token: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._client_id = client_id
        self._secret = secret
        self._name = f"The token endpoint {endpoint} (connection {conn_id!r})"
        self._form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        self._verify = verify
        self._on_token = on_token
        self._clock = clock
        self._token = ""
        self._until = 0.0

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Put the token into a request.

        Raises:
            RegistryUnavailableError: the identity provider did not answer.
            RegistryRefusedError: it gave no token; the message names what to correct.
        """
        if not self._token or self._clock() >= self._until:
            began = self._clock()  # before the answer: the token is at least this old
            self._token, life = self._read(self._request())
            self._until = began + life * USED_FOR
            self._on_token(self._token)
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    def _request(self) -> requests.Response:
        with requests.Session() as session:
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(max_retries=_RETRIES))
            # In bytes, because a string has to be latin-1.
            login = HTTPBasicAuth(self._client_id.encode(), self._secret.encode())
            try:
                return session.post(
                    self._endpoint,
                    data=self._form,
                    auth=login,
                    headers={"Accept": "application/json"},
                    timeout=TIMEOUT,
                    allow_redirects=False,
                    verify=self._verify,
                )
            except requests.RequestException as exc:
                raise RegistryUnavailableError(f"{self._name} does not answer ({type(exc).__name__}: {exc})") from exc

    def _read(self, answer: requests.Response) -> tuple[str, float]:
        """Return the token of an answer, and how many seconds it lives. The answer itself is never shown: it may hold a secret."""
        status = status_of(answer)
        if answer.status_code >= 500 or answer.status_code == 429:
            raise RegistryUnavailableError(f"{self._name} answered {status}")
        document = _document(answer)
        if answer.status_code != 200 and "error" in document:
            raise self._refused(status, document)
        token, kind = document.get("access_token"), document.get("token_type", "bearer")
        is_token = isinstance(token, str) and _TOKEN.fullmatch(token) and str(kind).lower() == "bearer"
        if answer.status_code != 200 or not is_token:
            raise RegistryRefusedError(
                f"{self._name} answered {status} without a token: correct bearer.auth.issuer.endpoint.url"
            )
        return str(token), _seconds(document.get("expires_in"))

    def _refused(self, status: str, document: dict[str, Any]) -> RegistryRefusedError:
        code, description = str(document["error"]), str(document.get("error_description") or "")
        shown = [code] if _CODE.fullmatch(code) and code != self._secret else []
        sent = b64encode(f"{self._client_id}:{self._secret}".encode()).decode()
        if description and not any(secret in description for secret in (self._secret, sent)):
            shown.append(short(description))
        why = f" ({': '.join(shown)})" if shown else ""
        return RegistryRefusedError(f"{self._name} answered {status}{why}. {_MEND.get(code, _MEND_ANY)}")


def _seconds(life: object) -> float:
    try:
        seconds = float(str(life))
    except ValueError:
        return UNKNOWN_LIFE
    return max(0.0, seconds) if math.isfinite(seconds) else UNKNOWN_LIFE


def _document(answer: requests.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
