"""A door to a Kafka broker that hides some of what the broker can do, and counts requests.

What a broker can do, it says in its answer to ApiVersions: a range of versions for each kind of request. This door rewrites that answer.
"""

from __future__ import annotations

import contextlib
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.lab.processes import LOOPBACK, free_port
from tests.lab.proxy import Proxy

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

LIST_OFFSETS, METADATA, API_VERSIONS, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS = 2, 3, 18, 23, 32
LIST_GROUPS, INIT_PRODUCER_ID = 16, 22
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 24, 25, 26, 28
TRANSACTIONS = (INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT)


class ApiProxy(Proxy):
    """Forward connections to a broker, which must advertise this door: see `properties`."""

    def __init__(self) -> None:
        super().__init__(0)
        self.port = free_port()
        self.lacks: dict[int, int | None] = {}
        """By kind of request, the highest version that is left, or None if the kind is taken away."""
        self.refuses_times = False
        """Whether each question of ListOffsets about a time is refused. It needs `LIST_OFFSETS` of at most 5, which is easier to read."""
        self.requests: Counter[int] = Counter()
        """How many requests of each kind came by."""
        self._waiting: dict[socket.socket, dict[int, tuple[int, int]]] = {}

    @property
    def properties(self) -> dict[str, str]:
        """The settings of a broker behind this door."""
        return {"advertised.listeners": f"CLIENT://{LOOPBACK}:{self.port}"}

    def open_to(self, port: int) -> None:
        """Lead to a broker at this port."""
        self._target = port

    def without(self, lacks: Mapping[int, int | None]) -> None:
        """Take these away from all that connect from now on, and cut those that are connected."""
        self.lacks, self.refuses_times = dict(lacks), False
        self.cut()

    def _forward(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        # Both directions share which requests have no answer so far: kind and version by correlation id.
        client = target if is_answer else source
        waiting = self._waiting.setdefault(client, {})
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _read(source, *struct.unpack(">i", _read(source, 4)))
                if is_answer:
                    [correlation] = struct.unpack_from(">i", frame)
                    kind, version = waiting.pop(correlation, (None, 0))
                    if kind == API_VERSIONS:
                        frame = frame[:4] + self._rewritten(frame[4:], version)
                    elif kind == LIST_OFFSETS:
                        frame = frame[:4] + _refused(frame[4:], version)
                else:
                    kind, version, correlation = struct.unpack_from(">hhi", frame)
                    self.requests[kind] += 1
                    if kind == API_VERSIONS or (
                        kind == LIST_OFFSETS and self.refuses_times and _is_by_time(frame, version)
                    ):
                        waiting[correlation] = kind, version
                target.sendall(struct.pack(">i", len(frame)) + frame)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(2)

    def _rewritten(self, body: bytes, version: int) -> bytes:
        """Return the answer without what is taken away. From version 3 on, its array is compact, and each entry has tags."""
        [error] = struct.unpack_from(">h", body)
        if error:  # the broker does not know that version, and says in version 0 what it knows
            version = 0
        is_compact = version >= 3
        if is_compact:
            number, at = _varint(body, 2)
            number -= 1
        else:
            [number], at = struct.unpack_from(">i", body, 2), 6
        kept: list[bytes] = []
        for _ in range(number):
            kind, lowest, highest = struct.unpack_from(">hhh", body, at)
            at += 7 if is_compact else 6
            most = self.lacks.get(kind, highest)
            if most is not None:
                kept.append(struct.pack(">hhh", kind, lowest, min(highest, most)) + (b"\0" if is_compact else b""))
        count = _as_varint(len(kept) + 1) if is_compact else struct.pack(">i", len(kept))
        return body[:2] + count + b"".join(kept) + body[at:]


def _is_by_time(request: bytes, version: int) -> bool:
    """Whether the first question of a ListOffsets request is about a time, and not about the first or the last offset."""
    [client_id] = struct.unpack_from(">h", request, 8)
    at = 10 + max(0, client_id) + 4 + (1 if version >= 2 else 0) + 4
    [topic] = struct.unpack_from(">h", request, at)
    [time] = struct.unpack_from(">q", request, at + 2 + topic + 4 + 4 + (4 if version >= 4 else 0))
    return bool(time >= 0)


def _refused(answer: bytes, version: int) -> bytes:
    """Return an answer of ListOffsets with UNSUPPORTED_VERSION for each partition."""
    refused, at = bytearray(answer), 4 if version >= 2 else 0
    [topics] = struct.unpack_from(">i", answer, at)
    at += 4
    for _ in range(topics):
        [name] = struct.unpack_from(">h", answer, at)
        [partitions] = struct.unpack_from(">i", answer, at + 2 + name)
        at += 2 + name + 4
        for _ in range(partitions):
            struct.pack_into(">h", refused, at + 4, 35)
            at += 26 if version >= 4 else 22
    return bytes(refused)


def _read(source: socket.socket, number: Any) -> bytes:
    parts = b""
    while len(parts) < number:
        if not (part := source.recv(number - len(parts))):
            raise EOFError
        parts += part
    return parts


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _as_varint(value: int) -> bytes:
    encoded = b""
    while value >= 128:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])
