"""Where Spark is, on real folders and with PySpark's own scripts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from airflow_kafka_offsets.adapters.machine import submit
from airflow_kafka_offsets.adapters.machine.spark_home import find_home, home_of_pyspark, jar_names, spark_at
from tests.lab.java import pyspark_home

PROGRAMS = Path(sys.executable).parent
CORE = "spark-core_2.13-4.0.0.jar"


@pytest.fixture
def distribution(tmp_path: Path) -> Path:
    """Spark as its archive is unpacked."""
    home = tmp_path / "spark-4.0.0-bin-hadoop3"
    for folder in ("bin", "jars", "conf"):
        (home / folder).mkdir(parents=True)
    (home / "bin" / "spark-submit").touch(mode=0o755)
    (home / "jars" / CORE).touch()
    return home


def test_a_long_time_limit_is_named_in_full(
    distribution: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (distribution / "bin" / "spark-submit").write_text("#!/bin/sh\n")
    monkeypatch.setattr(submit, "_wait", lambda process, seconds: process.kill())
    assert submit.run_submit(distribution, [], tmp_path, {}, 1200) == ("spark-submit was stopped after 1200.0 s", "")


def test_spark_home_counts_before_all_as_it_does_to_spark() -> None:
    assert find_home("spark-submit", {"SPARK_HOME": "/opt/spark", "PATH": str(PROGRAMS)}) == Path("/opt/spark")
    assert home_of_pyspark({"SPARK_HOME": "/opt/spark"}) == Path("/opt/spark")


def test_the_spark_submit_of_pip_leads_to_the_package() -> None:
    environment = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    assert find_home("spark-submit", environment) == home_of_pyspark({}) == pyspark_home()


def test_pips_spark_submit_on_a_python_without_pyspark_leads_nowhere(tmp_path: Path) -> None:
    os.symlink("/bin/false", tmp_path / "python")
    environment = {"PATH": str(PROGRAMS), "PYSPARK_DRIVER_PYTHON": str(tmp_path / "python")}
    assert find_home("spark-submit", environment) is None


@pytest.fixture
def of_pip(tmp_path: Path) -> Path:
    """PySpark's scripts as pip puts them, of which the one that finds Spark notes each time that it is asked: in `asked`."""
    (tmp_path / "spark-submit").touch(mode=0o755)
    noted = f"open({str(tmp_path / 'asked')!r}, 'a').write('x')"
    (tmp_path / "find_spark_home.py").write_text(f"{noted}\nprint('/opt/spark')\n")
    return tmp_path


def test_pips_script_is_asked_once_for_each_environment_of_a_python(of_pip: Path) -> None:
    environment = {"PATH": f"{of_pip}:{os.environ['PATH']}"}
    for other in ({}, {}, {"SPARK_SUBMIT_OPTS": "-Dx=1"}):
        assert find_home("spark-submit", {**environment, **other}) == Path("/opt/spark")
    assert (of_pip / "asked").read_text() == "x"
    assert find_home("spark-submit", {**environment, "SPARK_HOME": "/other"}) == Path("/other")
    assert (of_pip / "asked").read_text() == "x"
    for _ in range(2):
        assert find_home("spark-submit", {**environment, "PYSPARK_PYTHON": sys.executable}) == Path("/opt/spark")
    assert (of_pip / "asked").read_text() == "xx"


def test_pips_script_that_found_nothing_is_asked_again(of_pip: Path) -> None:
    environment = {"PATH": f"{of_pip}:{os.environ['PATH']}"}
    script = of_pip / "find_spark_home.py"
    good = script.read_text()
    script.write_text("raise SystemExit(1)")
    assert find_home("spark-submit", environment) is None
    script.write_text(good)
    assert find_home("spark-submit", environment) == Path("/opt/spark")


def test_a_binary_in_an_unpacked_spark_leads_to_its_folder(distribution: Path, tmp_path: Path) -> None:
    assert find_home("spark-submit", {"PATH": str(distribution / "bin")}) == distribution
    links = tmp_path / "links"
    links.mkdir()
    (links / "spark3-submit").symlink_to(distribution / "bin" / "spark-submit")
    assert find_home("spark3-submit", {"PATH": str(links)}) == distribution


def test_a_script_that_lies_elsewhere_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-submit").touch(mode=0o755)
    assert find_home("spark-submit", {"PATH": str(tmp_path / "bin")}) is None
    assert find_home("spark2-submit", {"PATH": str(tmp_path / "bin")}) is None


def test_the_names_of_sparks_jars(distribution: Path, tmp_path: Path) -> None:
    (distribution / "jars" / "README").touch()
    assert jar_names(distribution) == [CORE]
    assert jar_names(tmp_path) == []
    assert f"spark-core_2.13-{_version()}.jar" in jar_names(pyspark_home())


def test_the_properties_are_those_that_spark_submit_reads(distribution: Path, tmp_path: Path) -> None:
    spark = spark_at(distribution, {})
    assert spark is not None
    assert spark.properties() == {}
    (distribution / "conf" / "spark-defaults.conf").write_text("# ours\nspark.jars   /a.jar,/b.jar  \n")
    assert spark.properties() == {"spark.jars": "/a.jar,/b.jar"}
    (tmp_path / "spark-defaults.conf").write_text("spark.jars=/c.jar")
    elsewhere = spark_at(distribution, {"SPARK_CONF_DIR": str(tmp_path)})
    assert elsewhere is not None
    assert elsewhere.properties() == {"spark.jars": "/c.jar"}
    (tmp_path / "mine").write_text("spark.ui.enabled false")
    assert spark.properties(str(tmp_path / "mine")) == {"spark.ui.enabled": "false"}


def _version() -> str:
    from importlib.metadata import version

    return version("pyspark")
