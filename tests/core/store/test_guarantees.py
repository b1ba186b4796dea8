"""When the offsets of a store may move."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    StoreDriftError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
    may_pass,
)
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.store.guarantees import check_advance, must_write
from tests.core.examples import tp

offsets = st.dictionaries(st.integers(0, 5).map(tp), st.integers(0, 3), max_size=6)


def must(before: dict, after: dict, found: dict) -> bool:
    return must_write("memory://", "lake", before, after, found)


@given(before=offsets, more=offsets, found=offsets)
def test_every_partition_stands_before_after_or_nowhere_or_it_is_drift(
    before: dict[TopicPartition, int], more: dict[TopicPartition, int], found: dict[TopicPartition, int]
) -> None:
    after = {**before, **more}
    drifted = {p for p in after if p in found and found[p] not in (before.get(p), after[p])}
    if drifted:
        with pytest.raises(StoreDriftError) as caught:
            must(before, after, found)
        assert caught.value.partitions == {p: (before.get(p), after[p], found[p]) for p in drifted}
    else:
        assert must(before, after, found) == any(found.get(p) != offset for p, offset in after.items())


def test_what_a_group_does_not_name_is_not_its_own() -> None:
    assert must({}, {tp(0): 5}, {tp(0): 5, tp(9): 7}) is False


def test_ten_thousand_drifted_partitions_stay_one_sentence() -> None:
    before = {tp(p): 5 for p in range(10_000)}
    with pytest.raises(StoreDriftError) as caught:
        must(before, dict.fromkeys(before, 6), dict.fromkeys(before, 1))
    assert "and 9990 more" in str(caught.value)
    assert len(str(caught.value)) < 1200
    assert "kafka-offsets verify lake" in str(caught.value)


def test_an_advance_names_all_that_was_there() -> None:
    check_advance({tp(0): 1}, {tp(0): 2, tp(1): 0})
    with pytest.raises(BadInputError, match="leaves out orders-1, orders-2: name every partition"):
        check_advance({tp(0): 1, tp(1): 1, tp(2): 1}, {tp(0): 2})
    with pytest.raises(BadInputError, match="at least one partition"):
        check_advance({}, {})


def test_a_store_that_said_no_does_not_get_better_by_waiting() -> None:
    assert may_pass(StoreUnavailableError("away"))
    assert may_pass(StoreOutcomeUnknownError("who knows"))
    assert not may_pass(StoreRefusedError("wrong password"))
    assert not may_pass(StoreDriftError("memory://", "lake", {tp(0): (1, 2, 3)}))
