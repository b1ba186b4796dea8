"""Offsets in files: one immutable file for each advance, in one layout for a local disk, S3 and HDFS.

`core.store.offset_file` has the layout. The modules `local`, `s3` and `hdfs` are the places.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from airflow_kafka_offsets.adapters.stores.swapping import READS, overtaken, swap
from airflow_kafka_offsets.core.errors import OUTCOME_OPEN, StoreAnswerError, StoreError, StoreOutcomeUnknownError
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.store.guarantees import Guarantees
from airflow_kafka_offsets.core.store.offset_file import (
    OffsetFile,
    came_too_late,
    dump_offset_file,
    file_name,
    load_offset_file,
    newest_version,
    superfluous,
    temporary_name,
)

logger = logging.getLogger(__name__)
utc_now = partial(datetime.now, UTC)


class Folders(Protocol):
    """Where the files are: a folder for each group. It raises the errors of `ports.OffsetStore`.

    Attributes:
        guarantees: what the place promises.
    """

    guarantees: Guarantees

    def where(self, group: str, name: str) -> str:
        """Return the location of a file, for messages."""
        ...

    def names(self, group: str, after: str = "") -> list[str]:
        """Return the names in a group's folder, at least all that sort after `after`. A missing folder has none."""
        ...

    def get(self, group: str, name: str) -> bytes | None:
        """Return what a file holds; None if there is no such file."""
        ...

    def put_if_absent(self, group: str, name: str, content: bytes, temporary: str) -> bool:
        """Add a file, complete and durable, or not at all. Return False if the name is taken.

        Args:
            group: the group, whose folder is made if it is missing.
            name: the file.
            content: its content.
            temporary: a name for a temporary file, which no other writer uses.
        """
        ...

    def delete(self, group: str, name: str) -> None:
        """Delete a file, if it exists."""
        ...


class FilesStore:
    """An offset store of files.

    Args:
        name: its address.
        folders: where the files are.
        keep: how many versions of a group are kept.
        clock: returns the current time.
    """

    def __init__(
        self,
        name: str,
        folders: Folders,
        *,
        keep: int = 100,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.name = name
        self.guarantees = folders.guarantees
        self._folders = folders
        self._keep = keep
        self._clock = clock

    def read(self, group: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """See `OffsetStore.read`."""
        wanted = set(topics)
        newest, _ = self._newest(group)
        return {tp: offset for tp, offset in newest.offsets.items() if tp.topic in wanted}

    def window_ids(self, group: str, topics: Sequence[str]) -> Collection[str]:
        """Return the window in the current file."""
        return (self._newest(group)[0].window_id,)

    def check_writable(self, group: str) -> None:
        """Do nothing: only a write shows whether it is refused."""

    def advance(self, group: str, before: Offsets, after: Offsets, window_id: str = "") -> None:
        """See `OffsetStore.advance`."""

        def read() -> tuple[Offsets, tuple[OffsetFile, list[str]]]:
            newest, names = self._newest(group)
            return newest.offsets, (newest, names)

        def write(version: tuple[OffsetFile, list[str]]) -> bool:
            newest, names = version
            offsets, token = {**newest.offsets, **after}, uuid.uuid4().hex
            file = OffsetFile(group, newest.version + 1, offsets, window_id, self._clock(), token)
            if not self._add(file):
                return False
            self._tidy(file, names)
            return True

        swap(self.name, group, before, after, read, write)

    def _newest(self, group: str) -> tuple[OffsetFile, list[str]]:
        for _ in range(READS):
            names = self._folders.names(group)
            version = newest_version(names)
            if not version:
                return OffsetFile(group), names
            name = file_name(version)
            content = self._folders.get(group, name)
            # Without it, others have written so many versions since the listing that it was deleted.
            if content is not None:
                offsets, window_id = load_offset_file(content, group, self._folders.where(group, name))
                return OffsetFile(group, version, offsets, window_id), names
        raise overtaken(self.name, group)

    def _add(self, file: OffsetFile) -> bool:
        name = file_name(file.version)
        temporary = temporary_name(self._clock(), file.token)
        try:
            if not self._folders.put_if_absent(file.group, name, dump_offset_file(file), temporary):
                return False
        except StoreOutcomeUnknownError as exc:
            raise StoreOutcomeUnknownError(f"{exc}{OUTCOME_OPEN}") from exc
        try:
            newer = self._folders.names(file.group, after=name)
        except StoreAnswerError as exc:
            raise StoreOutcomeUnknownError(
                f"{self._folders.where(file.group, name)} is written. {exc}{OUTCOME_OPEN}"
            ) from exc
        return not came_too_late(file.version, newer)

    def _tidy(self, file: OffsetFile, names: Sequence[str]) -> None:
        try:
            for name in superfluous(names, file.version, self._keep, self._clock()):
                self._folders.delete(file.group, name)
        except StoreError as exc:
            # Old files cost little space, and the next advance tries again.
            logger.info("Group %s: %s keeps old files: %s", file.group, self.name, exc)
