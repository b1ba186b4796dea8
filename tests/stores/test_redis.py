"""The offset store in Redis, against real servers: open, with TLS and logins, a cluster."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Connection

from airflow_kafka_offsets.adapters.stores.redis import RedisStore
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    StoreContentError,
    StoreDriftError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.offsets import TopicPartition, topics_of
from airflow_kafka_offsets.core.store.redis_key import TAGGED, KeyPattern
from airflow_kafka_offsets.core.store_address import parse_store_address
from airflow_kafka_offsets.ports import OffsetStore
from airflow_kafka_offsets.wiring.stores.opening import open_store as open_address
from airflow_kafka_offsets.wiring.stores.redis import redis_settings
from tests.lab.processes import wait_until
from tests.lab.proxy import Proxy
from tests.lab.redis import RedisCluster, RedisServer, SecureRedisServer
from tests.stores.contract import StoreContract, again_and_again, assert_offsets_outlive, at

NAME = "redis://redis_default"


@pytest.fixture
def group() -> str:
    """Return the name of a group that no other test has."""
    return f"lake.{uuid.uuid4().hex[:8]}"


@pytest.fixture
def client(redis: RedisServer) -> Iterator[Any]:
    """Return redis-py's own client, which gets text."""
    with redis.client() as client:
        yield client


@pytest.fixture
def store(redis: RedisServer) -> RedisStore:
    """Return a store on the open server."""
    return RedisStore(NAME, 30, redis.login())


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisServer]:
    """Run a server that the test may spoil."""
    with RedisServer(tmp_path / "redis") as server:
        yield server


def assert_refused(store: RedisStore, group: str, match: str) -> None:
    """An advance is refused, and nothing is written."""
    with pytest.raises(StoreRefusedError, match=match):
        store.advance(group, {}, at("orders", 5) | at("payments", 6))


class TestRedis(StoreContract):
    """One server."""

    @pytest.fixture
    def open_store(self, redis: RedisServer) -> Callable[[], OffsetStore]:
        return lambda: RedisStore(NAME, 30, redis.login())

    @pytest.fixture
    def store(self, open_store: Callable[[], OffsetStore]) -> OffsetStore:
        return open_store()

    @pytest.fixture
    def proxied(self, redis: RedisServer) -> Iterator[tuple[OffsetStore, Proxy]]:
        with Proxy(redis.port) as proxy:
            yield RedisStore(NAME, 2, {**redis.login(), "port": proxy.port}), proxy


class TestRedisCluster(StoreContract):
    """A cluster of three. Its servers give clients their own addresses, so no proxy can be used."""

    test_a_server_that_refuses_connections = None
    test_a_server_that_hangs = None
    test_a_server_that_went_away_and_came_back = None
    test_an_answer_that_is_lost_leaves_all_or_nothing = None
    test_a_connection_that_is_cut_leaves_all_or_nothing = None

    @pytest.fixture
    def open_store(self, redis_cluster: RedisCluster) -> Callable[[], OffsetStore]:
        settings = redis_cluster.servers[0].login()
        return lambda: RedisStore("redis://cluster", 10, settings, key=KeyPattern(TAGGED), is_cluster=True)

    @pytest.fixture
    def store(self, open_store: Callable[[], OffsetStore]) -> OffsetStore:
        return open_store()


# What others write and read


def test_a_hash_written_by_hand_is_read(client: Any, store: RedisStore, group: str) -> None:
    client.hset(f"offset:orders:{group}", mapping={"0": "42", "11": "9000000000"})
    assert store.read(group, ["orders"]) == {
        TopicPartition("orders", 0): 42,
        TopicPartition("orders", 11): 9_000_000_000,
    }


def test_what_we_write_is_a_hash_of_decimal_text_that_never_expires(client: Any, store: RedisStore, group: str) -> None:
    store.advance(group, {}, at("orders.v1", 5, 0) | at("payments", 9_000_000_000))
    assert client.hgetall(f"offset:orders.v1:{group}") == {"0": "5", "1": "0"}
    assert client.hgetall(f"offset:payments:{group}") == {"0": "9000000000"}
    assert client.ttl(f"offset:payments:{group}") == -1
    assert set(client.scan_iter(f"*{group}*")) == {f"offset:orders.v1:{group}", f"offset:payments:{group}"}


def test_the_key_is_the_one_that_the_option_says(redis: RedisServer, client: Any, group: str) -> None:
    store = RedisStore(NAME, 30, redis.login(), key=KeyPattern("kafka/{group}/{topic_tag}"))
    store.advance(group, {}, at("orders", 5))
    assert client.hgetall(f"kafka/{group}/{{orders}}") == {"0": "5"}


def test_another_database_holds_other_offsets(redis: RedisServer, store: RedisStore, group: str) -> None:
    store.advance(group, {}, at("orders", 5))
    third = RedisStore(NAME, 30, {**redis.login(), "db": 3})
    assert third.read(group, ["orders"]) == {}
    third.advance(group, {}, at("orders", 7))
    assert store.read(group, ["orders"]) == at("orders", 5)


@pytest.mark.parametrize("garbage", ["", "-1", "latest", "4.0", " 4", "99999999999999999999", "{}"])
def test_garbage_is_not_an_offset(client: Any, store: RedisStore, group: str, garbage: str) -> None:
    client.hset(f"offset:orders:{group}", mapping={"0": "5", "1": garbage})
    with pytest.raises(StoreContentError, match="field 1 of orders"):
        store.read(group, ["orders"])
    with pytest.raises(StoreContentError):
        store.advance(group, at("orders", 5, 5), at("orders", 6, 6))
    assert client.hgetall(f"offset:orders:{group}") == {"0": "5", "1": garbage}


def test_a_field_that_is_no_partition_is_told(client: Any, store: RedisStore, group: str) -> None:
    client.hset(f"offset:orders:{group}", mapping={"0": "5", "orders-1": "6"})
    with pytest.raises(StoreContentError, match="orders-1"):
        store.read(group, ["orders"])


def test_a_key_that_is_no_hash_is_told(client: Any, store: RedisStore, group: str) -> None:
    client.set(f"offset:payments:{group}", "5")
    with pytest.raises(StoreContentError, match="the key is not a hash"):
        store.read(group, ["payments"])
    with pytest.raises(StoreContentError, match="the key is not a hash"):
        store.advance(group, {}, at("orders", 5) | at("payments", 6))
    assert store.read(group, ["orders"]) == {}


# All topics or none


def test_drift_in_the_last_topic_stops_the_first(client: Any, store: RedisStore, group: str) -> None:
    before = at("orders", 5, 5) | at("payments", 6)
    store.advance(group, {}, before)
    client.hset(f"offset:payments:{group}", "0", "7")
    with pytest.raises(
        StoreDriftError, match=r"payments-0: found 7, expected 6 \(the old offset\) or 8 \(the new one\)"
    ):
        store.advance(group, before, at("orders", 9, 9) | at("payments", 8))
    assert store.read(group, ["orders"]) == at("orders", 5, 5)


def test_nobody_reads_half_an_advance(redis: RedisServer, store: RedisStore, group: str) -> None:
    own, now = RedisStore(NAME, 30, redis.login()), at("orders", *[0] * 200) | at("payments", *[0] * 200)

    def advance() -> None:
        before = dict(now)
        now.update({tp: offset + 1 for tp, offset in before.items()})
        own.advance(group, before, now)

    store.advance(group, {}, now)
    with again_and_again(advance):
        reads = [set(store.read(group, ["orders", "payments"]).values()) for _ in range(50)]
    assert {len(values) for values in reads} == {1}
    assert len(set.union(*reads)) > 1, "the writer did not get to write"


def test_no_connection_stays_open(client: Any, store: RedisStore, group: str) -> None:
    before = {entry["id"] for entry in client.client_list()}
    store.advance(group, {}, at("orders", 5))
    store.read(group, ["orders"])
    wait_until(lambda: {entry["id"] for entry in client.client_list()} <= before, what="it has hung up")


@pytest.mark.redis
def test_offsets_outlive_the_server(own: RedisServer, group: str) -> None:
    assert_offsets_outlive(own, RedisStore(NAME, 5, own.login()), group)


# Servers that refuse


@pytest.mark.redis
def test_a_full_server_refuses_and_says_so(own: RedisServer, group: str) -> None:
    store = RedisStore(NAME, 5, own.login())
    with own.client() as client:
        client.config_set("maxmemory", "1")
    assert_refused(store, group, "it refused .*maxmemory")
    assert store.read(group, ["orders", "payments"]) == {}


@pytest.mark.redis
def test_a_replica_refuses_and_says_so(own: RedisServer, tmp_path: Path, group: str) -> None:
    RedisStore(NAME, 5, own.login()).advance(group, {}, at("orders", 5))
    # Without a log of its own, which it would rewrite now, and not stop meanwhile.
    settings = {"replicaof": f"127.0.0.1 {own.port}", "appendonly": "no"}
    with RedisServer(tmp_path / "replica", settings) as replica:
        store = RedisStore(NAME, 5, replica.login())
        wait_until(lambda: store.read(group, ["orders"]), what="the replica has the offsets")
        with pytest.raises(StoreRefusedError, match="replica"):
            store.advance(group, at("orders", 5), at("orders", 6))
        assert store.read(group, ["orders"]) == at("orders", 5)


@pytest.mark.redis
def test_a_primary_that_wants_replicas_is_worth_waiting_for(own: RedisServer, group: str) -> None:
    store = RedisStore(NAME, 5, own.login())
    with own.client() as client:
        client.config_set("min-replicas-to-write", "1")
        with pytest.raises(StoreUnavailableError):
            store.advance(group, {}, at("orders", 5))
        client.config_set("min-replicas-to-write", "0")
    store.advance(group, {}, at("orders", 5))


@pytest.mark.redis
def test_a_server_that_can_not_save_refuses_and_says_so(own: RedisServer, group: str) -> None:
    store = RedisStore(NAME, 5, own.login())
    with own.client() as client:
        client.config_set("save", "3600 1")
        # Its snapshot can't replace a folder of this name.
        Path(own.folder, "dump.rdb", "x").mkdir(parents=True)
        client.bgsave()
        wait_until(lambda: client.info()["rdb_last_bgsave_status"] == "err", what="the snapshot failed")
        assert_refused(store, group, "disk")
        client.config_set("save", "")  # or else it will not stop without a snapshot
    assert store.read(group, ["orders", "payments"]) == {}


# TLS, passwords, rights


def secure(server: SecureRedisServer, user: str = "default", **others: Any) -> RedisStore:
    """Return a store that logs in as a user."""
    return RedisStore(NAME, 5, {**server.login(user), **others})


def test_tls_and_a_password(redis_secure: SecureRedisServer, group: str) -> None:
    store = secure(redis_secure)
    store.advance(group, {}, at("orders", 5) | at("payments", 6))
    assert store.read(group, ["orders", "payments"]) == at("orders", 5) | at("payments", 6)


def test_the_rights_in_the_docs_are_enough(redis_secure: SecureRedisServer, group: str) -> None:
    store = secure(redis_secure, "writer")
    store.advance(group, {}, at("orders", 5) | at("payments", 6))
    store.advance(group, at("orders", 5), at("orders", 6))
    assert store.read(group, ["orders", "payments"]) == at("orders", 6) | at("payments", 6)


@pytest.mark.parametrize("others", [{"password": "wrong-pw"}, {"username": None, "password": None}])
def test_a_wrong_login_is_refused_without_its_password(
    redis_secure: SecureRedisServer, group: str, others: dict[str, Any]
) -> None:
    store = secure(redis_secure, **others)
    with pytest.raises(StoreRefusedError, match=r"WRONGPASS|NOAUTH|Authentic") as caught:
        store.read(group, ["orders"])
    assert "wrong-pw" not in str(caught.value)
    assert_refused(store, group, "WRONGPASS|NOAUTH|Authentic")


def test_who_may_read_only_reads_only(redis_secure: SecureRedisServer, group: str) -> None:
    secure(redis_secure).advance(group, {}, at("orders", 5) | at("payments", 6))
    reader = secure(redis_secure, "reader")
    assert reader.read(group, ["orders", "payments"]) == at("orders", 5) | at("payments", 6)
    with pytest.raises(StoreRefusedError, match="rights"):
        reader.advance(group, at("orders", 5), at("orders", 6))
    assert reader.read(group, ["orders"]) == at("orders", 5)


def test_who_may_not_see_our_keys_is_refused(redis_secure: SecureRedisServer, group: str) -> None:
    stranger = secure(redis_secure, "stranger")
    with pytest.raises(StoreRefusedError, match="rights"):
        stranger.read(group, ["orders"])
    assert_refused(stranger, group, "rights")


def test_a_certificate_that_nobody_trusts_is_refused(redis_secure: SecureRedisServer, group: str) -> None:
    store = secure(redis_secure, ssl_ca_certs=str(redis_secure.tls / "other-ca.crt"))
    with pytest.raises(StoreRefusedError, match="certificate"):
        store.read(group, ["orders"])


def test_a_client_without_tls_gets_no_answer(redis_secure: SecureRedisServer, group: str) -> None:
    with pytest.raises(StoreUnavailableError):
        secure(redis_secure, ssl=False).read(group, ["orders"])


# Clusters


def test_several_topics_on_a_cluster_want_a_hash_tag(redis_cluster: RedisCluster, group: str) -> None:
    store = RedisStore(NAME, 5, redis_cluster.servers[0].login(), is_cluster=True)
    with pytest.raises(BadInputError, match=r"key=offset:\{group_tag\}:\{topic\}$"):
        store.advance(group, {}, at("orders", 5) | at("payments", 6))
    store.advance(group, {}, at("orders", 5))
    store.advance(group, {}, at("payments", 6))
    assert store.read(group, ["orders", "payments"]) == at("orders", 5) | at("payments", 6)


def test_the_rights_in_the_docs_are_enough_on_a_cluster(redis_cluster: RedisCluster, group: str) -> None:
    for server in redis_cluster.servers:
        with server.client() as client:
            rights = "+eval +hget +hgetall +hset +cluster|slots +cluster|shards +command"
            client.execute_command("ACL", "SETUSER", "writer", "on", ">writer-pw", "~offset:*", *rights.split())
    login = {**redis_cluster.servers[0].login(), "username": "writer", "password": "writer-pw"}
    store = RedisStore(NAME, 5, login, key=KeyPattern(TAGGED), is_cluster=True)
    store.advance(group, {}, at("orders", 5) | at("payments", 6))
    assert store.read(group, ["orders", "payments"]) == at("orders", 5) | at("payments", 6)
    with pytest.raises(StoreRefusedError, match=r"WRONGPASS|Authentic|invalid username"):
        RedisStore(NAME, 5, {**login, "password": "wrong-pw"}, is_cluster=True).read(group, ["orders"])


def test_a_cluster_is_found_by_any_node_that_lives(redis_cluster: RedisCluster, tmp_path: Path, group: str) -> None:
    login = redis_cluster.servers[0].login()
    dead = {**login, "port": RedisServer(tmp_path).port}
    nodes = [(login["host"], login["port"])]
    store = RedisStore(NAME, 5, dead, is_cluster=True, nodes=nodes)
    store.advance(group, {}, at("orders", 5))
    assert store.read(group, ["orders"]) == at("orders", 5)
    with pytest.raises(StoreUnavailableError):
        RedisStore(NAME, 5, dead, is_cluster=True).read(group, ["orders"])


def test_a_cluster_and_a_single_server_are_not_mixed_up(
    redis: RedisServer, redis_cluster: RedisCluster, group: str
) -> None:
    # One of 20 topics is on another node.
    after = {TopicPartition(f"orders{number}", 0): 5 for number in range(20)}
    on_node = RedisStore(NAME, 5, redis_cluster.servers[0].login(), key=KeyPattern("{topic_tag}:{group}"))
    with pytest.raises(StoreRefusedError, match='"cluster": true'):
        on_node.read(group, topics_of(after))
    with pytest.raises(StoreRefusedError, match="remove `cluster`"):
        RedisStore(NAME, 5, redis.login(), is_cluster=True).read(group, ["orders"])


# From an Airflow connection

ORDERS = KafkaGroup("lake.orders", topics=["orders"])


def connect(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Make the connection `lab_redis`."""
    monkeypatch.setenv("AIRFLOW_CONN_LAB_REDIS", json.dumps({"conn_type": "redis", **fields}))


def test_a_connection_with_all_fields(
    monkeypatch: pytest.MonkeyPatch, redis_secure: SecureRedisServer, group: str
) -> None:
    login = redis_secure.login("writer")
    extra = {
        "ssl": True,
        "ssl_cert_reqs": "required",
        "ssl_ca_certs": login["ssl_ca_certs"],
        "ssl_check_hostname": True,
    }
    fields = {"host": "localhost", "port": login["port"], "login": "writer", "password": login["password"]}
    connect(monkeypatch, **fields, extra=extra)
    store = open_address(parse_store_address("redis://lab_redis?timeout=60&key=offset:{group_tag}:{topic}"), ORDERS)
    store.advance(group, {}, at("orders", 5))
    assert store.name == "redis://lab_redis?key=offset:{group_tag}:{topic}&timeout=60"
    tagged = RedisStore(NAME, 30, redis_secure.login(), key=KeyPattern(TAGGED))
    assert tagged.read(group, ["orders"]) == at("orders", 5)


def test_a_connection_as_a_uri_chooses_its_database(
    monkeypatch: pytest.MonkeyPatch, redis: RedisServer, group: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAB_REDIS", f"redis://{redis.login()['host']}:{redis.port}/?db=3&ssl=False")
    open_address(parse_store_address("redis://lab_redis"), ORDERS).advance(group, {}, at("orders", 5))
    assert RedisStore(NAME, 30, {**redis.login(), "db": 3}).read(group, ["orders"]) == at("orders", 5)


@pytest.mark.parametrize(
    ("extra", "tls"),
    [
        ({}, {}),
        ({"ssl": "False", "ssl_ca_certs": "ca.pem", "ssl_check_hostname": True}, {}),
        ({"ssl": True}, {"ssl": True, "ssl_check_hostname": True}),
        ({"ssl": "true", "ssl_check_hostname": "false"}, {"ssl": True, "ssl_check_hostname": False}),
        (
            {"ssl": True, "ssl_cert_reqs": "required", "ssl_ca_certs": "ca.pem"},
            {"ssl": True, "ssl_check_hostname": True, "ssl_cert_reqs": "required", "ssl_ca_certs": "ca.pem"},
        ),
        (
            {"ssl": True, "ssl_cert_reqs": "none"},
            {"ssl": True, "ssl_check_hostname": False, "ssl_cert_reqs": "none"},
        ),
    ],
)
def test_with_tls_the_servers_name_is_checked_unless_the_connection_says_no(
    extra: dict[str, Any], tls: dict[str, Any]
) -> None:
    connection = Connection(conn_id="lab", conn_type="redis", host="h", extra=json.dumps(extra))
    settings = redis_settings(connection)
    assert {name: value for name, value in settings.items() if name.startswith("ssl")} == tls


@pytest.mark.parametrize("where", ["extra", "option"])
def test_a_connection_to_a_cluster(
    monkeypatch: pytest.MonkeyPatch, redis_cluster: RedisCluster, group: str, where: str
) -> None:
    extra = {"cluster": True, "startup_nodes": f"127.0.0.1:{redis_cluster.servers[1].port}"} if where == "extra" else {}
    connect(monkeypatch, host="127.0.0.1", port=redis_cluster.port, extra=extra)
    option = "?cluster=true" if where == "option" else ""
    store = open_address(parse_store_address(f"redis://lab_redis{option}"), ORDERS)
    for topic in ("orders", "payments", "users"):
        store.advance(group, {}, at(topic, 5))
    assert store.read(group, ["users"]) == at("users", 5)


@pytest.mark.parametrize(
    ("fields", "address", "match"),
    [
        ({"conn_type": "http", "host": "h"}, "redis://lab_redis", "type 'http', not 'redis'"),
        ({}, "redis://lab_redis", "names no host"),
        ({"host": "h", "extra": {"db": "x"}}, "redis://lab_redis", "db must be a whole number"),
        ({"host": "h", "extra": {"db": 1, "cluster": True}}, "redis://lab_redis", "Redis Cluster has only 0"),
        ({"host": "h"}, "redis://lab_redis?key=offset", "names topic and group once each"),
        ({"host": "h", "extra": {"startup_nodes": "a:b"}}, "redis://lab_redis", "startup node 'a:b'"),
    ],
)
def test_a_connection_that_can_not_be_used_is_told_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], address: str, match: str
) -> None:
    connect(monkeypatch, **fields)
    with pytest.raises(BadInputError, match=match):
        open_address(parse_store_address(address), ORDERS)
