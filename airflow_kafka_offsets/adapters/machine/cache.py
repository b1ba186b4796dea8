"""What lies in the cache folder is run: it is used only where nobody but this user and root can have written it."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

NAME_ANOTHER = (
    "name a folder that this user can write: [kafka_offsets] cache_folder in Airflow's configuration, "
    "or AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER in the environment"
)
"""How a person chooses another cache folder."""


def secured(path: Path) -> bool:
    """Whether only this user and root can have written a file or folder; what a generous umask left open is closed first.

    The group of root may write: images give it the rights of their user (``chgrp 0``, ``chmod g=u``), for platforms that choose the uid.
    A file of this user that everyone can write stays as it is, and is not trusted: it may hold what another user wrote.

    Raises:
        OSError: it is not there, or can't be looked at or changed.
    """
    found = path.lstat()
    is_folder = stat.S_ISDIR(found.st_mode)
    if not (is_folder or stat.S_ISREG(found.st_mode)) or found.st_uid not in (os.geteuid(), 0):
        return False
    open_to = found.st_mode & (stat.S_IWOTH | (stat.S_IWGRP if found.st_gid != 0 else 0))
    # In a folder, others could only have put files of their own, which are looked at too.
    may_be_closed = found.st_uid == os.geteuid() and (is_folder or open_to == stat.S_IWGRP)
    if open_to and may_be_closed:
        path.chmod(stat.S_IMODE(found.st_mode) & ~open_to)
    return not open_to or may_be_closed


def make_folder(folder: Path) -> bool:
    """Make a folder if it is not there, which others can read, and return whether it is only ours.

    Raises:
        OSError: it can't be made.
    """
    with suppress(FileExistsError):
        folder.mkdir(parents=True)
        folder.chmod(stat.S_IMODE(folder.lstat().st_mode) | 0o755)  # whatever the umask
    return secured(folder)
