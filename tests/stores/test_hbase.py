"""The offset store in HBase, against a standalone HBase and its Thrift 1 gateways."""

from __future__ import annotations

import contextlib
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from unittest import mock

import happybase
import pytest

from airflow_kafka_offsets.adapters.stores.hbase import HBaseStore, _Table
from airflow_kafka_offsets.core.errors import (
    OUTCOME_OPEN,
    BadInputError,
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
from airflow_kafka_offsets.wiring.stores.opening import open_store
from tests.lab.processes import LOOPBACK, wait_until
from tests.lab.proxy import Proxy
from tests.lab.waiting import ANSWER, LONGEST
from tests.stores.across import Across, Place
from tests.stores.contract import BIG, StoreContract, at

if TYPE_CHECKING:
    from tests.lab.hbase import HBaseAdmin, HBaseServer

TABLE = "kafka_offsets"
NAME = "hbase://hbase_default"
THIRTY_DAYS = 30 * 24 * 3600
NOW = 1_763_700_000_000
"""A time in epoch milliseconds, for stores with a fixed clock."""
FOREVER = 9_999_999_999_999


def connect(server: HBaseServer) -> happybase.Connection:
    return happybase.Connection(LOOPBACK, server.port, timeout=ANSWER * 1000)


def open_hbase(server: HBaseServer, **settings: Any) -> HBaseStore:
    return HBaseStore(NAME, **{"host": LOOPBACK, "port": server.port, "timeout": ANSWER, **settings})


def standing(milliseconds: int) -> Callable[[], float]:
    """Return a fixed clock."""
    return lambda: milliseconds / 1000


@pytest.fixture(scope="module")
def made_table(hbase: HBaseServer) -> str:
    """Make the table with both families, and return its name."""
    connect(hbase).create_table(
        TABLE, {"offsets": {"max_versions": 1, "time_to_live": THIRTY_DAYS}, "state": {"max_versions": 1}}
    )
    return TABLE


@pytest.fixture
def table(hbase: HBaseServer, made_table: str) -> happybase.Table:
    """Return the table for the hands of other tools."""
    return connect(hbase).table(made_table)


@pytest.fixture(scope="module")
def admin(hbase: HBaseServer) -> Iterator[HBaseAdmin]:
    """Return an administrator of tables and rights."""
    with hbase.admin() as admin:
        yield admin


def write_by_recipe(table: happybase.Table, topic: str, group: str, time: int, offsets: Mapping[int, int]) -> None:
    """Write as the recipe's saveOffsets does."""
    table.put(f"{topic}:{group}:{time}".encode(), {b"offsets:%d" % p: b"%d" % o for p, o in offsets.items()})


def read_by_recipe(table: happybase.Table, topic: str, group: str, now: int) -> dict[TopicPartition, int]:
    """Read as the recipe's getLastCommittedOffsets does: the first row from now backwards; partitions by its cells."""
    prefix = f"{topic}:{group}:"
    rows = table.scan(row_start=f"{prefix}{now}".encode(), row_stop=f"{prefix}0".encode(), reverse=True, limit=1)
    for _, cells in rows:
        return {TopicPartition(topic, p): int(cells[b"offsets:%d" % p]) for p in range(len(cells))}
    return {}


def rows_of(table: happybase.Table, topic: str, group: str) -> list[str]:
    """Return the keys of a topic's batch rows."""
    return [key.decode() for key, _ in table.scan(row_prefix=f"{topic}:{group}:".encode())]


def before_next(method: str, action: Callable[[], object]) -> contextlib.AbstractContextManager[None]:
    """Do something each time before the store asks HBase for this."""
    original = getattr(_Table, method)

    def acting(self: _Table, *arguments: Any, **named: Any) -> Any:
        action()
        return original(self, *arguments, **named)

    return mock.patch.object(_Table, method, acting)


def once_it_may(act: Callable[[], object], refusal: type[Exception] = StoreRefusedError) -> None:
    """Do it again until HBase lets it: its servers learn of a grant some moments later."""

    def was_done() -> bool:
        try:
            act()
        except refusal:
            return False
        return True

    wait_until(was_done, what="HBase lets it")


class Dies(BaseException):
    """Stands for the end of our process."""


def die() -> None:
    raise Dies


@pytest.mark.usefixtures("made_table")
class TestHBase(StoreContract):
    """The contract, with its fixtures of group and topic for the tests of HBase alone."""

    names_windows = True

    @pytest.fixture
    def store(self, hbase: HBaseServer) -> OffsetStore:
        return open_hbase(hbase)

    @pytest.fixture
    def open_store(self, hbase: HBaseServer) -> Callable[[], OffsetStore]:
        return lambda: open_hbase(hbase)

    @pytest.fixture
    def proxied(self, hbase: HBaseServer) -> Iterator[tuple[OffsetStore, Proxy]]:
        with Proxy(hbase.port) as proxy:
            yield open_hbase(hbase, port=proxy.port, timeout=15), proxy

    # What others write and read

    def test_the_recipe_reads_what_we_write(
        self, table: happybase.Table, hbase: HBaseServer, group: str, topic: str
    ) -> None:
        other = f"{topic}.other"
        store = open_hbase(hbase, clock=standing(NOW))
        store.advance(group, {}, at(topic, *range(12)) | at(other, BIG))
        assert table.row(f"{other}:{group}:{NOW}".encode()) == {b"offsets:0": b"9000000000"}
        assert read_by_recipe(table, topic, group, NOW) == at(topic, *range(12))
        store.advance(group, at(topic, *range(12)), at(topic, *range(1, 13)))
        assert read_by_recipe(table, topic, group, NOW + 1) == at(topic, *range(1, 13))
        assert read_by_recipe(table, other, group, NOW + 1) == at(other, BIG)

    def test_a_row_has_all_partitions_of_its_topic(
        self, table: happybase.Table, store: OffsetStore, group: str, topic: str
    ) -> None:
        store.advance(group, {}, at(topic, 5, 6, 7))
        store.advance(group, at(topic, 5), at(topic, 8))
        assert read_by_recipe(table, topic, group, FOREVER) == at(topic, 8, 6, 7)

    def test_rows_of_the_recipe_are_read_the_newest_of_each_topic(
        self, table: happybase.Table, store: OffsetStore, group: str, topic: str
    ) -> None:
        other = f"{topic}.other"
        write_by_recipe(table, topic, group, NOW, {0: 70, 10: 80})
        write_by_recipe(table, topic, group, NOW - 5000, {0: 60, 10: 75})
        write_by_recipe(table, other, group, NOW - 9000, {0: 1})
        for alike in (f"{group}:0", f"{group}0", f"{group}:1:2"):
            write_by_recipe(table, topic, alike, NOW + 1, {0: 99})
        assert store.read(group, [topic, other]) == {
            TopicPartition(topic, 0): 70,
            TopicPartition(topic, 10): 80,
            TopicPartition(other, 0): 1,
        }

    def test_the_first_advance_compares_with_the_rows_of_the_recipe(
        self, table: happybase.Table, store: OffsetStore, group: str, topic: str
    ) -> None:
        write_by_recipe(table, topic, group, NOW, {0: 70, 1: 80})
        with pytest.raises(
            StoreDriftError, match=rf"{topic}-1: found 80, expected 79 \(the old offset\) or 90 \(the new one\)"
        ):
            store.advance(group, at(topic, 70, 79), at(topic, 71, 90))
        assert rows_of(table, topic, group) == [f"{topic}:{group}:{NOW}"]
        store.advance(group, at(topic, 70, 80), at(topic, 71, 90))
        assert store.read(group, [topic]) == read_by_recipe(table, topic, group, FOREVER) == at(topic, 71, 90)

    def test_a_row_that_somebody_else_wrote_since_is_drift(
        self, table: happybase.Table, hbase: HBaseServer, group: str, topic: str
    ) -> None:
        store = open_hbase(hbase, clock=standing(NOW))
        store.advance(group, {}, at(topic, 5, 6))
        write_by_recipe(table, topic, group, NOW + 1, {0: 7})
        assert store.read(group, [topic]) == at(topic, 7, 6)
        with pytest.raises(
            StoreDriftError, match=rf"{topic}-0: found 7, expected 5 \(the old offset\) or 9 \(the new one\)"
        ):
            store.advance(group, at(topic, 5, 6), at(topic, 9, 9))
        store.advance(group, at(topic, 7, 6), at(topic, 9, 9))
        assert store.read(group, [topic]) == read_by_recipe(table, topic, group, FOREVER) == at(topic, 9, 9)

    def test_batches_of_one_millisecond_are_rows_of_their_own(
        self, table: happybase.Table, hbase: HBaseServer, group: str, topic: str
    ) -> None:
        store = open_hbase(hbase, clock=standing(NOW))
        for offset in range(3):
            store.advance(group, at(topic, offset), at(topic, offset + 1))
        assert rows_of(table, topic, group) == [f"{topic}:{group}:{NOW + number}" for number in range(3)]
        assert read_by_recipe(table, topic, group, NOW + 2) == store.read(group, [topic]) == at(topic, 3)

    def test_our_row_sorts_behind_that_of_a_clock_which_is_ahead(
        self, table: happybase.Table, hbase: HBaseServer, group: str, topic: str
    ) -> None:
        write_by_recipe(table, topic, group, NOW + 60_000, {0: 5})
        open_hbase(hbase, clock=standing(NOW)).advance(group, at(topic, 5), at(topic, 6))
        assert rows_of(table, topic, group)[-1] == f"{topic}:{group}:{NOW + 60_001}"
        assert read_by_recipe(table, topic, group, FOREVER) == at(topic, 6)

    def test_the_state_is_readable_json_with_the_window(
        self, table: happybase.Table, hbase: HBaseServer, group: str, topic: str
    ) -> None:
        open_hbase(hbase, clock=standing(NOW)).advance(group, {}, at(topic, 5, 6), f"{group}-000001")
        assert table.row(f":{group}".encode()) == {
            b"state:json": f'{{"version":1,"window":"{group}-000001","topics":{{"{topic}":'
            f'{{"time":{NOW},"offsets":{{"0":5,"1":6}}}}}}}}'.encode()
        }

    def test_a_table_of_the_recipe_is_read_before_it_is_made_ready(
        self, hbase: HBaseServer, group: str, topic: str
    ) -> None:
        connection = connect(hbase)
        connection.create_table("stream_kafka_offsets", {"offsets": {"time_to_live": THIRTY_DAYS}})
        table = connection.table("stream_kafka_offsets")
        write_by_recipe(table, topic, group, NOW, {0: 5})
        store = open_hbase(hbase, table="stream_kafka_offsets")
        assert store.read(group, [topic]) == at(topic, 5)
        with pytest.raises(StoreRefusedError, match=r"alter 'stream_kafka_offsets', \{NAME => 'state'\}"):
            store.advance(group, at(topic, 5), at(topic, 6))
        in_one = open_hbase(hbase, table="stream_kafka_offsets", state_family="offsets")
        in_one.advance(group, at(topic, 5), at(topic, 6))
        assert in_one.read(group, [topic]) == read_by_recipe(table, topic, group, FOREVER) == at(topic, 6)

    # Between the state and the rows

    @pytest.mark.parametrize("again", [True, False], ids=["the same advance", "the next one"])
    def test_rows_are_written_by_who_comes_after_a_crash(
        self, table: happybase.Table, store: OffsetStore, group: str, topic: str, *, again: bool
    ) -> None:
        other = f"{topic}.other"
        store.advance(group, {}, at(topic, 5) | at(other, 5))
        with before_next("put", die), pytest.raises(Dies):
            store.advance(group, at(topic, 5) | at(other, 5), at(topic, 6) | at(other, 6))
        assert store.read(group, [topic, other]) == at(topic, 6) | at(other, 6)
        assert read_by_recipe(table, topic, group, FOREVER) == at(topic, 5)
        last = at(topic, 6) if again else at(topic, 7)
        # Only one topic: the row of the other is missing, too.
        store.advance(group, at(topic, 5 if again else 6), last)
        assert store.read(group, [topic, other]) == last | at(other, 6)
        assert read_by_recipe(table, topic, group, FOREVER) == last
        assert read_by_recipe(table, other, group, FOREVER) == at(other, 6)

    def test_a_late_writer_does_not_bring_old_rows_to_the_front(
        self, table: happybase.Table, hbase: HBaseServer, group: str, topic: str
    ) -> None:
        slow, quick = open_hbase(hbase), open_hbase(hbase)
        overtakes = [lambda: quick.advance(group, at(topic, 5), at(topic, 6))]
        with before_next("put", lambda: overtakes and overtakes.pop()()):
            slow.advance(group, {}, at(topic, 5))
        assert len(rows_of(table, topic, group)) == 2
        assert slow.read(group, [topic]) == read_by_recipe(table, topic, group, FOREVER) == at(topic, 6)

    def test_a_row_of_an_advance_half_way_is_not_taken_for_somebody_elses(
        self, store: OffsetStore, group: str, topic: str
    ) -> None:
        other = f"{topic}.other"
        before, after = at(topic, 5) | at(other, 5), at(topic, 6) | at(other, 6)
        store.advance(group, {}, before)
        second_dies = iter([lambda: None, die])

        def move_and_write_one_row() -> None:
            with before_next("put", lambda: next(second_dies)()), pytest.raises(Dies):
                store.advance(group, before, after)

        # That is, when the state was read and the rows were not.
        moves = [move_and_write_one_row]
        with before_next("last_before", lambda: moves and moves.pop()()):
            assert store.read(group, [topic, other]) == after

    def test_a_lost_answer_to_the_row_is_told_and_mended(
        self, table: happybase.Table, proxied: tuple[HBaseStore, Proxy], group: str, topic: str
    ) -> None:
        store, proxy = proxied
        with (
            before_next("put", proxy.hang),
            pytest.raises(StoreOutcomeUnknownError, match="not all rows"),
        ):
            store.advance(group, {}, at(topic, 5))
        proxy.heal()
        store.advance(group, {}, at(topic, 5))
        assert store.read(group, [topic]) == read_by_recipe(table, topic, group, FOREVER) == at(topic, 5)

    def test_rows_that_expired_come_back_and_the_state_never_expires(
        self, hbase: HBaseServer, group: str, topic: str
    ) -> None:
        connection = connect(hbase)
        connection.create_table("short", {"offsets": {"time_to_live": 1}, "state": {}})
        table, store = connection.table("short"), open_hbase(hbase, table="short")
        store.advance(group, {}, at(topic, 5))
        wait_until(lambda: not rows_of(table, topic, group), what="the row has expired")
        assert store.read(group, [topic]) == at(topic, 5)
        with before_next("put", die), pytest.raises(Dies):
            store.advance(group, {}, at(topic, 5))

    # What is not an offset

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            (b"offsets:0", b"latest"),
            (b"offsets:0", b"-1"),
            (b"offsets:0", b""),
            (b"offsets:0", b" 5"),
            (b"offsets:0", b"5_000"),
            (b"offsets:0", "٣".encode()),
            (b"offsets:0", b"9223372036854775808"),
            (b"offsets:0", (5).to_bytes(8, "big")),
            (b"offsets:count", b"5"),
            (b"offsets:00", b"5"),
        ],
    )
    def test_garbage_in_a_row_is_named(
        self, table: happybase.Table, store: OffsetStore, group: str, topic: str, column: bytes, value: bytes
    ) -> None:
        table.put(f"{topic}:{group}:{NOW}".encode(), {column: value, b"offsets:1": b"5"})
        with pytest.raises(StoreContentError, match=rf"{topic}:{group}:{NOW}, column {column.decode()}"):
            store.read(group, [topic])
        with pytest.raises(StoreContentError):
            store.advance(group, {}, at(topic, 1, 2))
        assert table.row(f":{group}".encode()) == {}

    @pytest.mark.parametrize("time", [1_763_700_000, 20_251_121_053_000])
    def test_a_time_that_is_not_in_milliseconds_is_named(
        self, table: happybase.Table, store: OffsetStore, group: str, topic: str, time: int
    ) -> None:
        write_by_recipe(table, topic, group, time, {0: 5})
        with pytest.raises(StoreContentError, match=rf"{topic}:{group}:{time}: the time must be in epoch milli"):
            store.read(group, [topic])

    @pytest.mark.parametrize(
        "state",
        [
            "",
            "5",
            "[]",
            "{}",
            '{"version":2,"topics":{}}',
            '{"version":1,"topics":{"t":{"time":1763700000000,"offsets":{"0":"5"}}}}',
            '{"version":1,"topics":{"t":{"time":1763700000000,"offsets":{}}}}',
            '{"version":1,"topics":{"t":{"time":1763700000,"offsets":{"0":5}}}}',
            '{"version":1,"topics":{"t":{"offsets":{"0":5}}}}',
        ],
    )
    def test_garbage_in_the_state_is_named(
        self, table: happybase.Table, store: OffsetStore, group: str, topic: str, state: str
    ) -> None:
        table.put(f":{group}".encode(), {b"state:json": state.encode()})
        with pytest.raises(StoreContentError, match=rf"row :{group}: not a state of this package"):
            store.advance(group, {}, at(topic, 1))
        assert table.row(f":{group}".encode()) == {b"state:json": state.encode()}

    @pytest.mark.parametrize(
        ("offsets", "message"),
        [
            ('{"0":-5}', "holds '-5', which is not an offset"),
            ('{"0":9223372036854775808}', "holds '9223372036854775808', which is not an offset"),
            ('{"007":5}', "has an entry '007', which is not a partition"),
            ('{"latest":5}', "has an entry 'latest', which is not a partition"),
        ],
    )
    def test_what_the_state_holds_is_read_by_the_rule_of_all_stores(
        self, table: happybase.Table, store: OffsetStore, group: str, topic: str, offsets: str, message: str
    ) -> None:
        state = f'{{"version":1,"topics":{{"t":{{"time":{NOW},"offsets":{offsets}}}}}}}'
        table.put(f":{group}".encode(), {b"state:json": state.encode()})
        with pytest.raises(StoreContentError, match=rf"row :{group} {message}"):
            store.read(group, [topic])

    def test_an_offset_with_leading_zeros_is_one_as_everywhere(
        self, table: happybase.Table, store: OffsetStore, group: str, topic: str
    ) -> None:
        table.put(f"{topic}:{group}:{NOW}".encode(), {b"offsets:0": b"007"})
        assert store.read(group, [topic]) == at(topic, 7)

    # What HBase refuses

    def test_a_missing_table_is_told_with_the_command_that_makes_it(
        self, hbase: HBaseServer, group: str, topic: str
    ) -> None:
        store = open_hbase(hbase, table="offsets_of_nobody", family="o", state_family="s")
        command = r"create 'offsets_of_nobody', \{NAME => 'o', TTL => 2592000\}, \{NAME => 's'\}"
        with pytest.raises(StoreRefusedError, match=command):
            store.read(group, [topic])
        with pytest.raises(StoreRefusedError, match=command):
            store.advance(group, {}, at(topic, 1))

    def test_a_missing_family_of_rows_is_told_before_anything_is_written(
        self, hbase: HBaseServer, group: str, topic: str
    ) -> None:
        connection = connect(hbase)
        connection.create_table("no_rows", {"state": {}})
        store = open_hbase(hbase, table="no_rows")
        for attempt in (lambda: store.read(group, [topic]), lambda: store.advance(group, {}, at(topic, 1))):
            with pytest.raises(StoreRefusedError, match="no column family offsets"):
                attempt()
        assert list(connection.table("no_rows").scan()) == []

    def test_a_disabled_table_is_told(self, hbase: HBaseServer, group: str, topic: str) -> None:
        connection = connect(hbase)
        connection.create_table("resting", {"offsets": {}, "state": {}})
        connection.disable_table("resting")
        with pytest.raises(StoreRefusedError, match=r"HBase refused: .*resting"):
            open_hbase(hbase, table="resting").advance(group, {}, at(topic, 1))

    def test_to_read_and_write_the_table_is_all_the_right_that_it_takes(
        self, hbase: HBaseServer, admin: HBaseAdmin, store: OffsetStore, group: str, topic: str
    ) -> None:
        store.advance(group, {}, at(topic, 5))
        with hbase.gateway(user="bob") as port:
            of_bob = open_hbase(hbase, port=port)
            with pytest.raises(StoreRefusedError, match=r"HBase refused: .*bob.*"):
                of_bob.read(group, [topic])
            admin.allow("bob", "READ", table=TABLE)
            once_it_may(lambda: of_bob.read(group, [topic]))
            assert of_bob.read(group, [topic]) == at(topic, 5)
            with pytest.raises(StoreRefusedError, match=r"HBase refused: .*bob.*action=WRITE"):
                of_bob.advance(group, at(topic, 5), at(topic, 6))
            assert store.read(group, [topic]) == at(topic, 5)
            admin.allow("bob", "WRITE", table=TABLE, family="state")
            with pytest.raises(StoreOutcomeUnknownError, match=r"state cell .* is written, .* HBase refused"):
                once_it_may(lambda: of_bob.advance(group, at(topic, 5), at(topic, 6)))
            admin.allow("bob", "WRITE", table=TABLE)
            once_it_may(lambda: of_bob.advance(group, at(topic, 5), at(topic, 6)), StoreOutcomeUnknownError)
            of_bob.advance(group, at(topic, 6), at(topic, 7))
        assert store.read(group, [topic]) == at(topic, 7)

    def test_a_read_only_table_is_told(self, hbase: HBaseServer, admin: HBaseAdmin, group: str, topic: str) -> None:
        connect(hbase).create_table("kept", {"offsets": {}, "state": {}})
        store = open_hbase(hbase, table="kept")
        store.advance(group, {}, at(topic, 5))
        admin.make_read_only("kept")
        with pytest.raises(StoreRefusedError, match=r"HBase refused: .*read[ -]only"):
            store.advance(group, at(topic, 5), at(topic, 6))
        assert store.read(group, [topic]) == at(topic, 5)

    def test_a_state_larger_than_a_cell_may_be_is_refused(self, store: OffsetStore, group: str, topic: str) -> None:
        before = at(topic, 5)
        store.advance(group, {}, before)
        with pytest.raises(StoreLimitError, match=r"too large for a cell.*hbase\.client\.keyvalue\.maxsize"):
            store.advance(group, before, at(topic, *range(BIG, BIG + 130_000)))
        assert store.read(group, [topic]) == before

    # Gateways and servers

    def test_a_gateway_with_framed_transport_and_compact_protocol(
        self, hbase: HBaseServer, store: OffsetStore, group: str, topic: str
    ) -> None:
        with hbase.gateway("-f", "-c") as port:
            framed = open_hbase(hbase, port=port, transport="framed", protocol="compact")
            framed.advance(group, {}, at(topic, *range(10_000)))
        assert store.read(group, [topic]) == at(topic, *range(10_000))

    def test_what_is_no_gateway_of_ours_is_told(self, hbase: HBaseServer, group: str, topic: str) -> None:
        for port, protocol in ((hbase.port, "compact"), (hbase.master_port, "binary")):
            store = open_hbase(hbase, port=port, protocol=protocol, timeout=2)
            with pytest.raises(
                StoreUnavailableError, match=rf"gateway at 127.0.0.1:{port} \(buffered, {protocol}, 2 s\)"
            ):
                store.advance(group, {}, at(topic, 1))

    def test_a_region_server_that_hangs_while_we_write(
        self, hbase: HBaseServer, store: OffsetStore, group: str, topic: str
    ) -> None:
        store.advance(group, {}, at(topic, 5))
        impatient = open_hbase(hbase, timeout=3)
        try:
            with before_next("swap", hbase.suspend), pytest.raises(StoreOutcomeUnknownError):
                impatient.advance(group, at(topic, 5), at(topic, 6))
            with pytest.raises(StoreUnavailableError, match="did not answer in time"):
                impatient.read(group, [topic])
        finally:
            hbase.resume()
        store.advance(group, at(topic, 5), at(topic, 6))
        assert store.read(group, [topic]) == at(topic, 6)

    def test_a_server_that_was_killed_comes_back_with_what_it_acknowledged(
        self, hbase: HBaseServer, store: OffsetStore, group: str, topic: str
    ) -> None:
        acknowledged = [0]

        def count_up() -> None:
            while True:
                store.advance(group, at(topic, acknowledged[-1]), at(topic, acknowledged[-1] + 1))
                acknowledged.append(acknowledged[-1] + 1)

        with ThreadPoolExecutor(1) as pool:
            counting = pool.submit(count_up)
            wait_until(lambda: len(acknowledged) > 5, what="some advances are done")
            hbase.kill()
            try:
                assert isinstance(counting.exception(LONGEST), StoreUnavailableError | StoreOutcomeUnknownError)
                with pytest.raises(StoreUnavailableError, match="Could not connect"):
                    store.read(group, [topic])
            finally:
                hbase.start()
        once_it_may(lambda: store.read(group, [topic]), StoreUnavailableError)  # its regions are opened one by one
        last = acknowledged[-1]
        assert store.read(group, [topic]) in (at(topic, last), at(topic, last + 1))
        store.advance(group, at(topic, last), at(topic, last + 1))
        assert store.read(group, [topic]) == at(topic, last + 1)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ("KeyValue size too large", StoreLimitError, "The group is too large for a cell. Raise hbase.client"),
        (
            "Cell of size 9 exceeds limit of 8 bytes",
            StoreLimitError,
            "too large for a cell of 8 bytes. Raise hbase.client",
        ),
        ("reset", StoreOutcomeUnknownError, f"gw:9090 failed (AnswerError: reset){OUTCOME_OPEN}"),
    ],
)
def test_what_hbase_answers_to_a_write_has_its_number_and_what_to_do(
    answer: str, error: type[Exception], message: str
) -> None:
    class AnswerError(Exception):
        message = answer

    connection = mock.Mock()
    connection.client.mutateRow.side_effect = AnswerError()
    names = {"table": "t", "family": "f", "state_family": "s"}
    with pytest.raises(error, match=re.escape(message)):
        _Table(connection, names, "hbase://h", "gw:9090").put(b"row", {})


# Wiring

CONNECTION = {"conn_type": "hbase", "host": LOOPBACK, "extra": {}}


@pytest.fixture
def orders() -> KafkaGroup:
    """Return a group; the store is opened for it."""
    return KafkaGroup("lake.orders", topics=["orders"])


def test_an_address_opens_the_table_through_a_connection(
    hbase: HBaseServer, table: happybase.Table, orders: KafkaGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OFFSETS", json.dumps(CONNECTION | {"port": hbase.port}))
    store = open_store(parse_store_address("hbase://offsets/default:kafka_offsets?state_family=offsets"), orders)
    store.advance("lake.orders", {}, at("orders", 5))
    assert table.row(b":lake.orders").keys() == {b"offsets:json"}
    assert store.name == "hbase://offsets/default%3Akafka_offsets?state_family=offsets"


def test_the_extra_says_how_the_gateway_speaks(orders: KafkaGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"transport": "framed", "protocol": "compact"}
    monkeypatch.setenv(
        "AIRFLOW_CONN_OFFSETS", json.dumps(CONNECTION | {"conn_type": "generic", "port": 1, "extra": extra})
    )
    store = open_store(parse_store_address("hbase://offsets?timeout=3"), orders)
    with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1 \(framed, compact, 3 s\)"):
        store.read("lake.orders", ["orders"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conn_type": "redis"}, "type 'redis', not 'hbase' or 'generic'"),
        ({"host": ""}, "names no host"),
        ({"extra": {"transport": "http"}}, "'transport' must be one of"),
    ],
)
def test_a_connection_that_can_not_be_one_is_refused(
    orders: KafkaGroup, monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], message: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OFFSETS", json.dumps(CONNECTION | changes))
    with pytest.raises(BadInputError, match=message):
        open_store(parse_store_address("hbase://offsets"), orders)


class TestAcross(Across):
    """From the ledger into HBase, and back."""

    @pytest.fixture
    def place(self, hbase: HBaseServer) -> Place:
        table = f"offsets_{uuid.uuid4().hex[:8]}"
        connect(hbase).create_table(table, {"offsets": {}, "state": {}})
        return f"hbase://lab/{table}?timeout=60", {"conn_type": "hbase", "host": LOOPBACK, "port": hbase.port}
