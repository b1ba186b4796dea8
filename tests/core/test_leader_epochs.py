"""Leader epochs: what is in doubt, what was replaced, what is noted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from airflow_kafka_offsets.core import leader_epochs
from airflow_kafka_offsets.core.errors import LogTruncatedError
from airflow_kafka_offsets.core.leader_epochs import PartitionEpoch
from airflow_kafka_offsets.core.log import Bounds, LogSnapshot
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.ranges import OffsetRanges
from airflow_kafka_offsets.ledger.documents import dump_position, dump_ranges, load_position, load_ranges
from tests.core.examples import ids, ranges, tp, window

AT_100 = Position({tp(0): 100, tp(1): 50}, ids([tp(0)]), {tp(0): 3, tp(1): 4})


def led(leaders: Mapping[TopicPartition, int | None], **topic_ids: str) -> LogSnapshot:
    """Let Kafka hold 0 to 199 of partitions, under these leader epochs."""
    return LogSnapshot(ids(leaders) | topic_ids, {p: Bounds(0, 200, epoch) for p, epoch in leaders.items()})


def doubtful(log: LogSnapshot) -> list[PartitionEpoch]:
    """Name what has to be asked before a plan behind AT_100."""
    return leader_epochs.doubtful(AT_100.leader_epochs, AT_100.topic_ids, log)


def test_only_another_leader_is_a_doubt() -> None:
    assert doubtful(led({tp(0): 3, tp(1): 5})) == [PartitionEpoch(tp(1), 4)]
    assert doubtful(led({tp(0): None, tp(1): 4, tp(2): 9})) == []
    assert doubtful(LogSnapshot({}, {})) == []


def test_the_epochs_of_a_topic_that_was_made_again_mean_nothing() -> None:
    assert doubtful(led({tp(0): 0, tp(1): 0}, orders="another")) == []


@pytest.mark.parametrize(("end", "gone"), [(60, {tp(0): (60, 100)}), (0, {tp(0): (0, 100)}), (100, {}), (150, {})])
def test_what_lies_between_the_end_of_the_epoch_and_the_watermark_was_replaced(
    end: int, gone: dict[TopicPartition, tuple[int, int]]
) -> None:
    asked = PartitionEpoch(tp(0), 3)
    found = leader_epochs.replaced(AT_100.offsets, AT_100.leader_epochs, {asked: end})
    assert found == ranges(gone)


def test_the_end_of_another_epoch_says_nothing() -> None:
    other = {PartitionEpoch(tp(0), 2): 10}
    assert leader_epochs.replaced(AT_100.offsets, AT_100.leader_epochs, other) == OffsetRanges({})


def test_the_error_has_the_numbers_and_both_ways_out() -> None:
    with pytest.raises(LogTruncatedError) as error:
        leader_epochs.check_position("lake", AT_100, led({tp(0): 5, tp(1): 4}), {PartitionEpoch(tp(0), 3): 60})
    assert str(error.value).startswith(
        "orders-0: offsets [60, 100) are other records now than those that were read (leader epoch 3 ended at 60, epoch 5 goes on to 200). "
    )
    assert 'reset lake --to \'{"orders":{"0":100}}\'' in str(error.value)
    assert 'reset lake --to \'{"orders":{"0":60}}\'' in str(error.value)


@pytest.mark.parametrize(
    ("beginnings", "to"),
    [((0, 0), '{"0":100,"1":50}'), ((120, 120), '{"0":120,"1":120}'), ((120, 0), '{"0":120,"1":50}')],
)
def test_each_partition_goes_on_at_its_watermark_or_where_its_log_begins(beginnings: tuple[int, int], to: str) -> None:
    bounds = {tp(number): Bounds(beginning, 200, 5) for number, beginning in enumerate(beginnings)}
    ends = {PartitionEpoch(tp(0), 3): 60, PartitionEpoch(tp(1), 4): 40}
    with pytest.raises(LogTruncatedError) as error:
        leader_epochs.check_position("lake", AT_100, LogSnapshot(ids(bounds), bounds), ends)
    assert f"without the new records:\n    kafka-offsets reset lake --to '{{\"orders\":{to}}}'" in str(error.value)


def test_an_error_of_many_partitions_stays_readable() -> None:
    many = [tp(number) for number in range(10_000)]
    position = Position(dict.fromkeys(many, 100), ids(many), dict.fromkeys(many, 3))
    ends = {PartitionEpoch(p, 3): 60 for p in many}
    with pytest.raises(LogTruncatedError) as error:
        leader_epochs.check_position("lake", position, led(dict.fromkeys(many, 5)), ends)
    assert "and 9990 more" in str(error.value)
    assert len(str(error.value)) < 4000
    assert len(error.value.partitions) == 10_000


def test_the_next_window_notes_todays_leaders_and_keeps_what_was_not_answered() -> None:
    log = led({tp(0): 5, tp(1): 6, tp(2): None})
    assert leader_epochs.to_note(AT_100, log) == {tp(0): 5, tp(1): 6}
    assert leader_epochs.to_note(AT_100, log, [PartitionEpoch(tp(0), 3)]) == {tp(0): 3, tp(1): 6}
    assert leader_epochs.to_note(AT_100, led({tp(0): None})) == {tp(0): 3, tp(1): 4}
    assert leader_epochs.to_note(None, log) == {tp(0): 5, tp(1): 6}


def test_a_reset_settles_what_it_names_and_nothing_else() -> None:
    log = led({tp(0): 5, tp(1): 6})
    assert leader_epochs.after_reset(AT_100, {tp(0): 100}, log) == {tp(0): 5, tp(1): 4}
    ends = {PartitionEpoch(tp(0), 3): 60, PartitionEpoch(tp(1), 4): 20}
    assert leader_epochs.left_behind(AT_100, {tp(0): 100}, ends) == ranges({tp(0): (60, 100)})
    assert leader_epochs.left_behind(AT_100, {tp(0): 70}, ends) == ranges({tp(0): (60, 70)})
    assert leader_epochs.left_behind(AT_100, {tp(0): 60}, ends) == ranges({})
    assert leader_epochs.left_behind(AT_100, {tp(0): 150}, ends) == ranges({tp(0): (60, 100)})


def test_only_the_epochs_of_what_windows_read_are_asked_for() -> None:
    read = replace(window({tp(0): (80, 100), tp(1): (50, 50)}), leader_epochs={tp(0): 3, tp(1): 4})
    later = replace(window({tp(0): (100, 120)}, seq=2), leader_epochs={tp(0): 4})
    log = led({tp(0): 5, tp(1): 5})
    asked = leader_epochs.of_windows([read, later], log)
    assert asked == [PartitionEpoch(tp(0), 3), PartitionEpoch(tp(0), 4)]
    assert leader_epochs.replaced_in(read, dict.fromkeys(asked, 60)) == {
        tp(0): "orders-0: offsets [80, 100) are other records now than when the window was cut"
    }
    assert leader_epochs.replaced_in(read, dict.fromkeys(asked, 99)) == {
        tp(0): "orders-0: offsets [99, 100) are other records now than when the window was cut"
    }
    assert leader_epochs.replaced_in(read, dict.fromkeys(asked, 100)) == {}


def test_documents_without_epochs_are_what_they_always_were() -> None:
    text = '{"orders":{"id":"id-of-orders","partitions":[0,1],"start":[10,20],"span":[5,0]}}'
    found, topic_ids, epochs = load_ranges(text)
    assert epochs == load_position(text).leader_epochs == {}
    assert dump_ranges(found, topic_ids) == text


def test_documents_keep_epochs_of_some_partitions() -> None:
    position = Position({tp(0): 1, tp(1): 2, tp(0, "clicks"): 3}, ids([tp(0), tp(0, "clicks")]), {tp(1): 0})
    text = dump_position(position)
    assert text.count('"epoch":[null,0]') == text.count("epoch") == 1
    assert load_position(text) == position
