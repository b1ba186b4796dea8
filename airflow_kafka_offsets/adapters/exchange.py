"""The exchange: a few small files in a folder of any storage of fsspec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from airflow_kafka_offsets.core.errors import ExchangeError, error_in_short

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_T = TypeVar("_T")

_PART = "part-"
"""How the names of the files begin into which Spark writes rows."""

_MARK = "_$folder$"
"""How the name of the empty file ends that Hadoop's file systems for S3, such as EMR's, leave beside a folder."""


class FolderExchange:
    """A folder.

    Args:
        storage: the file system.
        address: of the folder, with its scheme.
    """

    def __init__(self, storage: AbstractFileSystem, address: str) -> None:
        self._storage = storage
        self._address = address.rstrip("/")

    def put(self, name: str, text: str) -> None:
        """Write a file into the folder, which need not exist."""

        def write() -> None:
            if "file" in self._storage.protocol:  # only here a folder has to be made; on S3, this could make a bucket
                self._storage.makedirs(self._address, exist_ok=True)
            self._storage.pipe_file(f"{self._address}/{name}", text.encode())

        self._translated("write", write)

    def reports(self, folder: str) -> Mapping[str, bytes]:
        """Return the reports of jobs below a folder of this one."""

        def read() -> dict[str, bytes]:
            self._storage.invalidate_cache()  # a second look must not see what the first one saw
            contents: dict[str, bytes] = {}
            for path in sorted(map(str, self._storage.find(f"{self._address}/{folder}"))):
                report, _, file = path.rpartition(f"/{folder}/")[2].partition("/")
                report = report.removesuffix(_MARK)
                if not report:  # Hadoop's S3A keeps an empty object, `.../reports/`, for the folder of all reports
                    continue
                # A report without a file of rows is one that its job did not finish. Deeper files are those of a write that is under way.
                contents.setdefault(report, b"")
                if file.startswith(_PART):
                    contents[report] += self._storage.cat_file(path)
            return contents

        return self._translated("read", read)

    def _translated(self, verb: str, step: Callable[[], _T]) -> _T:
        try:
            return step()
        except Exception as exc:  # each kind of storage has its own errors
            raise ExchangeError(
                f"Airflow can't {verb} the exchange {self._address} ({error_in_short(exc)}). See docs/reference/errors.md#exchangeerror"
            ) from exc
