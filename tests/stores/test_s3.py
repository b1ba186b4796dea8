"""Offsets in objects: the contract over S3's protocol, which moto speaks. That S3 lets one writer win is S3's promise."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_kafka_offsets import KafkaGroup
from airflow_kafka_offsets.adapters.stores.files import FilesStore
from airflow_kafka_offsets.adapters.stores.s3 import S3Folders
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    StoreDriftError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
)
from airflow_kafka_offsets.core.store.offset_file import file_name
from airflow_kafka_offsets.core.store_address import parse_store_address
from airflow_kafka_offsets.ports import OffsetStore
from airflow_kafka_offsets.wiring.stores.opening import open_store as open_at
from tests.lab.proxy import Proxy
from tests.lab.s3 import S3
from tests.stores.contract import StoreContract, at

BUCKET = "offsets"
NAME = f"s3://aws_default/{BUCKET}/prod"
GROUP = "lake.orders"


@pytest.fixture(scope="module")
def bucket(s3: S3) -> str:
    return s3.create_bucket(BUCKET)


@pytest.fixture
def empty(s3: S3) -> str:
    """Return a bucket of the test's own."""
    return s3.create_bucket(f"offsets-{uuid.uuid4().hex[:8]}")


def store_at(client: Any, bucket: str) -> FilesStore:
    return FilesStore(NAME, S3Folders(lambda: client, bucket, "prod"))


class TestS3(StoreContract):
    """All of it."""

    names_windows = True

    @pytest.fixture
    def store(self, open_store: Callable[[], OffsetStore]) -> OffsetStore:
        return open_store()

    @pytest.fixture
    def open_store(self, s3: S3, bucket: str) -> Callable[[], OffsetStore]:
        return lambda: store_at(s3.client(), bucket)

    @pytest.fixture
    def proxied(self, s3: S3, bucket: str) -> Iterator[tuple[OffsetStore, Proxy]]:
        with Proxy(s3.port) as proxy:
            yield store_at(s3.client(f"http://127.0.0.1:{proxy.port}", timeout=15), bucket), proxy


def test_foreign_code_reads_the_highest_object(s3: S3, empty: str) -> None:
    store = store_at(s3.client(), empty)
    store.advance(GROUP, {}, at("orders", 5, 10), "lake.orders-000001")
    store.advance(GROUP, at("orders", 5, 10), at("orders", 7, 12), "lake.orders-000002")
    objects = s3.client().list_objects_v2(Bucket=empty, Prefix=f"prod/{GROUP}/0")["Contents"]
    newest = max(entry["Key"] for entry in objects)
    assert newest == f"prod/{GROUP}/00000000000000000002.json"
    answer = s3.client().get_object(Bucket=empty, Key=newest)
    document = json.load(answer["Body"])
    assert answer["ContentType"] == "application/json"
    assert document["next_offsets"] == {"orders": {"0": 7, "1": 12}}
    assert document["window_id"] == "lake.orders-000002"


def test_a_thousand_old_versions_are_paged_through_and_deleted_little_by_little(s3: S3, empty: str) -> None:
    client = s3.client()

    def put(version: int) -> None:
        client.put_object(Bucket=empty, Key=f"prod/{GROUP}/{file_name(version)}", Body=b"{}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(1, 1_005)))
    newest = json.dumps({"group": GROUP, "next_offsets": {"orders": {"0": 5}}})
    client.put_object(Bucket=empty, Key=f"prod/{GROUP}/{file_name(1_005)}", Body=newest.encode())
    store = store_at(client, empty)
    store.advance(GROUP, at("orders", 5), at("orders", 6))
    assert store.read(GROUP, ["orders"]) == at("orders", 6)
    names = S3Folders(lambda: client, empty, "prod").names(GROUP)
    assert (names[0], names[-2]) == (file_name(21), file_name(1_006))


def test_a_bucket_that_is_missing_is_refused(s3: S3, bucket: str) -> None:
    store = store_at(s3.client(), "no-such-bucket")
    with pytest.raises(StoreRefusedError, match=r"Can't list s3://no-such-bucket/prod/lake\.orders/: NoSuchBucket"):
        store.read(GROUP, ["orders"])
    with pytest.raises(StoreRefusedError):
        store.advance(GROUP, {}, at("orders", 5))


def test_who_may_only_read_reads(s3: S3, empty: str) -> None:
    store_at(s3.client(), empty).advance(GROUP, {}, at("orders", 5))
    with s3.checking_rights("s3:Get*", "s3:List*") as client:
        store = store_at(client, empty)
        assert store.read(GROUP, ["orders"]) == at("orders", 5)
        with pytest.raises(StoreRefusedError, match="AccessDenied"):
            store.advance(GROUP, at("orders", 5), at("orders", 6))
    assert store_at(s3.client(), empty).read(GROUP, ["orders"]) == at("orders", 5)


def test_who_may_not_delete_advances_all_the_same(s3: S3, empty: str) -> None:
    with s3.checking_rights("s3:Get*", "s3:List*", "s3:PutObject") as client:
        store = FilesStore(NAME, S3Folders(lambda: client, empty, "prod"), keep=10)
        for offset in range(12):
            store.advance(GROUP, at("orders", offset) if offset else {}, at("orders", offset + 1))
        assert store.read(GROUP, ["orders"]) == at("orders", 12)
        assert S3Folders(lambda: client, empty, "prod").names(GROUP)[0] == file_name(1)


def test_wrong_keys_are_refused(s3: S3, empty: str) -> None:
    with s3.checking_rights("s3:*"):
        store = store_at(s3.client_of(aws_access_key_id="AKIAWRONG", aws_secret_access_key="geheim"), empty)
        with pytest.raises(StoreRefusedError, match="InvalidAccessKeyId") as caught:
            store.read(GROUP, ["orders"])
    assert "geheim" not in str(caught.value)


def test_without_keys_nothing_is_asked(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    client = boto3.session.Session(region_name="us-east-1").client("s3", endpoint_url=s3.url)
    with pytest.raises(StoreRefusedError, match="Unable to locate credentials"):
        store_at(client, BUCKET).read(GROUP, ["orders"])


def test_what_is_no_offset_is_named(s3: S3, empty: str) -> None:
    from airflow_kafka_offsets.core.errors import StoreContentError

    store = store_at(s3.client(), empty)
    store.advance(GROUP, {}, at("orders", 5))
    s3.client().put_object(Bucket=empty, Key=f"prod/{GROUP}/{file_name(2)}", Body=b"<html>")
    with pytest.raises(StoreContentError, match=rf"s3://{empty}/prod/lake\.orders/0{{19}}2\.json"):
        store.read(GROUP, ["orders"])


# What only other services do, with the real client and server, and a client that is not let alone.


def test_a_service_that_ignores_if_none_match_is_refused(s3: S3, empty: str) -> None:
    def drop(request: Any, **_: Any) -> None:
        del request.headers["If-None-Match"]

    client = s3.client()
    client.meta.events.register("before-sign.s3.PutObject", drop)
    store = store_at(client, empty)
    for _ in range(2):
        with pytest.raises(StoreRefusedError, match="ignores 'If-None-Match"):
            store.advance(GROUP, {}, at("orders", 5))
    assert store.read(GROUP, ["orders"]) == {}


def test_a_writer_whose_object_was_overwritten_did_not_win(s3: S3, empty: str) -> None:
    other = json.dumps({"group": GROUP, "next_offsets": {"orders": {"0": 99}}}).encode()

    def overwrite(**_: Any) -> None:
        s3.client().put_object(Bucket=empty, Key=f"prod/{GROUP}/{file_name(2)}", Body=other)

    client = s3.client()
    store = store_at(client, empty)
    store.advance(GROUP, {}, at("orders", 5))
    client.meta.events.register("after-call.s3.PutObject", overwrite)
    with pytest.raises(StoreDriftError, match="orders-0: found 99, expected"):
        store.advance(GROUP, at("orders", 5), at("orders", 6))


@pytest.mark.parametrize(("status", "code"), [(409, "ConditionalRequestConflict"), (412, "PreconditionFailed")])
def test_a_conflict_is_another_look(s3: S3, empty: str, status: int, code: str) -> None:
    client, conflicts = s3.client(), []
    store = store_at(client, empty)
    store.advance(GROUP, {}, at("orders", 5))

    def conflict(request: Any, **_: Any) -> Any:
        if not conflicts:
            conflicts.append(request)
            return _answer(request.url, status, code)
        return None

    client.meta.events.register("before-send.s3.PutObject", conflict)
    store.advance(GROUP, at("orders", 5), at("orders", 6))
    assert (len(conflicts), store.read(GROUP, ["orders"])) == (1, at("orders", 6))


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [(500, "InternalError", StoreOutcomeUnknownError), (403, "RequestTimeTooSkewed", StoreRefusedError)],
)
def test_an_answer_to_a_write_says_what_is_known(
    s3: S3, empty: str, status: int, code: str, error: type[Exception]
) -> None:
    client = s3.client()
    store = store_at(client, empty)
    store.advance(GROUP, {}, at("orders", 5))
    client.meta.events.register("before-send.s3.PutObject", lambda request, **_: _answer(request.url, status, code))
    with pytest.raises(error, match=code):
        store.advance(GROUP, at("orders", 5), at("orders", 6))


def _answer(url: str, status: int, code: str) -> Any:
    from io import BytesIO

    from botocore.awsrequest import AWSResponse

    class Raw(BytesIO):
        def stream(self) -> Iterator[bytes]:
            yield self.read()

    return AWSResponse(url, status, {}, Raw(f"<Error><Code>{code}</Code></Error>".encode()))


# From a connection of Airflow's


def test_a_connection_of_airflow_leads_to_the_bucket(s3: S3, empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"endpoint_url": s3.url, "region_name": "us-east-1", "config_kwargs": {"s3": {"addressing_style": "path"}}}
    connection = {"conn_type": "aws", "login": "test", "password": "test-secret", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    group = KafkaGroup(GROUP, topics=["orders"])
    store = open_at(parse_store_address(f"s3://lake/{empty}/deep/er?keep=20&timeout=60"), group)
    store.advance(GROUP, {}, at("orders", 5))
    assert store.read(GROUP, ["orders"]) == at("orders", 5)
    assert s3.client().head_object(Bucket=empty, Key=f"deep/er/{GROUP}/{file_name(1)}")


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        ({"conn_type": "generic"}, "type 'generic', not 'aws'"),
        (
            {"conn_type": "aws", "extra": {"role_arn": "arn:aws:iam::1:role/x"}},
            "role_arn.*\n    pip install apache-airflow-providers-amazon",
        ),
    ],
)
def test_a_connection_that_does_not_do_is_told_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], message: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    with pytest.raises(BadInputError, match=message):
        open_at(parse_store_address("s3://lake/offsets"), KafkaGroup(GROUP, topics=["orders"]))
