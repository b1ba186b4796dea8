"""The job side as it travels: a zip that needs nothing but Python 3.8 and pyspark."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import airflow_kafka_offsets
from airflow_kafka_offsets.spark.shipping import write_zip

ROOT = Path(airflow_kafka_offsets.__file__).parents[1]
SOURCES = sorted(ROOT.glob("airflow_kafka_offsets/spark/**/*.py"))


def test_the_zip_holds_the_job_side_and_nothing_else(tmp_path: Path) -> None:
    assert ZipFile(write_zip(tmp_path)).namelist() == [
        "airflow_kafka_offsets/__init__.py",
        *(source.relative_to(ROOT).as_posix() for source in SOURCES),
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["airflow_kafka_offsets_spark.zip"]


def test_equal_sources_give_equal_bytes(tmp_path: Path) -> None:
    first = write_zip(tmp_path).read_bytes()
    assert write_zip(tmp_path).read_bytes() == first


def test_it_is_imported_from_the_zip_with_the_standard_library_alone(tmp_path: Path) -> None:
    code = "import airflow_kafka_offsets.spark.shipping as s, airflow_kafka_offsets.spark.connector, sys; print(s.__file__)"
    # -S: no site-packages, so neither pyspark nor anything else.
    command = [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(write_zip(tmp_path))!r}); {code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))


def test_the_job_side_imports_nothing_else_of_ours() -> None:
    for source in [Path(airflow_kafka_offsets.__file__), *SOURCES]:
        tree = ast.parse(source.read_text())
        imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        imported += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        for name in imported:
            assert name.startswith("airflow_kafka_offsets.spark") or name.split(".")[0] in {
                *sys.stdlib_module_names,
                "pyspark",
            }, f"{source.name} imports {name}"


def test_the_job_side_asks_python_38_for_nothing_that_it_lacks(tmp_path: Path) -> None:
    vermin = [sys.executable, "-c", "from vermin import main; main()", "--target=3.8-", "--violations", "--no-tips"]
    shipped = [airflow_kafka_offsets.__file__, *SOURCES]
    done = subprocess.run([*vermin, *shipped], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    newer = tmp_path / "newer.py"
    newer.write_text("from datetime import UTC\n")
    assert subprocess.run([*vermin, newer], capture_output=True, check=False).returncode == 1, "it looks at nothing"
