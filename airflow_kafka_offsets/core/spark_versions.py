"""Whether pyspark and pyspark-client, which put their files into one folder, go together."""

from __future__ import annotations

from airflow_kafka_offsets.core.errors import BadInputError

_OLDEST_CLIENT = (4, 0)


def check_versions_agree(pyspark: str | None, client: str | None) -> None:
    """Refuse a pyspark and a pyspark-client of two feature releases; maintenance releases (the third number) may differ.

    Args:
        pyspark: its version; None: it is not installed.
        client: the version of pyspark-client; None: likewise.

    Raises:
        BadInputError: with the command that mends it.

    >>> check_versions_agree("4.0.5", "4.0.4")
    >>> check_versions_agree(None, "4.2.0")
    """
    if pyspark is None or client is None or _feature_release(pyspark) == _feature_release(client):
        return
    # Of the lower one there are both: a new pyspark may have no pyspark-client yet, and Spark 3 has none.
    lower = min(_feature_release(pyspark), _feature_release(client))
    major, minor = lower if lower >= _OLDEST_CLIENT else _feature_release(client)
    raise BadInputError(
        f"pyspark {pyspark} and pyspark-client {client} are installed, and overwrite each other's files: both must be of one version. Nothing "
        f"was planned. On each worker: pip uninstall -y pyspark pyspark-client && pip install 'pyspark=={major}.{minor}.*' "
        f"'pyspark-client=={major}.{minor}.*'. If your cluster has another version of Spark, put that version there, in both places"
    )


def _feature_release(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)
