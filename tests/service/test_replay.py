"""Rules 6 to 8 of docs/design.md: replays by windows, time and offsets, and the intervals of Airflow's backfills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier, Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConfirmationError,
    DataLossError,
    IllegalStepError,
    KafkaUnavailableError,
    LogTruncatedError,
    NotYetError,
    TopicRecreatedError,
    UnknownWindowError,
    WindowBusyError,
)
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.request import Live, Ranges, TimeSpan, Windows
from airflow_kafka_offsets.core.window import Claim, Lane, Outcome, Scope, State, Window
from airflow_kafka_offsets.ledger import engine
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.service.windows import WindowService
from tests.core.examples import NOON, claim, ranges, tp
from tests.lab.memory import IN_MEMORY
from tests.lab.waiting import LONGEST
from tests.service.world import World

ONE, TWO, THREE = claim("run-1"), claim("run-2"), claim("run-3")
HOUR = timedelta(hours=1)


def at(hours: float) -> datetime:
    """Name a moment by its distance from noon."""
    return NOON + hours * HOUR


def seqs(planned: Sequence[Planned | Window]) -> list[int]:
    """Return the numbers of windows."""
    return [(p.window if isinstance(p, Planned) else p).seq for p in planned]


def offsets(low: int, high: int, partition: int = 0) -> Ranges:
    """Ask for offsets of one partition."""
    return Ranges(ranges({tp(partition): (low, high)}))


def everything(world: World) -> object:
    """Return all that the ledger has of the group."""
    return world.ledger.load("lake"), world.ledger.windows("lake", limit=1000), world.ledger.acts("lake")


@pytest.fixture
def hourly(world: World) -> World:
    """Run at 9, 10 and 11 o'clock (hours -3 to -1): ten records of each hour before, in partition 0."""
    for i, hour in enumerate((-3, -2, -1)):
        world.kafka.produce(tp(0), 10, at=at(hour - 0.5))
        world.run(claim(f"hourly-{i}"), Live(until=at(hour)))
    return world


@pytest.fixture
def latecomer(world: World) -> World:
    """A group that started at latest: 20 older records are there (10 of hour -3, 10 of hour -2), and no one owns them."""
    world.configure(starting_offsets="latest")
    world.kafka.produce(tp(0), 10, at=at(-3.5))
    world.kafka.produce(tp(0), 10, at=at(-2.5))
    world.run(claim("first"))
    world.kafka.produce(tp(0), 5, at=at(0))
    world.run(claim("second"))
    return world


def test_the_plan_of_a_replay_says_how_much_of_it_lies_in_a_remote_tier(
    hourly: World, caplog: pytest.LogCaptureFixture
) -> None:
    def said(windows: Windows) -> list[str]:
        """Return what a preview says, and what the plan says after it."""
        caplog.clear()
        hourly.service.answer(hourly.group, windows)
        hourly.ask(run := claim(f"replay-{windows}"), windows)
        hourly.die(run)
        return [record.getMessage() for record in caplog.records if "remote tier" in record.getMessage()]

    age_in_ms = str(2 * 3_600_000)
    hourly.kafka.configure("orders", local_retention_ms=age_in_ms)
    assert said(Windows((1, 3))) == [], "there is no such tier"
    hourly.kafka.configure("orders", remote_storage_enable="true")
    sentence = "Group lake: 10 of 20 offsets are older than local.retention.ms of orders. Kafka reads them from its remote tier"
    assert [text.partition(", which")[0] for text in said(Windows((1, 3)))] == [sentence, sentence]
    assert said(Windows((3,))) == []
    hourly.kafka.configure("orders", local_retention_ms="-2")
    assert said(Windows((1, 3))) == [], "-2 stands for the whole retention"


# Rule 6: windows by name.


def test_named_windows_are_run_again_under_their_own_ids(hourly: World) -> None:
    before = [row.window for row in hourly.ledger.windows("lake")]
    planned = hourly.ask(ONE, Windows((1, 3)))
    assert [(p.window.id, p.how, p.is_rerun) for p in planned] == [
        ("lake-000001", "replay", True),
        ("lake-000003", "replay", True),
    ]
    for p in planned:
        assert hourly.do(p.window, ONE) is False
    assert [row.window for row in hourly.ledger.windows("lake")] == before
    assert hourly.watermark == {0: 30, 1: 0}


def test_a_named_window_without_records_is_left_out_and_alone_it_is_an_empty_answer(hourly: World) -> None:
    hourly.run(claim("quiet"))
    assert seqs(hourly.ask(ONE, Windows((2, 4)))) == [2]
    with pytest.raises(BadInputError, match="nothing to replay: lake-000004: no records"):
        hourly.ask(TWO, Windows((4,)))


def test_unknown_windows_are_refused_by_name(hourly: World) -> None:
    with pytest.raises(
        UnknownWindowError,
        match=r"no window lake-000004, lake-000009\. List those that it has:\n    kafka-offsets windows lake",
    ):
        hourly.ask(ONE, Windows((1, 4, 9)))


def test_an_abandoned_and_a_superseded_window_can_not_be_replayed(hourly: World) -> None:
    hourly.kafka.produce(tp(0), 5)
    given_up = hourly.plan(ONE).window
    hourly.service.abandon(given_up.id, "me", "poison")
    with pytest.raises(IllegalStepError, match=r"lake-000004 was abandoned.*Name the time span or the offsets"):
        hourly.ask(TWO, Windows((1, 4)))
    hourly.service.reset(hourly.group, '{"orders":{"0":20}}', "me", "again", supersede=True)
    with pytest.raises(IllegalStepError, match="lake-000003 was superseded"):
        hourly.ask(TWO, Windows((3,)))


def test_an_open_live_window_is_refused_the_live_lane_reads_it(hourly: World) -> None:
    hourly.kafka.produce(tp(0), 5)
    hourly.plan(ONE)
    hourly.die(ONE)
    with pytest.raises(IllegalStepError, match=r"lake-000004 is planned.*not below the watermark yet"):
        hourly.ask(TWO, Windows((3, 4)))


def test_a_group_that_never_planned_has_nothing_to_replay(world: World) -> None:
    for request in (Windows((1,)), TimeSpan(at(-1), at(0)), TimeSpan(at(-1), at(0), is_interval=True), offsets(0, 1)):
        with pytest.raises(NotYetError, match="Group lake has not planned yet"):
            world.ask(ONE, request)


def test_windows_of_which_kafka_lost_some_say_which_can_still_be_run(hourly: World) -> None:
    hourly.kafka.expire(tp(0), 15)
    before = everything(hourly)
    with pytest.raises(DataLossError, match=r"2 of 3 windows .*Can be run again: lake-000003$"):
        hourly.ask(ONE, Windows((1, 2, 3)))
    assert everything(hourly) == before
    assert seqs(hourly.ask(ONE, Windows((3,)))) == [3]


def test_windows_of_a_recreated_topic_can_not_be_replayed(hourly: World) -> None:
    hourly.kafka.recreate("orders", 2)
    hourly.kafka.produce(tp(0), 100)
    with pytest.raises(TopicRecreatedError, match="2 of 2 windows can no longer be read"):
        hourly.ask(ONE, Windows((1, 2)))
    with pytest.raises(TopicRecreatedError):
        hourly.ask(ONE, offsets(0, 10))
    hourly.service.reset(hourly.group, "latest", "me", "recreated")
    # What lies below the new watermark is another log: the old windows own nothing of it.
    [planned] = hourly.ask(TWO, offsets(0, 10))
    assert (planned.how, planned.window.lane, planned.window.ranges) == ("new", Lane.BACKFILL, ranges({tp(0): (0, 10)}))


# Rules 6 and 7: by time.


def test_a_window_belongs_to_the_span_that_contains_its_cut_time(hourly: World) -> None:
    for span, expected in (
        (TimeSpan(at(-3), at(-2)), [2]),
        (TimeSpan(at(-3.1), at(-2)), [1, 2]),
        (TimeSpan(at(-9), at(9)), [1, 2, 3]),
        (TimeSpan(at(-2), at(-1.5)), []),
    ):
        if expected:
            assert seqs(hourly.ask(claim(str(span)), span)) == expected
            hourly.die(claim(str(span)))
        else:
            with pytest.raises(BadInputError):
                hourly.ask(ONE, span)


def test_a_span_without_windows_names_those_that_own_its_records(hourly: World) -> None:
    with pytest.raises(
        BadInputError, match=r"no window was cut after .*09:20.* up to .*09:45.*Name these windows: lake-000002"
    ):
        hourly.ask(ONE, TimeSpan(NOON - timedelta(minutes=160), NOON - timedelta(minutes=135)))
    with pytest.raises(BadInputError, match="kafka-offsets windows GROUP"):
        hourly.ask(ONE, TimeSpan(at(-20), at(-19)))


def test_the_records_of_a_span_that_nobody_owns_get_new_windows_below_the_watermark(latecomer: World) -> None:
    assert latecomer.watermark == {0: 25, 1: 0}
    [planned] = latecomer.ask(ONE, TimeSpan(at(-4), at(-3)))
    window = planned.window
    assert (planned.how, window.lane, window.ranges, window.planned_until) == (
        "new",
        Lane.BACKFILL,
        ranges({tp(0): (0, 10)}),
        at(-3),
    )
    assert latecomer.watermark == {0: 25, 1: 0}
    assert latecomer.do(window, ONE) is True
    assert latecomer.watermark == {0: 25, 1: 0}


def test_the_same_span_finds_its_windows_again_and_a_part_of_it_names_them(latecomer: World) -> None:
    first = latecomer.run_all(ONE, TimeSpan(at(-4), at(-2)))
    again = latecomer.ask(TWO, TimeSpan(at(-4), at(-2)))
    assert [(p.window.id, p.is_rerun) for p in again] == [(w.id, True) for w in first]
    with pytest.raises(BadInputError, match=f"Name these windows: {first[0].id}"):
        latecomer.ask(THREE, TimeSpan(at(-4), at(-3)))


def test_new_windows_of_a_replay_are_cut_by_max_offsets(latecomer: World) -> None:
    latecomer.configure(max_offsets=8)
    planned = latecomer.ask(ONE, TimeSpan(at(-4), at(-2)))
    cuts = [(r.start, r.end) for p in planned for r in p.window.ranges.values()]
    assert cuts == [(0, 8), (8, 16), (16, 20)]
    assert {p.window.planned_until for p in planned} == {at(-2)}
    assert seqs(planned) == [3, 4, 5]
    assert not any(p.window.is_capped for p in planned)  # that is said of live windows only


def test_more_windows_than_the_task_can_have_are_refused_before_anything_is_written(latecomer: World) -> None:
    latecomer.configure(max_offsets=8)
    before = everything(latecomer)
    with pytest.raises(BadInputError, match=r"would get 3 windows and can take 1.*PlanBacklogOperator"):
        latecomer.ask(ONE, TimeSpan(at(-4), at(-2)), at_most=1)
    assert everything(latecomer) == before


def test_records_of_the_span_above_the_watermark_are_refused_with_the_numbers(latecomer: World) -> None:
    latecomer.kafka.produce(tp(0), 7, at=at(0.1))
    before = everything(latecomer)
    with pytest.raises(BadInputError, match=r"orders-0: offsets \[25, 32\) \(watermark 25\)"):
        latecomer.ask(ONE, TimeSpan(at(-4), at(1)))
    assert everything(latecomer) == before


def test_an_open_live_windows_records_are_above_the_watermark(latecomer: World) -> None:
    latecomer.kafka.produce(tp(0), 7, at=at(0.1))
    latecomer.plan(ONE)
    with pytest.raises(BadInputError, match=r"orders-0: offsets \[25, 32\) \(watermark 25\)"):
        latecomer.ask(TWO, TimeSpan(at(-4), at(1)))
    # What lies below is not the live lane's.
    assert [p.window.lane for p in latecomer.ask(TWO, TimeSpan(at(-4), at(-3)))] == [Lane.BACKFILL]


def test_a_gap_that_a_reset_left_can_be_filled(hourly: World) -> None:
    hourly.kafka.produce(tp(0), 20, at=at(-0.5))
    hourly.service.reset(hourly.group, '{"orders":{"0":45}}', "me", "in a hurry")
    hourly.run(ONE)
    assert hourly.watermark == {0: 50, 1: 0}
    planned = hourly.ask(TWO, TimeSpan(at(-1), at(0)))
    assert [(p.how, p.window.ranges[tp(0)]) for p in planned] == [("new", ranges({tp(0): (30, 45)})[tp(0)])]


def test_what_expired_in_a_skipped_gap_is_refused_by_offsets_and_not_asked_by_time(world: World) -> None:
    world.configure(on_data_loss="skip")
    world.kafka.produce(tp(0), 10, at=at(-3))
    world.run(ONE)
    world.kafka.produce(tp(0), 20, at=at(-2))
    world.kafka.expire(tp(0), 25)
    world.run(TWO)
    with pytest.raises(DataLossError, match=r"orders-0: offsets \[10, 25\) \(beginning offset 25\)"):
        world.ask(THREE, offsets(10, 25))
    with pytest.raises(BadInputError, match="nothing to replay"):
        world.ask(THREE, TimeSpan(at(-3.5), at(-2.5)))


def test_what_a_truncated_log_lost_is_refused_and_not_planned(latecomer: World) -> None:
    latecomer.kafka.truncate(tp(0), 15)
    before = everything(latecomer)
    with pytest.raises(LogTruncatedError, match=r"orders-0: offsets \[15, 20\) \(end offset 15\)"):
        latecomer.ask(ONE, offsets(10, 20))
    assert everything(latecomer) == before
    assert [p.window.ranges[tp(0)].end for p in latecomer.ask(ONE, offsets(10, 15))] == [15]


def test_a_span_over_partitions_without_records_asks_nothing_of_them(hourly: World) -> None:
    hourly.kafka.add_partitions("orders", 3)
    hourly.run(claim("wide"))
    assert seqs(hourly.ask(ONE, TimeSpan(at(-9), at(-1.5)))) == [1, 2]


# Rule 6: by offsets.


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(5, 6, [1]), (9, 11, [1, 2]), (0, 30, [1, 2, 3]), (10, 20, [2]), (29, 30, [3])]
)
def test_the_whole_owners_of_offsets_are_run(hourly: World, low: int, high: int, expected: list[int]) -> None:
    assert seqs(hourly.ask(ONE, offsets(low, high))) == expected


def test_offsets_that_mean_nothing_are_refused_with_the_numbers(hourly: World) -> None:
    before = everything(hourly)
    hourly.kafka.produce(tp(0), 5)
    for request, why in (
        (offsets(25, 33), r"orders-0: offsets \[30, 33\) \(watermark 30\)"),
        (offsets(5, 5), "nothing to replay: the offset ranges are empty"),
        (offsets(0, 5, partition=9), "Kafka has no partition orders-9"),
        (Ranges(ranges({tp(0, "refunds"): (0, 5)})), "doesn't read refunds; it reads orders"),
        (offsets(10**12, 10**12 + 5), r"offsets \[1000000000000, 1000000000005\) \(watermark 30\)"),
    ):
        with pytest.raises(BadInputError, match=why):
            hourly.ask(ONE, request)
    assert everything(hourly) == before


def test_offsets_without_an_owner_get_new_windows_beside_the_owners(latecomer: World) -> None:
    planned = latecomer.ask(ONE, offsets(15, 23))
    assert [(p.window.seq, p.how) for p in planned] == [(2, "replay"), (3, "new")]
    assert planned[1].window.ranges == ranges({tp(0): (15, 20)})
    assert planned[1].window.planned_until == latecomer.now
    for p in planned:
        latecomer.do(p.window, ONE)
    latecomer.die(ONE)
    again = latecomer.ask(TWO, offsets(10, 20))
    assert [(p.window.seq, p.window.ranges[tp(0)].start) for p in again] == [(3, 15), (4, 10)]


def test_a_partition_that_was_added_later_is_replayed_like_any_other(hourly: World) -> None:
    hourly.kafka.add_partitions("orders")
    hourly.kafka.produce(tp(2), 8, at=at(-0.5))
    with pytest.raises(BadInputError, match=r"orders-2: offsets \[0, 4\) \(watermark 0\)"):
        hourly.ask(ONE, offsets(0, 4, partition=2))
    hourly.run(TWO)
    assert seqs(hourly.ask(ONE, offsets(3, 4, partition=2))) == [4]
    assert seqs(hourly.ask(THREE, Ranges(ranges({tp(0): (5, 6), tp(1): (0, 0)})))) == [1]


# Who works on it, and resuming.


def test_a_half_done_replay_goes_on_where_it_stopped(hourly: World) -> None:
    first, *rest = hourly.ask(ONE, Windows((1, 2, 3)), last_clear=2)
    assert first.earlier_success is None
    hourly.do(first.window, ONE, last_clear=2)
    hourly.work(rest[0].window, ONE, Outcome.FAILED, last_clear=2)
    retry = hourly.ask(ONE, Windows((1, 2, 3)), last_clear=2)
    assert [p.earlier_success is not None for p in retry] == [True, False, False]
    assert retry[0].earlier_success is not None
    assert retry[0].earlier_success.records == 10
    assert [p.how for p in retry] == ["again"] * 3
    # A clear of the task means: all of it, again.
    cleared = hourly.ask(ONE, Windows((1, 2, 3)), last_clear=5)
    assert [p.earlier_success for p in cleared] == [None] * 3


def test_what_another_run_did_is_not_done_by_this_one(hourly: World) -> None:
    hourly.run_all(ONE, Windows((1, 2)))
    assert [p.earlier_success for p in hourly.ask(TWO, Windows((1, 2)))] == [None, None]


def test_a_runs_own_windows_win_over_whatever_it_asks(hourly: World) -> None:
    hourly.ask(ONE, Windows((2,)))
    for request in (Windows((1, 3)), Live(), TimeSpan(at(-9), at(9)), offsets(0, 1), Windows((99,))):
        [planned] = hourly.ask(ONE, request)
        assert (planned.window.seq, planned.how) == (2, "again")


def test_a_busy_window_refuses_the_whole_replay_and_nothing_is_written(latecomer: World) -> None:
    latecomer.ask(ONE, Windows((2,)))
    before = everything(latecomer)
    for request in (Windows((2,)), offsets(0, 25), TimeSpan(at(-9), at(0.1))):
        with pytest.raises(WindowBusyError, match=r"lake-000002 is being worked on by dag/run-1/load") as raised:
            latecomer.ask(TWO, request)
        assert raised.value.is_rerun
    assert everything(latecomer) == before
    latecomer.die(ONE)
    assert seqs(latecomer.ask(TWO, offsets(0, 25))) == [2, 3]


def test_a_dead_replays_open_window_is_taken_by_the_next_replay_as_it_is(latecomer: World) -> None:
    [left] = latecomer.ask(ONE, TimeSpan(at(-4), at(-3)))
    with pytest.raises(WindowBusyError):
        latecomer.ask(TWO, offsets(5, 8))
    latecomer.die(ONE)
    for who, request in ((TWO, offsets(5, 8)), (THREE, Windows((left.window.seq,)))):
        [taken] = latecomer.ask(who, request)
        assert (taken.window, taken.how, taken.is_rerun) == (left.window, "replay", False)
        latecomer.die(who)
    [taken] = latecomer.ask(TWO, TimeSpan(at(-4), at(-3)))
    assert latecomer.do(taken.window, TWO) is True


def test_a_live_run_leaves_backfill_windows_alone(latecomer: World) -> None:
    latecomer.ask(ONE, TimeSpan(at(-4), at(-3)))
    latecomer.die(ONE)
    latecomer.kafka.produce(tp(0), 5)
    live = latecomer.run(TWO)
    assert (live.lane, live.ranges[tp(0)].start) == (Lane.LIVE, 25)


def test_a_backfill_window_can_be_abandoned_although_later_ones_exist(latecomer: World) -> None:
    latecomer.configure(max_offsets=5)
    planned = latecomer.ask(ONE, TimeSpan(at(-4), at(-3)))
    latecomer.kafka.produce(tp(0), 5)
    latecomer.run(TWO)
    first = planned[0].window
    latecomer.service.abandon(first.id, "me", "poison")
    assert latecomer.watermark == {0: 30, 1: 0}
    latecomer.die(ONE)
    # The offsets are no one's again: another window, another name.
    again = latecomer.ask(THREE, offsets(0, 10))
    assert [(p.window.ranges[tp(0)].start, p.how) for p in again] == [(5, "replay"), (0, "new")]
    assert again[1].window.id != first.id


def test_a_replay_whose_run_had_its_window_abandoned_asks_anew(latecomer: World) -> None:
    [before] = latecomer.ask(ONE, TimeSpan(at(-4), at(-3)))
    latecomer.service.abandon(before.window.id, "me", "poison")
    [anew] = latecomer.ask(ONE, TimeSpan(at(-4), at(-3)))
    assert (anew.how, anew.window.ranges) == ("new", before.window.ranges)
    assert anew.window.id != before.window.id


@pytest.mark.parametrize("request_", [Windows((3,)), TimeSpan(at(-4), at(-3))], ids=["by name", "by time"])
def test_a_backfill_window_whose_commit_stopped_half_way_is_finished_and_not_run_again(
    latecomer: World, request_: Windows | TimeSpan
) -> None:
    [planned] = latecomer.ask(ONE, TimeSpan(at(-4), at(-3)))
    latecomer.work(planned.window, ONE)
    latecomer.crash_in_commit(planned.window)
    [retry] = latecomer.ask(ONE, request_)
    assert (retry.window.state, retry.is_rerun, retry.earlier_success is not None) == (State.COMMITTED, False, True)
    latecomer.crash_in_commit(planned.window)
    latecomer.die(ONE)
    [other] = latecomer.ask(TWO, request_)
    assert latecomer.do(other.window, TWO) is not other.is_rerun
    assert latecomer.service.ledger.window(planned.window.id).window.state is State.COMMITTED


def test_two_replays_of_the_same_offsets_at_once_make_one_window(latecomer: World) -> None:
    for turn in range(5):
        barrier = Barrier(4)
        got: list[str] = []

        def ask(number: int, turn: int = turn, barrier: Barrier = barrier, got: list[str] = got) -> None:
            barrier.wait()
            try:
                planned = latecomer.service.plan(
                    latecomer.group, claim(f"r-{turn}-{number}"), lambda _: False, offsets(2 * turn, 2 * turn + 2)
                )
                got += [p.window.id for p in planned]
            except WindowBusyError as exc:
                got.append(f"busy {exc.window_id}")

        threads = [Thread(target=ask, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = [answer for answer in got if not answer.startswith("busy")]
        assert Counter(got) == {winner: 1, f"busy {winner}": 3}


def test_a_replay_that_kafka_does_not_answer_writes_nothing(latecomer: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything(latecomer)

    def down(*_: object) -> None:
        raise KafkaUnavailableError("down")

    monkeypatch.setattr(latecomer.kafka, "offsets_at", down)
    with pytest.raises(KafkaUnavailableError):
        latecomer.ask(ONE, TimeSpan(at(-4), at(-3)))
    monkeypatch.setattr(latecomer.kafka, "snapshot", down)
    with pytest.raises(KafkaUnavailableError):
        latecomer.ask(ONE, offsets(0, 25))
    assert everything(latecomer) == before


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Windows((2,)), [2]),
        (offsets(20, 25), [2]),
        (offsets(0, 20), [3]),
        (offsets(15, 23), [2, 3]),
        (TimeSpan(at(-4), at(-3)), [3]),
        (TimeSpan(at(-9), at(0.1)), [2, 3]),
    ],
    ids=["by name", "owned", "of no one", "partly owned", "a time of no one", "a time partly owned"],
)
def test_a_replay_asks_kafka_for_one_snapshot(
    latecomer: World, request_: Windows | Ranges | TimeSpan, expected: list[int]
) -> None:
    latecomer.kafka.calls.clear()
    assert seqs(latecomer.ask(ONE, request_)) == expected
    assert latecomer.kafka.calls.count("snapshot") == 1


def test_a_window_at_another_isolation_level_is_looked_at_again(latecomer: World) -> None:
    latecomer.configure(starting_offsets="latest", isolation_level="read_uncommitted")
    latecomer.kafka.calls.clear()
    assert seqs(latecomer.ask(ONE, offsets(15, 23))) == [2, 3]
    assert latecomer.kafka.calls.count("snapshot") == 2


def test_a_reprocessed_run_asks_kafka_for_one_snapshot(latecomer: World) -> None:
    own = latecomer.plan(ONE, interval(-4, -3))
    latecomer.do(own.window, ONE)
    latecomer.kafka.calls.clear()
    assert seqs(latecomer.ask(ONE, interval(-4, -2), last_clear=1)) == [3, 4]
    assert latecomer.kafka.calls.count("snapshot") == 1


def test_a_preview_of_a_replay_writes_nothing(latecomer: World) -> None:
    before = everything(latecomer)
    windows, drafts = latecomer.service.answer(latecomer.group, offsets(15, 23))
    assert (seqs(windows), [d.ranges for d in drafts]) == ([2], [ranges({tp(0): (15, 20)})])
    assert everything(latecomer) == before


# A reset and what replays have filled.


def test_a_reset_backwards_supersedes_backfill_windows_too(latecomer: World) -> None:
    [filled] = latecomer.run_all(ONE, TimeSpan(at(-4), at(-2)))
    with pytest.raises(ConfirmationError, match=filled.id):
        latecomer.service.reset(latecomer.group, "earliest", "me", "wrong schema")
    latecomer.service.reset(latecomer.group, "earliest", "me", "wrong schema", supersede=True)
    assert latecomer.service.ledger.window(filled.id).window.state is State.SUPERSEDED
    assert latecomer.run(TWO).ranges == ranges({tp(0): (0, 25), tp(1): (0, 0)})


def test_a_reset_backwards_wants_no_open_backfill_window_in_its_way(latecomer: World) -> None:
    [waiting] = latecomer.ask(ONE, TimeSpan(at(-4), at(-2)))
    with pytest.raises(IllegalStepError, match=f"abandon {waiting.window.id}"):
        latecomer.service.reset(latecomer.group, "earliest", "me", "wrong schema", supersede=True)
    latecomer.service.reset(latecomer.group, "latest", "me", "forwards is no matter")


# Rules 7 and 8: the intervals of Airflow's backfills.


def interval(start: float, end: float) -> TimeSpan:
    """Ask as a backfill's run does."""
    return TimeSpan(at(start), at(end), is_interval=True)


def test_an_interval_in_which_no_window_was_cut_is_an_empty_answer(hourly: World) -> None:
    assert hourly.ask(ONE, interval(-9, -8)) == []
    assert hourly.ask(ONE, interval(-2, -1.8)) == []


def test_an_interval_without_width_is_an_error_that_names_the_timetable(hourly: World) -> None:
    with pytest.raises(BadInputError, match="CronDataIntervalTimetable"):
        hourly.ask(ONE, interval(-2, -2))


def test_a_reprocessed_run_gets_its_own_window_and_what_belongs_to_its_interval(hourly: World) -> None:
    scheduled = claim("hourly-0")
    planned = hourly.ask(scheduled, interval(-3, -1))
    assert [(p.window.seq, p.how) for p in planned] == [(1, "again"), (2, "again"), (3, "again")]
    hourly.die(scheduled)
    assert seqs(hourly.ask(claim("hourly-2"), interval(-2, -1))) == [3]


def test_a_reprocessed_interval_whose_window_another_run_has_is_busy(hourly: World) -> None:
    hourly.ask(ONE, Windows((2,)))
    with pytest.raises(WindowBusyError, match="lake-000002"):
        hourly.ask(claim("hourly-0"), interval(-3, -1))


def test_intervals_work_backwards_and_while_the_live_schedule_goes_on(latecomer: World) -> None:
    newer = latecomer.run_all(ONE, interval(-3, -2))
    latecomer.kafka.produce(tp(0), 9, at=at(0.2))
    live = latecomer.run(TWO)
    older = latecomer.run_all(THREE, interval(-4, -3))
    assert [w.ranges[tp(0)].start for w in (*older, *newer, live)] == [0, 10, 25]
    assert latecomer.watermark == {0: 34, 1: 0}


@settings(max_examples=min(15, settings.default.max_examples), suppress_health_check=[HealthCheck.too_slow])
@given(
    started_at=st.sampled_from(["earliest", "latest", at(-6)]),
    batches=st.lists(
        st.tuples(st.lists(st.tuples(st.integers(0, 1), st.integers(-100, 0)), max_size=8), st.booleans()), max_size=8
    ),
    cuts=st.lists(st.integers(-110, 2), min_size=1, max_size=4, unique=True).map(sorted),
    max_offsets=st.none() | st.integers(1, 6),
    order=st.randoms(),
)
def test_consecutive_intervals_divide_all_windows_and_records(
    started_at: str | datetime,
    batches: list[tuple[list[tuple[int, int]], bool]],
    cuts: list[int],
    max_offsets: int | None,
    order: st.DrawFn,
) -> None:
    """Whatever the order of timestamps and of the runs, what was there before and where the borders lie."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        world = World(Path(folder), starting_offsets=started_at, max_offsets=max_offsets)
        for number, (records, runs_now) in enumerate(batches):
            for partition, tenths in records:
                world.kafka.produce(tp(partition), 1, at=at(tenths / 10))
            if runs_now:
                world.run(claim(f"live-{number}"), Live(until=at(-10 + number)))
        world.configure(starting_offsets=started_at)
        world.run(claim("last"), Live(until=at(0)))
        borders = [at(-1000), *(at(tenths / 10) for tenths in cuts), at(1)]
        spans = [TimeSpan(start, end, is_interval=True) for start, end in pairwise(borders)]
        order.shuffle(spans)  # type: ignore[attr-defined]
        ran = [w for i, span in enumerate(spans) for w in world.run_all(claim(f"backfill-{i}"), span)]
        windows = [row.window for row in world.ledger.windows("lake", limit=1000) if row.window.span]
        assert Counter(w.id for w in ran) == Counter(w.id for w in windows)
        read: Counter[tuple[TopicPartition, int]] = Counter(
            (p, o) for w in ran for p, r in w.ranges.items() for o in range(r.start, r.end)
        )
        ends = {p: b.end for p, b in world.kafka.snapshot(["orders"], world.group.isolation_level).bounds.items()}
        assert read == Counter((p, o) for p, end in ends.items() for o in range(end))


def test_a_claim_that_got_nothing_asks_anew(hourly: World) -> None:
    nothing: Claim = claim("empty")
    assert hourly.ask(nothing, interval(0, 1)) == []
    hourly.kafka.produce(tp(0), 5, at=at(0.5))
    hourly.run(ONE, Live(until=at(1)))
    assert seqs(hourly.ask(nothing, interval(0, 1))) == [4]


def test_a_reprocessed_run_fills_what_nobody_owned_in_its_interval_and_leaves_the_rest_to_the_live_lane(
    world: World,
) -> None:
    """The seam of a group that started at latest in the middle of an hour."""
    world.configure(starting_offsets="latest")
    world.kafka.produce(tp(0), 10, at=at(-1.5))
    own = world.plan(ONE, Live(until=at(-1)))
    world.service.commit(own.window.id, ONE)
    world.kafka.produce(tp(0), 5, at=at(-1.2))  # came late, and is not read yet
    world.kafka.produce(tp(0), 5, at=at(0))
    world.run(TWO, Live(until=at(-1)))
    world.kafka.produce(tp(1), 3, at=at(-1.3))  # above the watermark
    asked = world.ask(ONE, interval(-2, -1), last_clear=1)
    assert [(p.window.seq, p.window.lane, p.window.span) for p in asked] == [
        (1, Lane.LIVE, 0),
        (2, Lane.LIVE, 10),
        (3, Lane.BACKFILL, 10),
    ]
    assert asked[2].window.ranges == ranges({tp(0): (0, 10)})
    assert seqs(world.ask(ONE, interval(-2, -1), last_clear=2)) == [1, 2, 3], "in the same order as before"


def test_windows_of_an_interval_keep_their_order_whatever_was_claimed_first(hourly: World) -> None:
    hourly.kafka.produce(tp(0), 10, at=at(-0.8))
    hourly.run(claim("by-hand"), Live(until=at(-0.7)))
    hourly.kafka.produce(tp(0), 10, at=at(-0.5))
    hourly.run(ONE, Live(until=at(0)))
    for last_clear in (1, 2):
        assert seqs(hourly.ask(ONE, interval(-1, 0), last_clear=last_clear)) == [4, 5]


def test_an_empty_window_does_not_count_against_what_a_task_can_have(hourly: World) -> None:
    hourly.kafka.produce(tp(0), 10, at=at(-0.8))
    hourly.run(claim("by-hand"), Live(until=at(-0.7)))
    hourly.run(ONE, Live(until=at(0)))
    assert seqs(hourly.ask(ONE, interval(-1, 0), last_clear=1, at_most=1)) == [4, 5]


def test_two_plan_tasks_of_one_run_do_not_get_one_window(hourly: World) -> None:
    one, other = (claim(task=task, scope=Scope.RUN) for task in ("plan_a", "plan_b"))
    hourly.ask(one, Windows((2,)))
    with pytest.raises(WindowBusyError, match="plan_a"):
        hourly.ask(other, Windows((2,)))


@pytest.mark.slow
def test_forty_intervals_that_are_planned_at_one_moment_all_get_their_windows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.configure(starting_offsets="latest")
    for minute in range(40):
        world.kafka.produce(tp(0), 1, at=NOON + timedelta(minutes=minute - 60))
    world.run(claim("first"))
    monkeypatch.setattr(engine, "LOCK_TIMEOUT", LONGEST)  # a busy machine lets some wait for minutes
    ledger = Ledger(str(world.ledger._engine.url))
    service = WindowService(ledger, world.kafka, clock=lambda: world.now)  # with its pauses
    barrier, windows, errors = Barrier(40), [], []

    def ask(minute: int) -> None:
        start = NOON + timedelta(minutes=minute - 60)
        span = TimeSpan(start, start + timedelta(minutes=1), is_interval=True)
        barrier.wait()
        try:
            windows.extend(service.plan(world.group, claim(f"backfill-{minute}"), lambda _: False, span))
        except Exception as exc:
            errors.append(exc)

    threads = [Thread(target=ask, args=(minute,)) for minute in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(p.window.ranges[tp(0)].start for p in windows) == list(range(40))


def test_a_holder_is_asked_about_once_however_many_windows_it_has(latecomer: World) -> None:
    latecomer.configure(starting_offsets="latest", max_offsets=1)
    filled = latecomer.ask(claim("fill"), offsets(0, 20))
    asked: list[Claim] = []

    def is_over(holder: Claim) -> bool:
        asked.append(holder)
        return True

    numbers = Windows(tuple(seqs(filled)))
    assert len(latecomer.service.plan(latecomer.group, claim("again"), is_over, numbers)) == 20
    assert asked == [claim("fill")]


def test_a_backfill_window_is_no_target_of_a_reset(latecomer: World) -> None:
    [filled] = latecomer.ask(ONE, offsets(0, 20))
    with pytest.raises(BadInputError, match=r"is a backfill window.*\{\"orders\":\{\"0\":0\}\}"):
        latecomer.service.preview_reset(latecomer.group, "earliest", to_window=filled.window.id)


def test_two_plan_tasks_of_a_reprocessed_run_keep_their_own_windows(world: World) -> None:
    world.configure(max_open_windows=2)
    one, other = (claim(task="plan", map_index=index, scope=Scope.RUN) for index in range(2))
    for who, hour in ((one, -1.5), (other, -1.2)):
        world.kafka.produce(tp(0), 10, at=at(hour))
        planned = world.plan(who, Live(until=at(-1)))
        world.service.commit(planned.window.id, who)
    assert seqs(world.ask(one, interval(-2, -1), last_clear=1)) == [1]
    assert seqs(world.ask(other, interval(-2, -1), last_clear=1)) == [2]


def test_a_task_that_can_have_one_window_gets_its_own_back_and_the_rest_is_named(
    hourly: World, caplog: pytest.LogCaptureFixture
) -> None:
    hourly.kafka.produce(tp(0), 10, at=at(-0.8))
    hourly.run(claim("by-hand"), Live(until=at(-0.7)))
    hourly.kafka.produce(tp(0), 10, at=at(-0.5))
    own = hourly.run(ONE, Live(until=at(0)))
    assert seqs(hourly.ask(ONE, interval(-1, 0), last_clear=1, at_most=1)) == [own.seq]
    assert "left out: lake-000004" in caplog.text
