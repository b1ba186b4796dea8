"""A schema registry with Confluent's API: of Confluent, Apicurio (``/apis/ccompat/v7``), Karapace, Redpanda and others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth
from urllib3.util import Retry

from airflow_kafka_offsets.core.errors import RegistryRefusedError, RegistryUnavailableError, short
from airflow_kafka_offsets.core.schemas import AVRO, Subject, self_contained

TIMEOUT = (5.0, 30.0)
"""Seconds to connect, and seconds to wait for an answer."""

_MISSING = {40401, 40402}
"""The registry's codes: there is no such subject, or no such version."""

# A registry behind a load balancer that is restarted answers again within a second or two. A Retry-After is not obeyed: it may be an
# hour, for which the task would hold its slot and say nothing. Airflow's retry of the task comes later.
RETRIES = Retry(
    total=2,
    backoff_factor=0.5,
    status_forcelist=(502, 503, 504),
    raise_on_status=False,
    respect_retry_after_header=False,
)


class ConfluentRegistry:
    """`ports.SchemaRegistry` over HTTP. Nothing is asked before the first call.

    Args:
        url: its address, without a login.
        conn_id: its Airflow connection, for messages.
        login: user and password, or what puts a token into each request; None means none.
        headers: of each request, for example a token.
        verify: whether to check its certificate, or the file with the authorities to check it with.
        cert: the client's certificate, or certificate and key.
    """

    def __init__(
        self,
        url: str,
        conn_id: str,
        *,
        login: tuple[str, str] | AuthBase | None = None,
        headers: Mapping[str, str] | None = None,
        verify: bool | str = True,
        cert: Any = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._name = f"The schema registry {self._url} (connection {conn_id!r})"
        # Anything at all, so that no login of a .netrc takes the place of a header. In bytes, because a string has to be latin-1.
        self._login = HTTPBasicAuth(*(part.encode() for part in login)) if isinstance(login, tuple) else login
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json", **(headers or {})}
        has_token = isinstance(login, AuthBase)
        self._mend = (
            "it does not take the token. Give the client the right to read subjects, or correct the bearer.auth "
            "settings of the connection"
            if has_token
            else "correct the login in the connection"
        )
        self._verify = verify
        self._cert = cert

    def subject(self, name: str) -> Subject | None:
        """Return all schemas of a subject; None if there is no such subject."""
        with requests.Session() as session:
            session.auth = self._login or _as_it_is
            session.headers.update(self._headers)
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(max_retries=RETRIES))
            return self._subject(session, name)

    def _subject(self, session: requests.Session, name: str) -> Subject | None:
        # In this order: a version that comes between two questions is one more that is known, and not one that is missing.
        not_deleted = self._ask(session, _path(name)) or ()
        # Records may still have the ids of versions that are deleted.
        numbers = self._ask(session, f"{_path(name)}?deleted=true")
        if not numbers:
            return None
        there = {number: self._version(session, name, number) for number in sorted(numbers)}
        latest = there[max(there.keys() & set(not_deleted) or there)]
        same_kind = [version for version in there.values() if _kind(version) == _kind(latest)]
        return Subject(
            _kind(latest), latest["id"], {version["id"]: self._text(session, version) for version in same_kind}
        )

    def _version(self, session: requests.Session, name: str, number: int) -> Any:
        found = self._ask(session, f"{_path(name)}/{number}?deleted=true")
        if found is None:
            raise RegistryUnavailableError(f"{self._name}: version {number} of subject {name} was removed just now")
        return found

    def _text(self, session: requests.Session, version: Mapping[str, Any]) -> str:
        text = str(version["schema"])
        if _kind(version) != AVRO or not version.get("references"):
            return text
        others: dict[str, str] = {}
        self._collect(session, version, others)
        try:
            return self_contained(text, others)
        except (ValueError, KeyError, TypeError) as exc:
            raise self._refused(f"what schema {version['id']} refers to is not Avro ({type(exc).__name__})") from exc

    def _collect(self, session: requests.Session, version: Mapping[str, Any], others: dict[str, str]) -> None:
        for reference in version.get("references") or ():
            if reference["name"] not in others:
                found = self._version(session, reference["subject"], reference["version"])
                others[reference["name"]] = str(found["schema"])
                self._collect(session, found, others)

    def _ask(self, session: requests.Session, path: str) -> Any:
        """Return an answer; None if there is no such thing.

        Raises:
            RegistryUnavailableError, RegistryRefusedError: there is no useful answer.
        """
        try:
            # Not in the session, where REQUESTS_CA_BUNDLE would take precedence.
            answer = session.get(
                f"{self._url}/{path}", timeout=TIMEOUT, allow_redirects=False, verify=self._verify, cert=self._cert
            )
        except requests.RequestException as exc:
            raise RegistryUnavailableError(f"{self._name} does not answer ({type(exc).__name__}: {exc})") from exc
        document = _document(answer)
        is_error = isinstance(document, dict) and "error_code" in document
        if answer.status_code == 404 and is_error and document["error_code"] in _MISSING:
            return None
        if answer.status_code >= 500 or answer.status_code == 429:
            raise RegistryUnavailableError(f"{self._name} answered {_status(answer)}")
        if answer.status_code in (401, 403):
            raise self._refused(f"it answered {_status(answer)}: {self._mend}")
        if answer.status_code != 200 or document is None:
            raise self._refused(
                f"it answered {path} with {_status(answer)}, as no registry does: {short(answer.text)}. Correct "
                "the address in the connection (Apicurio: .../apis/ccompat/v7)"
            )
        return document

    def _refused(self, why: str) -> RegistryRefusedError:
        return RegistryRefusedError(f"{self._name} can't be used: {why}")


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _path(name: str) -> str:
    return f"subjects/{quote(name, safe='')}/versions"


def _kind(version: Mapping[str, Any]) -> str:
    return str(version.get("schemaType") or AVRO)


def _status(answer: requests.Response) -> str:
    return f"{answer.status_code} {answer.reason or ''}".strip()


def _document(answer: requests.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None
