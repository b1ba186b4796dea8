"""docs/tutorial.md is typed as it stands: on a real Kafka, with a real Airflow and Spark."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.docs.test_docs import ROOT, blocks
from tests.lab.airflow import empty_metadata, plain_environment
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import LOOPBACK
from tests.lab.waiting import LONGEST, wait_until
from tests.release.contents import DISTRIBUTION, typed_requirements
from tests.release.inside import OF_TUTORIAL
from tests.release.test_contents import PYPROJECT

TUTORIAL = ROOT / "docs" / "tutorial.md"
NOT_HERE = ("python3 -m venv", ". .venv/", "pip install", "airflow db migrate", "docker ", "deactivate")
"""The commands that install, make and start what is here already."""


def typed(block: str, replaced: dict[str, str]) -> str:
    """Return what a reader types of a block, with the places of this test in it."""
    for before, after in replaced.items():
        block = block.replace(before, after)
    return "".join(line for line in block.splitlines(keepends=True) if not line.startswith(NOT_HERE))


def said_by(script: str, folder: Path, timeout: float, environment: dict[str, str]) -> str:
    """Let a shell run a script to its end, and return what all of it said; what is left then of what it started is killed.

    Args:
        script: what is typed.
        folder: where.
        timeout: seconds after which it is killed.
        environment: its variables.
    """
    said = folder / "said.txt"
    with said.open("w") as out:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(TimeoutError):
                wait_until(lambda: shell.poll() is not None, what="the script ends", seconds=timeout)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
    assert shell.returncode == 0, f"{shell.returncode}: {said.read_text()[-8000:]}"
    return said.read_text()


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[KafkaBroker]:
    """Run a broker of this test alone: others have a topic `orders`, too."""
    with KafkaBroker(tmp_path / "kafka") as broker:
        yield broker


def is_at_work(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


@pytest.mark.slow
def test_a_script_that_does_not_end_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    script = "echo began; sleep 1000 & echo $! > child; wait"
    with pytest.raises(AssertionError, match="-9: began"):
        said_by(script, tmp_path, timeout=2, environment=dict(os.environ))
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not is_at_work(child), what="its child is gone")


@pytest.mark.server
@pytest.mark.kafka
@pytest.mark.spark
def test_each_command_works_and_says_what_the_page_shows(
    own_kafka: KafkaBroker, tmp_path: Path, folder_for_launches: Path
) -> None:
    home = tmp_path / "tutorial" / "airflow"
    home.mkdir(parents=True)
    shutil.copyfile(empty_metadata(), home / "airflow.db")
    replaced = {
        "localhost:9092": own_kafka.bootstrap_servers,
        "/tmp/lake": str(tmp_path / "lake"),
        "mkdir tutorial": "mkdir -p tutorial",
    }
    *commands, clean_up = blocks(TUTORIAL, "sh")
    environment = {
        # Those of whoever runs the tests name other ledgers, homes and settings.
        **{name: value for name, value in plain_environment(home).items() if not name.startswith("KAFKA_OFFSETS_")},
        "AIRFLOW__KAFKA_OFFSETS__CACHE_FOLDER": str(folder_for_launches),
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": LOOPBACK,
    }
    said = said_by("".join(typed(block, replaced) for block in commands), tmp_path, LONGEST, environment)
    assert "900 offsets in 3 partitions" in said
    shown = blocks(TUTORIAL, "")
    assert len(shown) == 3
    # Airflow writes the time before a message, and the logger's name after its last line.
    plain = re.sub(r"^.*?(?=Window lake\.orders-\d+: committed)", "", said, flags=re.MULTILINE)
    for block in shown:
        assert block.rstrip() in plain, said[-8000:]
    folders = sorted(path.name for path in (tmp_path / "lake" / "orders").glob("window_id=*"))
    assert folders == ["window_id=lake.orders-000001", "window_id=lake.orders-000002"]
    said_by(f"cd tutorial\n{typed(clean_up, replaced)}", tmp_path, 60, environment)
    assert not home.exists()
    assert not (tmp_path / "lake" / "orders").exists()


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md", "docs/tutorial.md"])
def test_what_a_reader_installs_first_is_what_make_dist_tries(page: str) -> None:
    [requirement] = typed_requirements((ROOT / page).read_text())
    name, _, extra = requirement.rstrip("]").partition("[")
    assert name == PYPROJECT["project"]["name"] == DISTRIBUTION
    brought = {re.match(r"[\w-]+", required)[0] for required in PYPROJECT["project"]["optional-dependencies"][extra]}  # type: ignore[index]
    assert not OF_TUTORIAL - brought, "the job of the page runs in the task"
    assert [requirement] == typed_requirements(TUTORIAL.read_text()), "that of the tutorial is tried"


def test_the_readme_begins_with_the_dag_of_the_tutorial() -> None:
    dag = blocks(ROOT / "README.md", "python")[0].removeprefix("# dags/orders.py\n")
    assert dag in TUTORIAL.read_text()
    assert len([line for line in dag.splitlines() if line]) <= 10
