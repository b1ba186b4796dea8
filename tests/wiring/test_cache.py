"""The cache folder: where it is, and who may look into it."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.wiring import SECTION
from airflow_kafka_offsets.wiring.machine.cache import OPTION, cache_folder, chosen_folder

_SETTING = "AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER"


def _mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_the_folder_of_the_configuration_is_made_for_its_user_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(_SETTING, str(tmp_path / "some" / "folder"))
    assert cache_folder() == tmp_path / "some" / "folder"
    assert _mode(tmp_path / "some" / "folder") == 0o700
    assert not list(cache_folder().iterdir())


def test_a_folder_that_is_there_keeps_its_mode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(_SETTING, str(tmp_path))
    tmp_path.chmod(0o755)
    assert _mode(cache_folder()) == 0o755


def test_without_a_setting_it_is_in_the_users_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert chosen_folder(None) == chosen_folder("") == tmp_path / ".cache" / "airflow_kafka_offsets"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/tmp/mine")
    assert chosen_folder(None) == Path("/var/tmp/mine/airflow_kafka_offsets")
    monkeypatch.setenv("XDG_CACHE_HOME", "mine")
    assert chosen_folder(None) == tmp_path / ".cache" / "airflow_kafka_offsets"


def test_the_setting_may_name_the_home_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/airflow")
    monkeypatch.setenv("HOST", "worker-1")
    assert chosen_folder("~/caches/$HOST") == Path("/home/airflow/caches/worker-1")


def test_a_relative_folder_is_refused() -> None:
    with pytest.raises(
        BadInputError, match=r"^\[kafka_offsets\] cache_folder must be an absolute path, not 'here/cache'"
    ):
        chosen_folder("here/cache")


def test_a_folder_that_cant_be_made_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(_SETTING, str(tmp_path / "file" / "cache"))
    with pytest.raises(
        BadInputError, match=re.escape(f"{tmp_path}/file/cache can't be made (Not a directory)")
    ) as caught:
        cache_folder()
    assert f"[{SECTION}] {OPTION}" in str(caught.value)
