"""CSV files: of offsets as kafka-consumer-groups reads and writes them, and of what a query gave."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.place.offsets_csv import load_csv
from airflow_kafka_offsets.core.place.place import Found


class CsvFile:
    """`ports.OffsetSource` on a CSV file, or on stdin."""

    def __init__(self, file: str, group: str, *, is_chosen: bool) -> None:
        """Name a file; nothing is read yet.

        Args:
            file: its path; ``-`` is stdin, which can be read once.
            group: whose lines count, where they name groups.
            is_chosen: whether a person chose that name.
        """
        self.name = f"csv:{file}"
        self._file = file
        self._group = group
        self._is_chosen = is_chosen

    def read(self, topics: Sequence[str] = ()) -> Found:
        """Return the offsets of the group, of all topics that it has there."""
        return Found(load_csv(self.name, read_text(self._file), self._group, is_chosen=self._is_chosen))


def read_text(file: str) -> str:
    """Return what a file holds; ``-`` is stdin, which can be read once.

    Raises:
        BadInputError: it can't be read.
    """
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise BadInputError(f"Can't read {file}: {getattr(exc, 'strerror', None) or 'it is not UTF-8'}") from exc


def csv_files(place: str) -> list[str]:
    """Return the CSV files in a folder, or the one file that is named.

    Raises:
        BadInputError: the folder has none.
    """
    if place == "-" or not Path(place).is_dir():
        return [place]
    if files := sorted(str(file) for file in Path(place).glob("*.csv")):
        return files
    raise BadInputError(f"{place} has no *.csv file")


def check_new(path: str) -> None:
    """Refuse to write over a file.

    Raises:
        BadInputError: it is there, or its folder is not.
    """
    # Not exists(): a link that leads nowhere is there, too.
    if os.path.lexists(path):
        raise BadInputError(_there(path))
    if not os.path.isdir(Path(path).parent):
        raise BadInputError(f"There is no folder {Path(path).parent}")


@contextmanager
def new_file(path: str) -> Iterator[TextIO]:
    """Make a file that was not there, and open it; when the caller fails before it is written, it goes again.

    Raises:
        BadInputError: it is there, or can't be written.
    """
    try:
        file = open(path, "x", encoding="utf-8", newline="")  # noqa: SIM115 it is closed below
    except FileExistsError as exc:
        raise BadInputError(_there(path)) from exc
    except OSError as exc:
        raise BadInputError(f"Can't write {path}: {exc.strerror}") from exc
    try:
        with file:
            yield file
    except OSError as exc:
        raise BadInputError(f"Can't write {path}: {exc.strerror}; a part of it may be there") from exc
    except BaseException:
        Path(path).unlink(missing_ok=True)
        raise


def _there(path: str) -> str:
    return f"{path} is there already: name another file, or remove it first"
