"""Offsets in files on HDFS: the contract, and HDFS' own rules."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from airflow_kafka_offsets import KafkaGroup
from airflow_kafka_offsets.adapters.stores.files import FilesStore
from airflow_kafka_offsets.adapters.stores.hdfs import HdfsFolders, HdfsLogin, open_client
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    StoreContentError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_kafka_offsets.core.store.offset_file import file_name, version_of
from airflow_kafka_offsets.core.store_address import parse_store_address
from airflow_kafka_offsets.ports import OffsetStore
from airflow_kafka_offsets.wiring.storage import open_exchange
from airflow_kafka_offsets.wiring.stores.opening import open_store as open_at
from tests.lab.hdfs import Hdfs
from tests.lab.processes import LOOPBACK, wait_until
from tests.lab.proxy import Proxy
from tests.lab.waiting import ANSWER
from tests.stores.across import Across, Place
from tests.stores.contract import StoreContract, at

BASE = "/apps/offsets"
NAME = f"hdfs://webhdfs_default{BASE}"


def store_at(client: Any, base: str = BASE) -> FilesStore:
    return FilesStore(NAME, HdfsFolders(client, base))


@pytest.fixture
def group() -> str:
    return f"lake.orders-{uuid.uuid4().hex[:8]}"


class TestHdfs(StoreContract):
    """All of it."""

    names_windows = True

    @pytest.fixture
    def store(self, open_store: Callable[[], OffsetStore]) -> OffsetStore:
        return open_store()

    @pytest.fixture
    def open_store(self, hdfs: Hdfs) -> Callable[[], OffsetStore]:
        return lambda: store_at(hdfs.client())

    @pytest.fixture
    def proxied(self, hdfs: Hdfs) -> Iterator[tuple[OffsetStore, Proxy]]:
        with Proxy(hdfs.port) as proxy:
            yield store_at(hdfs.client(url=f"http://{LOOPBACK}:{proxy.port}", timeout=15)), proxy


def test_foreign_code_reads_the_highest_file(hdfs: Hdfs, group: str) -> None:
    store = store_at(hdfs.client())
    store.advance(group, {}, at("orders", 5, 10))
    store.advance(group, at("orders", 5, 10), at("orders", 7, 12), "lake.orders-000002")
    folder, who = f"{hdfs.url}/webhdfs/v1{BASE}/{group}", {"user.name": "someone"}
    listed = requests.get(folder, params={"op": "LISTSTATUS", **who}, timeout=ANSWER).json()
    names = sorted(entry["pathSuffix"] for entry in listed["FileStatuses"]["FileStatus"])
    assert names == ["00000000000000000001.json", "00000000000000000002.json"]
    document = requests.get(f"{folder}/{names[-1]}", params={"op": "OPEN", **who}, timeout=ANSWER).json()
    assert document["next_offsets"] == {"orders": {"0": 7, "1": 12}}


def test_a_writer_that_is_overtaken_leaves_no_temporary_file(hdfs: Hdfs, group: str) -> None:
    store_at(hdfs.client()).advance(group, {}, at("orders", 5))
    place = HdfsFolders(hdfs.client(), BASE)
    assert not place.put_if_absent(group, file_name(1), b"other", ".tmp-1")
    assert place.names(group) == [file_name(1)]
    assert place.get(group, file_name(1)) != b"other"


# No


def test_who_may_only_read_reads(hdfs: Hdfs, group: str) -> None:
    store_at(hdfs.client()).advance(group, {}, at("orders", 5))
    store = store_at(hdfs.client(user="alice"))
    assert store.read(group, ["orders"]) == at("orders", 5)
    with pytest.raises(StoreRefusedError, match="AccessControlException: Permission denied: user=alice, access=WRITE"):
        store.advance(group, at("orders", 5), at("orders", 6))
    assert HdfsFolders(hdfs.client(), BASE).names(group) == [file_name(1)]


def test_who_may_not_even_read_is_refused(hdfs: Hdfs, group: str) -> None:
    store_at(hdfs.client()).advance(group, {}, at("orders", 5))
    hdfs.put("SETPERMISSION", f"{BASE}/{group}", permission="700")
    with pytest.raises(StoreRefusedError, match="Permission denied: user=alice"):
        store_at(hdfs.client(user="alice")).read(group, ["orders"])


@pytest.mark.parametrize(
    ("quota", "error"),
    [
        ({"namespacequota": 3, "storagespacequota": -1}, "NSQuotaExceeded"),
        ({"namespacequota": 100, "storagespacequota": 1_000}, "DSQuotaExceeded"),
    ],
)
def test_a_quota_that_is_used_up_is_refused_and_leaves_nothing(
    hdfs: Hdfs, group: str, quota: dict[str, int], error: str
) -> None:
    base = f"/quota/{error}"
    store = store_at(hdfs.client(), base)
    store.advance(group, {}, at("orders", 5))
    hdfs.put("SETQUOTA", base, **quota)
    with pytest.raises(StoreRefusedError, match=error):
        store.advance(group, at("orders", 5), at("orders", 6))
    assert store.read(group, ["orders"]) == at("orders", 5)
    assert HdfsFolders(hdfs.client(), base).names(group) == [file_name(1)]


def test_safe_mode_is_refused(hdfs: Hdfs, group: str) -> None:
    store = store_at(hdfs.client())
    store.advance(group, {}, at("orders", 5))
    hdfs.set_safe_mode(is_on=True)
    try:
        assert store.read(group, ["orders"]) == at("orders", 5)
        with pytest.raises(StoreRefusedError, match="safe mode"):
            store.advance(group, at("orders", 5), at("orders", 6))
    finally:
        hdfs.set_safe_mode(is_on=False)
    assert store.read(group, ["orders"]) == at("orders", 5)


def test_what_is_no_offset_is_named(hdfs: Hdfs, group: str) -> None:
    store, client = store_at(hdfs.client()), hdfs.client()
    client.write(f"{BASE}/{group}/{file_name(1)}", b"")
    with pytest.raises(StoreContentError, match=f"hdfs:{BASE}/{group}/{file_name(1)} does not hold"):
        store.read(group, ["orders"])
    client.makedirs(f"{BASE}/{group}/{file_name(2)}")
    with pytest.raises(StoreContentError, match=f"{file_name(2)} is a folder"):
        store.advance(group, {}, at("orders", 5))


def test_a_file_in_place_of_a_folder_is_refused(hdfs: Hdfs, group: str) -> None:
    hdfs.client().write(f"{BASE}/{group}", b"")
    with pytest.raises(StoreRefusedError, match="is not a directory"):
        store_at(hdfs.client()).read(group, ["orders"])


def test_what_is_not_webhdfs_is_told(hdfs: Hdfs, group: str) -> None:
    with pytest.raises(StoreUnavailableError, match="HTTP request to a Hadoop IPC port"):
        store_at(hdfs.client(url=f"http://{LOOPBACK}:{hdfs.rpc_port}")).read(group, ["orders"])


class FoldersThatLoseOne(HdfsFolders):
    """Someone removes the folder between the upload and the rename: HDFS answers as to a name that is taken."""

    def _upload(self, group: str, temporary: str, content: bytes) -> None:
        super()._upload(group, temporary, content)
        self._client.delete(self._path(group, ""), recursive=True)


def test_a_folder_that_is_removed_meanwhile_is_not_taken_for_an_overtaking_writer(hdfs: Hdfs, group: str) -> None:
    store = FilesStore(NAME, FoldersThatLoseOne(hdfs.client(), BASE))
    with pytest.raises(StoreUnavailableError, match="another tool removed the temporary file"):
        store.advance(group, {}, at("orders", 5))


# Nodes that die


def test_of_several_name_nodes_the_one_that_answers_is_asked(hdfs: Hdfs, group: str) -> None:
    with Proxy(hdfs.port) as proxy:
        proxy.stop()
        urls = [f"http://{LOOPBACK}:{proxy.port}", hdfs.url]
        store = store_at(open_client(urls, 5, HdfsLogin(user=hdfs.user)))
        store.advance(group, {}, at("orders", 5))
        assert store.read(group, ["orders"]) == at("orders", 5)


def test_a_data_node_that_hangs_is_an_error_in_bounded_time(hdfs: Hdfs, group: str) -> None:
    store, hasty = store_at(hdfs.client()), store_at(hdfs.client(timeout=1))
    store.advance(group, {}, at("orders", 5))
    hdfs.data_node.suspend()
    try:
        with pytest.raises(StoreUnavailableError, match="no answer in time"):
            hasty.read(group, ["orders"])
        with pytest.raises(StoreUnavailableError):
            hasty.advance(f"{group}-new", {}, at("orders", 6))
    finally:
        hdfs.data_node.resume()
    wait_until(hdfs.takes_files, what="the data node takes files again")
    assert store.read(f"{group}-new", ["orders"]) == {}
    store.advance(group, at("orders", 5), at("orders", 6))
    assert store.read(group, ["orders"]) == at("orders", 6)


class FoldersWhoseServerDies(HdfsFolders):
    """The servers are killed when all is ready for the rename."""

    def __init__(self, hdfs: Hdfs) -> None:
        super().__init__(hdfs.client(), BASE)
        self._hdfs = hdfs

    def _rename(self, group: str, temporary: str, name: str) -> bool:
        self._hdfs.kill()
        return super()._rename(group, temporary, name)


def test_servers_that_die_between_upload_and_rename_come_back_with_the_old_version(hdfs: Hdfs, group: str) -> None:
    store = store_at(hdfs.client())
    store.advance(group, {}, at("orders", 5))
    with pytest.raises(StoreOutcomeUnknownError):
        FilesStore(NAME, FoldersWhoseServerDies(hdfs)).advance(group, at("orders", 5), at("orders", 6))
    with pytest.raises(StoreUnavailableError):
        store.read(group, ["orders"])
    hdfs.name_node.start()
    assert hdfs.is_in_safe_mode(), "it does not know yet where its files are"
    # No refusal, though a name node that a person put into safe mode answers nearly the same: one that starts leaves it by itself.
    with pytest.raises(StoreUnavailableError, match="safe mode"):
        HdfsFolders(hdfs.client(), BASE).delete(group, file_name(1))
    with pytest.raises(StoreUnavailableError, match="Failed to find datanode"):
        store.advance(f"{group}-new", {}, at("orders", 6))
    hdfs.data_node.start()
    assert store.read(group, ["orders"]) == at("orders", 5)
    names = HdfsFolders(hdfs.client(), BASE).names(group)
    assert [version_of(name) for name in names] == [None, 1], "what was uploaded is there, and not in the way"
    store.advance(group, at("orders", 5), at("orders", 6))
    assert store.read(group, ["orders"]) == at("orders", 6)


# From a connection of Airflow's


def test_a_connection_of_airflow_leads_to_the_folder(hdfs: Hdfs, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "webhdfs", "host": LOOPBACK, "port": hdfs.port, "login": hdfs.user}
    monkeypatch.setenv("AIRFLOW_CONN_HADOOP", json.dumps(connection))
    address = parse_store_address(f"hdfs://hadoop{BASE}/deep?timeout=60")
    open_at(address, KafkaGroup(group, topics=["orders"])).advance(group, {}, at("orders", 5))
    assert hdfs.client().status(f"{BASE}/deep/{group}/{file_name(1)}")["owner"] == hdfs.user


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        ({"conn_type": "hdfs", "host": "x"}, "type 'hdfs', not 'webhdfs'"),
        ({"conn_type": "webhdfs"}, "names no host of the name nodes of HDFS"),
    ],
)
def test_a_connection_that_does_not_do_is_told_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], message: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_HADOOP", json.dumps(connection))
    with pytest.raises(BadInputError, match=message):
        open_at(parse_store_address("hdfs://hadoop/apps"), KafkaGroup("orders", topics=["orders"]))


def test_the_exchange_of_a_job_lies_there_too_without_hadoop_on_the_worker(hdfs: Hdfs) -> None:
    hdfs.client().makedirs("/exchange", permission="777")  # the worker has no name there
    exchange = open_exchange(f"webhdfs://{LOOPBACK}:{hdfs.port}/exchange/lake-000012/5ad0")
    exchange.put("window.json", '{"é": 1}')
    with hdfs.client().read("/exchange/lake-000012/5ad0/window.json") as file:
        assert file.read().decode() == '{"é": 1}'
    assert exchange.reports("reports") == {}
    exchange.put("reports/1-a/part-00000.txt", '{"a": 1}')
    exchange.put("reports/1-a/_SUCCESS", "")
    assert exchange.reports("reports") == {"1-a": b'{"a": 1}'}


class TestAcross(Across):
    """From the ledger into HDFS, and back."""

    @pytest.fixture
    def place(self, hdfs: Hdfs) -> Place:
        fields = {"conn_type": "webhdfs", "host": LOOPBACK, "port": hdfs.port, "login": hdfs.user}
        return "hdfs://lab/across", fields
