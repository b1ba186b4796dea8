"""Sources that hold offsets but are not offset stores: checkpoints and CSV files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.adapters.sources.checkpoint import CheckpointDirectory
from airflow_kafka_offsets.adapters.sources.csv_file import CsvFile, check_new_csv, new_csv, read_csvs
from airflow_kafka_offsets.core.errors import BadInputError

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.source.offsets import CheckpointAddress
    from airflow_kafka_offsets.ports import OffsetSource

__all__ = ["CsvFile", "check_new_csv", "new_csv", "open_checkpoint", "read_csvs"]


def open_checkpoint(source: CheckpointAddress) -> OffsetSource:
    """Open a checkpoint directory, without reading it yet.

    Raises:
        BadInputError: no installed package reads URLs of that scheme.
    """
    return CheckpointDirectory(_directory(source.directory), str(source), source.source)


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
            f"No installed package reads {scheme}:// ({exc}). Install one, such as apache-airflow-providers-amazon[s3fs], "
            "or copy the folders offsets and commits to a local disk"
        ) from exc
