"""The exchange in a folder of this machine, as Spark writes into it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from airflow_kafka_offsets.core.errors import BadInputError, ExchangeError
from airflow_kafka_offsets.wiring.storage import open_exchange


def report(folder: Path, name: str, *files: tuple[str, str]) -> None:
    """Write a report as Spark leaves it."""
    for file, text in files:
        path = folder / "reports" / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_what_is_put_there_can_be_read_there(tmp_path: Path) -> None:
    folder = tmp_path / "exchange" / "lake-000012" / "5ad0"
    open_exchange(f"file://{folder}").put("window.json", '{"é": 1}')
    assert (folder / "window.json").read_text(encoding="utf-8") == '{"é": 1}'


def test_reports_are_read_without_what_spark_writes_around_them(tmp_path: Path) -> None:
    report(tmp_path, "1-a", ("part-00000-x.txt", '{"a": 1}\n'), ("_SUCCESS", ""), (".part-00000-x.txt.crc", "crc"))
    report(tmp_path, "2-b", ("_SUCCESS", ""))
    under_way = ("_temporary/0/_temporary/attempt_1/part-00000-y.txt", '{"b": 2}\n')
    report(tmp_path, "3-c", under_way)
    reports = open_exchange(f"file://{tmp_path}/").reports("reports")
    assert reports == {"1-a": b'{"a": 1}\n', "2-b": b"", "3-c": b""}


def test_the_empty_file_that_hadoop_leaves_beside_a_folder_on_s3_is_no_report_of_its_own(tmp_path: Path) -> None:
    report(tmp_path, "1-a", ("part-00000-x.txt", '{"a": 1}\n'))
    (tmp_path / "reports" / "1-a_$folder$").write_text("")
    (tmp_path / "reports" / "2-b_$folder$").write_text("")
    reports = open_exchange(f"file://{tmp_path}/").reports("reports")
    assert reports == {"1-a": b'{"a": 1}\n', "2-b": b""}, (
        "a job that has only made its folder has not finished its report"
    )


def test_the_empty_object_that_hadoop_keeps_for_a_folder_on_s3_is_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryFileSystem()
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    exchange = open_exchange("memory://lake")

    def put(key: str, content: bytes = b"") -> None:
        storage.store[key] = MemoryFile(storage, key, content)  # like S3, and unlike its `pipe_file`, with any name

    put("/lake/reports/")
    assert exchange.reports("reports") == {}
    put("/lake/reports/1-a/")
    put("/lake/reports/1-a/part-00000-x.txt", b'{"a": 1}')
    put("/lake/reports/2-b/")
    assert exchange.reports("reports") == {"1-a": b'{"a": 1}', "2-b": b""}


def test_a_folder_in_which_no_job_has_reported_has_no_reports(tmp_path: Path) -> None:
    assert open_exchange(f"file://{tmp_path}/none").reports("reports") == {}


def test_a_place_that_can_not_be_written_is_an_error_with_its_address(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    address = f"file://{tmp_path}/file/below"
    with pytest.raises(ExchangeError, match=rf"can't write the exchange {address} .*errors\.md#exchangeerror"):
        open_exchange(address).put("window.json", "")


@pytest.mark.parametrize(
    ("address", "conn_id", "says"),
    [
        ("/mnt/lake", None, "must be the address of a folder"),
        ("s3://key:secret@lake/x", None, "exchange holds an @"),
        ("nosuchstorage://lake/x", None, "Nothing installed here reads nosuchstorage://"),
        (
            "memory://lake/x",
            "aws_default",
            r"No installed provider of Airflow reads memory://, so .*'aws_default' .*or remove exchange_conn_id",
        ),
    ],
)
def test_an_address_that_can_not_be_used_is_refused_and_no_login_is_shown(
    address: str, conn_id: str | None, says: str
) -> None:
    with pytest.raises(BadInputError, match=says) as caught:
        open_exchange(address, conn_id)
    assert "secret" not in str(caught.value)
