"""The archives of classes that the lab's servers start from."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

from tests.lab import archives, cache, start
from tests.lab.archives import archive_options, make_archive
from tests.lab.java import pyspark_home
from tests.lab.kafka import KafkaBroker, make_kafka_archive

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.server


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the lab keep what it makes in an empty folder."""
    for module in (archives, cache):
        monkeypatch.setattr(module, "CACHE", tmp_path)
    return tmp_path


def test_a_broker_starts_from_its_archive(tmp_path: Path) -> None:
    archive = make_kafka_archive()
    program, *rest = KafkaBroker(tmp_path)._java("kafka.tools.StorageTool", "random-uuid")
    assert f"-XX:SharedArchiveFile={archive}" in rest
    # With this option, a JVM that can't use it does not start.
    subprocess.run([program, "-Xshare:on", *rest], capture_output=True, check=True)


def test_an_environment_takes_no_archive_where_its_files_can_not_have_a_second_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def of_another_disk(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    for module in (cache, start):
        monkeypatch.setattr(module, "CACHE", tmp_path)
    monkeypatch.setattr(os, "link", of_another_disk)
    assert start._home_of_same_files() is None
    assert start.home_of_drivers() == pyspark_home()
    assert list(tmp_path.glob("homes/*")) == []


def test_drivers_find_pyspark_compiled_and_the_installed_one_stays_as_it_is() -> None:
    installed = pyspark_home() / "python" / "lib" / "pyspark.zip"
    before = installed.stat()
    compiled = start.home_of_drivers() / "python" / "lib" / "pyspark.zip"
    first = compiled.stat().st_mtime_ns
    path = [str(compiled), *map(str, compiled.parent.glob("py4j-*.zip"))]
    code = f"import sys; sys.path[:0] = {path}; import pyspark.sql; print(pyspark.sql.__file__)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert said == f"{compiled}/pyspark/sql/__init__.pyc"
    assert start.home_of_drivers() == compiled.parents[2]
    assert compiled.stat().st_mtime_ns == first
    assert (installed.stat().st_ino, installed.stat().st_size) == (before.st_ino, before.st_size)
    assert "pyspark/__init__.pyc" not in ZipFile(installed).namelist()


@pytest.mark.parametrize("written", [None, b"", b"no archive"])
def test_a_run_that_was_cut_off_leaves_no_archive(empty_cache: Path, written: bytes | None) -> None:
    def run(options: Sequence[str], folder: Path) -> None:
        if written is not None:
            (folder / "draft.jsa").write_bytes(written)

    classes = "any.jar"
    assert make_archive(classes, run) is None
    assert archive_options(classes) == []
    assert not (empty_cache / "archives").exists()
