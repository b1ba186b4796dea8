"""Ranges of many partitions: packed, they are what they were, and small; bytes that were not packed by us are refused."""

from __future__ import annotations

import json
import random
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.ledger.documents import load_ranges
from airflow_kafka_offsets.ledger.packing import MAX_PLAIN, pack, unpack

_OFFSETS = st.integers(0, 2**63 - 1)
_ROWS = st.lists(
    st.tuples(st.integers(0, 10**6), _OFFSETS, _OFFSETS, st.none() | st.integers(0, 2**31)),
    unique_by=lambda row: row[0],
)


def columns(rows: list[tuple[int, int, int, int | None]], *, with_epochs: bool = True) -> dict[str, Any]:
    """Return the columns of a topic, as `documents.dump_ranges` makes them."""
    partitions, starts, spans, epochs = (
        (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    )
    document = {"id": "id-of-topic", "partitions": partitions, "start": starts, "span": spans}
    return {**document, "epoch": epochs} if with_epochs else document


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.tuples(_ROWS, st.booleans()), max_size=3))
def test_what_is_packed_comes_back(topics: dict[str, tuple[list[tuple[int, int, int, int | None]], bool]]) -> None:
    document = {topic: columns(rows, with_epochs=with_epochs) for topic, (rows, with_epochs) in topics.items()}
    # One more topic, so that it is large enough to be packed.
    document["large"] = columns([(p, 7 * p, 5, 3) for p in range(2_000)])
    text, packed = pack(json.dumps(document))
    assert packed is not None
    assert unpack(packed) == document
    assert {topic: said["packed"] for topic, said in json.loads(text).items()} == {
        topic: len(said["partitions"]) for topic, said in document.items()
    }


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.tuples(_ROWS, st.booleans()), max_size=3), st.data())
def test_some_partitions_are_read_as_they_are_read_with_all(
    topics: dict[str, tuple[list[tuple[int, int, int, int | None]], bool]], data: st.DataObject
) -> None:
    """Also from a document that is not packed, and of partitions and topics that it does not have."""
    document = {topic: columns(rows, with_epochs=with_epochs) for topic, (rows, with_epochs) in topics.items()}
    large = {"large": columns([(p, 7 * p, 5, 3) for p in range(0, 4_000, 2)])}
    for text, packed in (pack(json.dumps(document)), pack(json.dumps(document | large))):
        ranges, topic_ids, epochs = load_ranges(text, packed)
        there = [
            *list(ranges)[:30],
            TopicPartition("missing", 0),
            TopicPartition("large", 6),
            TopicPartition("large", 7),
        ]
        wanted = data.draw(st.sets(st.sampled_from(there)))
        some, some_ids, some_epochs = load_ranges(text, packed, wanted)
        assert some == {tp: found for tp, found in ranges.items() if tp in wanted}
        assert (some_ids, some_epochs) == (topic_ids, {tp: epoch for tp, epoch in epochs.items() if tp in wanted})


def test_a_small_document_stays_as_it_is() -> None:
    text = json.dumps({"orders": columns([(p, 7 * p, 5, None) for p in range(500)])})
    assert len(text) < MAX_PLAIN
    assert pack(text) == (text, None)


def test_twenty_thousand_partitions_take_less_than_a_hundred_kilobytes() -> None:
    """Starts that differ by up to ten million and spans below a thousand, both without any order; partitions change leaders."""
    draw = random.Random(17)
    rows = [(p, 10**10 + draw.randrange(10**7), draw.randrange(1_000), draw.randrange(8)) for p in range(20_000)]
    text, packed = pack(json.dumps({"orders": columns(rows)}))
    assert len(text) + len(packed or b"") < 100_000


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"no zlib",
        zlib.compress(b""),
        zlib.compress(b"{}")[:-3],
        zlib.compress(b'{"orders":5}\n'),
        zlib.compress(b'{"orders":{"id":"x","partitions":[[0,3]],"base":0,"widths":[1,1]}}\n12345'),
        zlib.compress(b'{"orders":{"id":"x","partitions":[[0,999999999999]],"base":0,"widths":[1,1]}}\n12345'),
        zlib.compress(b'{"orders":{"id":"x","partitions":[[0,2]],"base":-9,"widths":[1,1]}}\n\0\0\1\1'),
        zlib.compress(b'{"orders":{"id":"x","partitions":[[0,2]],"base":0,"widths":[0,1]}}\n12'),
    ],
)
def test_bytes_that_were_not_packed_by_us_are_refused(packed: bytes) -> None:
    with pytest.raises((ArithmeticError, LookupError, TypeError, ValueError)):
        load_ranges("{}", packed)


def test_where_the_bytes_are_too_few_some_partitions_are_refused_too() -> None:
    packed = zlib.compress(b'{"orders":{"id":"x","partitions":[[0,3]],"base":0,"widths":[1,1]}}\n12345')
    with pytest.raises(ValueError, match="too few"):
        load_ranges('{"orders":{"id":"x","packed":3}}', packed, [TopicPartition("orders", 0)])
