"""Offsets in ZooKeeper: in Kafka's old layout, or in one JSON node for each group. One versioned multi advances them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from posixpath import dirname
from typing import Any

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import SetData, Transaction
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from airflow_kafka_offsets.adapters.stores.swapping import READS, overtaken, swap
from airflow_kafka_offsets.core.errors import (
    OUTCOME_OPEN,
    BadInputError,
    OffsetsJsonError,
    StoreContentError,
    StoreError,
    StoreLimitError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition
from airflow_kafka_offsets.core.spark_json import dump_offsets, load_offsets
from airflow_kafka_offsets.core.store.guarantees import Compares, Guarantees
from airflow_kafka_offsets.core.store.values import read_offset, read_partition

MAX_REQUEST_BYTES = 1_048_575
"""ZooKeeper's default jute.maxbuffer. A server cuts the connection of a larger request."""

_ON_THE_WAY = 50
"""How many requests may wait for their answers. Without a connection, kazoo accepts 70 to 270, then blocks without end."""

_HEADER = 8
"""Bytes of a request before its content: its number and its type."""

# A multi's answers if another writer was first, also for operations that were rolled back or not tried.
_OVERTAKEN = (
    exceptions.BadVersionError,
    exceptions.NodeExistsError,
    exceptions.NoNodeError,
    exceptions.RolledBackError,
    exceptions.RuntimeInconsistency,
)
_EXCLUDED = (exceptions.NoAuthError, exceptions.AuthFailedError, exceptions.InvalidACLError)
_SILENT = (
    KazooTimeoutError,
    exceptions.ConnectionLoss,
    exceptions.SessionExpiredError,
    exceptions.OperationTimeoutError,
    OSError,
)
_PASSING = (exceptions.NotReadOnlyCallError, exceptions.SessionMovedError, exceptions.ThrottledOpError)

# At level DEBUG, kazoo logs the login.
logger = logging.getLogger(f"{__name__}.client")
logger.setLevel(logging.ERROR)


class Access(StrEnum):
    """What others may do with the nodes that this store creates: anything, read, or nothing."""

    OPEN = "open"
    READ = "read"
    PRIVATE = "private"


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The answers to many requests, one after the other; None is a missing node.

    Attributes:
        folders: children of the listed nodes, each with the node's metadata.
        parents: metadata of all nodes above, from the root on, requested after the folders.
        nodes: content and metadata of the nodes to read, requested last.
    """

    folders: Mapping[str, tuple[Sequence[str], Any] | None]
    parents: Mapping[str, Any | None]
    nodes: Mapping[str, tuple[bytes | None, Any] | None]

    def is_of(self, moment: int) -> bool:
        """Whether all of it was the same at an earlier moment, which is a transaction's number."""
        if any(node is None and dirname(path) in self.folders for path, node in self.nodes.items()):
            return False  # a listed node is gone
        absent = [path for path, node in (*self.folders.items(), *self.parents.items()) if node is None]
        lists = [listed[1] for listed in self.folders.values() if listed]
        lists += [above for path in absent if (above := self.parents.get(dirname(path)))]
        return all(stat.pzxid <= moment for stat in lists) and all(
            node[1].last_modified_transaction_id <= moment for node in self.nodes.values() if node
        )

    @property
    def contents(self) -> dict[str, bytes]:
        """The content of each existing node, by path."""
        return {path: node[0] or b"" for path, node in self.nodes.items() if node}


_PathsIn = Callable[[Mapping[str, Sequence[str] | None]], Sequence[str]]


class NodeLayout:
    """Kafka's old layout: ``/consumers/<group>/offsets/<topic>/<partition>``, each node with its offset as text."""

    limit = "about 10,000"

    way_out = "set layout=json, or raise"

    def __init__(self, base: str) -> None:
        self._folder = f"{base}/offsets"

    def folders(self, topics: Sequence[str]) -> list[str]:
        """Return the nodes whose children must be listed to read the topics."""
        return [f"{self._folder}/{topic}" for topic in topics]

    def paths_in(self, folders: Mapping[str, Sequence[str] | None]) -> list[str]:
        """Return the nodes to read, from the children of the folders (None if there is no such folder)."""
        return [f"{folder}/{child}" for folder, children in folders.items() for child in children or ()]

    def paths_of(self, offsets: Offsets) -> list[str]:
        """Return the nodes that these offsets are in."""
        return [self._path(tp) for tp in offsets]

    def offsets(self, contents: Mapping[str, bytes]) -> dict[TopicPartition, int]:
        """Return the offsets that nodes hold. An empty node is from an advance that died."""
        offsets = {}
        for path, data in contents.items():
            folder, _, name = path.rpartition("/")
            partition = read_partition(name.encode(), f"The node {folder}")
            if data:
                topic = folder.rpartition("/")[2]
                offsets[TopicPartition(topic, partition)] = read_offset(data, f"The node {path}")
        return offsets

    def values(self, contents: Mapping[str, bytes], after: Offsets) -> dict[str, bytes]:
        """Return what nodes must hold for these offsets, from what they hold now."""
        return {self._path(tp): b"%d" % offset for tp, offset in after.items()}

    def _path(self, tp: TopicPartition) -> str:
        return f"{self._folder}/{tp.topic}/{tp.partition}"


class JsonLayout:
    """One node for the group, ``/consumers/<group>/offsets.json``, with Spark's JSON of offsets."""

    limit = None

    way_out = "split the group, or raise"

    def __init__(self, base: str) -> None:
        self._path = f"{base}/offsets.json"

    def folders(self, topics: Sequence[str]) -> list[str]:
        """Return none."""
        return []

    def paths_in(self, folders: Mapping[str, Sequence[str] | None]) -> list[str]:
        """Return the one node."""
        return [self._path]

    def paths_of(self, offsets: Offsets) -> list[str]:
        """Return the one node."""
        return [self._path]

    def offsets(self, contents: Mapping[str, bytes]) -> dict[TopicPartition, int]:
        """Return all offsets of the group."""
        data = contents.get(self._path)
        if not data:
            return {}
        try:
            return load_offsets(data.decode())
        except (OffsetsJsonError, UnicodeDecodeError) as exc:
            raise StoreContentError(f"The node {self._path} holds no offsets: {exc}") from exc

    def values(self, contents: Mapping[str, bytes], after: Offsets) -> dict[str, bytes]:
        """Return the new content. Topics that the advance does not name stay in it."""
        return {self._path: dump_offsets({**self.offsets(contents), **after}).encode()}


class ZooKeeperStore:
    """A ZooKeeper ensemble.

    Args:
        name: its address, as in the group's definition.
        timeout: seconds to wait for a server's answer.
        hosts: ``host:port``, with commas between them.
        chroot: the node above all others, such as ``/kafka``, which must exist. Empty: the root.
        login: name and password for the scheme ``digest``; None means no login.
        tls: kazoo's settings for TLS.
        layout: `NodeLayout`, one node for each partition, or `JsonLayout`, one for the group.
        access: of the nodes that are created.
        max_request_bytes: the servers' jute.maxbuffer.

    Raises:
        BadInputError: access is limited to a login, but there is none.
    """

    def __init__(
        self,
        name: str,
        timeout: float,
        hosts: str,
        *,
        chroot: str = "",
        login: tuple[str, str] | None = None,
        tls: Mapping[str, Any] | None = None,
        layout: type[NodeLayout | JsonLayout] = NodeLayout,
        access: Access | None = None,
        max_request_bytes: int = MAX_REQUEST_BYTES,
    ) -> None:
        self.name = name
        self._timeout = timeout
        self._hosts = hosts
        self._chroot = chroot.rstrip("/")
        self._login = login
        self._tls = dict(tls or {})
        self._layout = layout
        self._access = access or (Access.READ if login else Access.OPEN)
        self._max_request_bytes = max_request_bytes
        self.guarantees = Guarantees(
            is_atomic=True,
            compares=Compares.ANY_WRITER,
            limit=layout.limit,
        )
        if self._access is not Access.OPEN and login is None:
            raise BadInputError(f"{name}: acl={self._access} requires a login in the connection")

    def read(self, group: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the offsets of all topics at one moment."""
        layout = self._layout(self._base(group))
        with self._session() as client:
            offsets = layout.offsets(self._nodes(client, group, layout.folders(topics), layout.paths_in).contents)
        return {tp: offset for tp, offset in offsets.items() if tp.topic in topics}

    def window_ids(self, group: str, topics: Sequence[str]) -> Collection[str]:
        """Return none: there is no place for them."""
        return ()

    def check_writable(self, group: str) -> None:
        """Do nothing: only a write shows whether it is refused."""

    def advance(self, group: str, before: Offsets, after: Offsets, window_id: str = "") -> None:
        """Compare and set in one multi."""
        layout = self._layout(self._base(group))
        self._check_size(layout.values({}, after))
        with self._session() as client:

            def read() -> tuple[Offsets, _Nodes]:
                nodes = self._nodes(client, group, (), lambda _: layout.paths_of(after))
                return layout.offsets(nodes.contents), nodes

            def write(nodes: _Nodes) -> bool:
                return self._write(client, nodes, layout.values(nodes.contents, after))

            swap(self.name, group, before, after, read, write)

    # Reading

    def _base(self, group: str) -> str:
        if "/" in group or group in ("", ".", ".."):
            raise BadInputError(f"{self.name}: {group!r} can't name a node")
        return f"{self._chroot}/consumers/{group}"

    def _nodes(self, client: Any, group: str, folders: Sequence[str], paths_in: _PathsIn) -> _Nodes:
        """Return the nodes as of one moment, although ZooKeeper has no request that reads several."""
        for _ in range(READS):
            # This server may be behind the one that the last write went to.
            client.sync_async(self._chroot or "/").get(timeout=self._timeout)
            moment = client.last_zxid
            nodes = self._read_all(client, folders, paths_in)
            if nodes.is_of(moment):
                return nodes
        raise overtaken(self.name, group)

    def _read_all(self, client: Any, folders: Sequence[str], paths_in: _PathsIn) -> _Nodes:
        listed = dict(self._answers(partial(client.get_children_async, include_data=True), folders))
        paths = paths_in({folder: node and node[0] for folder, node in listed.items()})
        above = sorted({parent for path in (*folders, *paths) for parent in _parents(path, self._chroot)})
        parents = dict(self._answers(client.exists_async, above))
        existing = [path for path in paths if parents[dirname(path)] is not None]
        return _Nodes(listed, parents, {**dict.fromkeys(paths), **dict(self._answers(client.get_async, existing))})

    def _answers(self, request: Callable[[str], Any], paths: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """Send a request for each path without waiting for earlier answers. The answer is None if there is no node."""
        waiting: deque[tuple[str, Any]] = deque()
        for path in paths:
            waiting.append((path, request(path)))
            if len(waiting) >= _ON_THE_WAY:
                yield self._answer(*waiting.popleft())
        for path, answer in waiting:
            yield self._answer(path, answer)

    def _answer(self, path: str, answer: Any) -> tuple[str, Any]:
        try:
            return path, answer.get(timeout=self._timeout)
        except exceptions.NoNodeError:
            return path, None

    # Writing

    def _write(self, client: Any, nodes: _Nodes, values: Mapping[str, bytes]) -> bool:
        """Write all values if the nodes have not changed. Return whether they are written."""
        missing = [path for path, stat in nodes.parents.items() if stat is None]
        multi = client.transaction()
        self._create(multi, missing)
        for path, data in values.items():
            if node := nodes.nodes[path]:
                multi.set_data(path, data, version=node[1].version)
            else:
                multi.create(path, data, acl=self._acl(path))
        if _size(multi.operations) <= self._max_request_bytes:
            return self._commit(multi)
        self._check_size(values)
        self._prepare(client, [*missing, *(path for path in values if nodes.nodes[path] is None)])
        return False

    def _check_size(self, values: Mapping[str, bytes]) -> None:
        """Refuse an advance that is too large even if all nodes exist."""
        if (size := _size([SetData(path, data, -1) for path, data in values.items()])) > self._max_request_bytes:
            raise StoreLimitError(
                f"{self.name}: the servers accept {self._max_request_bytes} bytes, and this request has {size}: "
                f"{self._layout.way_out} jute.maxbuffer and max_request_bytes"
            )

    def _prepare(self, client: Any, paths: Sequence[str]) -> None:
        """Create nodes without an offset first, because creating takes larger requests than writing."""
        multi = client.transaction()
        self._create(multi, paths)
        for operations in _portions(multi.operations, self._max_request_bytes):
            portion = client.transaction()
            portion.operations = operations
            self._commit(portion)

    def _create(self, multi: Any, paths: Sequence[str]) -> None:
        for path in paths:
            multi.create(path, b"", acl=self._acl(path))

    def _acl(self, path: str) -> list[Any]:
        # Other tools' groups are under this node, too.
        if self._access is Access.OPEN or path == f"{self._chroot}/consumers":
            return list(OPEN_ACL_UNSAFE)
        return [*CREATOR_ALL_ACL, *(READ_ACL_UNSAFE if self._access is Access.READ else ())]

    def _commit(self, multi: Any) -> bool:
        with self._translated(is_writing=True):
            results = multi.commit_async().get(timeout=self._timeout)
            failed = [result for result in results if isinstance(result, Exception)]
            for error in failed:
                if not isinstance(error, _OVERTAKEN):
                    raise error
        return not failed

    # Sessions

    @contextmanager
    def _session(self) -> Iterator[Any]:
        client = KazooClient(
            self._hosts,
            timeout=self._timeout,
            auth_data=[("digest", ":".join(self._login))] if self._login else None,
            logger=logger,
            **self._tls,
        )
        with self._translated():
            try:
                # kazoo tries one server after the other, each for the time-out.
                client.start(self._timeout * len(client.hosts))
                self._check_chroot(client)
                yield client
            finally:
                # All answers have arrived, so an error while closing does not matter.
                with suppress(exceptions.KazooException, OSError):
                    client.stop()
                    client.close()

    def _check_chroot(self, client: Any) -> None:
        # It is not created: a typing error would make a second, empty tree.
        if self._chroot and client.exists_async(self._chroot).get(timeout=self._timeout) is None:
            raise StoreRefusedError(
                f"{self.name}: {self._hosts} has no node {self._chroot}: correct the chroot, or create it"
            )

    @contextmanager
    def _translated(self, *, is_writing: bool = False) -> Iterator[None]:
        try:
            yield
        except (exceptions.KazooException, KazooTimeoutError, OSError) as exc:
            raise self._error(exc, is_writing) from exc

    def _error(self, exc: Exception, is_writing: bool) -> StoreError:
        server, reason = f"{self.name}: {self._hosts}", f"{type(exc).__name__} {exc}".strip()
        if isinstance(exc, _EXCLUDED):
            return StoreRefusedError(f"{server} refused ({reason}): correct the login or the node's ACL")
        if is_writing and isinstance(exc, _SILENT):
            return StoreOutcomeUnknownError(
                f"{server} did not answer a write ({reason}); if retries don't help, lower max_request_bytes to jute.maxbuffer{OUTCOME_OPEN}"
            )
        if isinstance(exc, (*_SILENT, *_PASSING)):
            return StoreUnavailableError(f"{server} did not answer ({reason})")
        return StoreRefusedError(f"{server} refused ({reason})")


def _parents(path: str, chroot: str) -> Iterator[str]:
    parts = path[len(chroot) :].split("/")[1:-1]
    for count in range(1, len(parts) + 1):
        yield chroot + "/" + "/".join(parts[:count])


def _size(operations: Sequence[Any]) -> int:
    return _HEADER + len(Transaction(operations).serialize())


def _portions(operations: Sequence[Any], max_bytes: int) -> Iterator[list[Any]]:
    """Divide operations into requests that are not too large, each with at least one operation."""
    empty = size = _size([])
    portion: list[Any] = []
    for operation in operations:
        added = _size([operation]) - empty
        if portion and size + added > max_bytes:
            yield portion
            portion, size = [], empty
        portion.append(operation)
        size += added
    if portion:
        yield portion
