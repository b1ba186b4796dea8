"""Gives metrics to Prometheus. If its client library is missing, the error names the extra to install."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.state_metrics import Family, Told


@contextmanager
def _naming_the_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise BadInputError(
            "This command needs the Python module prometheus_client:\n    pip install 'airflow-kafka-offsets[metrics]'"
        ) from exc


def exposition(families: Sequence[Family]) -> str:
    """Return metrics in Prometheus' text format.

    Raises:
        BadInputError: the client library is not installed.
    """
    with _naming_the_extra():
        from airflow_kafka_offsets.adapters import prometheus
    return prometheus.exposition(families)


def write(families: Sequence[Family], file: Path) -> None:
    """Write metrics into a file at once: whoever reads it sees the old content or the new one.

    Raises:
        BadInputError: the file can't be written, or the client library is not installed.
    """
    with _naming_the_extra():
        from airflow_kafka_offsets.adapters import prometheus
    prometheus.write(families, file)


def read(file: Path) -> Told:
    """Return the metrics of a file that `write` wrote; nothing: there is none, or it holds something else.

    Raises:
        BadInputError: the client library is not installed.
    """
    with _naming_the_extra():
        from airflow_kafka_offsets.adapters import prometheus
    return prometheus.read(file)


@contextmanager
def serving(host: str, port: int, families: Callable[[], Sequence[Family]]) -> Iterator[int]:
    """Serve metrics over HTTP, and give the port, until the block ends.

    Args:
        host: the address to listen on.
        port: the port; 0: a free one.
        families: returns the metrics; called for each request, in a thread of its own.

    Raises:
        BadInputError: it can't listen there, or the client library is not installed.
    """
    with _naming_the_extra():
        from airflow_kafka_offsets.adapters import prometheus
    with prometheus.serving(host, port, families) as chosen:
        yield chosen
