"""Offsets in Redis: a hash ``offset:<topic>:<group>`` with a field for each partition. One Lua script advances them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
# script nor refuses it memory. HSET in batches, because Lua's unpack takes fewer than 8,000 values.
_SWAP = """
local i = 1
for _, key in ipairs(KEYS) do
  local last = i + 3 * tonumber(ARGV[i])
  while i < last do
    if (redis.call('HGET', key, ARGV[i + 1]) or '') ~= ARGV[i + 2] then return 0 end
    i = i + 3
  end
  i = i + 1
end
i = 1
for _, key in ipairs(KEYS) do
  local last, batch = i + 3 * tonumber(ARGV[i]), {}
  while i < last do
    batch[#batch + 1] = ARGV[i + 1]
    batch[#batch + 1] = ARGV[i + 3]
    i = i + 3
    if #batch >= 2000 or i >= last then
      redis.call('HSET', key, unpack(batch))
      batch = {}
    end
  end
  i = i + 1
end
return 1
"""
_RIGHTS = "+eval +hgetall +hget +hset"
# Patterns of an exception's name and text: some codes are only in the name, and older servers wrap the errors of a script.
_ANSWERS: Mapping[type[StoreError], Mapping[str, str]] = {
    StoreRefusedError: {
        r"^Authentic|^Authoriz|NOAUTH|WRONGPASS|invalid username-password|Authentication required": (
            "it refused the login of the Airflow connection"
        ),
        r"^NoPermission|NOPERM|ACL failure|has no permissions|can't run this command": (
            "this user lacks rights (in a cluster also +cluster|slots +cluster|shards +command):\n"
            f"    ACL SETUSER <user> ~<the keys> {_RIGHTS}"
        ),
        r"^ReadOnly|READONLY": "it is a replica: name the primary in the connection",
        r"^OutOfMemory|\bOOM\b": "its memory is full: raise its maxmemory",
        r"MISCONF": "it can't save to disk and accepts no writes: see its log",
        r"^Moved|^Ask|^ClusterCrossSlot|CROSSSLOT": (
            'it is a node of a cluster: put {"cluster": true} into the connection\'s extra'
        ),
        r"cluster support disabled|Cluster mode is not enabled": (
            "it is not a cluster: remove `cluster` from the connection's extra and the store's options"
        ),
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed": (
            "its certificate is not trusted: set ssl_ca_certs in the connection's extra, and a host that it names"
        ),
    },
    StoreContentError: {
        r"WRONGTYPE": "the value under the group's key is not a hash: remove it, or choose another key (option `key`)",
    },
    StoreUnavailableError: {
        r"LOADING|^BusyLoading|^BUSY|: BUSY|MASTERDOWN|^MasterDown|CLUSTERDOWN|^ClusterDown|^TryAgain|NOREPLICAS|max number of": (
            "it can't answer now; nothing was written"
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

    def advance(self, group: str, before: Offsets, after: Offsets, window_id: str = "") -> None:
        """Compare and set in one script."""
        topics = topics_of(after)
        keys = self._keys(group, topics)
        if not self._are_together(keys):
            raise BadInputError(
                f"{self.name}: in a cluster, the keys of {counted(len(topics), 'topic')} must share a hash tag. "
                f"Set the option key={TAGGED}, for keys such as {KeyPattern(TAGGED).key(topics[0], group)}"
            )

        with self._client() as client:

            def read() -> tuple[Offsets, _Hashes]:
                hashes = self._hashes(client, group, topics)
                return _offsets(hashes), hashes

            def write(hashes: _Hashes) -> bool:
                with self._translated(is_writing=True):
                    return bool(client.eval(_SWAP, len(keys), *keys, *_arguments(topics, after, hashes)) == 1)

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
                    return error(
                        f"{self.name}: {sentence.removesuffix(':')} ({reason}){':' if line else ''}{line}{command}"
                    )
        if isinstance(exc, ResponseError) and not isinstance(exc, RedisConnectionError):
            return StoreRefusedError(f"{self.name}: Redis refused ({reason})")
        if is_writing:
            return StoreOutcomeUnknownError(
                f"{self.name}: no answer to a write ({reason}). A retry shows if it is written"
            )
        return StoreUnavailableError(f"{self.name}: Redis did not answer, nothing was written ({reason})")


def _offsets(hashes: _Hashes) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, read_partition(field, f"The hash of topic {topic} in Redis")): read_offset(
            value, f"The field {field.decode()} of topic {topic} in Redis"
        )
        for topic, fields in hashes.items()
        for field, value in fields.items()
    }


def _arguments(topics: Sequence[str], after: Offsets, hashes: _Hashes) -> list[str | bytes | int]:
    arguments: list[str | bytes | int] = []
    for topic in topics:
        moves = {str(tp.partition): offset for tp, offset in after.items() if tp.topic == topic}
        arguments.append(len(moves))
        for field, offset in moves.items():
            arguments += (field, hashes[topic].get(field.encode(), b""), offset)
    return arguments
