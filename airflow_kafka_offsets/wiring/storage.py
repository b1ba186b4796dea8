"""Files and folders, in any storage that Airflow's providers or fsspec know: checkpoints, CSV files, the exchange."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.adapters.sources.checkpoint import CheckpointDirectory
from airflow_kafka_offsets.adapters.sources.csv_file import CsvFile, check_new_csv, new_csv, read_csvs
from airflow_kafka_offsets.core.errors import BadInputError, ExchangeError
from airflow_kafka_offsets.core.exchange import scheme_of

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.source.offsets import CheckpointAddress
    from airflow_kafka_offsets.ports import Exchange, OffsetSource

__all__ = ["CsvFile", "check_new_csv", "new_csv", "open_checkpoint", "open_exchange", "read_csvs"]

_PROVIDER = "apache-airflow-providers-amazon[s3fs]"


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
        # Airflow's paths use its connections (s3://aws_default@bucket/path). fsspec has more schemes, but no connections.
        return ObjectStoragePath(text) if has_fs(scheme) else UPath(text)
    except (ImportError, ValueError) as exc:
        raise _unreadable(scheme, exc) from exc


def _unreadable(scheme: str, cause: Exception) -> BadInputError:
    return BadInputError(
        f"Nothing installed here reads {scheme}:// ({cause}). Install Airflow's provider for it, such as {_PROVIDER}"
    )


def open_exchange(address: str, conn_id: str | None = None) -> Exchange:
    """Open a folder of the exchange.

    Args:
        address: the folder's address.
        conn_id: the Airflow connection to its storage; None means the storage's own default, such as the role of the worker.

    Raises:
        BadInputError: it is no address of a folder, or no installed package reads this storage.
        ExchangeError: the storage can't be opened.
    """
    from airflow.sdk.io import attach, has_fs
    from fsspec.core import url_to_fs

    from airflow_kafka_offsets.adapters.exchange import FolderExchange

    scheme = scheme_of(address)
    is_of_airflow = has_fs(scheme)
    if conn_id is not None and not is_of_airflow:
        raise BadInputError(
            f"No installed provider of Airflow reads {scheme}://, so exchange_conn_id {conn_id!r} can't be used. Install one, such as "
            f"{_PROVIDER}, or remove exchange_conn_id"
        )
    try:
        storage = attach(scheme, conn_id).fs if is_of_airflow else url_to_fs(address)[0]
    except (ImportError, ValueError) as exc:
        raise _unreadable(scheme, exc) from exc
    except Exception as exc:
        raise ExchangeError(f"The exchange {address} can't be opened ({type(exc).__name__}: {exc})") from exc
    return FolderExchange(storage, address)
