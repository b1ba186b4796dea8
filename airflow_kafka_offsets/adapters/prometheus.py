"""Gives metrics to Prometheus in its text format: as text, as a file, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest, start_http_server, write_to_textfile
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from airflow_kafka_offsets.core.errors import BadInputError, cut
from airflow_kafka_offsets.core.state_metrics import Family, Samples


class _Families(Collector):
    def __init__(self, families: Callable[[], Sequence[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families():
            gauge = GaugeMetricFamily(family.name, family.help, labels=family.labels)
            for labels, value in family.values.items():
                gauge.add_metric(labels, value)
            yield gauge


def _registry(families: Callable[[], Sequence[Family]]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return registry


def exposition(families: Sequence[Family]) -> str:
    """Return metrics in Prometheus' text format."""
    return generate_latest(_registry(lambda: families)).decode()


def write(families: Sequence[Family], file: Path) -> None:
    """Write metrics into a file at once: whoever reads it sees the old content or the new one.

    Raises:
        BadInputError: the file can't be written.
    """
    try:
        write_to_textfile(str(file), _registry(lambda: families))
    except OSError as exc:
        raise BadInputError(f"Can't write {cut(str(file))}: {exc.strerror}") from exc


def read(file: Path) -> Samples:
    """Return the metrics of a file that `write` wrote; empty if there is no such file."""
    samples: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    try:
        for family in text_string_to_metric_families(file.read_text() if file.is_file() else ""):
            samples[family.name] = [(sample.labels, sample.value) for sample in family.samples]
    except (OSError, ValueError):
        return {}
    return samples


@contextmanager
def serving(host: str, port: int, families: Callable[[], Sequence[Family]]) -> Iterator[int]:
    """Serve metrics over HTTP, and give the port, until the block ends.

    Args:
        host: the address to listen on.
        port: the port; 0: a free one.
        families: returns the metrics; called for each request, in a thread of its own.

    Raises:
        BadInputError: it can't listen there.
    """
    try:
        server, thread = start_http_server(port, host, _registry(families))
    except (OSError, UnicodeError) as exc:
        raise BadInputError(f"Can't listen on {cut(host)}:{port}: {getattr(exc, 'strerror', None) or exc}") from exc
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
