"""A checkpoint directory of Spark Structured Streaming, on a local disk or on any file system of fsspec."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from airflow_kafka_offsets.core.errors import BadInputError, StoreRefusedError, StoreUnavailableError
from airflow_kafka_offsets.core.source.checkpoint import find_batches, log_lines, planned_note, read_offsets
from airflow_kafka_offsets.core.source.offsets import SourceOffsets

_T = TypeVar("_T")


class CheckpointDirectory:
    """`ports.OffsetSource` on a query's checkpoint. It only reads, also while the query runs."""

    def __init__(self, directory: Any, name: str, source: str | None = None) -> None:
        """Name a checkpoint; nothing is read yet.

        Args:
            directory: a `pathlib.Path`, or an object like it (`upath.UPath`).
            name: the source as a person wrote it, for messages.
            source: the only source of the query to read; None means all that read Kafka.
        """
        self.name = name
        self._directory = directory
        self._source = source

    def read(self, topics: Sequence[str] = ()) -> SourceOffsets:
        """Return the next offsets after the newest committed batch, of all topics that the query reads."""
        # Commits first: a batch that is committed meanwhile then counts as planned, which is safe.
        commits, offsets = self._names("commits"), self._names("offsets")
        batches = find_batches(self.name, offsets, commits)
        newest = batches.committed
        log_lines(f"{self.name}: commits/{newest}", self._text("commits", newest))  # only to refuse what Spark refuses
        newest_offsets = read_offsets(f"{self.name}: offsets/{newest}", self._text("offsets", newest), self._source)
        return SourceOffsets(newest_offsets.offsets, (*planned_note(batches), *newest_offsets.notes))

    def _names(self, folder: str) -> list[str]:
        return self._read(lambda: _listed(self._directory / folder), folder)

    def _text(self, folder: str, batch: int) -> str:
        path = self._directory / folder / str(batch)
        try:
            return self._read(lambda: bytes(path.read_bytes()), f"{folder}/{batch}").decode()
        except UnicodeDecodeError as exc:
            raise BadInputError(f"{self.name}: {folder}/{batch} is not UTF-8") from exc

    def _read(self, read: Callable[[], _T], what: str) -> _T:
        try:
            return read()
        except (FileNotFoundError, NotADirectoryError) as exc:
            raise BadInputError(
                f"{self.name} has no {what}: name the checkpointLocation of a query with a committed batch"
            ) from exc
        except ImportError as exc:
            raise BadInputError(f"{self.name}: {exc}") from exc
        # Each scheme of fsspec has its own client with its own exceptions.
        except Exception as exc:
            error = StoreRefusedError if isinstance(exc, PermissionError) else StoreUnavailableError
            raise error(f"{self.name}: {what} can't be read ({type(exc).__name__}: {exc})") from exc


def _listed(folder: Any) -> list[str]:
    if (files := getattr(folder, "fs", None)) is None:
        return [path.name for path in folder.iterdir()]
    # Not iterdir: if a server does not answer, fsspec would report a missing directory.
    return [str(name).rstrip("/").rpartition("/")[2] for name in files.ls(folder.path, detail=False)]
