"""Offsets in files on a local disk: the contract, and a disk's own rules."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_kafka_offsets import KafkaGroup
from airflow_kafka_offsets.adapters.stores.files import FilesStore
from airflow_kafka_offsets.adapters.stores.local import LocalFolders
from airflow_kafka_offsets.core.errors import (
    OUTCOME_OPEN,
    StoreContentError,
    StoreDriftError,
    StoreOutcomeUnknownError,
    StoreRefusedError,
)
from airflow_kafka_offsets.core.store.offset_file import file_name, temporary_name, version_of
from airflow_kafka_offsets.core.store_address import parse_store_address
from airflow_kafka_offsets.ports import OffsetStore
from airflow_kafka_offsets.wiring.stores.opening import open_store as open_at
from tests.stores import files_writer
from tests.stores.contract import StoreContract, at

GROUP = "lake.orders"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
NOBODY = 65534


class TestLocal(StoreContract):
    """All but the faults of a server, as there is none."""

    names_windows = True

    test_a_server_that_refuses_connections = None
    test_a_server_that_hangs = None
    test_a_server_that_went_away_and_came_back = None
    test_an_answer_that_is_lost_leaves_all_or_nothing = None
    test_a_connection_that_is_cut_leaves_all_or_nothing = None

    @pytest.fixture
    def store(self, open_store: Callable[[], OffsetStore]) -> OffsetStore:
        return open_store()

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], OffsetStore]:
        return lambda: store_at(tmp_path)


def store_at(base: Path, **settings: Any) -> FilesStore:
    return FilesStore(f"files://{base}", LocalFolders(str(base)), **settings)


def advance_to(store: FilesStore, last: int) -> None:
    """Advance by one until there."""
    first = store.read(GROUP, ["orders"]).get(at("orders", 0).popitem()[0], 0)
    for offset in range(first, last):
        store.advance(GROUP, at("orders", offset) if offset else {}, at("orders", offset + 1))


def versions(base: Path) -> list[int]:
    return sorted(version_of(name) or 0 for name in os.listdir(base / GROUP))


# The layout


def test_foreign_code_reads_the_highest_file(tmp_path: Path) -> None:
    store = store_at(tmp_path, clock=lambda: NOW)
    store.advance(GROUP, {}, at("orders", 5, 10), "lake.orders-000001")
    store.advance(GROUP, at("orders", 5, 10), at("orders", 7, 12) | at("payments", 3), "lake.orders-000002")
    names = sorted(os.listdir(tmp_path / GROUP))
    assert names == ["00000000000000000001.json", "00000000000000000002.json"]
    document = json.loads((tmp_path / GROUP / names[-1]).read_text())
    assert document.pop("token")
    assert document == {
        "group": GROUP,
        "version": 2,
        "window_id": "lake.orders-000002",
        "written_at": "2026-11-21T00:00:00.000+00:00",
        "next_offsets": {"orders": {"0": 7, "1": 12}, "payments": {"0": 3}},
    }


def test_a_file_written_by_hand_is_read_and_continued(tmp_path: Path) -> None:
    (tmp_path / GROUP).mkdir()
    by_hand = {"group": GROUP, "next_offsets": {"orders": {"0": 41}}, "why": "restored by hand"}
    (tmp_path / GROUP / file_name(9)).write_text(json.dumps(by_hand))
    store = store_at(tmp_path)
    assert store.read(GROUP, ["orders"]) == at("orders", 41)
    store.advance(GROUP, at("orders", 41), at("orders", 42))
    assert versions(tmp_path) == [9, 10]


def test_others_may_read_the_files(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        advance_to(store_at(tmp_path), 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / GROUP / file_name(1)).stat().st_mode) == 0o644


def test_an_advance_that_is_done_adds_no_file(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    advance_to(store, 2)
    store.advance(GROUP, at("orders", 1), at("orders", 2))
    assert versions(tmp_path) == [1, 2]


# What is not an offset


@pytest.mark.parametrize("content", [b"", b'{"group": "lake.orders", "next_offs', b"\x00" * 500])
def test_a_torn_file_is_named_and_not_skipped(tmp_path: Path, content: bytes) -> None:
    store = store_at(tmp_path)
    advance_to(store, 1)
    (tmp_path / GROUP / file_name(2)).write_bytes(content)
    with pytest.raises(StoreContentError, match=str(tmp_path / GROUP / file_name(2))):
        store.read(GROUP, ["orders"])
    with pytest.raises(StoreContentError):
        store.advance(GROUP, at("orders", 1), at("orders", 2))
    assert versions(tmp_path) == [1, 2]
    (tmp_path / GROUP / file_name(2)).unlink()
    assert store.read(GROUP, ["orders"]) == at("orders", 1)


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / GROUP / file_name(1)).mkdir(parents=True)
    with pytest.raises(StoreContentError, match="is a folder"):
        store_at(tmp_path).read(GROUP, ["orders"])


def test_the_folder_of_another_group_is_not_ours(tmp_path: Path) -> None:
    """On a disk that ignores case, two groups have one folder."""
    advance_to(store_at(tmp_path), 1)
    (tmp_path / GROUP).rename(tmp_path / "Lake.Orders")
    with pytest.raises(StoreContentError, match=r"its group is 'lake\.orders'"):
        store_at(tmp_path).read("Lake.Orders", ["orders"])


# What is deleted


def test_old_versions_are_deleted(tmp_path: Path) -> None:
    store = store_at(tmp_path, keep=12)
    advance_to(store, 30)
    assert versions(tmp_path) == list(range(19, 31))
    assert store.read(GROUP, ["orders"]) == at("orders", 30)


def test_what_can_not_be_deleted_does_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = store_at(tmp_path, keep=10)
    advance_to(store, 5)
    (tmp_path / GROUP / file_name(1)).unlink()
    (tmp_path / GROUP / file_name(1)).mkdir()
    with caplog.at_level("INFO"):
        advance_to(store, 15)
    assert store.read(GROUP, ["orders"]) == at("orders", 15)
    assert "keeps old files" in caplog.text


def test_what_dead_writers_left_is_ignored_and_deleted_in_time(tmp_path: Path) -> None:
    store = store_at(tmp_path, clock=lambda: NOW)
    advance_to(store, 1)
    old, fresh = (temporary_name(NOW - timedelta(hours=hours), "ab") for hours in (25, 23))
    for name in (old, fresh):
        (tmp_path / GROUP / name).write_text("half")
    assert store.read(GROUP, ["orders"]) == at("orders", 1)
    advance_to(store, 2)
    assert sorted(os.listdir(tmp_path / GROUP)) == [fresh, file_name(1), file_name(2)]


class FoldersOfASlowWriter(LocalFolders):
    """Others act before its first write."""

    def __init__(self, base: Path, meanwhile: Callable[[], None]) -> None:
        super().__init__(str(base))
        self._meanwhile = [meanwhile]

    def put_if_absent(self, group: str, name: str, content: bytes, temporary: str) -> bool:
        if self._meanwhile:
            self._meanwhile.pop()()
        return super().put_if_absent(group, name, content, temporary)


@pytest.mark.parametrize("first", [0, 1])
def test_a_writer_that_stood_still_for_many_versions_does_not_win(tmp_path: Path, first: int) -> None:
    short_lived = store_at(tmp_path, keep=10)
    advance_to(short_lived, first)
    slow = FilesStore("files://", FoldersOfASlowWriter(tmp_path, lambda: advance_to(short_lived, 40)))
    with pytest.raises(StoreDriftError, match="orders-0: found 40, expected"):
        slow.advance(GROUP, at("orders", first) if first else {}, at("orders", 77))
    assert short_lived.read(GROUP, ["orders"]) == at("orders", 40)
    advance_to(short_lived, 41)
    assert versions(tmp_path) == list(range(32, 42))


def test_a_version_that_is_deleted_between_listing_and_reading_is_looked_for_again(tmp_path: Path) -> None:
    short_lived = store_at(tmp_path, keep=10)
    advance_to(short_lived, 1)

    meanwhile = [20]

    class Place(LocalFolders):
        def get(self, group: str, name: str) -> bytes | None:
            if meanwhile:
                advance_to(short_lived, meanwhile.pop())
            return super().get(group, name)

    assert FilesStore("files://", Place(str(tmp_path))).read(GROUP, ["orders"]) == at("orders", 20)


# What a disk does


@pytest.mark.slow
def test_a_writer_that_is_killed_leaves_the_old_version_or_the_new(tmp_path: Path) -> None:
    command = [sys.executable, "-m", files_writer.__name__, str(tmp_path), GROUP]
    reported = 0
    for kill in range(20):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout
            for _ in range(1 + kill):
                reported = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            reported = max([reported, *(int(line) for line in writer.stdout.read().split("\n")[:-1])])
        offsets = set(store_at(tmp_path).read(GROUP, ["orders"]).values())
        assert (offsets or {0}) in ({reported}, {reported + 1})
    for name in os.listdir(tmp_path / GROUP):
        if version_of(name):
            assert len(json.loads((tmp_path / GROUP / name).read_bytes())["next_offsets"]["orders"]) == 200


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no one in this process write a larger file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_room_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    before, after = at("orders", *[1] * 1_000), at("orders", *[2] * 1_000)
    store.advance(GROUP, {}, before)
    with largest_file(4_096), pytest.raises(StoreRefusedError, match=r"Can't write to .*: File too large"):
        store.advance(GROUP, before, after)
    assert os.listdir(tmp_path / GROUP) == [file_name(1)]
    store.advance(GROUP, before, after)
    assert store.read(GROUP, ["orders"]) == after


def test_a_disk_that_does_not_confirm_leaves_the_outcome_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_at(tmp_path)
    store.advance(GROUP, {}, at("orders", 1))

    def lose_the_answer(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", lose_the_answer)
        with pytest.raises(
            StoreOutcomeUnknownError, match=rf"The disk did not confirm .*Input/output error{OUTCOME_OPEN}$"
        ):
            store.advance(GROUP, at("orders", 1), at("orders", 2))


@pytest.fixture
def shared() -> Iterator[Path]:
    """Return a folder that other accounts may enter."""
    folder = Path(tempfile.mkdtemp(prefix="offsets-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@contextlib.contextmanager
def without_rights(folder: Path) -> Iterator[None]:
    """Be someone who may read a folder, and not write to it: root may anyway, so it is no one for a while."""
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
        try:
            yield
        finally:
            os.seteuid(0)
    else:
        folder.chmod(0o555)
        try:
            yield
        finally:
            folder.chmod(0o755)


def test_who_may_only_read_reads(shared: Path) -> None:
    store = store_at(shared)
    advance_to(store, 1)
    with without_rights(shared / GROUP):
        assert store.read(GROUP, ["orders"]) == at("orders", 1)
        with pytest.raises(StoreRefusedError, match="Permission denied"):
            store.advance(GROUP, at("orders", 1), at("orders", 2))
    with without_rights(shared), pytest.raises(StoreRefusedError, match="Permission denied"):
        store.advance("new.group", {}, at("orders", 2))
    assert versions(shared) == [1]


def test_a_base_that_is_missing_is_refused(tmp_path: Path) -> None:
    store = store_at(tmp_path / "not-mounted")
    with pytest.raises(StoreRefusedError, match="is it mounted"):
        store.read(GROUP, ["orders"])
    with pytest.raises(StoreRefusedError):
        store.advance(GROUP, {}, at("orders", 1))
    assert os.listdir(tmp_path) == []


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / GROUP).write_text("")
    with pytest.raises(StoreRefusedError, match="Not a directory"):
        store_at(tmp_path).advance(GROUP, {}, at("orders", 1))


def test_an_address_leads_to_the_folder(tmp_path: Path) -> None:
    address = parse_store_address(f"files://{tmp_path}?keep=11")
    store = open_at(address, KafkaGroup(GROUP, topics=["orders"]))
    store.advance(GROUP, {}, at("orders", 5))
    assert store.name == str(address)
    assert (tmp_path / GROUP / file_name(1)).exists()
