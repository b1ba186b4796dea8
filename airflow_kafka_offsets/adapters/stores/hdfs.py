"""A folder on HDFS, through WebHDFS, for `files.FilesStore`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import (
    StoreAnswerError,
    StoreContentError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_kafka_offsets.core.store.guarantees import Compares, Guarantees

if TYPE_CHECKING:
    from hdfs import Client
    from hdfs.util import HdfsError

_MISSING = "FileNotFoundException"
_CHUNK = 65_536
# Java's names of what a person has to put right.
_REFUSALS = frozenset(
    {
        "AccessControlException",
        "AuthenticationException",
        "AuthorizationException",
        "DSQuotaExceededException",
        "IllegalArgumentException",
        "InvalidPathException",
        "InvalidToken",
        "MaxDirectoryItemsExceededException",
        "NSQuotaExceededException",
        "ParentNotDirectoryException",
        "PathComponentTooLongException",
        "QuotaExceededException",
        "SecurityException",
        "SnapshotAccessControlException",
        "UnsupportedOperationException",
    }
)


@dataclass(frozen=True)
class HdfsLogin:
    """Who we are to the name nodes.

    Attributes:
        user: the name that WebHDFS is told; empty: that of the process. Kerberos takes the ticket's instead.
        password: for a gateway with basic authentication; None: none.
        verify: whether TLS certificates are checked, or the file of the authorities that sign them.
        cert: our own certificate, or certificate and key.
        headers: what every request carries.
        cookies: the same.
        has_kerberos: the process has a ticket, and name nodes want it.
    """

    user: str = ""
    password: str | None = field(default=None, repr=False)
    verify: bool | str = True
    cert: str | tuple[str, str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    cookies: Mapping[str, str] = field(default_factory=dict, repr=False)
    has_kerberos: bool = False


class HdfsPlace:
    """A folder on HDFS.

    Args:
        client: one of PyPI's ``hdfs``, with a time-out; see `open_client`.
        base: the folder that holds those of the groups; made if it is missing.
    """

    guarantees = Guarantees(
        is_atomic=True,
        compares=Compares.ANY_WRITER,
        caveat="Who replaces a file instead of adding the next one is noticed only if its offsets drifted.",
    )

    def __init__(self, client: Client, base: str) -> None:
        self._client = client
        self._base = base.rstrip("/")

    def where(self, group: str, name: str) -> str:
        """See `files.Place.where`."""
        return f"hdfs:{self._path(group, name)}"

    def names(self, group: str, after: str = "") -> list[str]:
        """See `files.Place.names`."""
        from hdfs.util import HdfsError

        with _translated(f"{self.where(group, '')} can't be listed"):
            try:
                return list(self._client.list(self._path(group, "")))
            except HdfsError as exc:
                if exc.exception == _MISSING:
                    return []
                raise

    def get(self, group: str, name: str) -> bytes | None:
        """See `files.Place.get`."""
        from hdfs.util import HdfsError

        with _translated(f"{self.where(group, name)} can't be read"):
            try:
                with self._client.read(self._path(group, name), chunk_size=_CHUNK) as chunks:
                    return b"".join(chunks)
            except HdfsError as exc:
                if exc.exception != _MISSING:
                    raise
                if "not a file" in str(exc):
                    raise StoreContentError(f"{self.where(group, name)} is a folder, not a file with offsets") from exc
                return None

    def put_if_absent(self, group: str, name: str, content: bytes, temporary: str) -> bool:
        """See `files.Place.put_if_absent`."""
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
        """See `files.Place.delete`."""
        with _translated(f"{self.where(group, name)} can't be deleted"):
            self._client.delete(self._path(group, name))

    def _upload(self, group: str, temporary: str, content: bytes) -> None:
        with _translated(f"A file can't be written to {self.where(group, '')}; no offset was changed"):
            # This makes the folders too; RENAME alone would say no more of a missing one than of a name that is taken.
            self._client.write(self._path(group, temporary), content)

    def _rename(self, group: str, temporary: str, name: str) -> bool:
        """Rename, or tell that the name is taken: HDFS's old RENAME does not replace what is there."""
        from hdfs.util import HdfsError

        what = f"HDFS did not tell whether {self.where(group, name)} is written"
        with _translated(what, is_write=True):
            try:
                self._client.rename(self._path(group, temporary), self._path(group, name))
            except HdfsError as exc:
                if exc.exception is None and str(exc).startswith("Unable to rename"):
                    return False
                raise
        return True

    def _check_taken(self, group: str, name: str) -> None:
        """Tell a name that is taken from the other reasons why HDFS may have refused to rename."""
        from hdfs.util import HdfsError

        with _translated(f"{self.where(group, name)} can't be looked at; no offset was changed"):
            try:
                self._client.status(self._path(group, name))
            except HdfsError as exc:
                if exc.exception != _MISSING:
                    raise
                raise StoreUnavailableError(
                    f"HDFS did not rename a temporary file to {self.where(group, name)}, which is not there either: somebody "
                    "removed the file or its folder. No offset was changed"
                ) from exc

    def _discard(self, group: str, temporary: str) -> None:
        # Best effort: who reads does not see it, and a later advance deletes it.
        with contextlib.suppress(StoreAnswerError):
            self.delete(group, temporary)

    def _path(self, group: str, name: str) -> str:
        return f"{self._base}/{group}/{name}".rstrip("/")


def open_client(urls: Sequence[str], timeout: float, login: HdfsLogin) -> Client:
    """Make a client of WebHDFS; it asks nothing yet.

    Args:
        urls: the name nodes, ``http://host:port``; of several, the active one answers.
        timeout: seconds that a node may stay silent.
        login: who we are.
    """
    from hdfs import InsecureClient

    settings: dict[str, Any] = {"session": _open_session(login), "timeout": timeout}
    if login.has_kerberos:
        from hdfs.ext.kerberos import KerberosClient

        return KerberosClient(";".join(urls), **settings)
    return InsecureClient(";".join(urls), user=login.user or None, **settings)


def _open_session(login: HdfsLogin) -> Any:
    import requests

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
    import requests
    from hdfs.util import HdfsError

    try:
        yield
    except HdfsError as exc:
        raise _error_of(exc, is_write=is_write)(f"{what}: {_first_line(exc)}") from exc
    except requests.exceptions.SSLError as exc:
        raise StoreRefusedError(f"{what}: TLS: {type(exc).__name__}; see verify in the connection's extra") from exc
    except (requests.RequestException, ValueError, KeyError) as exc:  # the latter two: an answer that is not WebHDFS's
        error = StoreOutcomeUnknownError if is_write else StoreUnavailableError
        raise error(f"{what}: {_silence(exc)}") from _cause(exc)


def _error_of(exc: HdfsError, *, is_write: bool) -> type[StoreAnswerError]:
    name, text = exc.exception or "", str(exc)
    if name == "SafeModeException":
        # A name node that starts leaves it by itself; one that was told to, or is short of room, does not.
        return StoreUnavailableError if "turned off automatically" in text else StoreRefusedError
    if name in _REFUSALS or text.startswith("Authentication failure") or text.endswith("is not a directory."):
        return StoreRefusedError
    if name in ("RetriableException", "StandbyException"):
        return StoreUnavailableError
    return StoreOutcomeUnknownError if is_write else StoreUnavailableError


def _first_line(exc: HdfsError) -> str:
    lines = str(exc).splitlines()
    return f"{exc.exception or 'an answer'}: {lines[0] if lines else ''}"[:500]


def _silence(exc: Exception) -> str:
    import requests

    if isinstance(exc, requests.Timeout):
        return "no answer in time"
    if isinstance(exc, requests.ConnectionError):
        return "no connection, or it broke"
    return f"what answers there is not WebHDFS ({type(exc).__name__})"


def _cause(exc: Exception) -> Exception | None:
    # On a secure cluster a data node's URL holds a delegation token, and requests shows URLs.
    return None if "delegation=" in str(exc) else exc
