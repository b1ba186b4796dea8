"""A bucket of S3, or of a service with S3's conditional writes, for `files.FilesStore`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from botocore import exceptions
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from airflow_kafka_offsets.core.errors import (
    StoreAnswerError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_kafka_offsets.core.store.guarantees import Compares, Guarantees

_PROBE = "if-none-match.txt"
_PROBE_TEXT = b"Writers of offsets put this object again with 'If-None-Match: *' to see that the service says no.\n"

# S3 answers 412 to the second writer, and 409 while another conditional write of the same key is under way: read again.
_OVERTAKEN = frozenset({409, 412})
_BUSY = frozenset({408, 429})


class S3Folders:
    """Objects under a prefix of a bucket.

    Args:
        make_client: returns a boto3 client of S3 with time-outs and without retries. It is called at the first use.
        bucket: the bucket, which must exist.
        prefix: the path before the group, without slashes at its ends; may be empty.
    """

    guarantees = Guarantees(is_atomic=True, compares=Compares.ANY_WRITER)

    def __init__(self, make_client: Callable[[], Any], bucket: str, prefix: str = "") -> None:
        self._make_client = make_client
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._compares = False

    def where(self, group: str, name: str) -> str:
        """See `files.Folders.where`."""
        return f"s3://{self._bucket}/{self._key(group, name)}"

    def names(self, group: str, after: str = "") -> list[str]:
        """See `files.Folders.names`."""
        folder = self._key(group, "")
        with _translated(f"Can't list {self.where(group, '')}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=folder, Delimiter="/", StartAfter=self._key(group, after)
            )
            return [item["Key"][len(folder) :] for page in pages for item in page.get("Contents", [])]

    def get(self, group: str, name: str) -> bytes | None:
        """See `files.Folders.get`."""
        with _translated(f"Can't read {self.where(group, name)}"):
            try:
                content: bytes = self._client.get_object(Bucket=self._bucket, Key=self._key(group, name))["Body"].read()
            except ClientError as exc:
                if _code(exc) == "NoSuchKey":
                    return None
                raise
            return content

    def put_if_absent(self, group: str, name: str, content: bytes, temporary: str) -> bool:
        """See `files.Folders.put_if_absent`."""
        self._check_service(group)
        tag = self._put(group, name, content)
        return tag is not None and self._is_still(group, name, tag)

    def delete(self, group: str, name: str) -> None:
        """See `files.Folders.delete`."""
        with _translated(f"Can't delete {self.where(group, name)}"):
            self._client.delete_object(Bucket=self._bucket, Key=self._key(group, name))

    def _put(self, group: str, name: str, content: bytes) -> str | None:
        request = {"Bucket": self._bucket, "Key": self._key(group, name), "Body": content, "IfNoneMatch": "*"}
        kind = "text/plain" if name == _PROBE else "application/json"
        with _translated(f"Can't write {self.where(group, name)}", is_write=True):
            try:
                return str(self._client.put_object(**request, ContentType=kind).get("ETag", ""))
            except ClientError as exc:
                if _status(exc) in _OVERTAKEN:
                    return None
                raise

    def _check_service(self, group: str) -> None:
        """Refuse a service that ignores If-None-Match, because it would let every writer win. Each opened store checks once."""
        if self._compares:
            return
        try:
            is_ignored = all(self._put(group, _PROBE, _PROBE_TEXT) is not None for _ in range(2))
        except StoreOutcomeUnknownError as exc:  # of the probe; no offset was written
            raise StoreUnavailableError(str(exc)) from exc
        if is_ignored:
            raise StoreRefusedError(
                f"s3://{self._bucket} ignores 'If-None-Match: *': use a service with conditional writes"
            )
        self._compares = True

    def _is_still(self, group: str, name: str, tag: str) -> bool:
        """Whether no other writer overwrote this version. On S3 itself, none can."""
        try:
            with _translated(f"{self.where(group, name)} was written, but not read back"):
                head: Mapping[str, Any] = self._client.head_object(Bucket=self._bucket, Key=self._key(group, name))
        except StoreError as exc:
            raise StoreOutcomeUnknownError(str(exc)) from exc
        return str(head.get("ETag", "")) == tag

    def _key(self, group: str, name: str) -> str:
        return f"{self._prefix}{group}/{name}"

    @cached_property
    def _client(self) -> Any:
        return self._make_client()


@contextlib.contextmanager
def _translated(what: str, *, is_write: bool = False) -> Iterator[None]:
    try:
        yield
    except ClientError as exc:
        message = f"{what}: {_code(exc)} ({_status(exc)})"
        raise _error_of(_status(exc), _code(exc), is_write=is_write)(message) from exc
    except exceptions.SSLError as exc:
        raise StoreRefusedError(f"{what}: {exc}") from exc
    except exceptions.ConnectionError as exc:  # there was no connection yet
        raise StoreUnavailableError(f"{what}: {exc}") from exc
    except (exceptions.HTTPClientError, exceptions.IncompleteReadError) as exc:
        raise (StoreOutcomeUnknownError if is_write else StoreUnavailableError)(f"{what}: {exc}") from exc
    except exceptions.BotoCoreError as exc:  # no credentials, no region: found before anything is sent
        raise StoreRefusedError(f"{what}: {exc}") from exc
    except ResponseParserError as exc:
        raise StoreRefusedError(f"{what}: not S3") from exc


def _error_of(status: int, code: str, *, is_write: bool) -> type[StoreAnswerError]:
    if status in _BUSY or code == "RequestTimeout":
        return StoreUnavailableError
    if 300 <= status < 500 or status == 501:
        return StoreRefusedError
    return StoreOutcomeUnknownError if is_write else StoreUnavailableError


def _status(exc: ClientError) -> int:
    return int(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _code(exc: ClientError) -> str:
    return str(exc.response.get("Error", {}).get("Code", ""))
