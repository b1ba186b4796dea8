"""What people do: abandon and reset. Recorded, refused where it would cut, confirmed where it takes ownership."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    ConcurrentChangeError,
    ConfirmationError,
    DataLossError,
    IllegalStepError,
    LogTruncatedError,
    MissingPartitionError,
    OutputError,
    TopicRecreatedError,
    UnknownGroupError,
    UnknownWindowError,
)
from airflow_kafka_offsets.core.plan import ownership
from airflow_kafka_offsets.core.plan.request import Ranges, Windows
from airflow_kafka_offsets.core.ranges import OffsetRange
from airflow_kafka_offsets.core.window import Outcome, State
from airflow_kafka_offsets.service.move import Moving, Selection
from airflow_kafka_offsets.service.sources import StoreSource
from airflow_kafka_offsets.service.windows import WindowService
from tests.core.examples import NOON, claim, group, ranges, tp
from tests.service.world import World
from tests.stores.memory import MemoryStore

ONE, TWO, THREE = claim("run-1"), claim("run-2"), claim("run-3")


@pytest.fixture
def two_windows(world: World) -> World:
    """Run twice: offsets 0 to 9 and 10 to 19 of partition 0, and 0 to 4 of partition 1 in the second."""
    world.kafka.produce(tp(0), 10, at=NOON - timedelta(hours=2))
    world.run(ONE)
    world.kafka.produce(tp(0), 10, at=NOON)
    world.kafka.produce(tp(1), 5, at=NOON)
    world.run(TWO)
    return world


def test_abandon_is_recorded_and_gives_the_offsets_back(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    world.service.abandon(window.id, "ada", "poison record")
    (act,) = world.ledger.acts("lake")
    assert (act.kind, act.who, act.why, act.at) == ("abandon", "ada", "poison record", world.now)
    assert act.details == {"window": window.id}
    assert world.plan(TWO).window.ranges == window.ranges


def test_what_an_abandoned_window_owned_was_seen_and_is_never_skipped_without_a_word(two_windows: World) -> None:
    world = two_windows
    world.kafka.add_partitions("orders")
    world.kafka.produce(tp(2), 10)
    world.service.abandon(world.plan(THREE).window.id, "ada", "poison")
    world.kafka.expire(tp(2), 5)
    with pytest.raises(DataLossError, match=r'(?s)orders-2: offsets \[0, 5\) expired.*"2":5'):
        world.plan(THREE)
    world.configure(on_data_loss="skip")
    assert world.run(THREE).lost == ranges({tp(2): (0, 5)})


def test_only_an_open_window_can_be_abandoned(two_windows: World) -> None:
    with pytest.raises(IllegalStepError, match="lake-000002 is committed and can't become abandoned"):
        two_windows.service.abandon("lake-000002", "me", "because")
    with pytest.raises(UnknownWindowError):
        two_windows.service.abandon("lake-000003", "me", "because")
    with pytest.raises(UnknownWindowError):
        two_windows.service.abandon("other-000001", "me", "because")
    assert two_windows.ledger.acts("lake") == []


@pytest.mark.parametrize(("who", "why"), [("me", ""), ("me", "  "), ("", "because"), ("x" * 201, "because")])
def test_an_act_is_signed_and_has_a_reason(two_windows: World, who: str, why: str) -> None:
    two_windows.kafka.calls.clear()
    with pytest.raises(BadInputError):
        two_windows.service.abandon("lake-000002", who, why)
    with pytest.raises(BadInputError):
        two_windows.service.reset(two_windows.group, "latest", who, why)
    assert two_windows.ledger.acts("lake") == []
    assert two_windows.kafka.calls == []


def test_a_reset_forwards_leaves_a_recorded_gap(two_windows: World) -> None:
    world = two_windows
    world.kafka.produce(tp(0), 80)
    reset = world.service.reset(world.group, '{"orders":{"0":50}}', "ada", "bad records")
    assert reset.skipped == ranges({tp(0): (20, 50)})
    assert world.watermark == {0: 50, 1: 5}
    (act,) = world.ledger.acts("lake")
    assert act.details["skipped"] == {"orders-0": [20, 50]}
    assert world.run(THREE).ranges == ranges({tp(0): (50, 100), tp(1): (5, 5)})


def test_a_reset_backwards_wants_to_be_meant_and_supersedes(two_windows: World) -> None:
    world = two_windows
    with pytest.raises(ConfirmationError, match="lake-000001, lake-000002"):
        world.service.reset(world.group, "earliest", "ada", "wrong schema")
    assert world.watermark == {0: 20, 1: 5}
    world.service.reset(world.group, "earliest", "ada", "wrong schema", supersede=True)
    assert world.watermark == {0: 0, 1: 0}
    assert {row.window.state for row in world.ledger.windows("lake")} == {State.SUPERSEDED}
    anew = world.run(THREE)
    assert (anew.id, anew.ranges) == ("lake-000003", ranges({tp(0): (0, 20), tp(1): (0, 5)}))


def test_a_preview_writes_nothing(two_windows: World) -> None:
    before = two_windows.ledger.load("lake")
    reset = two_windows.service.preview_reset(two_windows.group, "earliest")
    assert [w.seq for w in reset.superseded] == [1, 2]
    assert two_windows.ledger.load("lake") == before
    assert two_windows.ledger.acts("lake") == []


def test_a_reset_to_a_time_that_cuts_a_window_is_refused(two_windows: World) -> None:
    with pytest.raises(IllegalStepError, match="to-window lake-000002"):
        two_windows.service.preview_reset(two_windows.group, '{"orders":{"0":15}}')
    reset = two_windows.service.preview_reset(two_windows.group, NOON.isoformat())
    assert [w.seq for w in reset.superseded] == [2]


def test_a_reset_to_a_windows_start(two_windows: World) -> None:
    reset = two_windows.service.preview_reset(two_windows.group, "earliest", to_window="lake-000002")
    assert reset.position.offsets == {tp(0): 10, tp(1): 0}
    assert [w.seq for w in reset.superseded] == [2]


def test_a_reset_to_a_windows_start_takes_later_partitions_along(two_windows: World) -> None:
    world = two_windows
    world.kafka.add_partitions("orders")
    world.kafka.produce(tp(2), 7)
    world.run(THREE)
    reset = world.service.preview_reset(world.group, "earliest", to_window="lake-000001")
    assert reset.position.offsets == {tp(0): 0, tp(1): 0, tp(2): 0}
    assert [w.seq for w in reset.superseded] == [1, 2, 3]


def test_a_window_of_another_group_is_no_target(two_windows: World) -> None:
    world = two_windows
    world.service.plan(group("other"), claim("other-run"), lambda _: False)
    with pytest.raises(BadInputError, match="other-000001 is not one of group lake"):
        world.service.preview_reset(world.group, "earliest", to_window="other-000001")


def test_a_reset_wants_no_open_window(two_windows: World) -> None:
    two_windows.kafka.produce(tp(0), 5)
    two_windows.plan(THREE)
    with pytest.raises(IllegalStepError, match="abandon lake-000003"):
        two_windows.service.reset(two_windows.group, "latest", "me", "because")


def test_a_reset_wants_a_group_that_has_started(world: World) -> None:
    with pytest.raises(UnknownGroupError, match="has no watermark yet"):
        world.service.reset(world.group, "latest", "me", "because")


@pytest.mark.parametrize("to", ["committed", "someday", '{"orders":{"0":-2}}', '{"orders":{"9":1}}', '{"x":{"0":1}}'])
def test_a_target_that_means_nothing_is_refused(two_windows: World, to: str) -> None:
    with pytest.raises(BadInputError):
        two_windows.service.preview_reset(two_windows.group, to)


def test_a_reset_of_a_topic_that_is_gone_is_refused_not_ignored(two_windows: World) -> None:
    world = two_windows
    world.kafka.create("refunds")
    world.configure(topics=["orders", "refunds"])
    world.run(THREE)
    world.kafka.delete("refunds")
    for topics in ([], ["refunds"]):
        with pytest.raises(MissingPartitionError, match="Kafka has no topic refunds"):
            world.service.preview_reset(world.group, "latest", topics=topics)
    assert not world.service.preview_reset(world.group, "latest", topics=["orders"]).moves
    with pytest.raises(BadInputError, match="doesn't read nothing; it reads orders, refunds"):
        world.service.preview_reset(world.group, "latest", topics=["nothing"])


def test_the_way_out_of_expired_offsets_is_the_one_that_the_error_names(two_windows: World) -> None:
    world = two_windows
    world.kafka.produce(tp(0), 80)
    world.kafka.expire(tp(0), 60)
    with pytest.raises(DataLossError, match='"0":60'):
        world.plan(THREE)
    world.service.reset(world.group, '{"orders":{"0":60}}', "me", "expired")
    assert world.run(THREE).ranges[tp(0)].start == 60


def test_the_way_out_of_a_truncated_log_is_the_one_that_the_errors_name(two_windows: World) -> None:
    world = two_windows
    world.kafka.truncate(tp(0), 15)
    with pytest.raises(LogTruncatedError, match='"0":15'):
        world.plan(THREE)
    with pytest.raises(IllegalStepError, match="--to-window lake-000002"):
        world.service.reset(world.group, '{"orders":{"0":15}}', "me", "truncated")
    world.service.reset(world.group, "", "me", "truncated", to_window="lake-000002", supersede=True)
    assert world.run(THREE).ranges == ranges({tp(0): (10, 15), tp(1): (0, 5)})


def test_a_reset_that_was_overtaken_writes_nothing(two_windows: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = two_windows
    world.kafka.produce(tp(0), 5)
    original = world.kafka.snapshot

    def overtaken(*arguments):  # type: ignore[no-untyped-def]
        monkeypatch.setattr(world.kafka, "snapshot", original)
        world.plan(THREE)
        return original(*arguments)

    monkeypatch.setattr(world.kafka, "snapshot", overtaken)
    with pytest.raises(ConcurrentChangeError):
        world.service.reset(world.group, "latest", "me", "because")
    assert world.ledger.acts("lake") == []
    assert world.ledger.load("lake").open


def read_past_an_open_transaction(world: World) -> None:
    """Read offsets 0 to 9 uncommitted; at 5 begins a transaction that no one ends."""
    world.configure(isolation_level="read_uncommitted")
    world.kafka.produce(tp(0), 5)
    world.kafka.open_transaction(tp(0))
    world.kafka.produce(tp(0), 5)
    world.run(ONE)


def test_an_open_transaction_below_the_watermark_is_no_truncated_log(world: World) -> None:
    read_past_an_open_transaction(world)
    world.configure(isolation_level="read_committed")
    waiting = world.plan(TWO)
    assert (waiting.window.span, waiting.window.ranges[tp(0)].start) == (0, 10)
    assert "nothing of orders-0" in waiting.warnings[0]
    assert "open transaction" in waiting.warnings[0]
    world.do(waiting.window, TWO)
    world.kafka.commit_transaction(tp(0))
    assert world.run(THREE).ranges[tp(0)] == OffsetRange(10, 11)


def test_records_that_a_transaction_hides_again_make_no_lag_below_zero(world: World) -> None:
    read_past_an_open_transaction(world)
    world.kafka.produce(tp(1), 7)
    world.configure(isolation_level="read_committed")
    assert world.lag == 7


def test_a_truncated_log_below_an_open_transaction_is_one_still(world: World) -> None:
    read_past_an_open_transaction(world)
    world.kafka.truncate(tp(0), 8)
    world.configure(isolation_level="read_committed")
    with pytest.raises(LogTruncatedError, match="the log ends at 8, before the watermark 10") as waits:
        world.plan(TWO)
    assert "orders-0 [5, 8)" in str(waits.value), "what Kafka has is not given up"
    assert "--to" not in str(waits.value)
    world.kafka.commit_transaction(tp(0))
    with pytest.raises(
        LogTruncatedError, match=r"(?s)the log ends at 9, .*reset lake --to '\{\"orders\":\{\"0\":9\}\}'"
    ):
        world.plan(TWO)


def test_of_several_truncated_logs_only_those_that_no_transaction_hides_are_to_be_reset(world: World) -> None:
    world.kafka.produce(tp(1), 10)
    read_past_an_open_transaction(world)
    world.kafka.truncate(tp(0), 8)
    world.kafka.truncate(tp(1), 7)
    world.configure(isolation_level="read_committed")
    with pytest.raises(LogTruncatedError, match=r"(?s)orders-0 \[5, 8\).*reset lake --to '\{\"orders\":\{\"1\":7\}\}'"):
        world.plan(TWO)


def test_the_reset_of_a_truncated_log_goes_by_the_last_look_at_it(two_windows: World) -> None:
    world = two_windows
    world.configure(isolation_level="read_uncommitted")
    world.kafka.truncate(tp(0), 18)
    world.kafka.fall_back_once(tp(0), 12)
    with pytest.raises(LogTruncatedError, match=r"(?s)ends at 18, .*--to '\{\"orders\":\{\"0\":18\}\}'"):
        world.plan(THREE)


def test_a_new_leader_that_is_slow_is_waited_for_before_a_log_counts_as_truncated(two_windows: World) -> None:
    world = two_windows
    for end in (12, 13, 15, 19):  # the first look, and three more
        world.kafka.fall_back_once(tp(0), end)
    pauses: list[float] = []
    world.service = WindowService(world.ledger, world.kafka, clock=lambda: world.now, sleep=pauses.append)
    assert world.plan(THREE).window.span == 0
    assert len(pauses) == 4
    world.kafka.truncate(tp(0), 15)
    pauses.clear()
    with pytest.raises(LogTruncatedError):
        world.service.next_window(world.group, ownership.watermark(world.ledger.load("lake")))
    assert 15 <= sum(pauses) < 16


def test_a_window_is_run_again_when_a_slow_new_leader_has_caught_up(two_windows: World) -> None:
    world = two_windows
    for end in (12, 13, 15):
        world.kafka.fall_back_once(tp(0), end)
    assert world.plan(TWO, last_clear=1).is_rerun


@pytest.fixture
def dropped(world: World) -> World:
    """Run once on two topics, and take one of them out of the group."""
    world.kafka.create("clicks")
    world.kafka.produce(tp(0), 10)
    world.kafka.produce(tp(0, "clicks"), 7)
    world.configure(topics=["orders", "clicks"])
    world.run(ONE)
    world.configure(topics=["orders"])
    world.run(TWO)
    return world


@pytest.mark.parametrize("to_window", [None, "lake-000001"])
@pytest.mark.parametrize("is_in_kafka", [True, False])
def test_a_reset_names_what_nobody_reads_again_of_a_topic_that_left_the_group(
    dropped: World, to_window: str | None, is_in_kafka: bool
) -> None:
    world = dropped
    if not is_in_kafka:
        world.kafka.delete("clicks")
    with pytest.raises(ConfirmationError, match=r"lake-000001 clicks-0 \[0, 7\) again, as the group no longer"):
        world.service.reset(world.group, "earliest", "ada", "wrong", to_window=to_window)
    reset = world.service.reset(world.group, "earliest", "ada", "wrong", to_window=to_window, supersede=True)
    assert reset.position.offsets == {tp(0, "clicks"): 7, tp(0): 0, tp(1): 0}
    assert reset.unread == {"lake-000001": ranges({tp(0, "clicks"): (0, 7)})}
    [act] = world.ledger.acts("lake")
    assert act.details["unread"] == {"lake-000001": {"clicks-0": [0, 7]}}
    assert world.run(THREE).ranges[tp(0)] == OffsetRange(0, 10)


def test_a_truncated_log_has_a_way_out_where_another_topic_of_its_windows_was_recreated(world: World) -> None:
    world.kafka.create("clicks")
    world.configure(topics=["orders", "clicks"])
    world.kafka.produce(tp(0), 10)
    world.kafka.produce(tp(0, "clicks"), 5)
    world.run(ONE)
    world.kafka.recreate("clicks", 1)
    with pytest.raises(TopicRecreatedError, match="reset lake --topic clicks --to earliest"):
        world.plan(TWO)
    world.service.reset(world.group, "earliest", "ada", "recreated", topics=["clicks"])
    world.kafka.truncate(tp(0), 5)
    with pytest.raises(LogTruncatedError, match=r'\{"orders":\{"0":5\}\}'):
        world.plan(TWO)
    with pytest.raises(IllegalStepError, match="--to-window lake-000001"):
        world.service.reset(world.group, '{"orders":{"0":5}}', "ada", "truncated")
    reset = world.service.reset(world.group, "", "ada", "truncated", to_window="lake-000001", supersede=True)
    assert reset.unread == {"lake-000001": ranges({tp(0, "clicks"): (0, 5)})}
    assert world.run(TWO).ranges[tp(0)] == OffsetRange(0, 5)


@pytest.fixture
def recreated(world: World) -> World:
    """Run once on two topics, of which one is recreated and gets as many records as before. No one has reset it yet."""
    world.kafka.create("clicks")
    world.configure(topics=["orders", "clicks"])
    world.kafka.produce(tp(0), 10)
    world.kafka.produce(tp(0, "clicks"), 5)
    world.run(ONE)
    world.kafka.produce(tp(0), 10)
    world.kafka.produce(tp(0, "clicks"), 5)
    world.run(TWO)
    world.kafka.recreate("clicks", 1)
    world.kafka.produce(tp(0, "clicks"), 10)
    return world


def test_the_start_of_a_window_says_nothing_about_a_topic_that_was_recreated_since(recreated: World) -> None:
    world = recreated
    with pytest.raises(
        ConfirmationError, match=r"lake-000002 clicks-0 \[5, 10\) again, as their topic was recreated: keep"
    ):
        world.service.reset(world.group, "", "ada", "wrong", to_window="lake-000002")
    reset = world.service.reset(world.group, "", "ada", "wrong", to_window="lake-000002", supersede=True)
    assert reset.moves == {tp(0): (20, 10)}
    assert reset.unread == {"lake-000002": ranges({tp(0, "clicks"): (5, 10)})}
    with pytest.raises(TopicRecreatedError, match="reset lake --topic clicks --to earliest"):
        world.plan(THREE)
    world.service.reset(world.group, "earliest", "ada", "recreated", topics=["clicks"])
    assert world.run(THREE).ranges.without_empty() == ranges({tp(0): (10, 20), tp(0, "clicks"): (0, 10)})


def test_offsets_of_one_topic_go_back_although_another_one_was_recreated_since(recreated: World) -> None:
    world = recreated
    reset = world.service.reset(world.group, '{"orders":{"0":10}}', "ada", "wrong", supersede=True)
    assert [window.id for window in reset.superseded] == ["lake-000002"]
    assert (
        reset.position.topic_ids["clicks"] == world.service.ledger.window("lake-000002").window.topic_ids["clicks"]
    ), "its own reset is left"
    [act] = world.ledger.acts("lake")
    assert act.details["unread"] == {"lake-000002": {"clicks-0": [5, 10]}}


def test_a_window_of_a_topic_that_was_recreated_since_is_no_start(recreated: World) -> None:
    world = recreated
    world.kafka.recreate("orders", 2)
    with pytest.raises(IllegalStepError, match=r"(?s)earlier topic.*reset lake --topic clicks --to earliest"):
        world.service.reset(world.group, "", "ada", "wrong", to_window="lake-000002")


def test_a_reset_over_a_topic_that_was_deleted_says_what_leads_on(recreated: World) -> None:
    world = recreated
    world.kafka.delete("clicks")
    refused = r"Kafka has no topic clicks.*leave it out of the group's topics, let a run plan, and repeat the command"
    with pytest.raises(MissingPartitionError, match=refused):
        world.service.reset(world.group, "", "ada", "wrong", to_window="lake-000002")
    world.configure(topics=["orders"])
    world.run(THREE)
    reset = world.service.reset(world.group, "", "ada", "wrong", to_window="lake-000002", supersede=True)
    assert reset.unread == {"lake-000002": ranges({tp(0, "clicks"): (5, 10)})}


def test_the_way_out_of_one_topic_does_not_lead_to_where_another_one_has_expired(two_windows: World) -> None:
    world = two_windows
    world.kafka.create("clicks")
    world.configure(topics=["orders", "clicks"])
    world.kafka.produce(tp(0), 10)
    world.kafka.produce(tp(0, "clicks"), 5)
    world.run(THREE)
    world.kafka.produce(tp(0), 10)
    world.run(claim("run-4"))
    world.kafka.expire(tp(0, "clicks"), 3)
    with pytest.raises(IllegalStepError, match="--to-window lake-000004"):
        world.service.reset(world.group, '{"orders":{"0":15}}', "ada", "wrong")
    reset = world.service.reset(world.group, "", "ada", "wrong", to_window="lake-000004", supersede=True)
    assert reset.moves == {tp(0): (40, 30)}


def test_what_a_job_read_of_a_topic_that_is_gone_is_kept_by_a_persons_commit(world: World) -> None:
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    world.work(window, ONE, Outcome.FAILED)  # it read all, and then the topic was another one
    world.kafka.recreate("orders", 2)
    for ask in (lambda: world.service.check_same_topics(window), lambda: world.plan(ONE)):
        with pytest.raises(
            TopicRecreatedError, match=r"(?s)the only copy.*commit lake-000001 --why '\.\.\.'.*abandon lake-000001"
        ):
            ask()
    world.service.commit_by_hand(window.id, "ada", "the log of its driver says 10 records")
    assert world.watermark == {0: 10, 1: 0}
    [act] = world.ledger.acts("lake")
    assert (act.kind, act.who, act.details) == ("commit", "ada", {"window": window.id})
    with pytest.raises(TopicRecreatedError, match="reset lake --topic orders --to earliest"):
        world.plan(TWO)
    world.service.reset(world.group, "earliest", "ada", "recreated")
    assert world.run(TWO).ranges.starts == {tp(0): 0, tp(1): 0}


def test_a_person_commits_only_a_window_that_is_planned(two_windows: World) -> None:
    world = two_windows
    before = world.ledger.windows("lake")
    with pytest.raises(IllegalStepError, match="lake-000002 is committed"):
        world.service.commit_by_hand("lake-000002", "ada", "why")
    with pytest.raises(BadInputError):
        world.service.commit_by_hand("lake-000002", "ada", " ")
    assert world.ledger.windows("lake") == before
    assert world.ledger.acts("lake") == []


def test_a_person_does_not_commit_a_window_without_the_rows_of_its_output_tables(world: World) -> None:
    world.configure(output_tables=["orders"])
    world.kafka.produce(tp(0), 10)
    window = world.plan(ONE).window
    with pytest.raises(
        OutputError,
        match=r"its job staged nothing for orders.*\n.* abandon it:\n    kafka-offsets abandon lake-000001 --why",
    ):
        world.service.commit_by_hand(window.id, "ada", "why")
    assert world.service.ledger.window(window.id).window.state is State.PLANNED


@pytest.fixture
def failed_back(world: World) -> World:
    """Read a topic on two clusters, and come back to the first one, where it has grown meanwhile."""
    world.kafka.produce(tp(0), 10)
    world.kafka.produce(tp(1), 5)
    first = world.run(ONE).topic_ids["orders"]
    world.kafka.recreate("orders", 2)
    world.kafka.produce(tp(0), 3)
    world.service.reset(world.group, "earliest", "ada", "failed over")
    assert world.ledger.acts("lake")[-1].details["left"] == {"orders": first}
    world.run(TWO)
    world.kafka.bring_back("orders", first)
    world.kafka.produce(tp(0), 7)
    return world


@pytest.mark.parametrize(
    ("to", "to_window"),
    [("earliest", None), ("latest", None), ('{"orders":{"0":10,"1":5}}', None), ("", "lake-000002")],
)
def test_a_topic_that_is_back_under_an_id_that_the_group_has_left_is_for_another_group(
    failed_back: World, to: str, to_window: str | None
) -> None:
    world = failed_back
    before = world.ledger.load("lake"), world.ledger.acts("lake"), world.ledger.windows("lake")
    with pytest.raises(TopicRecreatedError, match="reset lake --topic orders --to earliest"):
        world.plan(THREE)
    with pytest.raises(
        IllegalStepError, match=r"[Uu]se a group of another name for today's topic|--topic orders --to earliest"
    ):
        world.service.reset(world.group, to, "ada", "failed back", to_window=to_window, supersede=True)
    assert (world.ledger.load("lake"), world.ledger.acts("lake"), world.ledger.windows("lake")) == before


def test_neither_an_import_nor_a_replay_goes_back_to_a_topic_that_the_group_has_left(failed_back: World) -> None:
    world = failed_back
    store = MemoryStore("redis://old")
    store.groups["lake"] = {tp(0): 10, tp(1): 5}
    asked = Selection(StoreSource(store, "lake"), "lake")
    with pytest.raises(IllegalStepError, match=r"left topic orders under the id.*Use a group of another name"):
        Moving(world.ledger).plan_import("lake", asked, lambda _: world.kafka)
    with pytest.raises(TopicRecreatedError):
        world.plan(THREE, Windows((2,)))
    with pytest.raises(TopicRecreatedError):
        world.plan(THREE, Ranges(ranges({tp(0): (0, 3)})))


def test_a_topic_that_is_back_does_not_hold_the_others_of_its_group(world: World) -> None:
    world.kafka.create("clicks")
    world.configure(topics=["orders", "clicks"])
    world.kafka.produce(tp(0), 10)
    world.kafka.produce(tp(0, "clicks"), 5)
    first = world.run(ONE).topic_ids["clicks"]
    world.kafka.recreate("clicks", 1)
    world.service.reset(world.group, "earliest", "ada", "failed over", topics=["clicks"])
    world.kafka.bring_back("clicks", first)
    reset = world.service.reset(world.group, "earliest", "ada", "again", topics=["orders"], supersede=True)
    assert reset.unread == {"lake-000001": ranges({tp(0, "clicks"): (0, 5)})}
    world.configure(topics=["orders"])
    assert world.run(TWO).ranges[tp(0)] == OffsetRange(0, 10)


def test_a_replay_reads_what_a_reset_left_without_an_owner_once_its_topic_is_in_the_group_again(dropped: World) -> None:
    world = dropped
    world.service.reset(world.group, "earliest", "ada", "wrong", supersede=True)
    world.configure(topics=["orders", "clicks"])
    world.run(THREE)
    [backfill] = world.run_all(claim("run-4"), Ranges(ranges({tp(0, "clicks"): (0, 7)})))
    assert backfill.ranges == ranges({tp(0, "clicks"): (0, 7)})
