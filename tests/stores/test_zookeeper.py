"""The offset store in ZooKeeper, in both of its layouts, against a real server."""

from __future__ import annotations

import itertools
import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import pytest
from kazoo.client import KazooClient

from airflow_kafka_offsets.adapters.stores.zookeeper import Access, JsonLayout, NodeLayout, ZooKeeperStore
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConcurrentChangeError,
    StoreContentError,
    StoreDriftError,
    StoreLimitError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.store_address import parse_store_address
from airflow_kafka_offsets.ports import OffsetStore
from airflow_kafka_offsets.wiring.stores.opening import open_store as open_address
from tests.lab.processes import LOOPBACK, wait_until
from tests.lab.proxy import Proxy
from tests.lab.waiting import LONGEST
from tests.lab.zookeeper import ZooKeeperServer
from tests.stores.contract import StoreContract, again_and_again, assert_offsets_outlive, at

NAME = "zookeeper://zookeeper_default"
LAYOUTS = [NodeLayout, JsonLayout]
ALICE, BOB = ("alice", "alice-pw"), ("bob", "bob-pw")


@pytest.fixture
def group() -> str:
    """Return the name of a group that no other test has."""
    return f"lake.{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(zookeeper: ZooKeeperServer) -> Iterator[Any]:
    """Return kazoo's own client."""
    client = zookeeper.client()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def store(zookeeper: ZooKeeperServer) -> ZooKeeperStore:
    """Return a store with a node for each partition."""
    return ZooKeeperStore(NAME, 60, zookeeper.hosts)


class TestNodes(StoreContract):
    """One node for each partition."""

    layout: ClassVar[type[NodeLayout | JsonLayout]] = NodeLayout
    # Many nodes are asked for at once, and how many pieces their answers come in is chance.
    lost_partitions = 2
    lost_answers = 4

    @pytest.fixture
    def open_store(self, zookeeper: ZooKeeperServer) -> Callable[[], OffsetStore]:
        return lambda: ZooKeeperStore(NAME, 60, zookeeper.hosts, layout=self.layout)

    @pytest.fixture
    def store(self, open_store: Callable[[], OffsetStore]) -> OffsetStore:
        return open_store()

    @pytest.fixture
    def proxied(self, zookeeper: ZooKeeperServer) -> Iterator[tuple[OffsetStore, Proxy]]:
        with Proxy(zookeeper.port) as proxy:
            hosts = f"{LOOPBACK}:{proxy.port}"
            yield ZooKeeperStore(NAME, 5, hosts, layout=self.layout), proxy


class TestJson(TestNodes):
    """One node for the group; servers that do not answer are the same for both."""

    layout = JsonLayout
    test_a_server_that_refuses_connections = None
    test_a_server_that_hangs = None
    test_a_server_that_went_away_and_came_back = None


# What others write and read


def test_nodes_written_by_hand_are_read(client: Any, store: ZooKeeperStore, group: str) -> None:
    client.create(f"/consumers/{group}/offsets/orders/0", b"42", makepath=True)
    client.create(f"/consumers/{group}/offsets/orders/11", b"9000000000")
    client.create(f"/consumers/{group}/owners/orders/0", b"someone", makepath=True)
    assert store.read(group, ["orders", "payments"]) == {
        TopicPartition("orders", 0): 42,
        TopicPartition("orders", 11): 9_000_000_000,
    }


def test_what_we_write_is_kafkas_own_layout(client: Any, store: ZooKeeperStore, group: str) -> None:
    store.advance(group, {}, at("orders.v1", 5, 0))
    store.advance(group, at("orders.v1", 5, 0), at("orders.v1", 9_000_000_000, 0))
    folder = f"/consumers/{group}/offsets/orders.v1"
    assert sorted(client.get_children(folder)) == ["0", "1"]
    assert client.get(f"{folder}/0")[0] == b"9000000000"
    assert client.get(f"{folder}/1")[0] == b"0"
    assert [acl.acl_list for acl in client.get_acls(f"{folder}/0")[0]] == [["ALL"]]


def test_one_node_is_sparks_json(client: Any, zookeeper: ZooKeeperServer, group: str) -> None:
    store = ZooKeeperStore(NAME, 10, zookeeper.hosts, layout=JsonLayout)
    store.advance(group, {}, at("payments", 7))
    store.advance(group, {}, at("orders", 5, 6))
    path = f"/consumers/{group}/offsets.json"
    assert client.get(path)[0] == b'{"orders":{"0":5,"1":6},"payments":{"0":7}}'
    client.set(path, b'{ "orders": {"1": 8} }')
    assert store.read(group, ["orders", "payments"]) == {TopicPartition("orders", 1): 8}


def expect_garbage(client: Any, store: ZooKeeperStore, group: str, path: str, garbage: bytes) -> None:
    """Check that the error names the path of a node without an offset, and the node stays as it is."""
    client.create(path, garbage, makepath=True)
    with pytest.raises(StoreContentError, match=path):
        store.read(group, ["orders"])
    with pytest.raises(StoreContentError, match=path):
        store.advance(group, at("orders", 5), at("orders", 6))
    assert client.get(path)[0] == garbage


@pytest.mark.parametrize("garbage", [b"-1", b"latest", b"4.0", b" 4", b"99999999999999999999", b'{"orders":{"0":5}}'])
def test_garbage_is_not_an_offset(client: Any, store: ZooKeeperStore, group: str, garbage: bytes) -> None:
    path = f"/consumers/{group}/offsets/orders/0"
    expect_garbage(client, store, group, path, garbage)


def test_a_child_that_is_no_partition_is_told(client: Any, store: ZooKeeperStore, group: str) -> None:
    client.create(f"/consumers/{group}/offsets/orders/latest", b"5", makepath=True)
    with pytest.raises(StoreContentError, match="'latest', which is not a partition"):
        store.read(group, ["orders"])


@pytest.mark.parametrize("garbage", [b"5", b"{", b"[]", b'{"orders":{"0":-1}}', b'{"orders":{"0":"5"}}', b"\xff"])
def test_garbage_is_not_json_of_offsets(client: Any, zookeeper: ZooKeeperServer, group: str, garbage: bytes) -> None:
    store = ZooKeeperStore(NAME, 10, zookeeper.hosts, layout=JsonLayout)
    path = f"/consumers/{group}/offsets.json"
    expect_garbage(client, store, group, path, garbage)


# All partitions or none


def test_drift_in_the_last_topic_stops_the_first(client: Any, store: ZooKeeperStore, group: str) -> None:
    before = at("orders", 5, 5) | at("payments", 6)
    store.advance(group, {}, before)
    client.set(f"/consumers/{group}/offsets/payments/0", b"7")
    with pytest.raises(
        StoreDriftError, match=r"payments-0: found 7, expected 6 \(the old offset\) or 8 \(the new one\)"
    ):
        store.advance(group, before, at("orders", 9, 9) | at("payments", 8))
    assert store.read(group, ["orders"]) == at("orders", 5, 5)


def test_nobody_reads_half_an_advance(zookeeper: ZooKeeperServer, store: ZooKeeperStore, group: str) -> None:
    own, partitions = ZooKeeperStore(NAME, 10, zookeeper.hosts), 50
    moves = itertools.count()

    def offsets(move: int) -> dict[TopicPartition, int]:
        """Each move adds a partition to both topics."""
        both = [move] * (partitions + move)
        return at("orders", *both) | at("payments", *both)

    def advance() -> None:
        move = next(moves)
        own.advance(group, offsets(move), offsets(move + 1))

    seen: list[dict[TopicPartition, int]] = []
    store.advance(group, {}, offsets(0))
    with again_and_again(advance):
        for _ in range(20):
            # A writer without a pause may be faster than every look: then the reader gets an error, and not half of it.
            with suppress(ConcurrentChangeError):
                seen.append(store.read(group, ["orders", "payments"]))
    assert [read for read in seen if read != offsets(read[TopicPartition("orders", 0)])] == []
    assert len({len(read) for read in seen}) > 1, "the writer did not get to write"


@contextmanager
def before_next(method: str, action: Callable[[], object], *, skip: int = 0) -> Iterator[None]:
    """Do something once before kazoo is asked for this, when it was asked `skip` times and has the answers."""
    original = getattr(KazooClient, method)
    answers: list[Any] = []

    def acting(self: KazooClient, *arguments: Any, **named: Any) -> Any:
        if len(answers) == skip:
            for answer in answers:
                answer.wait(LONGEST)
            answers.append(None)  # what is done in between may ask for it too
            action()
        answers.append(original(self, *arguments, **named))
        return answers[-1]

    with mock.patch.object(KazooClient, method, acting):
        yield


@pytest.mark.parametrize(
    "after",
    [at("orders", 7, 8, 9), at("orders", 7, 8) | at("payments", 9)],
    ids=["a partition is added", "a topic is added"],
)
def test_what_an_advance_adds_while_we_look_is_not_missed(
    zookeeper: ZooKeeperServer, store: ZooKeeperStore, group: str, after: dict[TopicPartition, int]
) -> None:
    before = at("orders", 5, 6)
    store.advance(group, {}, before)
    own = ZooKeeperStore(NAME, 10, zookeeper.hosts)
    with before_next("get_async", lambda: own.advance(group, before, after)):
        assert store.read(group, ["orders", "payments"]) == after


def test_a_server_that_lags_behind_catches_up_before_partitions_are_looked_for(
    zookeeper: ZooKeeperServer, store: ZooKeeperStore, group: str
) -> None:
    own = ZooKeeperStore(NAME, 10, zookeeper.hosts)
    # There is one server here: a write that comes with the sync is like one that it did not have yet.
    with before_next("sync_async", lambda: own.advance(group, {}, at("orders", 5))):
        assert store.read(group, ["orders"]) == at("orders", 5)


def test_offsets_that_are_deleted_while_we_look_are_not_read_by_halves(
    client: Any, store: ZooKeeperStore, group: str
) -> None:
    store.advance(group, {}, at("orders", 5) | at("payments", 6))

    def delete() -> None:
        both = client.transaction()
        for topic in ("orders", "payments"):
            both.delete(f"/consumers/{group}/offsets/{topic}/0")
        assert both.commit() == [True, True]

    with before_next("get_async", delete, skip=1):
        assert store.read(group, ["orders", "payments"]) == {}


@pytest.mark.zookeeper
def test_offsets_outlive_the_server(tmp_path: Path, group: str) -> None:
    with ZooKeeperServer(tmp_path / "zookeeper") as own:
        assert_offsets_outlive(own, ZooKeeperStore(NAME, 3, own.hosts), group)


# Limits


def size_of(group: str, digits: int, partitions: int) -> int:
    """Return the bytes of a request that moves existing partitions 0 to 9 of `orders`."""
    return 8 + 9 + partitions * (9 + 4 + len(f"/consumers/{group}/offsets/orders/0") + 4 + digits + 4)


def test_the_limit_counts_each_byte_of_the_request(client: Any, zookeeper: ZooKeeperServer, group: str) -> None:
    limit = size_of(group, 4, 10)
    store = ZooKeeperStore(NAME, 10, zookeeper.hosts, max_request_bytes=limit)
    store.advance(group, {}, at("orders", *[1] * 10))
    store.advance(group, at("orders", *[1] * 10), at("orders", *[1000] * 10))
    with pytest.raises(StoreLimitError, match=f"accept {limit} bytes, and this request has {limit + 1}.*layout=json"):
        store.advance(group, at("orders", *[1000] * 10), at("orders", *[1000] * 9, 10000))
    assert store.read(group, ["orders"]) == at("orders", *[1000] * 10)


@pytest.mark.zookeeper
def test_the_servers_limit_is_where_we_think(tmp_path: Path) -> None:
    group, limit = "lake", 100_000
    with ZooKeeperServer(tmp_path / "zookeeper", {"jute.maxbuffer": str(limit)}) as own:
        store = ZooKeeperStore(NAME, 10, own.hosts, max_request_bytes=limit)
        # The digits of the last partitions fill the request to its last byte.
        store.advance(group, {}, at("orders", *[0] * 1_450))
        path = len(f"/consumers/{group}/offsets/orders/")
        taken = 17 + sum(21 + path + len(str(number)) + 1 for number in range(1_450))
        digits, rest = divmod(limit - taken, 1_450)
        assert 1 <= digits < 18, "the limit fits the test"
        many = [10 ** (digits + (number < rest)) for number in range(1_450)]
        store.advance(group, at("orders", *[0] * 1_450), at("orders", *many))
        assert store.read(group, ["orders"]) == at("orders", *many)
        over = [*many[:-1], many[-1] * 10]
        with pytest.raises(StoreLimitError):
            store.advance(group, at("orders", *many), at("orders", *over))
        trusting = ZooKeeperStore(NAME, 10, own.hosts, max_request_bytes=10 * limit)
        with pytest.raises(StoreOutcomeUnknownError, match=r"lower max_request_bytes to jute\.maxbuffer"):
            trusting.advance(group, at("orders", *many), at("orders", *over))
        assert store.read(group, ["orders"]) == at("orders", *many)


@pytest.mark.zookeeper
def test_empty_nodes_are_created_in_requests_that_the_servers_take(tmp_path: Path) -> None:
    limit = 20_000
    with ZooKeeperServer(tmp_path / "zookeeper", {"jute.maxbuffer": str(limit)}) as own:
        store = ZooKeeperStore(NAME, 10, own.hosts, max_request_bytes=limit)
        store.advance("lake", {}, at("orders", *range(300)))
        assert store.read("lake", ["orders"]) == at("orders", *range(300))


def test_one_node_has_its_limit_too(zookeeper: ZooKeeperServer, group: str) -> None:
    store = ZooKeeperStore(NAME, 10, zookeeper.hosts, layout=JsonLayout, max_request_bytes=5_000)
    with pytest.raises(StoreLimitError, match="split the group"):
        store.advance(group, {}, at("orders", *range(1_000)))
    assert store.read(group, ["orders"]) == {}


def test_nodes_that_were_only_prepared_hold_no_offset(client: Any, store: ZooKeeperStore, group: str) -> None:
    for partition in range(3):
        client.create(f"/consumers/{group}/offsets/orders/{partition}", b"", makepath=True)
    assert store.read(group, ["orders"]) == {}
    store.advance(group, {}, at("orders", 5, 6, 7, 8))
    assert store.read(group, ["orders"]) == at("orders", 5, 6, 7, 8)


# Rights


@pytest.mark.parametrize("layout", LAYOUTS)
def test_with_a_login_others_may_read_and_not_write(
    zookeeper: ZooKeeperServer, group: str, layout: type[NodeLayout]
) -> None:
    alice = ZooKeeperStore(NAME, 10, zookeeper.hosts, login=ALICE, layout=layout)
    alice.advance(group, {}, at("orders", 5))
    alice.advance(group, at("orders", 5), at("orders", 6))
    for login in (BOB, (ALICE[0], "wrong-pw"), None):
        other = ZooKeeperStore(NAME, 10, zookeeper.hosts, login=login, layout=layout)
        assert other.read(group, ["orders"]) == at("orders", 6)
        with pytest.raises(StoreRefusedError, match="ACL") as caught:
            other.advance(group, at("orders", 6), at("orders", 7))
        assert "-pw" not in str(caught.value)
    assert alice.read(group, ["orders"]) == at("orders", 6)


def test_private_nodes_are_not_read_by_others(zookeeper: ZooKeeperServer, group: str) -> None:
    alice = ZooKeeperStore(NAME, 10, zookeeper.hosts, login=ALICE, access=Access.PRIVATE)
    alice.advance(group, {}, at("orders", 5))
    with pytest.raises(StoreRefusedError, match="ACL"):
        ZooKeeperStore(NAME, 10, zookeeper.hosts).read(group, ["orders"])
    assert alice.read(group, ["orders"]) == at("orders", 5)


def test_other_groups_are_open_to_all_beside_a_private_one(zookeeper: ZooKeeperServer, group: str) -> None:
    with_login = ZooKeeperStore(NAME, 10, zookeeper.hosts, login=ALICE, access=Access.PRIVATE)
    with_login.advance(group, {}, at("orders", 5))
    ZooKeeperStore(NAME, 10, zookeeper.hosts).advance(f"{group}-2", {}, at("orders", 5))


def test_the_password_is_not_logged(zookeeper: ZooKeeperServer, group: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ZooKeeperStore(NAME, 10, zookeeper.hosts, login=ALICE).advance(group, {}, at("orders", 5))
    assert "alice-pw" not in caplog.text


# Where it is


def test_a_chroot_is_a_world_of_its_own(client: Any, zookeeper: ZooKeeperServer, group: str) -> None:
    client.ensure_path("/kafka/prod")
    store = ZooKeeperStore(NAME, 10, zookeeper.hosts, chroot="/kafka/prod")
    store.advance(group, {}, at("orders", 5))
    assert client.get(f"/kafka/prod/consumers/{group}/offsets/orders/0")[0] == b"5"
    assert ZooKeeperStore(NAME, 10, zookeeper.hosts).read(group, ["orders"]) == {}
    assert store.read(group, ["orders"]) == at("orders", 5)


def test_a_chroot_that_is_not_there_is_not_made(client: Any, zookeeper: ZooKeeperServer, group: str) -> None:
    store = ZooKeeperStore(NAME, 10, zookeeper.hosts, chroot="/typo")
    with pytest.raises(StoreRefusedError, match="no node /typo"):
        store.read(group, ["orders"])
    with pytest.raises(StoreRefusedError, match="no node /typo"):
        store.advance(group, {}, at("orders", 5))
    assert client.exists("/typo") is None


def test_the_next_server_is_asked_when_one_is_down(zookeeper: ZooKeeperServer, tmp_path: Path, group: str) -> None:
    dead = ZooKeeperServer(tmp_path)
    for _ in range(4):  # which of them is first is a matter of chance
        ZooKeeperStore(NAME, 5, f"{dead.hosts},{zookeeper.hosts}").read(group, ["orders"])


@pytest.mark.parametrize("bad", ["", ".", "..", "a/b"])
def test_a_group_that_can_not_be_a_node_is_refused(store: ZooKeeperStore, bad: str) -> None:
    with pytest.raises(BadInputError):
        store.read(bad, ["orders"])


def test_tls(zookeeper: ZooKeeperServer, group: str) -> None:
    tls = {"use_ssl": True, "check_hostname": True, "ca": str(zookeeper.tls / "ca.crt")}
    hosts = f"localhost:{zookeeper.tls_port}"
    store = ZooKeeperStore(NAME, 10, hosts, tls=tls)
    store.advance(group, {}, at("orders", 5))
    assert store.read(group, ["orders"]) == at("orders", 5)
    distrustful = ZooKeeperStore(NAME, 2, hosts, tls={**tls, "ca": str(zookeeper.tls / "other-ca.crt")})
    with pytest.raises(StoreUnavailableError):
        distrustful.read(group, ["orders"])


def test_no_thread_and_no_connection_stays(zookeeper: ZooKeeperServer, store: ZooKeeperStore, group: str) -> None:
    def connections() -> int:
        return sum(line.startswith(" /") for line in zookeeper.ask("cons").splitlines())

    threads, open_before = set(threading.enumerate()), connections()
    store.advance(group, {}, at("orders", 5))
    with pytest.raises(StoreDriftError):
        store.advance(group, at("orders", 7), at("orders", 8))
    with Proxy(zookeeper.port) as proxy:
        proxy.hang()
        with pytest.raises(StoreUnavailableError):
            ZooKeeperStore(NAME, 2, f"{LOOPBACK}:{proxy.port}").read(group, ["orders"])
    left = [thread for thread in set(threading.enumerate()) - threads if "_forward" not in thread.name]
    wait_until(lambda: not any(t.is_alive() for t in left), what="its threads end")
    wait_until(lambda: connections() <= open_before, what="it has hung up")


# From an Airflow connection

ORDERS = KafkaGroup("lake.orders", topics=["orders"])


def connect(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Make the connection `lab_zk`."""
    monkeypatch.setenv("AIRFLOW_CONN_LAB_ZK", json.dumps({"conn_type": "zookeeper", **fields}))


@pytest.mark.parametrize("where", ["path", "host", "extra"])
def test_a_connection_with_login_and_chroot(
    monkeypatch: pytest.MonkeyPatch, client: Any, zookeeper: ZooKeeperServer, group: str, where: str
) -> None:
    client.ensure_path("/kafka/prod")
    host = "127.0.0.1/kafka/prod" if where == "host" else "127.0.0.1"
    extra = {"chroot": "/kafka/prod"} if where == "extra" else {}
    connect(monkeypatch, host=host, port=zookeeper.port, login=ALICE[0], password=ALICE[1], extra=extra)
    path = "/kafka/prod" if where == "path" else ""
    store = open_address(parse_store_address(f"zookeeper://lab_zk{path}?layout=json&acl=read&timeout=60"), ORDERS)
    store.advance(group, {}, at("orders", 5))
    data, _ = client.get(f"/kafka/prod/consumers/{group}/offsets.json")
    assert data == b'{"orders":{"0":5}}'
    acls, _ = client.get_acls(f"/kafka/prod/consumers/{group}/offsets.json")
    assert {(acl.id.scheme, tuple(acl.acl_list)) for acl in acls} == {("digest", ("ALL",)), ("world", ("READ",))}


def test_a_generic_connection_with_tls(monkeypatch: pytest.MonkeyPatch, zookeeper: ZooKeeperServer, group: str) -> None:
    extra = {"ssl": True, "ssl_ca_certs": str(zookeeper.tls / "ca.crt")}
    connect(monkeypatch, conn_type="generic", host=f"localhost:{zookeeper.tls_port}", extra=extra)
    store = open_address(parse_store_address("zookeeper://lab_zk"), ORDERS)
    store.advance(group, {}, at("orders", 5))
    assert store.read(group, ["orders"]) == at("orders", 5)


@pytest.mark.parametrize(
    ("fields", "options", "match"),
    [
        ({"conn_type": "http", "host": "h"}, "", "type 'http', not 'zookeeper' or 'generic'"),
        ({}, "", "names no host"),
        ({"host": "h"}, "?layout=xml", "layout=xml must be nodes or json"),
        ({"host": "h"}, "?acl=mine", "acl=mine must be open or read or private"),
        ({"host": "h"}, "?acl=private", "requires a login"),
        ({"host": "h"}, "?max_request_bytes=1m", "max_request_bytes must be a whole number"),
    ],
)
def test_a_connection_that_can_not_be_used_is_told_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], options: str, match: str
) -> None:
    connect(monkeypatch, **fields)
    with pytest.raises(BadInputError, match=match):
        open_address(parse_store_address(f"zookeeper://lab_zk{options}"), ORDERS)
