"""Where the first window starts, in all forms that a user may write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_kafka_offsets.core.errors import BadInputError, MissingPartitionError, OffsetsJsonError
from airflow_kafka_offsets.core.spark_json import Edge
from airflow_kafka_offsets.core.starting import (
    EPOCH,
    AtCommitted,
    AtEdge,
    AtOffsets,
    AtTime,
    BackFromNow,
    first_offsets,
    lookup_time,
    parse_starting_offsets,
)
from tests.core.examples import NOON, log, tp

LOG = log({tp(0): (10, 20), tp(1): (30, 30)})


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("earliest", AtEdge(Edge.EARLIEST)),
        ("latest", AtEdge(Edge.LATEST)),
        ("committed", AtCommitted()),
        (timedelta(hours=6), BackFromNow(timedelta(hours=6))),
        (timedelta(0), BackFromNow(timedelta(0))),
        (datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=1))), AtTime(NOON)),
        ("2026-01-31T13:00:00+01:00", AtTime(NOON)),
        ("2026-01-31T12:00:00Z", AtTime(NOON)),
        ("1970-01-01T00:00:00Z", AtTime(EPOCH)),
        ('{"orders":{"0":5,"1":-2}}', AtOffsets({tp(0): 5, tp(1): Edge.EARLIEST})),
        (' {"orders":{"0":5}}', AtOffsets({tp(0): 5})),
        ({"orders": {0: 5, "1": -1}}, AtOffsets({tp(0): 5, tp(1): Edge.LATEST})),
    ],
)
def test_every_form_is_read(written: Any, meant: Any) -> None:
    assert parse_starting_offsets(written) == meant


@pytest.mark.parametrize(
    ("written", "what"),
    [
        ("Earliest", "is not 'earliest'"),
        ("", "is not 'earliest'"),
        ("yesterday", "is not 'earliest'"),
        ("-2", "is not 'earliest'"),
        (timedelta(seconds=-1), "must not be negative"),
        (datetime(2026, 1, 31), "has no zone"),
        ("2026-01-31", "has no zone"),
        ("2026-01-31T12:00:00", "has no zone"),
        ("1969-12-31T23:59:59+00:00", "before 1970"),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "years 1 to 9999"),
        ("9999-12-31T23:59:59-01:00", "years 1 to 9999"),
        (5, "can't be a int"),
        (None, "can't be a NoneType"),
        (True, "can't be a bool"),
    ],
)
def test_anything_else_is_a_clear_error(written: Any, what: str) -> None:
    with pytest.raises(BadInputError, match=what):
        parse_starting_offsets(written)


def test_bad_json_is_an_error_about_json() -> None:
    with pytest.raises(OffsetsJsonError):
        parse_starting_offsets('{"orders":{"0":-3}}')


def test_only_times_are_looked_up() -> None:
    assert lookup_time(AtTime(NOON), NOON) == NOON
    assert lookup_time(BackFromNow(timedelta(hours=6)), NOON) == NOON - timedelta(hours=6)
    assert lookup_time(AtEdge(Edge.LATEST), NOON) is None
    assert lookup_time(AtCommitted(), NOON) is None
    assert lookup_time(AtOffsets({}), NOON) is None


@pytest.mark.parametrize("duration", [timedelta(days=365 * 60), timedelta.max])
def test_a_duration_to_before_1970_is_looked_up_at_1970(duration: timedelta) -> None:
    assert lookup_time(BackFromNow(duration), NOON) == EPOCH == datetime(1970, 1, 1, tzinfo=UTC)


def test_edges_are_resolved_to_real_offsets() -> None:
    assert first_offsets(AtEdge(Edge.EARLIEST), LOG) == {tp(0): 10, tp(1): 30}
    assert first_offsets(AtEdge(Edge.LATEST), LOG) == {tp(0): 20, tp(1): 30}


def test_a_time_without_later_records_is_the_end() -> None:
    assert first_offsets(AtTime(NOON), LOG, at_time={tp(0): 12, tp(1): None}) == {tp(0): 12, tp(1): 30}


def test_an_answer_that_leaves_a_partition_out_is_not_taken_for_the_end() -> None:
    with pytest.raises(KeyError):
        first_offsets(AtTime(NOON), LOG, at_time={tp(0): 12})


def test_explicit_offsets_name_every_partition_and_lie_in_the_log() -> None:
    assert first_offsets(AtOffsets({tp(0): 20, tp(1): Edge.LATEST}), LOG) == {tp(0): 20, tp(1): 30}
    with pytest.raises(BadInputError, match="missing: orders-1"):
        first_offsets(AtOffsets({tp(0): 20}), LOG)
    with pytest.raises(BadInputError, match="Kafka has no partition orders-7"):
        first_offsets(AtOffsets({tp(0): 20, tp(1): 30, tp(7): 1}), LOG)
    for outside in (9, 21):
        with pytest.raises(BadInputError, match=rf"orders-0: {outside} \(beginning offset 10, end offset 20\)"):
            first_offsets(AtOffsets({tp(0): outside, tp(1): 30}), LOG)


def test_the_consumer_groups_offsets_are_all_there_and_lie_in_the_log() -> None:
    assert first_offsets(AtCommitted(), LOG, committed={tp(0): 11, tp(1): 30}) == {tp(0): 11, tp(1): 30}
    with pytest.raises(MissingPartitionError, match="no offset of orders-1") as raised:
        first_offsets(AtCommitted(), LOG, committed={tp(0): 11, tp(1): None})
    assert set(raised.value.partitions) == {tp(1)}
    with pytest.raises(BadInputError, match="orders-0: 9 \\(beginning offset"):
        first_offsets(AtCommitted(), LOG, committed={tp(0): 9, tp(1): 30})
