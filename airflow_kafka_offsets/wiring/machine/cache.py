"""The cache folder. Its contents can be made again at any time, but making them is slow."""

from __future__ import annotations

import os
from pathlib import Path

from airflow_kafka_offsets.adapters.machine.cache import NAME_ANOTHER
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.wiring import SECTION

OPTION = "cache_folder"
"""Its name in Airflow's configuration."""


def cache_folder() -> Path:
    """Return the cache folder. A missing one is made, for this user alone and empty.

    It is ``[kafka_offsets] cache_folder`` of Airflow's configuration, else ``airflow_kafka_offsets`` in the user's folder for
    caches (https://specifications.freedesktop.org/basedir-spec/latest/).

    Raises:
        BadInputError: the path is relative, or the folder can't be made.
    """
    from airflow_kafka_offsets.airflow_versions import conf

    folder = chosen_folder(conf.get(SECTION, OPTION, fallback=None))
    try:
        # An existing folder keeps its mode: several users may read what root has put there.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise BadInputError(f"The cache folder {folder} can't be made ({exc.strerror}); {NAME_ANOTHER}") from exc
    return folder


def chosen_folder(configured: str | None) -> Path:
    """Return the path of the cache folder.

    Args:
        configured: the configured path, in which ``~`` and environment variables are expanded, or None or empty if there is none.

    Raises:
        BadInputError: it is relative, or the user has no home.
    """
    text = configured or f"{_users_caches()}/airflow_kafka_offsets"
    folder = Path(os.path.expanduser(os.path.expandvars(text)))
    if not folder.is_absolute():
        raise BadInputError(f"[{SECTION}] {OPTION} must be an absolute path, not {str(folder)!r}")
    return folder


def _users_caches() -> str:
    given = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says to ignore a relative path.
    return given if Path(given).is_absolute() else "~/.cache"
