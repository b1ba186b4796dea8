"""The offset store in Redis, against real servers: open, with TLS and logins, a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from airflow_kafka_offsets.adapters.stores.redis import RedisStore
from airflow_kafka_offsets.core.store_key import TAGGED, KeyPattern
from airflow_kafka_offsets.ports import OffsetStore
from tests.lab.proxy import Proxy
from tests.lab.redis import RedisCluster, RedisServer
from tests.stores.contract import StoreContract


class TestRedis(StoreContract):
    """One server."""

    @pytest.fixture
    def open_store(self, redis: RedisServer) -> Callable[[], OffsetStore]:
        return lambda: RedisStore("redis://redis_default", 10, redis.login())

    @pytest.fixture
    def store(self, open_store: Callable[[], OffsetStore]) -> OffsetStore:
        return open_store()

    @pytest.fixture
    def proxied(self, redis: RedisServer) -> Iterator[tuple[OffsetStore, Proxy]]:
        with Proxy(redis.port) as proxy:
            yield RedisStore("redis://redis_default", 2, {**redis.login(), "port": proxy.port}), proxy


class TestRedisCluster(StoreContract):
    """A cluster of three; its servers name themselves to clients, so that no proxy can stand in between."""

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
