"""The cache folder holds code that is run. So it is used only if no one but this user and root can write to it."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

NAME_ANOTHER = "set another [kafka_offsets] cache_folder"


def foreign(path: Path) -> str:
    """Return the sentence about a file or folder that is not `secured`."""
    return f"{path} is not this user's or root's alone: correct that, or {NAME_ANOTHER}"


def secured(path: Path) -> bool:
    """Whether only this user and root can write to a file or folder. Rights that the umask left open are removed first.

    The group of root may write: images give it the rights of their user (``chgrp 0``, ``chmod g=u``), for platforms that choose the uid.
    A file of this user that everyone can write is not trusted and not changed: another user may have written it.

    Raises:
        OSError: it does not exist, or its rights can't be read or changed.
    """
    status = path.lstat()
    is_folder = stat.S_ISDIR(status.st_mode)
    if not (is_folder or stat.S_ISREG(status.st_mode)) or status.st_uid not in (os.geteuid(), 0):
        return False
    open_to = status.st_mode & (stat.S_IWOTH | (stat.S_IWGRP if status.st_gid != 0 else 0))
    # A folder can be closed late: files that others put there belong to them, and are checked, too.
    may_be_closed = status.st_uid == os.geteuid() and (is_folder or open_to == stat.S_IWGRP)
    if open_to and may_be_closed:
        path.chmod(stat.S_IMODE(status.st_mode) & ~open_to)
    return not open_to or may_be_closed


def make_folder(folder: Path) -> bool:
    """Make a folder that others can read, if it is not there. Return whether only this user and root can write to it.

    Raises:
        OSError: it can't be made.
    """
    with suppress(FileExistsError):
        folder.mkdir(parents=True)
        folder.chmod(stat.S_IMODE(folder.lstat().st_mode) | 0o755)  # with any umask
    return secured(folder)


def sync(path: Path) -> None:
    """Wait until the disk holds a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
