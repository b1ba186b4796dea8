"""Sources in one line, and what their numbers mean."""

from __future__ import annotations

import pytest

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.offsets import MAX_OFFSET
from airflow_kafka_offsets.core.source.offsets import (
    CheckpointAddress,
    CsvAddress,
    LedgerAddress,
    Meaning,
    SourceAddress,
    next_offsets,
    only,
    parse_source_address,
)
from airflow_kafka_offsets.core.store_address import StoreAddress
from tests.core.examples import tp


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("ledger", LedgerAddress()),
        ("redis://redis_default", StoreAddress("redis", "redis_default")),
        ("kafka://", StoreAddress("kafka")),
        ("csv:-", CsvAddress("-")),
        ("csv:/tmp/a b:c.csv", CsvAddress("/tmp/a b:c.csv")),
        ("checkpoint:/data/ckpt", CheckpointAddress("/data/ckpt")),
        ("checkpoint:/data/a?b", CheckpointAddress("/data/a?b")),
        ("checkpoint:/data/ckpt?source=1", CheckpointAddress("/data/ckpt", "1")),
        ("checkpoint:s3://aws_default@bucket/a?source=in-1", CheckpointAddress("s3://aws_default@bucket/a", "in-1")),
        ("checkpoint:webhdfs://namenode:9870/a", CheckpointAddress("webhdfs://namenode:9870/a")),
    ],
)
def test_a_place_is_read_and_written(text: str, source: SourceAddress) -> None:
    assert parse_source_address(text) == source
    assert str(source) == text


def test_a_last_slash_means_nothing() -> None:
    assert parse_source_address("checkpoint:/data/ckpt//") == CheckpointAddress("/data/ckpt")


@pytest.mark.parametrize(
    "text",
    [
        *("", "checkpoint", "checkpoint:", "csv:", "offsets.csv", "redis", "file:///x", "Ledger"),
        *("redis://[x", "checkpoint:s3://[x", "checkpoint:s3://a\u2100b/x", "checkpoint:s3://b/x?sauce=1"),
    ],
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(BadInputError):
        parse_source_address(text)


def test_a_password_is_not_shown() -> None:
    for text in (
        "checkpoint:s3://me:secret@bucket/a",
        "checkpoint:abfs://c@a/x?sig=secret",
        "checkpoint:s3://b/x?sig=secret?source=1",
        "checkpoint:s3://b/x?source=a&sig=secret",
        "checkpoint:s3://secret[@b",
        "redis://me:secret@host",
        "redis:me:secret@host",
        "redis://secret[",
        "me:secret@host",
    ):
        with pytest.raises(BadInputError) as caught:
            parse_source_address(text)
        assert "secret" not in str(caught.value)


def test_what_was_read_last_is_one_before_what_is_next() -> None:
    assert next_offsets({tp(0): 5, tp(1): 0}, Meaning.NEXT) == {tp(0): 5, tp(1): 0}
    assert next_offsets({tp(0): 5, tp(1): 0}, Meaning.LAST_READ) == {tp(0): 6, tp(1): 1}


def test_nothing_was_read_yet_is_minus_one() -> None:
    assert next_offsets({tp(0): -1}, Meaning.LAST_READ) == {tp(0): 0}


@pytest.mark.parametrize(
    ("number", "meaning"), [(-1, Meaning.NEXT), (-2, Meaning.LAST_READ), (MAX_OFFSET, Meaning.LAST_READ)]
)
def test_what_can_be_no_offset_is_refused(number: int, meaning: Meaning) -> None:
    with pytest.raises(BadInputError, match=f"orders-0: {number}"):
        next_offsets({tp(0): number}, meaning)


def test_only_some_topics() -> None:
    offsets = {tp(0): 5, tp(0, "clicks"): 6}
    assert only(offsets, ("clicks",)) == {tp(0, "clicks"): 6}
    assert only(offsets, ()) == offsets
