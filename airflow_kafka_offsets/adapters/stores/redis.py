"""Offsets in Redis: a hash ``offset:<topic>:<group>`` with a field for each partition. One Lua script advances them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from redis import Redis, RedisCluster
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.crc import key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisClusterException, RedisError, ResponseError
from redis.retry import Retry

from airflow_kafka_offsets.adapters.stores.swapping import swap
from airflow_kafka_offsets.core.errors import (
    OUTCOME_OPEN,
    BadInputError,
    StoreContentError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
    counted,
)
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, topics_of
from airflow_kafka_offsets.core.store.guarantees import Compares, Guarantees
from airflow_kafka_offsets.core.store.redis_key import TAGGED, KeyPattern
from airflow_kafka_offsets.core.store.values import read_offset, read_partition

_Hashes = dict[str, dict[bytes, bytes]]
"""The fields and values of each topic's hash."""

_READ = """
local hashes = {}
for i, key in ipairs(KEYS) do hashes[i] = redis.call('HGETALL', key) end
return hashes
"""
# Compare everything before the first write, so that all failures come before it: after its first write, Redis neither kills a
# script nor refuses it memory. A move is the number of its key, its field, and the old and the new value.
_SWAP = """
local moves = cjson.decode(ARGV[1])
for _, move in ipairs(moves) do
  if (redis.call('HGET', KEYS[move[1]], move[2]) or '') ~= move[3] then return 0 end
end
for _, move in ipairs(moves) do redis.call('HSET', KEYS[move[1]], move[2], move[4]) end
return 1
"""

# Patterns of an exception's name and text: some codes are only in the name, and older servers wrap the errors of a script.
_ANSWERS: Mapping[type[StoreError], Mapping[str, str]] = {
    StoreRefusedError: {
        r"^Authentic|^Authoriz|NOAUTH|WRONGPASS|invalid username-password|Authentication required": "it refused",
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed": "set ssl_ca_certs in the connection's extra",
        r"^NoPermission|NOPERM|ACL failure|has no permissions|can't run this command": (
            "this user lacks rights (in a cluster also +cluster|slots +cluster|shards +command)\n"
            "    ACL SETUSER <user> ~<the keys> +eval +hgetall +hget +hset"
        ),
        r"^Moved|^Ask|^ClusterCrossSlot|CROSSSLOT": 'put {"cluster": true} into the connection\'s extra',
        r"cluster support disabled|Cluster mode is not enabled": "remove `cluster` from extra and options",
    },
    StoreContentError: {r"WRONGTYPE": "the key is not a hash: set another key (option key)"},
    StoreUnavailableError: {
        r"LOADING|^BusyLoading|^BUSY|: BUSY|MASTERDOWN|^MasterDown|CLUSTERDOWN|^ClusterDown|^TryAgain|NOREPLICAS|max number of": (
            "it can't answer now"
        ),
    },
}


class RedisStore:
    """A Redis server or cluster.

    Args:
        name: its address, as in the group's definition.
        timeout: seconds to wait for an answer.
        settings: settings of redis-py: host, port, db, username, password, ssl and ssl_*.
        key: the pattern of the hashes' keys.
        is_cluster: whether it is a Redis Cluster.
        nodes: more nodes of the cluster to ask first, each ``(host, port)``.
    """

    guarantees = Guarantees(is_atomic=True, compares=Compares.ANY_WRITER)

    def __init__(
        self,
        name: str,
        timeout: float,
        settings: Mapping[str, Any],
        *,
        key: KeyPattern | None = None,
        is_cluster: bool = False,
        nodes: Sequence[tuple[str, int]] = (),
    ) -> None:
        self.name = name
        self._key = key or KeyPattern()
        self._is_cluster = is_cluster
        self._nodes = nodes
        # RESP2, because Redis 5 and some proxies have no other.
        self._settings = {**settings, "protocol": 2, "socket_timeout": timeout, "socket_connect_timeout": timeout}

    def read(self, group: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the offsets of all topics at one moment. In a cluster without a common hash tag, read topic by topic."""
        with self._client() as client:
            return _offsets(self._hashes(client, group, topics))

    def window_ids(self, group: str, topics: Sequence[str]) -> Collection[str]:
        """Return none: there is no place for them."""
        return ()

    def check_writable(self, group: str) -> None:
        """Do nothing: only a write shows whether it is refused."""

    def advance(self, group: str, before: Offsets, after: Offsets, window_id: str = "") -> None:
        """Compare and set in one script."""
        topics = topics_of(after)
        keys = self._keys(group, topics)
        if not self._are_together(keys):
            raise BadInputError(
                f"{self.name}: in a cluster, {counted(len(topics), 'topic')} must share a hash tag: set key={TAGGED}"
            )

        with self._client() as client:

            def read() -> tuple[Offsets, _Hashes]:
                hashes = self._hashes(client, group, topics)
                return _offsets(hashes), hashes

            def write(hashes: _Hashes) -> bool:
                with self._translated(is_writing=True):
                    return bool(client.eval(_SWAP, len(keys), *keys, _moves(topics, after, hashes)) == 1)

            swap(self.name, group, before, after, read, write)

    def _keys(self, group: str, topics: Iterable[str]) -> list[str]:
        return [self._key.key(topic, group) for topic in topics]

    def _are_together(self, keys: Sequence[str]) -> bool:
        return not self._is_cluster or len({key_slot(key.encode()) for key in keys}) <= 1

    def _hashes(self, client: Any, group: str, topics: Sequence[str]) -> _Hashes:
        keys = self._keys(group, topics)
        with self._translated():
            if len(keys) > 1 and self._are_together(keys):
                hashes = [
                    dict(zip(flat[::2], flat[1::2], strict=True)) for flat in client.eval(_READ, len(keys), *keys)
                ]
            else:
                hashes = [client.hgetall(key) for key in keys]
        return dict(zip(topics, hashes, strict=True))

    @contextmanager
    def _client(self) -> Iterator[Any]:
        # A client for each call: the server or a firewall closes a connection that is idle for hours.
        with self._translated():
            client = self._connect()
        with client:
            yield client

    def _connect(self) -> Any:
        settings: dict[str, Any] = {**self._settings, "retry": Retry(NoBackoff(), 0)}
        if not self._is_cluster:
            return Redis(**settings)
        first = (settings.pop("host"), settings.pop("port"))
        settings.pop("db", None)
        return RedisCluster(startup_nodes=[ClusterNode(host, port) for host, port in (first, *self._nodes)], **settings)

    @contextmanager
    def _translated(self, *, is_writing: bool = False) -> Iterator[None]:
        try:
            yield
        except (RedisError, RedisClusterException, OSError) as exc:
            raise self._error(exc, is_writing) from exc

    def _error(self, exc: Exception, is_writing: bool) -> StoreError:
        reason = f"{type(exc).__name__}: {exc}"
        for error, meanings in _ANSWERS.items():
            for pattern, meaning in meanings.items():
                if re.search(pattern, reason):
                    sentence, line, command = meaning.partition("\n")
                    return error(f"{self.name}: {sentence} ({reason}){line}{command}")
        if isinstance(exc, ResponseError) and not isinstance(exc, RedisConnectionError):
            return StoreRefusedError(f"{self.name}: it refused ({reason})")
        if is_writing:
            return StoreOutcomeUnknownError(f"{self.name}: no answer to a write ({reason}){OUTCOME_OPEN}")
        return StoreUnavailableError(f"{self.name}: no answer ({reason})")


def _offsets(hashes: _Hashes) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, read_partition(field, f"The hash of {topic}")): read_offset(
            value, f"The field {field.decode()} of {topic}"
        )
        for topic, fields in hashes.items()
        for field, value in fields.items()
    }


def _moves(topics: Sequence[str], after: Offsets, hashes: _Hashes) -> str:
    number = {topic: index for index, topic in enumerate(topics, 1)}
    moves = [(number[tp.topic], str(tp.partition), str(offset), hashes[tp.topic]) for tp, offset in after.items()]
    return json.dumps([(key, field, old.get(field.encode(), b"").decode(), new) for key, field, new, old in moves])
