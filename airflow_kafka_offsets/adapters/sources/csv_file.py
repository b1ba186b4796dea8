"""CSV files: offsets as kafka-consumer-groups reads and writes them, and the results of queries."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.source.offsets import SourceOffsets
from airflow_kafka_offsets.core.source.offsets_csv import load_csv


class CsvFile:
    """`ports.OffsetSource` on a CSV file, or on stdin."""

    def __init__(self, file: str, group: str, *, is_chosen: bool) -> None:
        """Name a file; nothing is read yet.

        Args:
            file: its path; ``-`` is stdin, which can be read once.
            group: read only this group's lines, if the lines name groups.
            is_chosen: whether a person chose that group by name.
        """
        self.name = f"csv:{file}"
        self._file = file
        self._group = group
        self._is_chosen = is_chosen

    def read(self, topics: Sequence[str] = ()) -> SourceOffsets:
        """Return the group's offsets, of all topics in the file."""
        return SourceOffsets(load_csv(self.name, _read_text(self._file), self._group, is_chosen=self._is_chosen))


def read_csvs(source: str) -> Iterator[tuple[str, str]]:
    """Return name and text of a CSV file, of all CSV files in a folder (as Spark writes one), or of stdin (``-``).

    Raises:
        BadInputError: it can't be read, or the folder has none.
    """
    is_folder = source != "-" and os.path.isdir(source)  # Path.is_dir() raises for a name that is too long
    files = sorted(str(file) for file in Path(source).glob("*.csv")) if is_folder else [source]
    if not files:
        raise BadInputError(f"{source} has no *.csv file")
    return ((file, _read_text(file)) for file in files)


def _read_text(file: str) -> str:
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise BadInputError(f"Can't read {file}: {getattr(exc, 'strerror', None) or 'it is not UTF-8'}") from exc


def check_new_csv(path: str) -> None:
    """Refuse to write over a file.

    Raises:
        BadInputError: the file exists, or its folder does not.
    """
    # Not exists(), which is false for a link to a missing file.
    if os.path.lexists(path):
        raise BadInputError(f"{path} already exists: name another file")
    if not os.path.isdir(Path(path).parent):
        raise BadInputError(f"There is no folder {Path(path).parent}")


@contextmanager
def new_csv(path: str) -> Iterator[TextIO]:
    """Make a new file and open it. If the caller fails before it is written, remove the file.

    Raises:
        BadInputError: the file exists, or can't be written.
    """
    try:
        file = open(path, "x", encoding="utf-8", newline="")  # noqa: SIM115 it is closed below
    except OSError as exc:
        raise BadInputError(f"Can't write {path}: {exc.strerror}") from exc
    try:
        with file:
            yield file
    except OSError as exc:
        raise BadInputError(f"Can't write {path}: {exc.strerror}; the file may be incomplete") from exc
    except BaseException:
        Path(path).unlink(missing_ok=True)
        raise
