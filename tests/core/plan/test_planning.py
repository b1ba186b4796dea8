"""One verdict per topic-partition: docs/design.md, Planning, row by row."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import (
    DataLossError,
    LogError,
    LogTruncatedError,
    MissingPartitionError,
    TopicRecreatedError,
)
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.log import UNKNOWN_ID, Bounds, LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.planning import Plan, Verdict, cut, judge, plan_all, suspects
from airflow_kafka_offsets.core.plan.readable import check_all_readable, check_readable, check_same_topics
from airflow_kafka_offsets.core.window import State
from tests.core.examples import NOON, group, log, position, ranges, tp, window


def plan_windows(number: int, group: KafkaGroup, *args: Any, **more: Any) -> list[Plan]:
    """Plan the next windows."""
    return cut(plan_all(group, *args, until=NOON, **more), number, group.max_offsets)


def plan_window(*args: Any, **more: Any) -> Plan:
    """Plan the next window alone."""
    [plan] = plan_windows(1, *args, **more)
    return plan


def test_a_known_watermark_inside_of_the_log_is_the_start() -> None:
    plan = plan_window(group(), position({tp(0): 10, tp(1): 5}), log({tp(0): (3, 30), tp(1): (5, 5)}))
    assert plan.ranges == ranges({tp(0): (10, 30), tp(1): (5, 5)})
    assert set(plan.verdicts.values()) == {Verdict.CONTINUE}
    assert (dict(plan.lost), plan.warnings) == ({}, ())
    assert plan.topic_ids == {"orders": "id-of-orders"}


def test_the_first_window_starts_where_the_user_chose() -> None:
    plan = plan_window(group(), None, log({tp(0): (3, 30), tp(1): (0, 9)}), first={tp(0): 7, tp(1): 9})
    assert plan.ranges == ranges({tp(0): (7, 30), tp(1): (9, 9)})
    assert set(plan.verdicts.values()) == {Verdict.FIRST}


def test_a_start_by_time_may_lie_behind_an_end_that_was_looked_up_before() -> None:
    plan = plan_window(group(), None, log({tp(): (0, 9)}), first={tp(): 12})
    assert plan.ranges == ranges({tp(): (12, 12)})


def test_a_partition_new_to_the_group_starts_at_its_beginning() -> None:
    plan = plan_window(group(starting_offsets="latest"), position({tp(0): 10}), log({tp(0): (0, 12), tp(1): (4, 6)}))
    assert plan.ranges == ranges({tp(0): (10, 12), tp(1): (4, 6)})
    assert plan.verdicts[tp(1)] is Verdict.NEW_PARTITION


def test_a_topic_new_to_the_group_starts_at_its_beginning() -> None:
    both = group(topics=["orders", "refunds"])
    plan = plan_window(both, position({tp(0): 10}), log({tp(0): (0, 12), tp(0, "refunds"): (4, 6)}))
    assert plan.ranges[tp(0, "refunds")].start == 4
    assert plan.topic_ids == {"orders": "id-of-orders", "refunds": "id-of-refunds"}


def test_expired_offsets_are_an_error_not_a_jump() -> None:
    with pytest.raises(DataLossError) as raised:
        plan_window(group(), position({tp(3): 120, tp(4): 7}), log({tp(3): (500, 900), tp(4): (0, 9)}))
    assert str(raised.value) == (
        "orders-3: offsets [120, 500) expired before they were read. "
        "To record the gap and continue: KafkaGroup(on_data_loss='skip'), or once:\n"
        "    kafka-offsets reset lake --to '{\"orders\":{\"3\":500}}' --why '...'"
    )
    assert set(raised.value.partitions) == {tp(3)}
    assert not isinstance(raised.value, LogTruncatedError)


def test_skip_starts_at_the_beginning_and_records_what_was_lost() -> None:
    before = position({tp(3): 120, tp(4): 7})
    plan = plan_window(group(on_data_loss="skip"), before, log({tp(3): (500, 900), tp(4): (0, 9)}))
    assert plan.ranges == ranges({tp(3): (500, 900), tp(4): (7, 9)})
    assert plan.lost == ranges({tp(3): (120, 500)})
    assert plan.warnings == ("offsets expired before they were read and are recorded as lost: orders-3 [120, 500)",)


def test_a_beginning_beyond_an_end_that_was_looked_up_before_is_an_empty_range() -> None:
    plan = plan_window(group(on_data_loss="skip"), position({tp(): 120}), log({tp(): (500, 490)}))
    assert plan.ranges == ranges({tp(): (500, 500)})
    assert plan.lost == ranges({tp(): (120, 500)})


@pytest.mark.parametrize("on_data_loss", ["fail", "skip"])
def test_a_truncated_log_is_an_error_whatever_the_policy(on_data_loss: str) -> None:
    """Starting again below the watermark would give offsets a second owner."""
    with pytest.raises(LogTruncatedError) as raised:
        plan_window(group(on_data_loss=on_data_loss), position({tp(): 100}), log({tp(): (0, 80)}))
    assert str(raised.value) == (
        "orders-0: the log ends at 80, before the watermark 100. "
        "The output of these offsets is the only copy: keep it. To continue at the log's end:\n"
        "    kafka-offsets reset lake --to '{\"orders\":{\"0\":80}}' --why '...'"
    )
    assert isinstance(raised.value, DataLossError)


def test_a_fall_back_that_is_gone_on_a_second_look_is_an_empty_range_and_a_warning() -> None:
    before, now = position({tp(0): 100, tp(1): 5}), log({tp(0): (0, 80), tp(1): (0, 9)})
    assert suspects(before, now) == [tp(0)]
    plan = plan_window(group(), before, now, recovered={tp(0): Bounds(0, 104)})
    assert plan.ranges == ranges({tp(0): (100, 100), tp(1): (5, 9)})
    assert plan.verdicts[tp(0)] is Verdict.CONTINUE
    [warning] = plan.warnings
    assert "nothing is lost, so this window reads nothing of orders-0" in warning


def test_a_fall_back_that_is_still_there_on_a_second_look_is_an_error() -> None:
    with pytest.raises(LogTruncatedError):
        plan_window(group(), position({tp(): 100}), log({tp(): (0, 80)}), recovered={tp(): Bounds(0, 99)})


def test_only_a_fall_back_is_suspect() -> None:
    before = position({tp(0): 100, tp(1): 5, tp(2): 0})
    assert suspects(before, log({tp(0): (200, 300), tp(1): (5, 5), tp(3): (0, 0)})) == []


@pytest.mark.parametrize("on_data_loss", ["fail", "skip"])
def test_a_recreated_topic_is_an_error_even_if_its_offsets_look_plausible(on_data_loss: str) -> None:
    with pytest.raises(TopicRecreatedError) as raised:
        plan_window(group(on_data_loss=on_data_loss), position({tp(): 10}), log({tp(): (0, 50)}, orders="new"))
    assert str(raised.value) == (
        "orders-0: topic orders was recreated (id id-of-orders, now new; watermark 10). "
        "To read the new topic from its beginning:\n    kafka-offsets reset lake --topic orders --to earliest --why '...'"
    )


@pytest.mark.parametrize(("noted", "now"), [(UNKNOWN_ID, "real"), ("real", UNKNOWN_ID), (UNKNOWN_ID, UNKNOWN_ID)])
def test_an_unknown_id_is_no_other_topic(noted: str, now: str) -> None:
    before, held = position({tp(): 100}, orders=noted), log({tp(): (0, 120)}, orders=now)
    assert judge(tp(), before, held) is Verdict.CONTINUE
    plan = plan_window(group(), before, held)
    assert plan.topic_ids == {"orders": "real" if "real" in (noted, now) else UNKNOWN_ID}
    assert bool(plan.warnings) is (noted != UNKNOWN_ID == now)


def test_a_recreated_topic_with_more_partitions_names_those_too() -> None:
    with pytest.raises(TopicRecreatedError, match="watermark none") as raised:
        plan_window(group(), position({tp(0): 10}), log({tp(0): (0, 50), tp(1): (0, 5)}, orders="new"))
    assert set(raised.value.partitions) == {tp(0), tp(1)}


@pytest.mark.parametrize("on_data_loss", ["fail", "skip"])
def test_a_partition_that_is_gone_is_an_error(on_data_loss: str) -> None:
    with pytest.raises(MissingPartitionError, match=r"orders-1: gone from Kafka \(watermark 7\)"):
        plan_window(group(on_data_loss=on_data_loss), position({tp(0): 10, tp(1): 7}), log({tp(0): (0, 50)}))


def test_a_topic_that_is_gone_is_an_error_that_names_its_partitions() -> None:
    with pytest.raises(MissingPartitionError, match="leave it out of the group's topics") as raised:
        plan_window(group(), position({tp(0): 10, tp(1): 7}), LogSnapshot({}, {}))
    assert set(raised.value.partitions) == {tp(0), tp(1)}


@pytest.mark.parametrize("before", [None, position({tp(0): 10})])
def test_a_topic_that_never_was_is_an_error(before: Any) -> None:
    with pytest.raises(MissingPartitionError, match="Kafka has no topic refunds"):
        plan_window(group(topics=["orders", "refunds"]), before, log({tp(0): (0, 50)}), first={})


def test_a_topic_that_the_group_no_longer_reads_keeps_its_place() -> None:
    refund = tp(0, "refunds")
    before = position({tp(0): 10, refund: 4})
    without = plan_window(group(), before, log({tp(0): (0, 12)}))
    assert without.ranges == ranges({tp(0): (10, 12), refund: (4, 4)})
    assert without.verdicts[refund] is Verdict.LEFT_GROUP
    assert str(Verdict.LEFT_GROUP) == "left the group"
    again = plan_window(
        group(topics=["orders", "refunds"]),
        position(without.ranges.ends),
        log({tp(0): (0, 12), refund: (0, 9)}),
    )
    assert again.ranges[refund] == ranges({refund: (4, 9)})[refund]


def test_a_topic_that_was_recreated_while_nobody_read_it_is_found_when_it_comes_back() -> None:
    refund = tp(0, "refunds")
    before = position({tp(0): 10, refund: 4})
    without = plan_window(group(), before, log({tp(0): (0, 12)}))
    with pytest.raises(TopicRecreatedError, match="refunds-0"):
        plan_window(
            group(topics=["orders", "refunds"]),
            position(without.ranges.ends, **without.topic_ids),
            log({tp(0): (0, 12), refund: (0, 9)}, refunds="new"),
        )


def test_the_cap_holds_over_all_partitions() -> None:
    plan = plan_window(group(max_offsets=100), position({tp(0): 0, tp(1): 0}), log({tp(0): (0, 500), tp(1): (0, 30)}))
    assert plan.ranges == ranges({tp(0): (0, 70), tp(1): (0, 30)})


@given(
    st.dictionaries(
        st.integers(0, 8).map(tp),
        st.tuples(st.integers(0, 50), st.integers(0, 50), st.none() | st.integers(0, 120)),
        min_size=1,
    ),
    st.none() | st.integers(1, 60),
    st.sampled_from(["fail", "skip"]),
)
def test_a_plan_tiles_the_log_or_nothing_is_planned(
    partitions: dict[TopicPartition, tuple[int, int, int | None]], max_offsets: int | None, on_data_loss: str
) -> None:
    now = log({p: (b, b + n) for p, (b, n, _) in partitions.items()})
    before = position({p: w for p, (_, _, w) in partitions.items() if w is not None}, orders="id-of-orders")
    try:
        plan = plan_window(group(max_offsets=max_offsets, on_data_loss=on_data_loss), before, now)
    except LogError:
        return
    for p, r in plan.ranges.items():
        expected = plan.lost[p].end if p in plan.lost else before.offsets.get(p, now.bounds[p].beginning)
        assert r.start == expected
        assert now.bounds[p].beginning <= r.start <= r.end <= now.bounds[p].end
    assert set(plan.ranges) == set(partitions)
    assert plan.ranges.span <= (max_offsets or plan.ranges.span)


def _many(number: int) -> list[TopicPartition]:
    return [tp(i) for i in range(number)]


@pytest.mark.parametrize(
    ("bounds", "topic_id", "options"),
    [
        ((500, 900), "id-of-orders", {}),
        ((0, 80), "id-of-orders", {}),
        ((0, 500), "new", {}),
        (None, "id-of-orders", {}),
    ],
)
def test_errors_stay_one_readable_sentence_with_20000_partitions(bounds: Any, topic_id: str, options: Any) -> None:
    many = _many(20_000)
    now = log(dict.fromkeys(many, bounds) if bounds else {tp(30_000): (0, 1)}, orders=topic_id)
    with pytest.raises(LogError, match=r"orders-0: .* and 19990 more") as raised:
        plan_window(group(**options), position(dict.fromkeys(many, 100)), now)
    assert len(raised.value.partitions) >= 20_000
    assert len(str(raised.value)) < 3000


def test_warnings_stay_two_sentences_with_20000_partitions() -> None:
    many = _many(20_000)
    now = log({p: (0, 80) if p.partition % 2 else (500, 900) for p in many})
    second = {p: Bounds(0, 100) for p in many if p.partition % 2}
    skipping = group(on_data_loss="skip")
    plan = plan_window(skipping, position(dict.fromkeys(many, 100)), now, recovered=second)
    assert len(plan.warnings) == 2
    assert all("and 9990 more" in warning and len(warning) < 1000 for warning in plan.warnings)


def test_a_command_in_an_error_can_be_pasted() -> None:
    with pytest.raises(DataLossError) as raised:
        plan_window(group(), position({tp(3): 120}), log({tp(3): (500, 900)}))
    command = str(raised.value).partition("or once:")[2]
    assert shlex.split(command) == ["kafka-offsets", "reset", "lake", "--to", '{"orders":{"3":500}}', "--why", "..."]


def test_planning_compares_partitions_as_often_as_sorting_does(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: dict[int, int] = {}
    original = TopicPartition.__lt__
    compared = 0

    def counting(self: TopicPartition, other: TopicPartition) -> bool:
        nonlocal compared
        compared += 1
        return original(self, other)

    monkeypatch.setattr(TopicPartition, "__lt__", counting)
    for number in (1000, 4000):
        many = _many(number)
        before, now = position(dict.fromkeys(many, 100)), log({p: (0, 150 + p.partition % 9) for p in many})
        compared = 0
        plan_window(group(max_offsets=number), before, now)
        counts[number] = compared
    assert counts[4000] < 6 * counts[1000]


WINDOW = window({tp(0): (10, 20), tp(1): (5, 5)}, 7, State.PLANNED)


def test_a_window_that_kafka_holds_as_a_whole_can_be_run_again() -> None:
    check_readable(WINDOW, log({tp(0): (10, 20)}))
    check_same_topics(WINDOW, log({tp(0): (50, 60)}).topic_ids)


@pytest.mark.parametrize("bounds", [(11, 30), (20, 20), (0, 19)])
def test_a_window_that_lost_records_can_not_be_run_again(bounds: tuple[int, int]) -> None:
    what = rf"orders-0: offsets \[10, 20\) are not all in the log \[{bounds[0]}, {bounds[1]}\)"
    with pytest.raises(DataLossError, match=what) as raised:
        check_readable(WINDOW, log({tp(0): bounds}))
    assert "kafka-offsets abandon lake-000007 --why '...'" in str(raised.value)
    with pytest.raises(DataLossError, match="lake-000001 is committed and can't be read again") as raised:
        check_readable(window({tp(0): (10, 20)}), log({tp(0): bounds}))
    assert "abandon" not in str(raised.value)


def test_a_window_of_another_topic_of_the_same_name_can_not_be_run_again() -> None:
    for check in (check_readable, lambda window, log: check_same_topics(window, log.topic_ids)):
        with pytest.raises(TopicRecreatedError, match="orders-0: topic orders was recreated"):
            check(WINDOW, log({tp(0): (0, 99)}, orders="new"))
        with pytest.raises(MissingPartitionError, match="topic orders is gone"):
            check(WINDOW, LogSnapshot({}, {}))


def test_what_became_of_partitions_without_records_does_not_matter() -> None:
    check_readable(window({tp(0): (10, 20), tp(0, "gone"): (5, 5)}), log({tp(0): (10, 20)}))


def test_a_partition_that_is_gone_makes_a_window_unreadable() -> None:
    with pytest.raises(MissingPartitionError, match="orders-0: gone from Kafka"):
        check_readable(WINDOW, log({tp(1): (0, 9)}))


# Several windows at once.


def test_several_windows_are_cut_one_behind_the_other_and_stop_at_the_end() -> None:
    now = log({tp(0): (0, 25), tp(1): (0, 5)})
    plans = plan_windows(9, group(max_offsets=10), position({tp(0): 0, tp(1): 0}), now)
    assert [p.ranges for p in plans] == [
        ranges({tp(0): (0, 5), tp(1): (0, 5)}),
        ranges({tp(0): (5, 15), tp(1): (5, 5)}),
        ranges({tp(0): (15, 25), tp(1): (5, 5)}),
    ]
    assert len(plan_windows(2, group(max_offsets=10), position({tp(0): 0, tp(1): 0}), now)) == 2
    assert len(plan_windows(9, group(), position({tp(0): 0, tp(1): 0}), now)) == 1


def test_one_window_is_planned_even_if_it_is_empty() -> None:
    [plan] = plan_windows(5, group(max_offsets=10), position({tp(): 7}), log({tp(): (0, 7)}))
    assert plan.ranges == ranges({tp(): (7, 7)})
    assert not plan.is_capped


@pytest.mark.parametrize(
    ("number", "max_offsets", "ends", "capped"),
    [
        pytest.param(1, None, {}, [False], id="no cap"),
        pytest.param(1, 25, {}, [False], id="all of it fits exactly"),
        pytest.param(1, 24, {}, [True], id="one offset is left"),
        pytest.param(3, 10, {}, [True, True, False], id="the last of several reaches the end"),
        pytest.param(2, 10, {}, [True, True], id="the last of several leaves some, too"),
        pytest.param(1, 10, {tp(): 10}, [False], id="what is left comes after the end by time"),
        pytest.param(1, 10, {tp(): 11}, [True], id="what is left comes before the end by time"),
    ],
)
def test_a_window_is_capped_when_more_was_there_up_to_its_planned_end(
    number: int, max_offsets: int | None, ends: dict[TopicPartition, int | None], capped: list[bool]
) -> None:
    here, now = position({tp(): 0}), log({tp(): (0, 25)})
    plans = plan_windows(number, group(max_offsets=max_offsets), here, now, ends=ends)
    assert [p.is_capped for p in plans] == capped
    assert plan_window(group(max_offsets=max_offsets), here, now, ends=ends).is_capped is capped[0]


@pytest.mark.parametrize(
    ("number", "max_offsets", "ends", "unread"),
    [
        pytest.param(1, None, {}, [60], id="all of it"),
        pytest.param(1, 10, {}, [60], id="the cap leaves some"),
        pytest.param(1, None, {tp(0): 12, tp(1): 5}, [60], id="an end by time leaves some"),
        pytest.param(3, 20, {}, [60, 40, 20], id="several: what is left after those before it"),
        pytest.param(2, 10, {tp(0): 30, tp(1): None}, [60, 50], id="several that end by time"),
    ],
)
def test_a_window_knows_what_was_unread_when_it_was_cut(
    number: int, max_offsets: int | None, ends: dict[TopicPartition, int | None], unread: list[int]
) -> None:
    here, now = position({tp(0): 10, tp(1): 0}), log({tp(0): (0, 50), tp(1): (0, 20)})
    plans = plan_windows(number, group(max_offsets=max_offsets), here, now, ends=ends)
    assert [plan.unread for plan in plans] == unread
    assert plans[-1].named("lake", 7).unread == unread[-1]


def test_what_is_unread_begins_where_the_window_begins() -> None:
    first = plan_window(group(), None, log({tp(): (0, 50)}), first={tp(): 30})
    assert first.unread == 20, "what is before a group's first window is not its lag"
    skipped = plan_window(group(on_data_loss="skip"), position({tp(): 10}), log({tp(): (20, 90)}))
    assert skipped.unread == 70, "what retention removed can't be read"


def test_nothing_is_unread_in_a_log_that_fell_back_or_that_the_group_no_longer_reads() -> None:
    here = position({tp(0): 100, tp(1): 0, TopicPartition("left", 0): 3})
    now = log({tp(0): (0, 80), tp(1): (0, 25)})
    assert plan_window(group(), here, now, recovered={tp(0): Bounds(0, 104)}).unread == 25


def test_what_was_lost_and_its_warning_belong_to_the_first_of_several_windows() -> None:
    skipping = group(on_data_loss="skip", max_offsets=10)
    first, *later = plan_windows(3, skipping, position({tp(): 10}), log({tp(): (20, 90)}))
    assert (first.lost, len(first.warnings)) == (ranges({tp(): (10, 20)}), 1)
    assert [(dict(p.lost), p.warnings) for p in later] == [({}, ())] * 2
    assert [p.ranges[tp()].start for p in later] == [30, 40]


@pytest.mark.parametrize(
    ("before", "bounds", "more"),
    [
        pytest.param(None, (0, 9), {"first": {tp(0): 12, tp(1): 0}}, id="a start by time behind the end"),
        pytest.param({tp(0): 120, tp(1): 0}, (500, 490), {}, id="a beginning behind the end"),
        pytest.param({tp(0): 100, tp(1): 0}, (0, 80), {"recovered": {tp(0): Bounds(0, 104)}}, id="a fall-back"),
    ],
)
def test_a_moment_between_two_lookups_refuses_no_later_window(before: Any, bounds: Any, more: Any) -> None:
    """An end that lies before the start is an empty range, in the second window as in the first."""
    now = log({tp(0): bounds, tp(1): (0, 25)})
    here = position(before) if before else None
    plans = plan_windows(9, group(max_offsets=10, on_data_loss="skip"), here, now, **more)
    assert [p.ranges[tp(1)].span for p in plans] == [10, 10, 5]
    assert {p.ranges[tp(0)].span for p in plans} == {0}


@given(
    st.dictionaries(
        st.integers(0, 5).map(tp),
        st.tuples(st.integers(0, 20), st.integers(0, 60), st.none() | st.integers(0, 90)),
        min_size=1,
    ),
    st.none() | st.integers(1, 30),
    st.integers(1, 12),
)
def test_several_windows_are_those_that_runs_one_after_the_other_would_get(
    partitions: dict[TopicPartition, tuple[int, int, int | None]], max_offsets: int | None, number: int
) -> None:
    now = log({p: (start, start + n) for p, (start, n, _) in partitions.items()})
    ends = {p: end for p, (_, _, end) in partitions.items()}
    here = position({p: start for p, (start, _, _) in partitions.items()})
    capped = group(max_offsets=max_offsets)
    plans = plan_windows(number, capped, here, now, ends=ends)
    for plan in plans:
        alone = plan_window(capped, here, now, ends=ends)
        assert (plan.ranges, plan.is_capped) == (alone.ranges, alone.is_capped)
        assert plan.ranges.starts == here.offsets
        here = position(plan.ranges.ends)
        assert plan.is_capped == bool(plan_window(capped, here, now, ends=ends).ranges.span)
    assert all(p.ranges.span for p in plans[1:])
    rest = plan_window(capped, here, now, ends=ends).ranges.span
    assert len(plans) == number or not rest


# Windows that end by time.


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        pytest.param(15, 15, id="at the first record of that time or later"),
        pytest.param(None, 20, id="no later record: at the end offset"),
        pytest.param(7, 10, id="before the start: empty"),
        pytest.param(10, 10, id="at the start: empty"),
        pytest.param(25, 20, id="a record that was written after the end was looked up"),
    ],
)
def test_a_window_ends_by_time_where_the_index_says(end: int | None, expected: int) -> None:
    plan = plan_window(group(), position({tp(): 10}), log({tp(): (0, 20)}), ends={tp(): end})
    assert plan.ranges == ranges({tp(): (10, expected)})


def test_a_cap_cuts_a_window_by_time_too_and_the_next_goes_on_to_that_time() -> None:
    plans = plan_windows(9, group(max_offsets=4), position({tp(): 0}), log({tp(): (0, 99)}), ends={tp(): 10})
    assert [p.ranges[tp()].end for p in plans] == [4, 8, 10]


@pytest.mark.parametrize(("watermark", "waiting"), [(12, "8 offsets"), (15, "5 offsets"), (19, "1 offset"), (20, None)])
def test_an_empty_window_names_the_record_of_the_future_and_what_waits_behind_it(
    watermark: int, waiting: str | None
) -> None:
    now = log({tp(0): (0, 20), tp(1): (0, 9)})
    plan = plan_window(group(), position({tp(0): watermark, tp(1): 9}), now, ends={tp(0): 12, tp(1): None})
    assert plan.ranges.span == 0
    assert [f"orders-0 at offset 12 ({waiting} waiting there)" in w for w in plan.warnings] == (
        [True] if waiting else []
    )


def test_a_window_that_reads_something_says_nothing_of_the_future() -> None:
    now = log({tp(0): (0, 20), tp(1): (0, 9)})
    assert plan_window(group(), position({tp(0): 12, tp(1): 0}), now, ends={tp(0): 12, tp(1): None}).warnings == ()


# Several windows that are run again.


def test_of_several_windows_that_are_run_again_those_are_named_that_kafka_still_holds() -> None:
    several = [window({tp(0): (10 * i, 10 * i + 10)}, i + 1) for i in range(4)]
    check_all_readable(several, log({tp(0): (0, 40)}))
    check_all_readable([], log({}))
    with pytest.raises(DataLossError) as raised:
        check_all_readable(several, log({tp(0): (15, 40)}))
    text = str(raised.value)
    assert text.startswith("2 of 4 windows can no longer be read. lake-000001: orders-0: offsets [0, 10) are")
    assert "lake-000002: orders-0: offsets [10, 20)" in text
    assert text.endswith("Can be run again: lake-000003, lake-000004")
    assert set(raised.value.partitions) == {tp(0)}
    with pytest.raises(DataLossError, match="4 of 4 windows can no longer be read"):
        check_all_readable(several, log({tp(0): (39, 40)}))
    with pytest.raises(DataLossError, match="Window lake-000001 is committed and can't be read again"):
        check_all_readable(several[:1], log({tp(0): (15, 40)}))


def test_the_error_of_a_thousand_unreadable_windows_stays_readable() -> None:
    several = [window({tp(i): (0, 10) for i in range(50)}, seq) for seq in range(1, 1001)]
    with pytest.raises(DataLossError, match="and 990 more") as raised:
        check_all_readable(several, log({tp(i): (5, 10) for i in range(50)}))
    assert len(str(raised.value)) < 15_000
