"""Which version of a DAG's bundle a try sees: see `tests.task.runs_of_a_bundle`, which asks a real Airflow."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.airflow import empty_metadata, plain_environment
from tests.lab.bundle import FolderBundle
from tests.lab.sharing import ROOT


@pytest.mark.slow
def test_a_clear_keeps_the_version_of_its_run_unless_it_is_told_to_run_the_newest(tmp_path: Path) -> None:
    shutil.copyfile(empty_metadata(), tmp_path / "airflow.db")
    classpath = f"{FolderBundle.__module__}.{FolderBundle.__name__}"
    bundles = [{"name": "versioned", "classpath": classpath, "kwargs": {"path": str(tmp_path / "bundle")}}]
    environment = {
        **plain_environment(tmp_path),
        "PYTHONPATH": str(ROOT),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
    }
    command = [sys.executable, "-m", "tests.task.runs_of_a_bundle", str(tmp_path / "bundle")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "first": "v1",
        "cleared": "v1",
        "cleared with the newest": "v2",
        "next run": "v2",
    }
