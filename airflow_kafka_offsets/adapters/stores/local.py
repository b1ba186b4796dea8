"""A local or mounted folder, for `files.FilesStore`."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from airflow_kafka_offsets.core.errors import (
    StoreContentError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_kafka_offsets.core.store.guarantees import Compares, Guarantees

# Errors that a person has to correct.
_RIGHTS = {errno.EACCES, errno.EPERM, errno.EROFS}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_PATHS = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}
_NO_HARD_LINKS = {errno.EMLINK, errno.EXDEV, errno.ENOTSUP, errno.ENOSYS}
_REFUSALS = _RIGHTS | _FULL | _PATHS | _NO_HARD_LINKS


class LocalFolders:
    """A folder with hard links. It must exist, so that a disk that is not mounted does not look like one without offsets.

    Args:
        base: the folder that holds the groups' folders.
    """

    guarantees = Guarantees(is_atomic=True, compares=Compares.ANY_WRITER)

    def __init__(self, base: str) -> None:
        self._base = Path(base)

    def where(self, group: str, name: str) -> str:
        """See `files.Folders.where`."""
        return str(self._base / group / name)

    def names(self, group: str, after: str = "") -> list[str]:
        """See `files.Folders.names`."""
        with _translated(f"Can't list {self._base / group}"):
            try:
                return os.listdir(self._base / group)
            except FileNotFoundError:
                self._base.stat()
                return []

    def get(self, group: str, name: str) -> bytes | None:
        """See `files.Folders.get`."""
        with _translated(f"Can't read {self.where(group, name)}"):
            try:
                return (self._base / group / name).read_bytes()
            except FileNotFoundError:
                return None
            except IsADirectoryError as exc:
                raise StoreContentError(f"{self.where(group, name)} is a folder") from exc

    def put_if_absent(self, group: str, name: str, content: bytes, temporary: str) -> bool:
        """See `files.Folders.put_if_absent`."""
        folder = self._base / group
        with _translated(f"Can't write to {folder}"):
            self._make(folder)
            try:
                _write_durably(folder / temporary, content)
                is_ours = _link(folder / temporary, folder / name)
            finally:
                with contextlib.suppress(OSError):
                    (folder / temporary).unlink()
        if is_ours:
            self._settle(folder, name)
        return is_ours

    def delete(self, group: str, name: str) -> None:
        """See `files.Folders.delete`."""
        with _translated(f"Can't delete {self.where(group, name)}"):
            (self._base / group / name).unlink(missing_ok=True)

    def _make(self, folder: Path) -> None:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            _fsync_folder(self._base)

    def _settle(self, folder: Path, name: str) -> None:
        try:
            _fsync_folder(folder)
        except OSError as exc:
            raise _unconfirmed(folder / name, exc) from exc


def _write_durably(path: Path, content: bytes) -> None:
    # Not tempfile: only the owner can read its files, and these are for others, too.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _link(temporary: Path, final: Path) -> bool:
    # Unlike a rename, a link does not replace an existing file. And the file is complete from the start.
    try:
        os.link(temporary, final)
    except FileExistsError:
        return False
    except OSError as exc:
        if exc.errno in _REFUSALS:
            raise
        raise _unconfirmed(final, exc) from exc
    return True


def _unconfirmed(path: Path, exc: OSError) -> StoreOutcomeUnknownError:
    return StoreOutcomeUnknownError(f"The disk did not confirm {path}: {_reason(exc)}")


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        error = StoreRefusedError if exc.errno in _REFUSALS else StoreUnavailableError
        raise error(f"{what}: {_reason(exc)}") from exc


def _reason(exc: OSError) -> str:
    hint = " (is it mounted?)" if exc.errno == errno.ENOENT else ""
    return f"{exc.strerror or exc}{hint}"
