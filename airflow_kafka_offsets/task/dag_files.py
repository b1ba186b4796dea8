"""The files of this machine that a launch uses.

A relative path is looked for where Airflow looks for a task's templates: in the folder of the DAG file, then in the DAG's
`template_searchpath`. The folder of the DAG file may change: a DAG bundle has one for each of its versions. The working directory of a
worker is not used. Spark itself fetches URLs.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.launch.standalone import is_path, is_relative

if TYPE_CHECKING:
    from airflow.sdk import DAG

# Hadoop's patterns: Spark lists the folder.
_PATTERN = re.compile(r"[*?\[{]")

_ONE_FILE = ("application", "properties_file", "keytab")
FIELDS = (*_ONE_FILE, "py_files", "files", "jars", "archives")
"""The provider's fields that name files of this machine."""


def folders_of(dag: DAG | None) -> list[Path]:
    """Return the folders where a DAG's relative paths are looked for; without a DAG: the working directory."""
    if dag is None:
        return [Path.cwd()]
    return [Path(folder).absolute() for folder in (dag.folder, *(dag.template_searchpath or ()))]


def launch_files(fields: Mapping[str, Any], folders: Sequence[Path]) -> dict[str, str]:
    """Return the files of a launch as spark-submit takes them, by their fields. Fields without a value are left out.

    Args:
        fields: the values of `FIELDS`, or of some. Absolute paths and URLs are returned as they are. The items of lists with
            commas may be patterns, and may have a name (``#name``).
        folders: where a relative path is looked for, in this order.

    Raises:
        BadInputError: a file is missing; the error names the paths where it could be.
    """
    return {name: _launch_file(os.fspath(value), folders, name) for name, value in fields.items() if value}


def _launch_file(paths: str, folders: Sequence[Path], parameter: str) -> str:
    if parameter in _ONE_FILE:
        return _existing_file(paths, folders, parameter)
    return ",".join(_existing(path.strip(), folders, parameter) for path in paths.split(",") if path.strip())


def _existing_file(path: str, folders: Sequence[Path], parameter: str) -> str:
    if not is_path(path):
        return path
    places = [str(folder / path) for folder in folders] if is_relative(path) else [path]
    for place in places:
        if Path(place).exists():
            return place
    raise _missing(path, folders, parameter)


def _existing(path: str, folders: Sequence[Path], parameter: str) -> str:
    file, mark, name = path.partition("#")
    if not _PATTERN.search(file):
        return _existing_file(file, folders, parameter) + mark + name
    if not is_relative(file):
        return path
    if "{" in file:  # Path.glob does not support braces; Spark itself reports if nothing matches
        return f"{folders[0] / file}{mark}{name}"
    for folder in folders:
        if any(folder.glob(file)):
            return f"{folder / file}{mark}{name}"
    raise _missing(file, folders, parameter)


def _missing(path: str, folders: Sequence[Path], parameter: str) -> BadInputError:
    places = dict.fromkeys(str(folder / path) for folder in folders)  # an absolute path stays as it is
    hint = f"If it is on the cluster's nodes, write local:{path}"
    if is_relative(path):
        hint = "A relative path begins at the DAG file's folder, which can't be in a zip: put the file beside that, and write its whole path"
    return BadInputError(f"{parameter} {path!r} is missing on {platform.node()}: {', '.join(places)}. {hint}")
