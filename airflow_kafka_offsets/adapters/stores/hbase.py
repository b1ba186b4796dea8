"""Offsets in HBase, through its Thrift 1 gateway.

The well-known recipe has one row for each batch, ``<topic>:<group>:<epoch ms>``, with a column for each partition, in a family
whose cells expire. Its readers scan backwards from now and take the first row. Thrift 1 can compare only one cell, so one more
cell holds the state of the whole group. An advance changes it first, by compare-and-set. It also holds the time of each topic's
row: if a writer dies before it has written the rows, the next advance writes them from the cell.

A row that is newer than the cell comes from another tool that uses the recipe, and it counts.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import happybase  # makes the module Hbase_thrift
from Hbase_thrift import Mutation, TScan

from airflow_kafka_offsets.adapters.stores.swapping import READS, overtaken, swap
from airflow_kafka_offsets.core.errors import (
    OUTCOME_OPEN,
    BadInputError,
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
# Row keys are compared as text, so all times must have one length: 13 digits cover the years 2001 to 2286.
_OLDEST, _NEWEST = 10**12, 10**13 - 2


@dataclass(frozen=True, slots=True)
class Batch:
    """The next offsets of one topic after one batch.

    Attributes:
        time: epoch milliseconds, 13 digits: the end of its row key.
        offsets: by partition, for all partitions that the group has of this topic.
    """

    time: int
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _State:
    """The bytes of a group's state cell (None if there is none), and the newest batch of each topic."""

    cell: bytes | None
    batches: Mapping[str, Batch]

    def offsets(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        batches = {topic: self.batches[topic] for topic in topics if topic in self.batches}
        return {
            TopicPartition(topic, number): o for topic, batch in batches.items() for number, o in batch.offsets.items()
        }


class HBaseStore:
    """A table in HBase: a state cell for each group, and a row for each topic and batch.

    Each call opens its own connection: after a time-out, an old one could return the late answer to the next request.

    Args:
        name: its address, for messages.
        host: of the Thrift 1 gateway.
        port: of the gateway.
        timeout: seconds to wait for the gateway's answer.
        table: name of the table, which must exist.
        family: column family of the batch rows; it may expire.
        state_family: column family of the state cells; it should not expire.
        transport: of the gateway: ``buffered`` or ``framed``.
        protocol: of the gateway: ``binary`` or ``compact``.
        clock: returns the time in epoch seconds.

    Raises:
        BadInputError: there is no such transport or protocol.
    """

    guarantees = Guarantees(is_atomic=True, compares=Compares.COOPERATING)

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
        self.name = name
        self._names = {"table": table, "family": family, "state_family": state_family}
        self._state_column = f"{state_family}:json".encode()
        self._clock = clock
        self._gateway = f"its gateway at {host}:{port} ({transport}, {protocol}, {timeout:g} s)"
        self._settings = {"host": host, "port": port, "timeout": int(timeout * 1000)}
        self._settings |= {"transport": transport, "protocol": protocol}
        try:
            happybase.Connection(**self._settings, autoconnect=False)
        except ValueError as exc:
            raise BadInputError(f"{name}: {exc}") from exc

    def read(self, group: str, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """Return the next offsets of a group; see `OffsetStore.read`."""
        with self._opened() as table:
            try:
                state = self._state(table, group, topics)
            except _NoFamilyError:
                # A table of the recipe that has no family for state cells yet.
                state = _State(None, self._newer_rows(table, group, topics, {}))
        return state.offsets(topics)

    def window_ids(self, group: str, topics: Sequence[str]) -> Collection[str]:
        """Return the window in the group's state cell."""
        with self._opened() as table, contextlib.suppress(_NoFamilyError):
            cell = table.cell(state_row(group), self._state_column)
            return () if cell is None else (window_of(cell),)
        return ()

    def check_writable(self, group: str) -> None:
        """Do nothing: only a write shows whether it is refused."""

    def advance(self, group: str, before: Offsets, after: Offsets, window_id: str = "") -> None:
        """Move the offsets of a group; see `OffsetStore.advance`."""
        topics = topics_of(after)
        with self._opened() as table:

            def read() -> tuple[Offsets, _State]:
                state = self._state(table, group, topics)
                return state.offsets(topics), state

            def write(state: _State) -> bool:
                batches = advanced(state.batches, after, int(self._clock() * 1000))
                return table.swap(state_row(group), self._state_column, state.cell, state_cell(batches, window_id))

            swap(self.name, group, before, after, read, write)
            self._write_missing_rows(table, group)

    def _state(self, table: _Table, group: str, topics: Sequence[str]) -> _State:
        for _ in range(READS):
            cell, batches = self._cell(table, group)
            newer = self._newer_rows(table, group, topics, batches)
            # A newer row may belong to an advance that has changed the state since, but not yet the other topics' rows.
            if not newer or table.cell(state_row(group), self._state_column) == cell:
                return _State(cell, {**batches, **newer})
        raise overtaken(self.name, group)

    def _cell(self, table: _Table, group: str) -> tuple[bytes | None, dict[str, Batch]]:
        cell = table.cell(state_row(group), self._state_column)
        return cell, {} if cell is None else parse_state(cell, f"{self.name}, row {state_row(group).decode()}")

    def _newer_rows(
        self, table: _Table, group: str, topics: Sequence[str], batches: Mapping[str, Batch]
    ) -> dict[str, Batch]:
        newer = {}
        for topic in topics:
            state = batches.get(topic, Batch(_OLDEST, {}))
            row = table.last_before(
                batch_row(topic, group, _NEWEST),
                batch_row(topic, group, state.time),
                partial(parse_row, prefix=batch_row(topic, group, ""), store=self.name),
            )
            if row is not None:
                newer[topic] = Batch(row.time, {**state.offsets, **row.offsets})
        return newer

    def _write_missing_rows(self, table: _Table, group: str) -> None:
        try:
            for topic, batch in self._cell(table, group)[1].items():
                cells = {
                    f"{self._names['family']}:{partition}".encode(): b"%d" % o for partition, o in batch.offsets.items()
                }
                key = batch_row(topic, group, batch.time)
                if table.cell(key, next(iter(cells))) is None:
                    table.put(key, cells)
        except StoreAnswerError as exc:
            raise StoreOutcomeUnknownError(
                f"The state cell of group {group} is written, perhaps not all rows; a retry writes those. "
                f"{str(exc).removesuffix(OUTCOME_OPEN)}"
            ) from exc

    @contextlib.contextmanager
    def _opened(self) -> Iterator[_Table]:
        connection = happybase.Connection(**self._settings, autoconnect=False)
        table = _Table(connection, self._names, self.name, self._gateway)
        try:
            table.open()
            yield table
        finally:
            connection.close()


class _Table:
    """One table over one connection. Its methods raise only `StoreError`."""

    def __init__(self, connection: Any, names: Mapping[str, str], store: str, gateway: str) -> None:
        self._connection = connection
        self._client = connection.client
        self._names = names
        self._name = names["table"].encode()
        self._family = names["family"].encode()
        self._store = store
        self._gateway = gateway

    def open(self) -> None:
        with self._errors_translated():
            self._connection.open()

    def cell(self, row: bytes, column: bytes) -> bytes | None:
        """Return one cell; None if there is none."""
        with self._errors_translated():
            rows = self._client.getRowWithColumns(self._name, row, [column], {})
        return rows[0].columns[column].value if rows else None

    def last_before(
        self, first: bytes, last: bytes, parse: Callable[[bytes, Mapping[bytes, bytes]], Batch | None]
    ) -> Batch | None:
        """Return the first batch that `parse` reads in the rows from `first` backwards to `last`, without `last` itself."""
        scan = TScan(startRow=first, stopRow=last, columns=[self._family], caching=1, reversed=True)
        batch = None
        with self._errors_translated():
            scanner = self._client.scannerOpenWithScan(self._name, scan, {})
            while batch is None and (rows := self._client.scannerGetList(scanner, 1)):
                batch = parse(rows[0].row, {column: cell.value for column, cell in rows[0].columns.items()})
            self._client.scannerClose(scanner)
        return batch

    def swap(self, row: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        """Write a cell, if it still has the expected value (None means absent)."""
        with self._errors_translated(is_writing=True):
            put = Mutation(column=column, value=value)
            return bool(self._client.checkAndPut(self._name, row, column, expected, put, {}))

    def put(self, row: bytes, cells: Mapping[bytes, bytes]) -> None:
        """Write a row as a whole."""
        with self._errors_translated(is_writing=True):
            self._client.mutateRow(self._name, row, [Mutation(column=c, value=v) for c, v in cells.items()], {})

    @contextlib.contextmanager
    def _errors_translated(self, *, is_writing: bool = False) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        # The client's errors for an answer that is not Thrift have no common base class.
        except Exception as exc:
            raise self._translated(exc, is_writing=is_writing) from exc

    def _translated(self, exc: Exception, *, is_writing: bool) -> StoreError:
        message = message_of(exc)
        for error, advices in _ANSWERS.items():
            for pattern, advice in advices.items():
                if match := re.search(pattern, message):
                    return error(f"{self._store}: {advice.format(*match.groups(), **self._names)}")
        did = "did not answer in time" if isinstance(exc, TimeoutError) else f"failed ({message.splitlines()[0]})"
        if is_writing:
            return StoreOutcomeUnknownError(f"{self._store}: {self._gateway} {did}{OUTCOME_OPEN}")
        return StoreUnavailableError(f"{self._store}: {self._gateway} {did}")


class _NoFamilyError(StoreRefusedError):
    """The table lacks a column family."""


_SHELL = " In the HBase shell:\n    "
_RAISE = ". Raise hbase.client.keyvalue.maxsize and hbase.server.keyvalue.maxsize"
_ANSWERS: Mapping[type[StoreError], Mapping[str, str]] = {
    StoreRefusedError: {
        r"TableNotFoundException": (
            f"There is no table {{table}}.{_SHELL}"
            "create '{table}', {{NAME => '{family}', TTL => 2592000}}, {{NAME => '{state_family}'}}"
        ),
        r"(.*(?:TableNotEnabledException|AccessDeniedException: Insufficient|is read[ -]only).*)": "HBase refused: {0}",
        r"Invalid method name": "It is no Thrift 1 gateway (hbase thrift start)",
    },
    _NoFamilyError: {
        r"NoSuchColumnFamilyException: Column family (\S+) does not exist": (
            f"Table {{table}} has no column family {{0}}.{_SHELL}alter '{{table}}', {{{{NAME => '{{0}}'}}}}"
        ),
    },
    StoreLimitError: {
        r"KeyValue size too large": f"The group is too large for a cell{_RAISE}",
        r"exceeds limit of (\d+) bytes": f"The group is too large for a cell of {{0}} bytes{_RAISE}",
    },
}
"""The advice for each pattern of HBase's answers, by error."""


def message_of(exc: Exception) -> str:
    """Return the message of a client's exception. Its own text may hold the whole request, or raise an error."""
    message = getattr(exc, "message", None)
    if isinstance(message, bytes):
        message = text_of(message)
    if message is None and isinstance(exc, OSError):
        message = exc.strerror or str(exc)
    return f"{type(exc).__name__}: {message}" if message else type(exc).__name__


def text_of(content: bytes) -> str:
    """Return bytes as text for a message, also if they are not UTF-8."""
    return content.decode(errors="replace")


def state_row(group: str) -> bytes:
    """Return the key of a group's state. No batch row has such a key, because no topic has an empty name."""
    return f":{group}".encode()


def batch_row(topic: str, group: str, time: int | Literal[""]) -> bytes:
    """Return the key of a batch row in the recipe, or the prefix of all such keys if the time is empty."""
    return f"{topic}:{group}:{time}".encode()


def advanced(batches: Mapping[str, Batch], after: Offsets, now: int) -> dict[str, Batch]:
    """Return the batches after an advance. Their time is later than any other, so their rows sort last.

    Args:
        batches: the batches before it.
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


def window_of(cell: bytes) -> str:
    """Return the window in a state cell, or empty if it has none."""
    try:
        return str(json.loads(cell)["window"])
    except (ValueError, TypeError, KeyError):
        return ""


def parse_state(cell: bytes, where: str) -> dict[str, Batch]:
    """Read a state cell.

    Raises:
        StoreContentError: the bytes are not a state cell.
    """
    try:
        document = json.loads(cell)
        if document["version"] != _VERSION:
            raise ValueError(f"version {document['version']!r}")
        return {topic: _batch(item["time"], item["offsets"], where) for topic, item in document["topics"].items()}
    except (ValueError, TypeError, KeyError, AttributeError) as exc:
        raise StoreContentError(f"{where}: not a state of this package: {text_of(cell[:100])!r}") from exc


def _batch(time: object, offsets: Mapping[str, object], where: str) -> Batch:
    whole = {p.encode(): b"%d" % offset for p, offset in offsets.items() if is_whole(offset)}
    if not is_whole(time) or not _OLDEST <= time <= _NEWEST + 1 or not offsets or len(whole) < len(offsets):
        raise ValueError("no batch")
    return Batch(time, {read_partition(p, where): read_offset(offset, where) for p, offset in whole.items()})


def parse_row(key: bytes, cells: Mapping[bytes, bytes], prefix: bytes, store: str) -> Batch | None:
    """Read a batch row; None if it belongs to another group, whose name starts with this one's and a colon.

    Raises:
        StoreContentError: its time is not in epoch milliseconds, or a value is not an offset.
    """
    suffix = key.removeprefix(prefix)
    if not suffix.isdigit():
        return None
    if len(suffix) != len(str(_OLDEST)):
        raise StoreContentError(f"{store}, row {text_of(key)}: the time must be in epoch milliseconds (13 digits)")
    return Batch(int(suffix), dict(_offset(column, value, key, store) for column, value in cells.items()))


def _offset(column: bytes, value: bytes, key: bytes, store: str) -> tuple[int, int]:
    where = f"{store}, row {text_of(key)}, column {text_of(column)}"
    return read_partition(column.partition(b":")[2], where), read_offset(value, where)
