"""What lies in the cache folder is run: it is used only where nobody but this user and root can have written it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

NAME_ANOTHER = (
    "name a folder that this user can write: [kafka_offsets] cache_folder in Airflow's configuration, "
    "or AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER in the environment"
)
"""How a person chooses another cache folder."""


def is_only_ours(path: Path) -> bool:
    """Whether nobody but this user and root can have written a file or folder.

    Raises:
        OSError: it is not there, or can't be looked at.
    """
    found = path.lstat()
    is_plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    is_shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return is_plain and found.st_uid in (os.geteuid(), 0) and not is_shared


def make_folder(folder: Path) -> bool:
    """Make a folder if it is not there, which others can read, and return whether it is only ours.

    Raises:
        OSError: it can't be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if folder.lstat().st_uid == os.geteuid() and not folder.is_symlink():
        folder.chmod(0o755)  # whatever the umask: what others can write is not used
    return is_only_ours(folder)
