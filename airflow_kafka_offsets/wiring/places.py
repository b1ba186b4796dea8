"""Places that hold offsets but are not offset stores: checkpoints and CSV files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from airflow_kafka_offsets.core.errors import BadInputError

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.place.place import CheckpointPlace, CsvPlace
    from airflow_kafka_offsets.ports import OffsetSource


def open_checkpoint(place: CheckpointPlace) -> OffsetSource:
    """Open a checkpoint directory, without reading it yet.

    Raises:
        BadInputError: no installed package reads URLs of that scheme.
    """
    from airflow_kafka_offsets.adapters.places.checkpoint import CheckpointDirectory

    return CheckpointDirectory(_directory(place.directory), str(place), place.source)


def _directory(text: str) -> Any:
    if "://" not in text:
        return Path(os.path.expanduser(text))
    from airflow.sdk import ObjectStoragePath
    from airflow.sdk.io import has_fs
    from upath import UPath

    scheme = text.partition("://")[0]
    try:
        # Airflow's paths know its connections (s3://aws_default@bucket/path). fsspec knows more schemes, but no connections.
        return ObjectStoragePath(text) if has_fs(scheme) else UPath(text)
    except (ImportError, ValueError) as exc:
        raise BadInputError(
            f"No installed package reads {scheme}:// ({exc}). Install what fsspec requires for it, such as "
            "apache-airflow-providers-amazon[s3fs], or copy the directories offsets and commits to a local disk"
        ) from exc


def open_csv(place: CsvPlace, group: str, *, is_chosen: bool) -> OffsetSource:
    """Open a CSV file, without reading it yet.

    Args:
        place: its location.
        group: read only this group's lines, if the lines name groups.
        is_chosen: whether a person chose that group by name.
    """
    from airflow_kafka_offsets.adapters.places.csv_file import CsvFile

    return CsvFile(place.file, group, is_chosen=is_chosen)


def read_csvs(place: str) -> Iterator[tuple[str, str]]:
    """Return name and text of a CSV file, of all CSV files in a folder (as Spark writes one), or of stdin (``-``).

    Raises:
        BadInputError: it can't be read.
    """
    from airflow_kafka_offsets.adapters.places.csv_file import csv_files, read_text

    return ((file, read_text(file)) for file in csv_files(place))


def check_new_csv(path: str) -> None:
    """Refuse a CSV file that already exists.

    Raises:
        BadInputError: it exists, or its folder does not.
    """
    from airflow_kafka_offsets.adapters.places.csv_file import check_new

    check_new(path)


def new_csv(path: str) -> AbstractContextManager[TextIO]:
    """Make a new CSV file and open it.

    Raises:
        BadInputError: the file exists, or can't be written.
    """
    from airflow_kafka_offsets.adapters.places.csv_file import new_file

    return new_file(path)
