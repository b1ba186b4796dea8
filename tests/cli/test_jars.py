"""``kafka-offsets jars``: the connector ahead of time."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_kafka_offsets.cli import main
from airflow_kafka_offsets.spark.connector import connector_package, folder_name
from tests.cli.conftest import Done, in_a_process
from tests.cli.test_definition import keys_in_page
from tests.lab.java import pyspark_home


def jars(capsys: pytest.CaptureFixture[str], *arguments: str) -> Done:
    with pytest.raises(SystemExit) as ended:
        main(["jars", *arguments])
    out, err = capsys.readouterr()
    return Done(int(ended.value.code or 0), out, err)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a Spark; it is on PATH."""
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    (home / "bin").mkdir()
    (home / "jars" / "spark-core_2.12-3.5.6.jar").touch()
    (home / "bin" / "spark-submit").touch(mode=0o755)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{home}/bin")
    return home


def keep(folder: Path, name: str = "spark-sql-kafka-0-10_2.12-3.5.6") -> Path:
    """Put jars of a connector for that Spark below a folder."""
    kept = folder / "jars" / name
    kept.mkdir(parents=True)
    (kept / "connector.jar").write_bytes(b"abc")
    return kept


def test_jars_that_are_there_are_shown_and_not_fetched(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keep(tmp_path / "cache")
    monkeypatch.setenv("AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER", str(tmp_path / "cache"))
    package = "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.6"
    done = jars(capsys)
    assert (done.code, done.out) == (0, f"Already there: {package}, 1 jar in {kept}\nconnector.jar\n")
    document: dict[str, Any] = jars(capsys, "-o", "json").json
    assert document == {
        "spark_home": str(home),
        "spark_version": "3.5.6",
        "coordinates": package,
        "in_spark": False,
        "fetched": False,
        "folder": str(kept),
        "jars": ["connector.jar"],
    }
    assert document.keys() == keys_in_page("jars")


def test_sparks_avro_is_fetched_by_the_same_command(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = keep(tmp_path / "cache", "spark-avro_2.12-3.5.6")
    document = jars(capsys, "--avro", "--to", f"{tmp_path}/cache", "-o", "json").json
    assert document["coordinates"] == "org.apache.spark:spark-avro_2.12:3.5.6"
    assert (document["folder"], document["fetched"]) == (str(kept), False)
    (home / "bin" / "spark-submit").write_text("#!/bin/sh\nexit 7\n")
    done = jars(capsys, "--avro", "--to", f"{tmp_path}/empty")
    assert done.code == 3
    assert "org.apache.spark:spark-avro_2.12:3.5.6 could not be fetched into" in done.err
    assert f"kafka-offsets jars --spark-home {home} --avro" in done.err
    (home / "jars" / "spark-avro_2.12-3.5.6.jar").touch()
    assert jars(capsys, "--avro").out == f"Spark 3.5.6 in {home} has its Avro.\n"


def test_the_jars_are_for_the_scala_of_the_spark(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "jars" / "spark-core_2.12-3.5.6.jar").rename(home / "jars" / "spark-core_2.13-3.5.6.jar")
    for artifact, options in (("spark-sql-kafka-0-10", []), ("spark-avro", ["--avro"])):
        kept = keep(tmp_path / "cache", f"{artifact}_2.13-3.5.6")
        document = jars(capsys, *options, "--to", f"{tmp_path}/cache", "-o", "json").json
        assert document["coordinates"] == f"org.apache.spark:{artifact}_2.13:3.5.6"
        assert document["folder"] == str(kept)


def test_another_spark_and_another_folder(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = keep(tmp_path / "image")
    home.rename(tmp_path / "moved")
    done = jars(capsys, "--spark-home", f"{tmp_path}/moved", "--to", f"{tmp_path}/image", "-o", "json")
    assert (done.json["spark_home"], done.json["folder"]) == (f"{tmp_path}/moved", str(kept))


def test_a_spark_that_has_the_connector_needs_nothing(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "jars" / "spark-sql-kafka-0-10_2.12-3.5.6.jar").touch()
    done = jars(capsys, "--to", str(tmp_path / "to"))
    assert (done.code, done.out) == (0, f"Spark 3.5.6 in {home} has its Kafka connector.\n")
    assert jars(capsys, "-o", "json").json["in_spark"] is True
    assert not (tmp_path / "to").exists()


def test_without_a_spark_the_sentence_says_how_to_name_it(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "jars" / "spark-core_2.12-3.5.6.jar").unlink()
    done = jars(capsys)
    assert done.code == 2
    assert done.err.endswith("Name it with --spark-home\n")
    done = jars(capsys, "--spark-home", str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert done.err == f"{tmp_path} is no home of Spark: it has no jars/spark-core_*.jar\n"
    for argument in ("--spark-home", "--to"):
        refused = jars(capsys, argument, "~no-such-user/spark")
        assert (refused.code, refused.out) == (2, "")
        assert "begins with ~, and there is no such user" in refused.err
    assert not list(Path.cwd().glob("~*"))


def test_a_spark_that_can_not_fetch_is_exit_code_3(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "bin" / "spark-submit").write_text("#!/bin/sh\necho 'no route to the repository'\nexit 7\n")
    done = jars(capsys, "--to", str(tmp_path / "to"))
    assert (done.code, done.out) == (3, "")
    assert "spark-submit ended with exit code 7. Fetch it" in done.err
    assert done.err.endswith("\nno route to the repository\n")


def test_where_to_look_is_told_to_spark_and_stands_in_the_command_that_tries_again(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "bin" / "spark-submit").write_text('#!/bin/sh\necho "told: $*"\nexit 7\n')
    done = jars(capsys, "--to", str(tmp_path / "to"), "--submit-args", "--repositories https://me:hunter2@mirror/x")
    assert done.code == 3
    assert (
        f"\n  kafka-offsets jars --spark-home {home} --submit-args '--repositories https://***@mirror/x'\n" in done.err
    )
    assert "told: --master local[1] --deploy-mode client --repositories https://***@mirror/x --packages" in done.err
    assert "hunter2" not in done.err[done.err.index("org.apache.spark:") :]
    done = jars(capsys, "--submit-args", "it's")
    assert (done.code, done.err) == (
        2,
        '--submit-args "it\'s": No closing quotation\n',
    )


def test_it_fetches_what_launches_need_and_finds_it_again(launch_jars: Path, tmp_path: Path) -> None:
    """The fixture fetched them, with this command, from the real repositories."""
    program = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = in_a_process("jars", "--to", str(launch_jars), "-o", "json", environment=program)
    assert (done.code, done.err) == (0, "")
    answer = json.loads(done.out)
    assert (answer["spark_home"], answer["fetched"]) == (str(pyspark_home()), False)
    folder = launch_jars / "jars" / folder_name(connector_package())
    assert answer["folder"] == str(folder)
    assert {jar.name for jar in folder.glob("*.jar")} == set(answer["jars"])
    assert any("kafka-clients" in jar for jar in answer["jars"])
