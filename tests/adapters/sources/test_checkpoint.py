"""Checkpoint directories on a disk and behind fsspec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from airflow_kafka_offsets.adapters.sources.checkpoint import CheckpointDirectory
from airflow_kafka_offsets.core.errors import BadInputError, StoreRefusedError, StoreUnavailableError
from airflow_kafka_offsets.core.source.offsets import CheckpointAddress
from airflow_kafka_offsets.wiring import storage
from tests.core.examples import tp
from tests.lab.processes import LOOPBACK, free_port


def fill(directory: Any, batches: int = 3, committed: int = 2) -> None:
    """Write a query's logs: batch n ends at offset 10 * n."""
    for folder, count in (("offsets", batches), ("commits", committed)):
        (directory / folder).mkdir(parents=True)
        for n in range(count):
            (directory / folder / str(n)).write_text(f'v1\n{{}}\n{{"orders":{{"0":{10 * n}}}}}')
            (directory / folder / f".{n}.crc").write_bytes(b"crc\x00\xff")


def read(directory: Any) -> CheckpointDirectory:
    return CheckpointDirectory(directory, f"checkpoint:{directory}")


def test_a_local_directory(tmp_path: Path) -> None:
    fill(tmp_path)
    source = storage.open_checkpoint(CheckpointAddress(str(tmp_path))).read()
    assert source.offsets == {tp(0): 10}
    assert source.notes[0].startswith("batch 2 was planned but not committed")


def test_a_url() -> None:
    fill(UPath("memory://ckpt-of-a-test"))
    assert storage.open_checkpoint(CheckpointAddress("memory://ckpt-of-a-test")).read().offsets == {tp(0): 10}
    with pytest.raises(BadInputError, match="memory://nowhere-at-all has no commits"):
        storage.open_checkpoint(CheckpointAddress("memory://nowhere-at-all")).read()


def test_a_server_that_does_not_answer_is_no_directory_that_is_not_there() -> None:
    source = CheckpointAddress(f"webhdfs://{LOOPBACK}:{free_port()}/checkpoint")
    with pytest.raises(StoreUnavailableError, match="commits can't be read"):
        storage.open_checkpoint(source).read()


def test_a_file_url(tmp_path: Path) -> None:
    fill(tmp_path)
    assert storage.open_checkpoint(CheckpointAddress(f"file://{tmp_path}")).read().offsets == {tp(0): 10}


@pytest.mark.parametrize("what", ["offsets", "commits"])
def test_a_directory_that_is_none(tmp_path: Path, what: str) -> None:
    fill(tmp_path)
    (tmp_path / what).rename(tmp_path / "elsewhere")
    with pytest.raises(BadInputError, match=f"has no {what}: name the checkpointLocation"):
        read(tmp_path).read()
    (tmp_path / what).write_text("a file")
    with pytest.raises(BadInputError, match=f"has no {what}"):
        read(tmp_path).read()


def test_a_commit_that_was_cut_off_is_no_commit(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "commits" / "1").write_text("")
    with pytest.raises(BadInputError, match="commits/1 is empty"):
        read(tmp_path).read()


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "offsets" / "1").write_bytes(b"v1\n\xff\xfe")
    with pytest.raises(BadInputError, match="offsets/1 is not UTF-8"):
        read(tmp_path).read()


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (PermissionError("denied"), StoreRefusedError),
        (OSError("no route to host"), StoreUnavailableError),
        (RuntimeError("of a client that we don't know"), StoreUnavailableError),
        (ImportError("Install s3fs"), BadInputError),
    ],
)
def test_errors_of_whatever_client_are_told_in_our_words(raised: Exception, expected: type[Exception]) -> None:
    class Broken:
        def __truediv__(self, _: str) -> Broken:
            return self

        def iterdir(self) -> None:
            raise raised

    with pytest.raises(expected, match=str(raised)) as caught:
        CheckpointDirectory(Broken(), "checkpoint:x").read()
    assert caught.value.__cause__ is raised


def test_a_query_that_runs_on_meanwhile_is_read_as_it_was(tmp_path: Path) -> None:
    fill(tmp_path)

    class Running:
        """A directory in which the next batch is done as soon as one of its logs was listed."""

        def __truediv__(self, folder: str) -> Any:
            return Listed(tmp_path / folder)

    class Listed:
        def __init__(self, folder: Path) -> None:
            self.folder = folder

        def __truediv__(self, batch: str) -> Path:
            return self.folder / batch

        def iterdir(self) -> list[Path]:
            listed = list(self.folder.iterdir())
            for folder in ("offsets", "commits"):
                (tmp_path / folder / "3").write_text('v1\n{}\n{"orders":{"0":99}}')
            return listed

    assert CheckpointDirectory(Running(), "checkpoint:x").read().offsets == {tp(0): 10}
