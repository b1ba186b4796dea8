"""Records that Kafka replaced after they were read: a log that was cut back and has grown past the watermark since."""

from __future__ import annotations

import pytest

from airflow_kafka_offsets.core.errors import IllegalStepError, LogTruncatedError
from airflow_kafka_offsets.core.window import Window
from tests.core.examples import claim, ranges, tp
from tests.service.world import World

ONE, TWO, THREE, FOUR = (claim(f"run-{n}") for n in range(1, 5))


@pytest.fixture
def read(world: World) -> World:
    """Let the first window of a group read 0 to 99 of one partition, and 0 to 9 of the other."""
    world.kafka.produce(tp(0), 100)
    world.kafka.produce(tp(1), 10)
    world.run(ONE)
    return world


def replace_records(world: World, start: int = 60, number: int = 70) -> None:
    """Cut the log back, and let it grow again under its new leader."""
    world.kafka.truncate(tp(0), start)
    world.kafka.produce(tp(0), number)


def test_a_log_that_was_cut_back_and_has_grown_past_the_watermark_is_an_error(read: World) -> None:
    replace_records(read)
    with pytest.raises(LogTruncatedError, match=r"orders-0: offsets \[60, 100\) are other records now") as error:
        read.plan(TWO)
    assert list(error.value.partitions) == [tp(0)]
    assert "orders-1" not in str(error.value)
    assert len(read.ledger.windows("lake")) == 1


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_no_policy_goes_past_replaced_records(read: World, policy: str) -> None:
    replace_records(read)
    read.configure(on_data_loss=policy)
    with pytest.raises(LogTruncatedError):
        read.plan(TWO)


def test_the_ways_out_of_replaced_records_are_those_that_the_error_names(read: World) -> None:
    replace_records(read)
    with pytest.raises(LogTruncatedError) as error:
        read.plan(TWO)
    stay, back = '{"orders":{"0":100}}', '{"orders":{"0":60}}'
    assert f"kafka-offsets reset lake --to '{stay}' --why" in str(error.value)
    assert f"kafka-offsets reset lake --to '{back}' --why" in str(error.value)
    with pytest.raises(IllegalStepError, match="--to-window lake-000001"):
        read.service.preview_reset(read.group, back)
    assert read.service.preview_reset(read.group, stay).replaced == ranges({tp(0): (60, 100)})
    read.service.reset(read.group, stay, "me", "the new records are not needed")
    assert read.ledger.acts("lake")[0].details["replaced"] == {"orders-0": [60, 100]}
    assert read.run(TWO).ranges == ranges({tp(0): (100, 130), tp(1): (10, 10)})
    assert read.run(THREE).ranges == ranges({tp(0): (130, 130), tp(1): (10, 10)})


def test_where_retention_has_passed_replaced_records_the_error_names_where_the_log_begins(read: World) -> None:
    replace_records(read)
    read.kafka.expire(tp(0), 110)
    read.configure(on_data_loss="skip")
    with pytest.raises(LogTruncatedError) as error:
        read.plan(TWO)
    assert str(error.value).count("kafka-offsets reset") == 1
    on = '{"orders":{"0":110}}'
    assert f"kafka-offsets reset lake --to '{on}' --why" in str(error.value)
    read.service.reset(read.group, on, "me", "the new records are gone")
    assert read.run(TWO).ranges == ranges({tp(0): (110, 130), tp(1): (10, 10)})


def test_a_part_of_replaced_records_that_retention_has_passed_is_not_read_again(read: World) -> None:
    replace_records(read)
    read.kafka.expire(tp(0), 80)
    with pytest.raises(LogTruncatedError) as error:
        read.plan(TWO)
    stay, back = '{"orders":{"0":100}}', '{"orders":{"0":80}}'
    assert f"kafka-offsets reset lake --to '{stay}' --why" in str(error.value)
    assert f"kafka-offsets reset lake --to '{back}' --why" in str(error.value)


def test_a_reset_to_the_first_window_reads_all_that_is_there_now(read: World) -> None:
    replace_records(read)
    reset = read.service.reset(read.group, "", "me", "because", to_window="lake-000001", supersede=True)
    assert not reset.replaced
    assert read.run(TWO).ranges == ranges({tp(0): (0, 130), tp(1): (0, 10)})


def test_a_reset_of_another_partition_settles_nothing(read: World) -> None:
    replace_records(read)
    read.kafka.produce(tp(1), 5)
    read.service.reset(read.group, '{"orders":{"1":15}}', "me", "because")
    with pytest.raises(LogTruncatedError, match=r"orders-0: offsets \[60, 100\)"):
        read.plan(TWO)


def test_a_new_leader_that_has_all_records_is_asked_once(read: World) -> None:
    read.kafka.elect(tp(0))
    read.kafka.produce(tp(0), 30)
    assert read.run(TWO).ranges[tp(0)] == ranges({tp(0): (100, 130)})[tp(0)]
    read.run(THREE)
    assert read.kafka.calls.count("epoch_ends") == 1


def test_all_partitions_with_a_new_leader_are_asked_at_once(read: World) -> None:
    for partition in (tp(0), tp(1)):
        read.kafka.elect(partition)
        read.kafka.produce(partition, 30)
    assert read.run(TWO).ranges == ranges({tp(0): (100, 130), tp(1): (10, 40)})
    assert read.kafka.calls.count("epoch_ends") == 1


def test_of_several_partitions_that_are_asked_at_once_each_one_that_was_cut_back_is_named(read: World) -> None:
    read.kafka.elect(tp(1))
    replace_records(read)
    with pytest.raises(LogTruncatedError) as error:
        read.plan(TWO)
    assert list(error.value.partitions) == [tp(0)]
    assert read.kafka.calls.count("epoch_ends") == 1


def test_a_kafka_that_tells_no_leader_epochs_is_planned_as_before(world: World) -> None:
    world.kafka.tells_leader_epochs = False
    world.kafka.produce(tp(0), 100)
    world.run(ONE)
    replace_records(world)
    assert world.run(TWO).ranges[tp(0)].start == 100
    assert "epoch_ends" not in world.kafka.calls


def test_a_kafka_that_tells_no_leader_epochs_for_a_while_is_asked_later(read: World) -> None:
    replace_records(read)
    read.kafka.tells_leader_epochs = False
    read.run(TWO)
    read.kafka.tells_leader_epochs = True
    with pytest.raises(LogTruncatedError, match=r"orders-0: offsets \[60, 130\) are other records now"):
        read.plan(THREE)


def test_what_kafka_did_not_say_is_a_warning_and_asked_again_with_the_next_window(read: World) -> None:
    replace_records(read)
    read.kafka.knows_epoch_ends = False
    planned = read.plan(TWO)
    assert [w for w in planned.warnings if "orders-0" in w and "is checked by the next plan" in w]
    read.do(planned.window, TWO)
    read.die(TWO)
    read.kafka.knows_epoch_ends = True
    with pytest.raises(LogTruncatedError, match=r"orders-0: offsets \[60, 130\) are other records now"):
        read.plan(THREE)


def test_the_log_is_checked_up_to_the_end_of_a_window_that_the_cap_cut(world: World) -> None:
    world.configure(max_offsets=50)
    world.kafka.produce(tp(0), 100)
    world.run(ONE)
    replace_records(world, 60)
    assert world.run(TWO).ranges[tp(0)] == ranges({tp(0): (50, 100)})[tp(0)]
    replace_records(world, 99, 1)
    with pytest.raises(LogTruncatedError, match=r"orders-0: offsets \[99, 100\) are other records now"):
        world.plan(THREE)


def test_a_partition_of_a_topic_that_is_left_out_for_a_while_is_checked_when_it_comes_back(world: World) -> None:
    world.kafka.create("clicks")
    world.configure(topics=["orders", "clicks"])
    world.kafka.produce(tp(0, "clicks"), 100)
    world.run(ONE)
    world.configure(topics=["orders"])
    world.run(TWO)
    world.kafka.truncate(tp(0, "clicks"), 60)
    world.kafka.produce(tp(0, "clicks"), 70)
    world.configure(topics=["orders", "clicks"])
    with pytest.raises(LogTruncatedError, match=r"clicks-0: offsets \[60, 100\) are other records now"):
        world.plan(THREE)


def test_a_window_is_not_run_again_on_other_records(read: World) -> None:
    replace_records(read)
    with pytest.raises(
        LogTruncatedError, match=r"orders-0: offsets \[60, 100\) are other records now.*Window lake-000001"
    ):
        read.plan(ONE, last_clear=1)


def test_a_window_below_the_cut_is_run_again(world: World) -> None:
    world.configure(max_offsets=50)
    world.kafka.produce(tp(0), 100)
    first, second = world.run(ONE), world.run(TWO)
    replace_records(world)
    assert world.plan(ONE, last_clear=1).window.id == first.id
    with pytest.raises(LogTruncatedError, match=f"Window {second.id} is committed"):
        world.plan(TWO, last_clear=1)


def test_an_open_window_with_replaced_records_is_given_up_and_cut_again(read: World) -> None:
    read.kafka.produce(tp(0), 30)
    window: Window = read.plan(TWO).window
    read.die(TWO)
    replace_records(read, 110, 90)
    with pytest.raises(LogTruncatedError, match=rf"(?s)offsets \[110, 130\) are .*kafka-offsets abandon {window.id}"):
        read.plan(THREE)
    read.service.abandon(window.id, "me", "its records are others now")
    assert read.run(FOUR).ranges[tp(0)] == ranges({tp(0): (100, 200)})[tp(0)]
