"""What people keep of superseded windows: the acts alone tell it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.history import KEPT, TAKEN, acted_on
from airflow_kafka_offsets.core.plan.kept import Kept, above, document, kept_parts, left_out, to_remove
from airflow_kafka_offsets.core.ranges import OffsetRange
from tests.core.examples import position, tp

PART = Kept("lake-000001", tp(0), "id-of-orders", OffsetRange(0, 5))


def test_a_part_is_written_with_its_topic_id() -> None:
    written = document([PART, Kept("lake-000001", tp(1), "id-of-orders", OffsetRange(2, 3))])
    assert written == {"lake-000001": {"orders": {"id": "id-of-orders", "0": [0, 5], "1": [2, 3]}}}


def test_a_position_takes_what_lies_at_it_or_above_it_in_the_same_topic() -> None:
    assert above([PART], position({tp(0): 5})) == ()
    assert [part.offsets for part in above([PART], position({tp(0): 2}))] == [OffsetRange(2, 5)]
    assert above([PART], position({tp(0): 0})) == (PART,)
    assert above([PART], position({tp(0): 0}, orders="another")) == ()
    assert above([PART], position({tp(1): 9})) == (PART,), "a partition without a watermark is read from its beginning"
    assert above([PART], position({tp(0, "clicks"): 0})) == ()


def test_each_sentence_names_the_parts() -> None:
    later = Kept("lake-000002", tp(0), "id-of-orders", OffsetRange(5, 9))
    assert to_remove([]) == []
    [sentence] = to_remove([PART, later])
    assert "lake-000001 orders-0 [0, 5), lake-000002 orders-0 [5, 9)" in sentence
    assert """kafka-offsets reset lake --to '{"orders":{"0":0}}' --why""" in left_out("lake", [later, PART])


@given(
    acts=st.lists(st.tuples(st.integers(0, 30), st.lists(st.integers(1, 9), max_size=3)), min_size=1, max_size=12),
)
def test_what_was_kept_before_an_act_is_taken_or_kept_after_it(acts: Sequence[tuple[int, list[int]]]) -> None:
    """Each act moves the watermark somewhere, and keeps some windows' parts below it that nothing is kept of so far."""
    details: list[dict[str, object]] = []
    number = 0
    for offset, spans in acts:
        before = kept_parts(details)
        taken = above(before, position({tp(0): offset}))
        end = max((part.offsets.end for part in before if part.offsets.start < offset), default=0)
        new = []
        for span in spans:
            if (start := min(end, offset)) + span <= offset:
                number, end = number + 1, start + span
                new.append(Kept(f"lake-{number:06d}", tp(0), "id-of-orders", OffsetRange(start, end)))
        details.append(json.loads(json.dumps({TAKEN: document(taken), KEPT: document(new)})))
        after = kept_parts(details)
        assert _records(after) == _records([*before, *new]) - _records(taken)
        assert _records(taken) == {record for record in _records(before) if record[1] >= offset}
        assert sum(part.offsets.span for part in after) == len({offset for _, offset in _records(after)}), (
            "none is kept twice"
        )


def _records(parts: Sequence[Kept]) -> set[tuple[str, int]]:
    return {(part.window_id, offset) for part in parts for offset in range(part.offsets.start, part.offsets.end)}


def test_an_act_names_the_windows_that_it_takes_from_in_order() -> None:
    details = {"taken": {"lake-000002": {}}, "superseded": ["lake-000001", "lake-000003", "lake-1000000"]}
    assert acted_on(details) == ("lake-000001", "lake-000002", "lake-000003", "lake-1000000")
