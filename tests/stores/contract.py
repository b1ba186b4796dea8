"""What every offset store promises; each subclass runs it against its real server.

A subclass is a `pytest` class with these fixtures:

- `store`: the store on a shared server;
- `open_store`: a function that opens it once more, for a competing writer (called in the writer's own thread);
- `proxied`: `(store, proxy)`: the same server through a `tests.lab.proxy.Proxy`, with a time-out of about two seconds;
- `group` (given here): a name that no other test has; topics are named after it.

Attributes say what this store has: `names_windows`, `many`, `chatters`. A test that can't be for it is switched off by its name: `test_x = None`.
`tests/stores/test_redis.py` is a model.

What a store can't keep is in its `guarantees`, and the test of that line checks exactly what remains.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConcurrentChangeError,
    StoreAnswerError,
    StoreDriftError,
    StoreLimitError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
)
from airflow_kafka_offsets.core.offsets import TopicPartition, topics_of
from airflow_kafka_offsets.core.store.guarantees import Compares
from airflow_kafka_offsets.ports import OffsetStore
from tests.lab.processes import OneServer
from tests.lab.proxy import Proxy
from tests.lab.waiting import LONGEST

Offsets = dict[TopicPartition, int]
WRITERS = 16
MANY = 10_000
BIG = 9_000_000_000


def at(topic: str, *offsets: int) -> Offsets:
    """Return offsets of partitions 0, 1, ... of a topic."""
    return {TopicPartition(topic, partition): offset for partition, offset in enumerate(offsets)}


@contextmanager
def again_and_again(step: Callable[[], None]) -> Iterator[None]:
    """Do something in another thread, over and over, until the block ends, however it ends."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.is_set():
            step()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            yield
        finally:
            is_over.set()
        running.result(LONGEST)


class StoreContract:
    """Each subclass has fixtures for its store."""

    many = MANY
    """How many partitions an advance must carry; fewer only with a `guarantees.limit`."""
    cuts = (0, 1, 200, 2_000, 20_000)
    """After how many bytes of requests a connection is cut, in turn."""
    lost_answers = 3
    """How many of an advance's last answers are lost, one more each time; one of them must be that to a write."""
    chatters = False
    """Whether its client asks for other things meanwhile: then it is chance which answers are lost, and the subclass has a
    test of its own in which it is that to a write."""
    lost_partitions = 50
    """Size of these advances."""
    cut_partitions = 500
    """Size of the advances that are cut."""

    @pytest.fixture
    def group(self) -> str:
        """Return the name of a group that no other test has, with dots and dashes."""
        return f"lake.orders-{uuid.uuid4().hex[:8]}"

    @pytest.fixture
    def topic(self, group: str) -> str:
        """Return a topic name of the group's own."""
        return f"orders.v1-{group[-8:]}"

    names_windows = False
    """Whether it has a place for the id of the window that moved it."""

    # Reading and moving

    def test_a_group_never_seen_has_no_offsets(self, store: OffsetStore, group: str, topic: str) -> None:
        assert store.read(group, [topic]) == {}

    def test_the_first_advance_writes_all_partitions(self, store: OffsetStore, group: str, topic: str) -> None:
        store.advance(group, {}, at(topic, 0, 10, BIG), f"{group}-000001")
        assert store.read(group, [topic]) == at(topic, 0, 10, BIG)

    def test_offsets_move_from_before_to_after(self, store: OffsetStore, group: str, topic: str) -> None:
        store.advance(group, {}, at(topic, 5, 10))
        store.advance(group, at(topic, 5, 10), at(topic, 7, 10), f"{group}-000002")
        assert store.read(group, [topic]) == at(topic, 7, 10)

    def test_the_window_of_the_last_advance_is_named_where_there_is_a_place_for_it(
        self, store: OffsetStore, group: str, topic: str
    ) -> None:
        assert not any(store.window_ids(group, [topic]))
        for seq, before in ((1, {}), (2, at(topic, 1, 1))):
            store.advance(group, before, at(topic, seq, seq), f"{group}-{seq:06d}")
            assert set(store.window_ids(group, [topic])) == ({f"{group}-{seq:06d}"} if self.names_windows else set())

    def test_another_client_reads_the_same(
        self, store: OffsetStore, open_store: Callable[[], OffsetStore], group: str, topic: str
    ) -> None:
        store.advance(group, {}, at(topic, 5, 10))
        assert open_store().read(group, [topic]) == at(topic, 5, 10)

    def test_an_advance_that_is_done_is_done(self, store: OffsetStore, group: str, topic: str) -> None:
        store.advance(group, {}, at(topic, 5, 10))
        for _ in range(2):
            store.advance(group, at(topic, 5, 10), at(topic, 7, 12))
        assert store.read(group, [topic]) == at(topic, 7, 12)

    def test_what_expired_is_published_again(self, store: OffsetStore, group: str, topic: str) -> None:
        store.advance(group, at(topic, 5, 10), at(topic, 7, 12))
        assert store.read(group, [topic]) == at(topic, 7, 12)

    def test_a_half_done_advance_is_finished(self, store: OffsetStore, group: str, topic: str) -> None:
        store.advance(group, {}, at(topic, 7, 10))
        store.advance(group, at(topic, 5, 10), at(topic, 7, 12))
        assert store.read(group, [topic]) == at(topic, 7, 12)

    def test_backwards_is_a_move_too(self, store: OffsetStore, group: str, topic: str) -> None:
        store.advance(group, {}, at(topic, 50, 10))
        store.advance(group, at(topic, 50, 10), at(topic, 5, 0))
        assert store.read(group, [topic]) == at(topic, 5, 0)

    def test_a_partition_is_added(self, store: OffsetStore, group: str, topic: str) -> None:
        store.advance(group, {}, at(topic, 5))
        store.advance(group, at(topic, 5), at(topic, 6, 3))
        assert store.read(group, [topic]) == at(topic, 6, 3)

    def test_several_topics_move_at_once(self, store: OffsetStore, group: str, topic: str) -> None:
        other = f"{topic}.other"
        store.advance(group, {}, at(topic, 5, 6) | at(other, 7))
        store.advance(group, at(topic, 5, 6) | at(other, 7), at(topic, 6, 6) | at(other, 9))
        assert store.read(group, [topic, other]) == at(topic, 6, 6) | at(other, 9)
        assert store.read(group, [other]) == at(other, 9)

    def test_a_topic_that_the_advance_does_not_name_stays(self, store: OffsetStore, group: str, topic: str) -> None:
        other = f"{topic}.other"
        store.advance(group, {}, at(topic, 5) | at(other, 7))
        store.advance(group, at(topic, 5), at(topic, 6))
        assert store.read(group, [topic, other]) == at(topic, 6) | at(other, 7)

    def test_names_that_look_alike_are_kept_apart(self, store: OffsetStore, group: str, topic: str) -> None:
        names = self.look_alikes(topic)
        for number, name in enumerate(names):
            store.advance(group, {}, at(name, number))
        other = f"{group}-1"
        store.advance(other, {}, at(topic, 99))
        assert store.read(group, names) == {TopicPartition(name, 0): number for number, name in enumerate(names)}
        assert store.read(other, names) == at(topic, 99)

    def look_alikes(self, topic: str) -> list[str]:
        """Return names that a careless store would mix up."""
        return [topic, f"{topic}-1", f"{topic}.1", f"{topic}_1", topic.upper()]

    def test_ten_thousand_partitions(self, store: OffsetStore, group: str, topic: str) -> None:
        before, after = at(topic, *range(self.many)), at(topic, *range(BIG, BIG + self.many))
        store.advance(group, {}, before)
        store.advance(group, before, after, f"{group}-000002")
        assert store.read(group, [topic]) == after

    def test_more_than_the_declared_limit_is_refused(self, store: OffsetStore, group: str, topic: str) -> None:
        if store.guarantees.limit is None:
            assert self.many >= MANY
            return
        with pytest.raises(StoreLimitError):
            store.advance(group, {}, at(topic, *range(30_000)))
        assert store.read(group, [topic]) == {}

    # Drift

    def test_drift_is_refused_with_both_values(self, store: OffsetStore, group: str, topic: str) -> None:
        store.advance(group, {}, at(topic, 5, 10, 20))
        with pytest.raises(
            StoreDriftError, match=rf"{topic}-1: found 10, expected 11 \(the old offset\) or 12 \(the new one\)"
        ) as caught:
            store.advance(group, at(topic, 5, 11, 20), at(topic, 6, 12, 21))
        assert caught.value.partitions == {TopicPartition(topic, 1): (11, 12, 10)}
        assert store.name in str(caught.value)
        assert store.read(group, [topic]) == at(topic, 5, 10, 20)

    def test_a_value_where_the_group_had_none_is_drift(self, store: OffsetStore, group: str, topic: str) -> None:
        store.advance(group, {}, at(topic, 5))
        with pytest.raises(
            StoreDriftError, match=r"expected 0 \(the old offset\) or 9 \(the new one\)|expected nothing or 9"
        ):
            store.advance(group, {}, at(topic, 9))
        assert store.read(group, [topic]) == at(topic, 5)

    def test_an_advance_must_name_all_that_was_there(self, store: OffsetStore, group: str, topic: str) -> None:
        with pytest.raises(BadInputError):
            store.advance(group, at(topic, 5, 6), at(topic, 7))
        assert store.read(group, [topic]) == {}

    # Competing writers

    def test_of_competing_writers_one_wins(
        self, store: OffsetStore, open_store: Callable[[], OffsetStore], group: str, topic: str
    ) -> None:
        if store.guarantees.compares is Compares.NO_ONE:
            pytest.fail("a store that compares with no one overrides this test")
        other = f"{topic}.other"
        before = at(topic, *[0] * 20) | at(other, 0)
        store.advance(group, {}, before)
        start = threading.Barrier(WRITERS)

        def compete(number: int) -> bool:
            own, after = open_store(), dict.fromkeys(before, 100 + number)
            start.wait(LONGEST)
            try:
                own.advance(group, before, after)
            except (StoreDriftError, ConcurrentChangeError):
                return False
            return True

        with ThreadPoolExecutor(WRITERS) as pool:
            won = list(pool.map(compete, range(WRITERS)))
        assert won.count(True) == 1
        winner = 100 + won.index(True)
        assert set(store.read(group, [topic, other]).values()) == {winner}

    def test_writers_of_the_same_advance_all_succeed(
        self, store: OffsetStore, open_store: Callable[[], OffsetStore], group: str, topic: str
    ) -> None:
        before, after = at(topic, 0, 0, 0), at(topic, 1, 2, 3)
        store.advance(group, {}, before)
        start = threading.Barrier(4)

        def advance(_: int) -> None:
            own = open_store()
            start.wait(LONGEST)
            own.advance(group, before, after)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(advance, range(4)))
        assert store.read(group, [topic]) == after

    # Faults

    def test_a_server_that_refuses_connections(
        self, proxied: tuple[OffsetStore, Proxy], group: str, topic: str
    ) -> None:
        store, proxy = proxied
        proxy.stop()
        with pytest.raises(StoreUnavailableError):
            store.read(group, [topic])
        with pytest.raises(StoreUnavailableError):
            store.advance(group, {}, at(topic, 1))

    def test_a_server_that_hangs(self, proxied: tuple[OffsetStore, Proxy], group: str, topic: str) -> None:
        store, proxy = proxied
        proxy.hang()
        with pytest.raises(StoreUnavailableError):
            store.read(group, [topic])
        with pytest.raises(StoreUnavailableError):
            store.advance(group, {}, at(topic, 1))

    def test_a_server_that_went_away_and_came_back(
        self, proxied: tuple[OffsetStore, Proxy], group: str, topic: str
    ) -> None:
        store, proxy = proxied
        store.advance(group, {}, at(topic, 5))
        proxy.stop()
        with pytest.raises(StoreUnavailableError):
            store.advance(group, at(topic, 5), at(topic, 6))
        proxy.heal()
        store.advance(group, at(topic, 5), at(topic, 6))
        assert store.read(group, [topic]) == at(topic, 6)

    def test_an_answer_that_is_lost_leaves_all_or_nothing(
        self, proxied: tuple[OffsetStore, Proxy], store: OffsetStore, group: str, topic: str
    ) -> None:
        through, proxy = proxied
        before = at(topic, *[5] * self.lost_partitions)
        store.advance(group, {}, before)
        was_written: list[bool] = []
        while not any(was_written) and len(was_written) < 10 * self.lost_answers:
            through.read(group, [topic])  # so that what connects once is connected, now and below
            answered, after = proxy.answers, {tp: offset + 1 for tp, offset in before.items()}
            through.advance(group, before, after)
            answers, before = proxy.answers - answered, after
            for lost in range(1, self.lost_answers + 1):
                proxy.swallow_answers(after=max(0, answers - lost))
                was_written.append(self._is_written_unseen(proxied, store, group, before))
                before = self._advance_by_one(store, group, before)
                through.read(group, [topic])
        assert any(was_written) or self.chatters, "no answer to a write was lost: this shows nothing"

    def settle(self) -> None:
        """Wait, after a fault, until the store's client has sent its late requests."""

    def _advance_by_one(self, store: OffsetStore, group: str, before: Offsets) -> Offsets:
        after = {tp: offset + 1 for tp, offset in before.items()}
        store.advance(group, before, after)
        assert store.read(group, topics_of(after)) == after
        return after

    def _is_written_unseen(
        self, proxied: tuple[OffsetStore, Proxy], store: OffsetStore, group: str, before: Offsets
    ) -> bool:
        """Advance by one during a fault, and end the fault; return whether it is written although the advance failed."""
        through, proxy = proxied
        after = {tp: offset + 1 for tp, offset in before.items()}
        error: StoreAnswerError | None = None
        try:
            through.advance(group, before, after)
        except StoreAnswerError as exc:
            error = exc
        proxy.heal()
        self.settle()
        stored = store.read(group, topics_of(after))
        if store.guarantees.is_atomic:
            assert stored in (before, after), f"after {error!r}"
        if error is not None and not isinstance(error, StoreOutcomeUnknownError):
            assert stored == before, f"it said that nothing was written: {error}"
        if isinstance(error, StoreOutcomeUnknownError):
            assert "a retry" in str(error)
        return error is not None and stored == after

    def test_a_connection_that_is_cut_leaves_all_or_nothing(
        self, proxied: tuple[OffsetStore, Proxy], store: OffsetStore, group: str, topic: str
    ) -> None:
        before = at(topic, *[5] * self.cut_partitions)
        store.advance(group, {}, before)
        for cut in self.cuts:
            proxied[1].cut_after(cut)
            self._is_written_unseen(proxied, store, group, before)
            before = self._advance_by_one(store, group, before)


def assert_offsets_outlive(server: OneServer, store: OffsetStore, group: str) -> None:
    """Check that offsets outlive a server that is killed, and one that is stopped; meanwhile it is an error to advance them."""
    store.advance(group, {}, at("orders", 5))
    server.kill()
    with pytest.raises(StoreUnavailableError):
        store.advance(group, at("orders", 5), at("orders", 6))
    server.start()
    store.advance(group, at("orders", 5), at("orders", 6))
    server.stop()
    server.start()
    assert store.read(group, ["orders"]) == at("orders", 6)
