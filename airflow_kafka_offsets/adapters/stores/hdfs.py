"""A folder on HDFS, through WebHDFS, for `files.FilesStore`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import requests
from hdfs import Client, InsecureClient
from hdfs.util import HdfsError

from airflow_kafka_offsets.core.errors import (
    StoreAnswerError,
    StoreContentError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_kafka_offsets.core.store.guarantees import Compares, Guarantees

_MISSING = "FileNotFoundException"
_CHUNK = 65_536
# Java's names of errors that a person has to correct: login, rights, quotas, names, others.
_REFUSAL = re.compile(
    r"InvalidToken|(Authentication|Security|(Snapshot)?AccessControl|Authorization|(DS|NS)?QuotaExceeded|InvalidPath"
    r"|ParentNotDirectory|PathComponentTooLong|IllegalArgument|MaxDirectoryItemsExceeded|UnsupportedOperation)Exception"
)


@dataclass(frozen=True)
class HdfsLogin:
    """The login at the name nodes.

    Attributes:
        user: the user name; empty: that of the process. With Kerberos, the ticket's name counts.
        password: for a gateway with basic authentication; None means no password.
        verify: whether TLS certificates are checked, or a file with the authorities.
        cert: the client's certificate, or certificate and key.
        headers: headers of each request.
        cookies: cookies of each request.
        has_kerberos: whether the process has a ticket, which the name nodes require.
    """

    user: str = ""
    password: str | None = field(default=None, repr=False)
    verify: bool | str = True
    cert: str | tuple[str, str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    cookies: Mapping[str, str] = field(default_factory=dict, repr=False)
    has_kerberos: bool = False


class HdfsFolders:
    """A folder on HDFS.

    Args:
        client: a client of the package ``hdfs``, with a time-out; see `open_client`.
        base: the folder that holds the groups' folders. It is made if it is missing.
    """

    guarantees = Guarantees(is_atomic=True, compares=Compares.ANY_WRITER)

    def __init__(self, client: Client, base: str) -> None:
        self._client = client
        self._base = base.rstrip("/")

    def where(self, group: str, name: str) -> str:
        """See `files.Folders.where`."""
        return f"hdfs:{self._path(group, name)}"

    def names(self, group: str, after: str = "") -> list[str]:
        """See `files.Folders.names`."""
        with _translated(f"Can't list {self.where(group, '')}"):
            try:
                return list(self._client.list(self._path(group, "")))
            except HdfsError as exc:
                if exc.exception == _MISSING:
                    return []
                raise

    def get(self, group: str, name: str) -> bytes | None:
        """See `files.Folders.get`."""
        with _translated(f"Can't read {self.where(group, name)}"):
            try:
                with self._client.read(self._path(group, name), chunk_size=_CHUNK) as chunks:
                    return b"".join(chunks)
            except HdfsError as exc:
                if exc.exception != _MISSING:
                    raise
                if "not a file" in str(exc):
                    raise StoreContentError(f"{self.where(group, name)} is a folder") from exc
                return None

    def put_if_absent(self, group: str, name: str, content: bytes, temporary: str) -> bool:
        """See `files.Folders.put_if_absent`."""
        try:
            self._upload(group, temporary, content)
            if self._rename(group, temporary, name):
                return True
        except StoreAnswerError:
            self._discard(group, temporary)
            raise
        self._discard(group, temporary)
        self._check_taken(group, name)
        return False

    def delete(self, group: str, name: str) -> None:
        """See `files.Folders.delete`."""
        with _translated(f"Can't delete {self.where(group, name)}"):
            self._client.delete(self._path(group, name))

    def _upload(self, group: str, temporary: str, content: bytes) -> None:
        with _translated(f"Can't write to {self.where(group, '')}"):
            # This also makes the folders. RENAME alone would fail in the same way for a missing folder and a taken name.
            self._client.write(self._path(group, temporary), content)

    def _rename(self, group: str, temporary: str, name: str) -> bool:
        """Rename, which never replaces a file. Return False if the name is taken."""
        with _translated(f"HDFS did not confirm {self.where(group, name)}", is_write=True):
            try:
                self._client.rename(self._path(group, temporary), self._path(group, name))
            except HdfsError as exc:
                if exc.exception is None and str(exc).startswith("Unable to rename"):
                    return False
                raise
        return True

    def _check_taken(self, group: str, name: str) -> None:
        """Check that HDFS refused to rename because the name is taken, and for no other reason."""
        with _translated(f"Can't check {self.where(group, name)}"):
            try:
                self._client.status(self._path(group, name))
            except HdfsError as exc:
                if exc.exception != _MISSING:
                    raise
                raise StoreUnavailableError(
                    f"No {self.where(group, name)}: another tool removed the temporary file"
                ) from exc

    def _discard(self, group: str, temporary: str) -> None:
        # Best effort: readers ignore it, and a later advance deletes it.
        with contextlib.suppress(StoreAnswerError):
            self.delete(group, temporary)

    def _path(self, group: str, name: str) -> str:
        return f"{self._base}/{group}/{name}".rstrip("/")


def open_client(urls: Sequence[str], timeout: float, login: HdfsLogin) -> Client:
    """Make a client of WebHDFS, without a connection yet.

    Args:
        urls: the name nodes, ``http://host:port``. The active one answers.
        timeout: seconds to wait for an answer.
        login: the login at the name nodes.
    """
    settings: dict[str, Any] = {"session": _open_session(login), "timeout": timeout}
    if login.has_kerberos:
        from hdfs.ext.kerberos import KerberosClient

        return KerberosClient(";".join(urls), **settings)
    return InsecureClient(";".join(urls), user=login.user or None, **settings)


def _open_session(login: HdfsLogin) -> Any:
    session = requests.Session()
    session.verify = login.verify
    session.cert = login.cert
    session.headers.update(login.headers)
    session.cookies.update(dict(login.cookies))
    if login.password is not None:
        session.auth = (login.user, login.password)
    return session


@contextlib.contextmanager
def _translated(what: str, *, is_write: bool = False) -> Iterator[None]:
    try:
        yield
    except HdfsError as exc:
        raise _error_of(exc, is_write=is_write)(f"{what}: {_first_line(exc)}") from exc
    except requests.exceptions.SSLError as exc:
        raise StoreRefusedError(f"{what}: TLS: {type(exc).__name__}: set verify in the connection's extra") from exc
    except (requests.RequestException, ValueError, KeyError) as exc:  # the latter two: an answer that is not WebHDFS's
        error = StoreOutcomeUnknownError if is_write else StoreUnavailableError
        raise error(f"{what}: {_silence(exc)}") from _cause(exc)


def _error_of(exc: HdfsError, *, is_write: bool) -> type[StoreAnswerError]:
    name, text = exc.exception or "", str(exc)
    if name == "SafeModeException":
        # A starting name node leaves safe mode by itself. One that a person put into it, or that has no space, does not.
        return StoreUnavailableError if "turned off automatically" in text else StoreRefusedError
    if _REFUSAL.fullmatch(name) or text.startswith("Authentication failure") or text.endswith("is not a directory."):
        return StoreRefusedError
    if name in ("RetriableException", "StandbyException"):
        return StoreUnavailableError
    return StoreOutcomeUnknownError if is_write else StoreUnavailableError


def _first_line(exc: HdfsError) -> str:
    lines = str(exc).splitlines()
    return f"{exc.exception or 'an answer'}: {lines[0] if lines else ''}"[:500]


def _silence(exc: Exception) -> str:
    if isinstance(exc, requests.Timeout):
        return "no answer in time"
    if isinstance(exc, requests.ConnectionError):
        return "no connection"
    return f"not WebHDFS ({type(exc).__name__})"


def _cause(exc: Exception) -> Exception | None:
    # On a secure cluster, a data node's URL holds a delegation token, and the errors of requests show URLs.
    return None if "delegation=" in str(exc) else exc
