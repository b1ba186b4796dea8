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

# A restarting registry answers again within a second or two. A Retry-After of an hour would hold the task's slot: Airflow retries.
RETRIES = Retry(
    total=2,
    backoff_factor=0.5,
    status_forcelist=(502, 503, 504),
    raise_on_status=False,
    respect_retry_after_header=False,
)


class ConfluentRegistry:
    """`ports.SchemaRegistry` over HTTP, without a request before the first call.

    Args:
        url: its address, without a login.
        conn_id: its Airflow connection, for messages.
        login: user and password, or an object that adds a token to each request; None means none.
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
            "let the client read subjects, or correct the bearer.auth settings" if has_token else "correct the login"
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
        # In this order: a version that appears between the two requests counts as one more, not as a missing one.
        not_deleted = self._get(session, _path(name)) or ()
        # Records may still have the ids of versions that are deleted.
        numbers = self._get(session, f"{_path(name)}?deleted=true")
        if not numbers:
            return None
        versions = {number: self._version(session, name, number) for number in sorted(numbers)}
        latest = versions[max(versions.keys() & set(not_deleted) or versions)]
        same_kind = [version for version in versions.values() if _kind(version) == _kind(latest)]
        return Subject(
            _kind(latest), latest["id"], {version["id"]: self._text(session, version) for version in same_kind}
        )

    def _version(self, session: requests.Session, name: str, number: int) -> Any:
        version = self._get(session, f"{_path(name)}/{number}?deleted=true")
        if version is None:
            raise RegistryUnavailableError(f"{self._name}: version {number} of {name} was just removed")
        return version

    def _text(self, session: requests.Session, version: Mapping[str, Any]) -> str:
        text = str(version["schema"])
        if _kind(version) != AVRO or not version.get("references"):
            return text
        references: dict[str, str] = {}
        self._collect(session, version, references)
        try:
            return self_contained(text, references)
        except (ValueError, KeyError, TypeError) as exc:
            raise self._refused(f"schema {version['id']} refers to no Avro ({type(exc).__name__})") from exc

    def _collect(self, session: requests.Session, version: Mapping[str, Any], schemas: dict[str, str]) -> None:
        for reference in version.get("references") or ():
            if reference["name"] not in schemas:
                referred = self._version(session, reference["subject"], reference["version"])
                schemas[reference["name"]] = str(referred["schema"])
                self._collect(session, referred, schemas)

    def _get(self, session: requests.Session, path: str) -> Any:
        """Return an answer; None if there is no such subject or version."""
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
            raise RegistryUnavailableError(f"{self._name} answered {status_of(answer)}")
        if answer.status_code in (401, 403):
            raise self._refused(f"{status_of(answer)}: {self._mend}")
        if answer.status_code != 200 or document is None:
            raise self._refused(
                f"{path} {status_of(answer)}: {short(answer.text)}. Correct the address (Apicurio: .../apis/ccompat/v7)"
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


def status_of(answer: requests.Response) -> str:
    """Return the status of an answer with its reason."""
    return f"{answer.status_code} {answer.reason or ''}".strip()


def _document(answer: requests.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None
