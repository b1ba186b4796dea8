"""The layout of offsets in files."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import BadInputError, StoreContentError
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.store.offset_file import (
    LEFTOVER_AGE,
    MAX_DELETED,
    OffsetFile,
    came_too_late,
    dump_offset_file,
    file_name,
    load_offset_file,
    newest_version,
    superfluous,
    temporary_name,
    version_of,
)
from airflow_kafka_offsets.core.store_address import MIN_KEEP, StoreAddress, parse_store_address

NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
ORDERS = TopicPartition("orders", 2)
FILE = OffsetFile("lake.orders", 7, {ORDERS: 5}, "lake.orders-000007", NOW, "c0ffee")


def load(content: bytes) -> dict[TopicPartition, int]:
    return load_offset_file(content, "lake.orders", "/offsets/lake.orders/7.json")[0]


def document(**fields: object) -> bytes:
    return json.dumps({"group": "lake.orders", "next_offsets": {"orders": {"2": 5}}} | fields).encode()


def test_the_document_is_one_that_people_and_foreign_code_read() -> None:
    assert dump_offset_file(FILE).decode() == (
        "{\n"
        ' "group": "lake.orders",\n'
        ' "version": 7,\n'
        ' "window_id": "lake.orders-000007",\n'
        ' "written_at": "2026-11-21T09:30:00.000+00:00",\n'
        ' "token": "c0ffee",\n'
        ' "next_offsets": {\n'
        '  "orders": {\n'
        '   "2": 5\n'
        "  }\n"
        " }\n"
        "}\n"
    )


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 2**31 - 1)),
        st.integers(0, 2**63 - 1),
        min_size=1,
    ),
    st.integers(1, 10**20 - 1),
)
def test_what_is_written_is_read_again(offsets: dict[TopicPartition, int], version: int) -> None:
    file = OffsetFile("lake.orders", version, offsets, "w", NOW, "t")
    assert load(dump_offset_file(file)) == offsets
    assert version_of(file_name(version)) == version


def test_only_group_and_offsets_must_be_there() -> None:
    assert load(document()) == {ORDERS: 5}


def test_fields_that_are_unknown_or_odd_are_ignored() -> None:
    odd = document(version="x", window_id=None, written_at="yesterday", token=[1], added_in_version_9={"a": 1})
    assert load(odd) == {ORDERS: 5}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (dump_offset_file(FILE)[:-40], "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"group": "lake.orders", "group": "x"}', "twice"),
        (document().replace(b'"2": 5', b'"2": 5, "2": 6'), "twice"),
        (b"[]", "its group is None"),
        (document(group="other"), "its group is 'other'"),
        (document(group=None), "its group is None"),
        (document(next_offsets=None), "next_offsets: Offsets must be"),
        (document(next_offsets='{"orders":{"2":5}}'), "next_offsets: Offsets must be"),
        (document(next_offsets={}), "next_offsets: Offsets must be"),
        (document(next_offsets={"orders": {"2": -1}}), "-1"),
        (document(next_offsets={"orders": {"2": "5"}}), "whole number"),
        (document(next_offsets={"orders": {"x": 5}}), "not a partition"),
        (document(next_offsets={"orders": {"2": 2**63}}), "must be 0 to"),
    ],
)
def test_what_is_no_offset_is_an_error_that_names_the_file(content: bytes, why: str) -> None:
    with pytest.raises(StoreContentError, match=r"^/offsets/lake\.orders/7\.json does not hold") as caught:
        load(content)
    assert why in str(caught.value)


def test_only_full_names_are_versions() -> None:
    others = [
        "7.json",
        f"{file_name(7)}.crc",
        f"_{file_name(7)}",
        "README",
        "\u0660" * 20 + ".json",
        file_name(7) + "\n",
    ]
    assert [version_of(name) for name in [*others, temporary_name(NOW, "ab")]] == [None] * 7
    assert newest_version([*others, file_name(3), file_name(12), file_name(5)]) == 12
    assert newest_version(others) == 0


def test_sorted_names_are_sorted_versions() -> None:
    versions = [1, 9, 10, 99, 100, 10**19]
    assert sorted(map(file_name, reversed(versions))) == [file_name(version) for version in versions]


def test_after_the_highest_number_there_is_none() -> None:
    with pytest.raises(StoreContentError, match="99999999999999999999"):
        file_name(10**20)


@given(st.sets(st.integers(1, 200)), st.integers(1, 200), st.integers(0, 150))
def test_the_newest_versions_are_never_deleted(versions: set[int], newest: int, keep: int) -> None:
    deleted = {version_of(name) for name in superfluous(map(file_name, versions), newest, keep, NOW)}
    assert not deleted & set(range(newest - max(keep, MIN_KEEP) + 1, newest + 200))
    assert deleted <= versions


def test_old_versions_go_first_and_not_all_at_once() -> None:
    names = [file_name(version) for version in range(1, 100)]
    assert superfluous(reversed(names), 100, 50, NOW) == names[:MAX_DELETED]


def test_what_a_dead_writer_left_is_deleted_when_nobody_can_be_writing_it() -> None:
    left = temporary_name(NOW - LEFTOVER_AGE - timedelta(seconds=1), "ab")
    fresh = temporary_name(NOW - LEFTOVER_AGE + timedelta(seconds=1), "ab")
    assert superfluous([fresh, left, ".tmp-foreign", ".nfs0001"], 0, 10, NOW) == [left]


def test_a_writer_that_stood_still_until_its_version_was_deleted_came_too_late() -> None:
    assert not came_too_late(5, [file_name(5), file_name(5 + MIN_KEEP - 1)])
    assert came_too_late(5, [file_name(5), file_name(5 + MIN_KEEP)])


@pytest.mark.parametrize("keep", [0, 9, 10, 100])
def test_nothing_is_deleted_that_a_late_writer_could_take_without_being_told(keep: int) -> None:
    newest = 300
    for name in superfluous(map(file_name, range(280, 300)), newest, keep, NOW):
        assert came_too_late(version_of(name) or 0, [file_name(newest)])


# Its address


@pytest.mark.parametrize(
    "address",
    [
        "files:///var/lib/offsets",
        "s3://aws_default/bucket/prefix?keep=10",
        "hdfs://webhdfs_default/apps/offsets?timeout=5",
    ],
)
def test_an_address_says_where(address: str) -> None:
    assert str(parse_store_address(address)) == address


@pytest.mark.parametrize(
    "address",
    [
        "files://",
        "files:///",
        "files://var/offsets",
        "s3://aws_default",
        "s3://aws_default/",
        "s3:///bucket",
        "hdfs:///apps",
    ],
)
def test_an_address_without_a_place_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(BadInputError, match=r"such as '|written like '"):
        parse_store_address(address)


@pytest.mark.parametrize("keep", ["0", "9", "-1", "many", "1e3", ""])
def test_too_few_versions_are_refused(keep: str) -> None:
    with pytest.raises(BadInputError, match="10 versions or more"):
        StoreAddress("files", path="/offsets", options={"keep": keep})


def test_other_kinds_keep_no_versions() -> None:
    with pytest.raises(BadInputError, match="no option keep"):
        parse_store_address("redis://redis_default?keep=100")
