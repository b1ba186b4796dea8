"""Offsets in HBase, through its Thrift 1 gateway.

The well-known recipe has a row per batch, ``<topic>:<group>:<epoch ms>``, with a column per partition in a family whose
cells expire; its readers scan backwards from now and take the first row. Thrift 1 can compare one cell only, so beside
these rows one cell holds the state of the whole group: that cell is the truth, and moves first, by compare-and-set. It
also says at what time each topic's row belongs, so the rows can be written, or written again, from the cell alone:
whoever advances next does so when the last one died in between.

A row that is newer than what the cell says comes from somebody else who uses the recipe: it counts.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from airflow_kafka_offsets.adapters.stores.swapping import LOOKS, swap
from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConcurrentChangeError,
    StoreAnswerError,
    StoreContentError,
    StoreError,
    StoreLimitError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_kafka_offsets.core.offsets import Offsets, TopicPartition, is_whole, topics_of
from airflow_kafka_offsets.core.store.guarantees import Compares, Guarantees
from airflow_kafka_offsets.core.store.values import read_offset, read_partition

TABLE = "kafka_offsets"
FAMILY = "offsets"
STATE_FAMILY = "state"

_VERSION = 1
# Row keys are compared as text, so only times of one length sort: 13 digits are the years 2001 to 2286.
_OLDEST, _NEWEST = 10**12, 10**13 - 2


@dataclass(frozen=True, slots=True)
class Batch:
    """The next offsets of one topic as of one batch.

    Attributes:
        time: epoch milliseconds, 13 digits: the end of its row key.
        offsets: by partition; every partition that the group has of this topic.
    """

    time: int
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a look found: the bytes of the state cell (None: there is none), and the newest batch of each topic."""

    cell: bytes | None
    batches: Mapping[str, Batch]

    def offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        found = {topic: self.batches[topic] for topic in topics if topic in self.batches}
        return {
            TopicPartition(topic, number): o for topic, batch in found.items() for number, o in batch.offsets.items()
        }


class HBaseStore:
    """A table in HBase: a state cell for each group, and a row for each topic and batch.

    Every call has a connection of its own: after a time-out, an old one could give the late answer to the next question.

    Args:
        name: its address, for messages.
        host: where the Thrift 1 gateway is.
        port: its port.
        timeout: seconds that the gateway may stay silent.
        table: name of the table, which must exist.
        family: column family of the batch rows; it may expire.
        state_family: column family of the state cells; it should not expire.
        transport: the gateway's: ``buffered`` or ``framed``.
        protocol: the gateway's: ``binary`` or ``compact``.
        clock: the time in epoch seconds.

    Raises:
        BadInputError: no such transport or protocol.
    """

    guarantees = Guarantees(
        is_atomic=True,
        compares=Compares.COOPERATING,
        caveat="The state cell holds all partitions of the group and moves as a whole. The batch rows, which other tools "
        "read, follow it one topic after the other, each row as a whole. A batch row that another tool writes is "
        "noticed by the next look at the store, but not between our look and our write.",
    )

    def __init__(
        self,
        name: str,
        *,
        host: str,
        port: int = 9090,
        timeout: float = 10,
        table: str = TABLE,
        family: str = FAMILY,
        state_family: str = STATE_FAMILY,
        transport: str = "buffered",
        protocol: str = "binary",
        clock: Callable[[], float] = time.time,
    ) -> None:
        import happybase

        self.name = name
        self._names = {"table": table, "family": family, "state_family": state_family}
        self._state_column = f"{state_family}:json".encode()
        self._clock = clock
        self._gateway = f"the Thrift gateway at {host}:{port} ({transport}, {protocol}, {timeout:g} s)"
        self._settings = {"host": host, "port": port, "timeout": int(timeout * 1000)}
        self._settings |= {"transport": transport, "protocol": protocol}
        try:
            happybase.Connection(**self._settings, autoconnect=False)
        except ValueError as exc:
            raise BadInputError(f"{name}: {exc}, as the gateway has it") from exc

    def read(self, group: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the next offsets of a group; see `OffsetStore.read`."""
        with self._opened() as table:
            try:
                seen = self._look(table, group, topics)
            except _NoFamilyError:
                # A table of the recipe that nobody has made ready for writing yet.
                seen = _Seen(None, self._newer_rows(table, group, topics, {}))
        return seen.offsets(topics)

    def advance(self, group: str, before: Offsets, after: Offsets, window_id: str = "") -> None:
        """Move the offsets of a group; see `OffsetStore.advance`."""
        topics = topics_of(after)
        with self._opened() as table:

            def look() -> tuple[Offsets, _Seen]:
                seen = self._look(table, group, topics)
                return seen.offsets(topics), seen

            def write(seen: _Seen) -> bool:
                batches = advanced(seen.batches, after, int(self._clock() * 1000))
                return table.swap(state_row(group), self._state_column, seen.cell, state_cell(batches, window_id))

            swap(self.name, group, before, after, look, write)
            self._write_missing_rows(table, group)

    def _look(self, table: _Table, group: str, topics: Sequence[str]) -> _Seen:
        for _ in range(LOOKS):
            cell, batches = self._state(table, group)
            newer = self._newer_rows(table, group, topics, batches)
            # A row may be that of an advance which moved the state since, and did not come to the other topics yet.
            if not newer or table.cell(state_row(group), self._state_column) == cell:
                return _Seen(cell, {**batches, **newer})
        raise ConcurrentChangeError(f"{self.name}: group {group} was moved {LOOKS} times while we looked at it")

    def _state(self, table: _Table, group: str) -> tuple[bytes | None, dict[str, Batch]]:
        cell = table.cell(state_row(group), self._state_column)
        return cell, {} if cell is None else parse_state(cell, f"{self.name}, row {state_row(group).decode()}")

    def _newer_rows(
        self, table: _Table, group: str, topics: Sequence[str], batches: Mapping[str, Batch]
    ) -> dict[str, Batch]:
        newer = {}
        for topic in topics:
            known = batches.get(topic, Batch(_OLDEST, {}))
            row = table.last_before(
                batch_row(topic, group, _NEWEST),
                batch_row(topic, group, known.time),
                partial(parse_row, prefix=batch_row(topic, group, ""), store=self.name),
            )
            if row is not None:
                newer[topic] = Batch(row.time, {**known.offsets, **row.offsets})
        return newer

    def _write_missing_rows(self, table: _Table, group: str) -> None:
        try:
            for topic, batch in self._state(table, group)[1].items():
                cells = {
                    f"{self._names['family']}:{partition}".encode(): b"%d" % o for partition, o in batch.offsets.items()
                }
                key = batch_row(topic, group, batch.time)
                if table.cell(key, next(iter(cells))) is None:
                    table.put(key, cells)
        except StoreAnswerError as exc:
            raise StoreOutcomeUnknownError(
                f"The offsets of group {group} are in the state cell, but the batch rows that other tools read may not have "
                f"followed; the same advance again writes them. {exc}"
            ) from exc

    @contextlib.contextmanager
    def _opened(self) -> Iterator[_Table]:
        import happybase

        connection = happybase.Connection(**self._settings, autoconnect=False)
        table = _Table(connection, self._names, self.name, self._gateway)
        try:
            table.open()
            yield table
        finally:
            connection.close()


class _Table:
    """One table over one connection; its methods raise `StoreError` only."""

    def __init__(self, connection: Any, names: Mapping[str, str], store: str, gateway: str) -> None:
        self._connection = connection
        self._client = connection.client
        self._names = names
        self._name = names["table"].encode()
        self._family = names["family"].encode()
        self._store = store
        self._gateway = gateway

    def open(self) -> None:
        with self._asking():
            self._connection.open()

    def cell(self, row: bytes, column: bytes) -> bytes | None:
        """Return one cell; None: there is none."""
        with self._asking():
            rows = self._client.getRowWithColumns(self._name, row, [column], {})
        return rows[0].columns[column].value if rows else None

    def last_before(
        self, first: bytes, last: bytes, parse: Callable[[bytes, Mapping[bytes, bytes]], Batch | None]
    ) -> Batch | None:
        """Return what the first row gives that gives something, from `first` backwards to `last`, which is not one of them."""
        from Hbase_thrift import TScan

        scan = TScan(startRow=first, stopRow=last, columns=[self._family], caching=1, reversed=True)
        found = None
        with self._asking():
            scanner = self._client.scannerOpenWithScan(self._name, scan, {})
            while found is None and (rows := self._client.scannerGetList(scanner, 1)):
                found = parse(rows[0].row, {column: cell.value for column, cell in rows[0].columns.items()})
            self._client.scannerClose(scanner)
        return found

    def swap(self, row: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        """Put a cell, if it is still as expected (None: absent)."""
        from Hbase_thrift import Mutation

        with self._asking(is_writing=True):
            put = Mutation(column=column, value=value)
            return bool(self._client.checkAndPut(self._name, row, column, expected, put, {}))

    def put(self, row: bytes, cells: Mapping[bytes, bytes]) -> None:
        """Put a row, as a whole."""
        from Hbase_thrift import Mutation

        with self._asking(is_writing=True):
            self._client.mutateRow(self._name, row, [Mutation(column=c, value=v) for c, v in cells.items()], {})

    @contextlib.contextmanager
    def _asking(self, *, is_writing: bool = False) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        # The client has no common ancestor for what it raises when the answer is not one of Thrift's.
        except Exception as exc:
            raise self._translated(exc, is_writing=is_writing) from exc

    def _translated(self, exc: Exception, *, is_writing: bool) -> StoreError:
        said = told_by(exc)
        for pattern, error, advice in _ANSWERS:
            if found := re.search(pattern, said):
                return error(f"{self._store}: {advice.format(*found.groups(), **self._names)}")
        did = "did not answer in time" if isinstance(exc, TimeoutError) else f"failed ({said.splitlines()[0]})"
        if is_writing:
            return StoreOutcomeUnknownError(f"{self._store}: {self._gateway} {did} while we wrote")
        return StoreUnavailableError(f"{self._store}: {self._gateway} {did}")


class _NoFamilyError(StoreRefusedError):
    """The table lacks a column family."""


_ANSWERS: Sequence[tuple[str, type[StoreError], str]] = (
    (
        r"TableNotFoundException",
        StoreRefusedError,
        "HBase has no table {table}. Create it in the HBase shell: create '{table}', {{NAME => '{family}', "
        "TTL => 2592000}}, {{NAME => '{state_family}'}}",
    ),
    (
        r"NoSuchColumnFamilyException: Column family (\S+) does not exist",
        _NoFamilyError,
        "Table {table} has no column family {0}. Add it in the HBase shell: alter '{table}', {{NAME => '{0}'}}",
    ),
    (r"TableNotEnabledException", StoreRefusedError, "Table {table} is disabled. In the HBase shell: enable '{table}'"),
    (
        r"AccessDeniedException: (Insufficient permissions[^\n]*)",
        StoreRefusedError,
        "HBase denies access: {0}. It needs the rights to read and write the table: grant '<user>', 'RW', '{table}'",
    ),
    (
        r"is read[ -]only",
        StoreRefusedError,
        "Table {table} is read-only. In the HBase shell: alter '{table}', READONLY => false",
    ),
    (
        r"KeyValue size too large|exceeds limit of (\d+) bytes",
        StoreLimitError,
        "The state of the group is larger than a cell of HBase may be (hbase.client.keyvalue.maxsize, "
        "hbase.server.keyvalue.maxsize). Nothing was written",
    ),
    (
        r"Invalid method name",
        StoreRefusedError,
        "What answers there is not HBase's Thrift 1 gateway (hbase thrift start); Thrift 2 can't be used",
    ),
)
"""What HBase may say: the text, the error that it is, and what to do."""


def told_by(exc: Exception) -> str:
    """Return what an exception of the client says; its own text may hold the whole request, or fail."""
    message = getattr(exc, "message", None)
    if isinstance(message, bytes):
        message = text_of(message)
    if message is None and isinstance(exc, OSError):
        message = exc.strerror or str(exc)
    return f"{type(exc).__name__}: {message}" if message else type(exc).__name__


def text_of(found: bytes) -> str:
    """Return bytes that were found as text for a message, whatever they are."""
    return found.decode(errors="replace")


def state_row(group: str) -> bytes:
    """Return the key of a group's state; no topic has an empty name, so no batch row has such a key."""
    return f":{group}".encode()


def batch_row(topic: str, group: str, time: int | Literal[""]) -> bytes:
    """Return the key of a batch row, as the recipe has it, or what all such keys begin with."""
    return f"{topic}:{group}:{time}".encode()


def advanced(batches: Mapping[str, Batch], after: Offsets, now: int) -> dict[str, Batch]:
    """Return the batches behind an advance. Their time is later than any other, so their rows sort last.

    Args:
        batches: those before it.
        after: the offsets that change.
        now: epoch milliseconds.
    """
    newest = max([now, *(batch.time + 1 for batch in batches.values())])
    moved = {tp.topic: dict(batches[tp.topic].offsets) if tp.topic in batches else {} for tp in after}
    for tp, offset in after.items():
        moved[tp.topic][tp.partition] = offset
    return {**batches, **{topic: Batch(newest, offsets) for topic, offsets in moved.items()}}


def state_cell(batches: Mapping[str, Batch], window_id: str) -> bytes:
    """Return the bytes of a state cell."""
    topics = {
        topic: {"time": batch.time, "offsets": dict(sorted(batch.offsets.items()))}
        for topic, batch in sorted(batches.items())
    }
    return json.dumps({"version": _VERSION, "window": window_id, "topics": topics}, separators=(",", ":")).encode()


def parse_state(cell: bytes, where: str) -> dict[str, Batch]:
    """Read a state cell.

    Raises:
        StoreContentError: it is not one.
    """
    try:
        document = json.loads(cell)
        if document["version"] != _VERSION:
            raise ValueError(f"version {document['version']!r}")
        return {topic: _batch(item["time"], item["offsets"], where) for topic, item in document["topics"].items()}
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise StoreContentError(f"{where}: not a state of ours: {text_of(cell[:100])!r}") from exc


def _batch(time: object, offsets: Mapping[str, object], where: str) -> Batch:
    whole = {p.encode(): b"%d" % offset for p, offset in offsets.items() if is_whole(offset)}
    if not is_whole(time) or not _OLDEST <= time <= _NEWEST + 1 or not offsets or len(whole) < len(offsets):
        raise ValueError("no batch")
    return Batch(time, {read_partition(p, where): read_offset(offset, where) for p, offset in whole.items()})


def parse_row(key: bytes, cells: Mapping[bytes, bytes], prefix: bytes, store: str) -> Batch | None:
    """Read a batch row; None: it is of another group, whose name begins as ours and goes on with a colon.

    Raises:
        StoreContentError: its time is not in epoch milliseconds, or it holds something that is not an offset.
    """
    suffix = key.removeprefix(prefix)
    if not suffix.isdigit():
        return None
    if len(suffix) != len(str(_OLDEST)):
        raise StoreContentError(
            f"{store}, row {key.decode(errors='replace')}: the time of a batch must be in epoch milliseconds, with 13 digits"
        )
    return Batch(int(suffix), dict(_offset(column, value, key, store) for column, value in cells.items()))


def _offset(column: bytes, value: bytes, key: bytes, store: str) -> tuple[int, int]:
    where = f"{store}, row {text_of(key)}, column {text_of(column)}"
    return read_partition(column.partition(b":")[2], where), read_offset(value, where)
