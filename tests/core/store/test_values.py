"""What counts as an offset, or as a partition, in someone else's text."""

from __future__ import annotations

import pytest

from airflow_kafka_offsets.core.errors import StoreContentError
from airflow_kafka_offsets.core.offsets import MAX_OFFSET
from airflow_kafka_offsets.core.store.values import read_offset, read_partition


@pytest.mark.parametrize(("text", "offset"), [(b"0", 0), (b"42", 42), (b"007", 7), (b"%d" % MAX_OFFSET, MAX_OFFSET)])
def test_decimal_digits_are_an_offset(text: bytes, offset: int) -> None:
    assert read_offset(text, "here") == offset


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"-1",
        b"+1",
        b"1.0",
        b"1e3",
        b" 1",
        b"1\n",
        b"0x1",
        b"null",
        b"\xff",
        "٣".encode(),
        b"%d" % (MAX_OFFSET + 1),
    ],
)
def test_anything_else_is_refused_with_its_place(text: bytes) -> None:
    with pytest.raises(StoreContentError, match=r"^here holds "):
        read_offset(text, "here")


@pytest.mark.parametrize("text", [b"", b"-1", b"01", b"1 ", b"orders-0", b"_v", b"2147483648", b"\xff"])
def test_a_partition_has_one_name(text: bytes) -> None:
    assert read_partition(b"2147483647", "here") == 2**31 - 1
    with pytest.raises(StoreContentError, match=r"^here has an entry "):
        read_partition(text, "here")
