"""Windows that end by time: nothing is skipped, whatever the timestamps say."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.request import Live
from airflow_kafka_offsets.core.window import Window
from tests.core.examples import NOON, claim, ranges, tp
from tests.lab.memory import IN_MEMORY
from tests.service.world import World


def at(hours: float) -> datetime:
    """Name a moment by its distance from noon."""
    return NOON + timedelta(hours=hours)


def until(hours: float, at_most: int = 1) -> Live:
    """Ask as a scheduled run does whose interval ends then."""
    return Live(until=at(hours), ends_at=at(hours), at_most=at_most)


def hour(world: World, hours: float) -> Window:
    """Let the scheduled run of an interval plan, work and commit."""
    return world.run(claim(f"scheduled-{hours}"), until(hours))


def test_a_window_ends_at_the_first_record_of_the_intervals_end_or_later(world: World) -> None:
    world.kafka.produce(tp(0), 5, at=at(-2.5))
    world.kafka.produce(tp(0), 5, at=at(-2))  # exactly at the end: the next interval's
    world.kafka.produce(tp(0), 5, at=at(-1.5))
    window = hour(world, -2)
    assert (window.ranges, window.planned_until) == (ranges({tp(0): (0, 5), tp(1): (0, 0)}), at(-2))
    assert hour(world, -1).ranges[tp(0)] == ranges({tp(0): (5, 15)})[tp(0)]


def test_records_that_come_late_belong_to_the_next_window_and_none_is_skipped(world: World) -> None:
    world.kafka.produce(tp(0), 5, at=at(-2.5))
    assert hour(world, -2).ranges[tp(0)].end == 5
    world.kafka.produce(tp(0), 3, at=at(-2.4))  # late
    world.kafka.produce(tp(0), 4, at=at(-1.5))
    world.kafka.produce(tp(0), 2, at=at(-0.5))
    assert hour(world, -1).ranges[tp(0)] == ranges({tp(0): (5, 12)})[tp(0)]
    assert hour(world, 0).ranges[tp(0)] == ranges({tp(0): (12, 14)})[tp(0)]


def test_late_records_behind_a_newer_one_wait_for_its_window(world: World) -> None:
    world.kafka.produce(tp(0), 5, at=at(-2.5))
    world.kafka.produce(tp(0), 1, at=at(-1.5))
    world.kafka.produce(tp(0), 3, at=at(-2.4))
    assert hour(world, -2).ranges[tp(0)].end == 5
    assert hour(world, -1).ranges[tp(0)] == ranges({tp(0): (5, 9)})[tp(0)]


def test_catching_up_after_a_pause_gives_one_window_for_each_interval(world: World) -> None:
    for i, h in enumerate((-3.5, -2.5, -1.5, -0.5)):
        world.kafka.produce(tp(0), i + 1, at=at(h))
        world.kafka.produce(tp(1), 1, at=at(h))
    windows = [hour(world, h) for h in (-3, -2, -1, 0)]
    assert [w.span for w in windows] == [2, 3, 4, 5]
    assert [w.planned_until for w in windows] == [at(h) for h in (-3, -2, -1, 0)]
    assert all(later.ranges.starts == earlier.ranges.ends for earlier, later in pairwise(windows))


def test_partitions_without_records_end_where_they_are(world: World) -> None:
    world.kafka.add_partitions("orders")
    world.kafka.produce(tp(0), 5, at=at(-2.5))
    world.kafka.produce(tp(2), 7, at=at(-1.5))
    assert hour(world, -2).ranges == ranges({tp(0): (0, 5), tp(1): (0, 0), tp(2): (0, 0)})
    assert hour(world, -1).ranges == ranges({tp(0): (5, 5), tp(1): (0, 0), tp(2): (0, 7)})


def test_an_interval_without_records_is_an_empty_window_that_commits(world: World) -> None:
    world.kafka.produce(tp(0), 5, at=at(-0.5))
    assert [hour(world, h).span for h in (-3, -2, -1, 0)] == [0, 0, 0, 5]
    assert world.watermark == {0: 5, 1: 0}


def test_the_cap_cuts_an_interval_and_the_next_run_goes_on_where_it_was_cut(world: World) -> None:
    world.configure(max_offsets=4)
    world.kafka.produce(tp(0), 10, at=at(-2.5))
    world.kafka.produce(tp(0), 10, at=at(-1.5))
    assert hour(world, -2).ranges[tp(0)].end == 4
    assert hour(world, -1).ranges[tp(0)].end == 8


def test_several_windows_of_one_interval_end_at_its_end(world: World) -> None:
    world.configure(max_offsets=4, max_open_windows=9)
    world.kafka.produce(tp(0), 10, at=at(-2.5))
    world.kafka.produce(tp(0), 10, at=at(-1.5))
    windows = [p.window for p in world.ask(claim("a"), until(-2, at_most=9))]
    assert [w.ranges[tp(0)].end for w in windows] == [4, 8, 10]
    assert {w.planned_until for w in windows} == {at(-2)}


def test_who_has_read_further_by_hand_gets_an_empty_window_and_nothing_twice(world: World) -> None:
    world.kafka.produce(tp(0), 5, at=at(-2.5))
    world.kafka.produce(tp(0), 5, at=at(-1.5))
    assert world.run(claim("manual")).ranges[tp(0)].end == 10
    assert hour(world, -2).ranges[tp(0)] == ranges({tp(0): (10, 10)})[tp(0)]


def test_a_retry_has_its_window_although_late_records_came(world: World) -> None:
    world.kafka.produce(tp(0), 5, at=at(-2.5))
    before = world.plan(claim("a"), until(-2)).window
    world.kafka.produce(tp(0), 5, at=at(-2.4))
    assert world.plan(claim("a"), until(-2)).window == before


def test_the_first_window_starts_where_the_user_chose_and_ends_by_time(quick_folder: Path) -> None:
    world = World(quick_folder, starting_offsets="latest")
    world.kafka.produce(tp(0), 5, at=at(-2.5))
    window = hour(world, -3)  # latest lies behind that time: nothing, and nothing back
    assert window.ranges[tp(0)] == ranges({tp(0): (5, 5)})[tp(0)]


def test_an_open_transaction_ends_a_window_by_time_too(world: World) -> None:
    world.kafka.produce(tp(0), 2, at=at(-2.5))
    world.kafka.open_transaction(tp(0))
    world.kafka.produce(tp(0), 3, at=at(-2.4))
    assert hour(world, -2).ranges[tp(0)].end == 2
    world.kafka.commit_transaction(tp(0))
    world.kafka.produce(tp(0), 1, at=at(-0.5))
    assert hour(world, -1).ranges[tp(0)] == ranges({tp(0): (2, 6)})[tp(0)]


# A record dated in the future.


@pytest.fixture
def ahead(world: World) -> World:
    """Return a world with a record dated in the year after, and records behind it."""
    world.kafka.produce(tp(0), 5, at=at(-2.5))
    world.kafka.produce(tp(0), 1, at=at(24 * 365))
    world.kafka.produce(tp(0), 6, at=at(-1.5))
    world.kafka.produce(tp(1), 6, at=at(-1.5))
    return world


def test_a_record_dated_in_the_future_holds_its_partition_back_and_is_named_once_nothing_is_read(
    ahead: World, caplog: pytest.LogCaptureFixture
) -> None:
    planned = ahead.plan(claim("a"), until(-1))
    assert (planned.window.ranges, planned.warnings) == (ranges({tp(0): (0, 5), tp(1): (0, 6)}), ())
    ahead.do(planned.window, claim("a"))
    [warning] = ahead.plan(claim("b"), until(-0.5)).warnings
    assert "orders-0 at offset 5 (7 offsets waiting there)" in warning
    assert "orders-1" not in warning
    assert warning in caplog.text


def test_a_run_by_hand_reads_past_the_record_of_the_future(ahead: World) -> None:
    hour(ahead, -1)
    assert ahead.run(claim("manual")).ranges[tp(0)] == ranges({tp(0): (5, 12)})[tp(0)]
    assert ahead.watermark == {0: 12, 1: 6}
    quiet = ahead.plan(claim("b"), until(-0.5))
    assert (quiet.window.span, quiet.warnings) == (0, ())


def test_what_comes_after_the_future_record_was_read_waits_and_is_counted_from_there(ahead: World) -> None:
    """The index still answers with the old record: such a partition goes on by hand only, and each run says so."""
    hour(ahead, -1)
    ahead.run(claim("manual"))
    ahead.kafka.produce(tp(0), 3, at=at(-0.7))
    planned = ahead.plan(claim("b"), until(-0.5))
    assert planned.window.span == 0
    assert "orders-0 at offset 5 (3 offsets waiting there)" in planned.warnings[0]


def test_a_group_that_ends_now_does_not_care_about_timestamps(ahead: World) -> None:
    planned = ahead.plan(claim("a"), Live(until=at(-1)))
    assert (planned.window.ranges[tp(0)].end, planned.warnings) == (12, ())


# The law.


@settings(max_examples=min(15, settings.default.max_examples), suppress_health_check=[HealthCheck.too_slow])
@given(
    batches=st.lists(st.lists(st.tuples(st.integers(0, 1), st.integers(-60, 60)), max_size=12), min_size=1, max_size=7),
    max_offsets=st.none() | st.integers(1, 10),
    by_hand=st.sets(st.integers(0, 6)),
)
def test_consecutive_windows_are_the_log_whatever_the_order_of_timestamps(
    batches: list[list[tuple[int, int]]], max_offsets: int | None, by_hand: set[int]
) -> None:
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        world = World(Path(folder), max_offsets=max_offsets, max_open_windows=3)
        windows: list[Window] = []
        for number, batch in enumerate(batches):
            for partition, tenths in batch:
                world.kafka.produce(tp(partition), 1, at=at(tenths / 10))
            request = Live(at_most=3) if number in by_hand else until(number - 5, at_most=3)
            windows += world.run_all(claim(f"run-{number}"), request)
        while more := [w for w in world.run_all(claim(f"last-{len(windows)}"), Live(at_most=3)) if w.span]:
            windows += more
        for earlier, later in pairwise(windows):
            assert later.ranges.starts == earlier.ranges.ends
        read: Counter[tuple[TopicPartition, int]] = Counter(
            (p, o) for w in windows for p, r in w.ranges.items() for o in range(r.start, r.end)
        )
        written = Counter(partition for batch in batches for partition, _ in batch)
        assert read == Counter((tp(p), o) for p, n in written.items() for o in range(n))
