"""Offsets in objects: the contract over S3's protocol, which moto speaks. That S3 lets one writer win is S3's promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from airflow_kafka_offsets.adapters.stores.files import FilesStore
from airflow_kafka_offsets.adapters.stores.s3 import S3Place
from airflow_kafka_offsets.ports import OffsetStore
from tests.lab.proxy import Proxy
from tests.lab.s3 import S3
from tests.stores.contract import StoreContract

BUCKET = "offsets"


@pytest.fixture(scope="session")
def bucket(s3: S3) -> str:
    return s3.create_bucket(BUCKET)


class TestS3(StoreContract):
    """All of it."""

    @pytest.fixture
    def store(self, open_store: Callable[[], OffsetStore]) -> OffsetStore:
        return open_store()

    @pytest.fixture
    def open_store(self, s3: S3, bucket: str) -> Callable[[], OffsetStore]:
        return lambda: FilesStore("s3://aws_default/offsets/prod", S3Place(s3.client, bucket, "prod"))

    @pytest.fixture
    def proxied(self, s3: S3, bucket: str) -> Iterator[tuple[OffsetStore, Proxy]]:
        with Proxy(s3.port) as proxy:
            client = s3.client(f"http://127.0.0.1:{proxy.port}", timeout=2)
            yield FilesStore("s3://aws_default/offsets/prod", S3Place(lambda: client, bucket, "prod")), proxy
