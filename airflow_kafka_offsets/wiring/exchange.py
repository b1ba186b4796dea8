"""The exchange, by its address: through the storage that Airflow's providers know, or fsspec itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_kafka_offsets.core.errors import BadInputError, ExchangeError
from airflow_kafka_offsets.core.exchange import scheme_of

if TYPE_CHECKING:
    from airflow_kafka_offsets.ports import Exchange


def open_exchange(address: str, conn_id: str | None = None) -> Exchange:
    """Open a folder of the exchange.

    Args:
        address: of the folder.
        conn_id: the Airflow connection to its storage; None means the storage's own default, such as the role of the worker.

    Raises:
        BadInputError: it is no address of a folder, or nothing that is installed here knows this storage.
        ExchangeError: the storage can't be opened.
    """
    from airflow.sdk.io import attach, has_fs
    from fsspec.core import url_to_fs

    from airflow_kafka_offsets.adapters.exchange import FolderExchange

    scheme = scheme_of(address)
    is_of_airflow = has_fs(scheme)
    if conn_id is not None and not is_of_airflow:
        raise BadInputError(
            f"exchange_conn_id is {conn_id!r}, and no installed provider of Airflow knows storage of the kind {scheme}://: install one, such "
            "as apache-airflow-providers-amazon[s3fs] for s3://; or remove exchange_conn_id"
        )
    try:
        storage = attach(scheme, conn_id).fs if is_of_airflow else url_to_fs(address)[0]
    except (ImportError, ValueError) as exc:
        raise BadInputError(
            f"Nothing that is installed here knows {scheme}:// ({exc}). Install Airflow's provider for "
            "it on the workers, such as apache-airflow-providers-amazon[s3fs]"
        ) from exc
    except Exception as exc:
        raise ExchangeError(f"The exchange {address} can't be opened ({type(exc).__name__}: {exc})") from exc
    return FolderExchange(storage, address)
