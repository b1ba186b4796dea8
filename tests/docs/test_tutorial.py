"""docs/tutorial.md is typed as it stands: on a real Kafka, with a real Airflow and Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_docs import ROOT, blocks
from tests.lab.airflow import empty_metadata
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import LOOPBACK

TUTORIAL = ROOT / "docs" / "tutorial.md"
NOT_HERE = ("python3 -m venv", ". .venv/", "pip install", "airflow db migrate", "docker ", "deactivate")
"""The commands that install, make and start what is here already."""


def typed(block: str, replaced: dict[str, str]) -> str:
    """Return what a reader types of a block, with the places of this test in it."""
    for before, after in replaced.items():
        block = block.replace(before, after)
    return "".join(line for line in block.splitlines(keepends=True) if not line.startswith(NOT_HERE))


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[KafkaBroker]:
    """Run a broker of this test alone: others have a topic `orders`, too."""
    with KafkaBroker(tmp_path / "kafka") as broker:
        yield broker


@pytest.mark.server
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.usefixtures("folder_for_launches")
def test_each_command_works_and_says_what_the_page_shows(own_kafka: KafkaBroker, tmp_path: Path) -> None:
    home = tmp_path / "tutorial" / "airflow"
    home.mkdir(parents=True)
    shutil.copyfile(empty_metadata(), home / "airflow.db")
    replaced = {
        "localhost:9092": own_kafka.bootstrap_servers,
        "/tmp/lake": str(tmp_path / "lake"),
        "mkdir tutorial": "mkdir -p tutorial",
    }
    *commands, clean_up = blocks(TUTORIAL, "sh")
    script = "set -euo pipefail\n" + "".join(typed(block, replaced) for block in commands)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={
            **{name: value for name, value in os.environ.items() if name not in ("AIRFLOW_HOME", "PYTHONPATH")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SPARK_LOCAL_IP": LOOPBACK,
            "NO_COLOR": "1",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    assert "900 offsets in 3 partitions" in done.stdout
    shown = blocks(TUTORIAL, "")
    assert len(shown) == 3
    # Airflow writes the time before a message, and the logger's name after its last line.
    said = re.sub(r"^.*?(?=Window lake\.orders-\d+: committed)", "", done.stdout, flags=re.MULTILINE)
    for block in shown:
        assert block.rstrip() in said, done.stdout[-8000:]
    folders = sorted(path.name for path in (tmp_path / "lake" / "orders").glob("window_id=*"))
    assert folders == ["window_id=lake.orders-000001", "window_id=lake.orders-000002"]
    cleaned = subprocess.run(
        ["bash", "-ec", typed(clean_up, replaced)],
        cwd=tmp_path / "tutorial",
        capture_output=True,
        text=True,
        check=False,
    )
    assert cleaned.returncode == 0, cleaned.stderr
    assert not home.exists()
    assert not (tmp_path / "lake" / "orders").exists()


def test_the_readme_begins_with_the_dag_of_the_tutorial() -> None:
    dag = blocks(ROOT / "README.md", "python")[0].removeprefix("# dags/orders.py\n")
    assert dag in TUTORIAL.read_text()
    assert len([line for line in dag.splitlines() if line]) <= 10
