"""One window's way, from `execute` to its commit, runs through the files that docs/how-it-works.md lists, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import airflow_kafka_offsets
from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.core.window import State
from tests.architecture.tracing import traced
from tests.lab.kafka import KafkaBroker
from tests.lab.topics import create_topic, produce
from tests.operators.test_large_windows import run_operator

ROOT = Path(airflow_kafka_offsets.__file__).parents[1]

JOB = """
import atexit, sys
from contextlib import ExitStack
sys.path.append({root!r})
from tests.architecture.tracing import traced

files, way = set(), ExitStack()
atexit.register(lambda: open({told!r}, "w").write("\\n".join(files)))  # at the very end of this process
atexit.register(way.close)
way.enter_context(traced(files))

from pyspark.sql import SparkSession
from airflow_kafka_offsets.spark import current_window

window = current_window(SparkSession.builder.getOrCreate())
window.write_parquet(window.read().select("topic", "value"), {lake!r})
"""


@pytest.mark.usefixtures("launch_jars")
def test_one_windows_way_runs_through_the_files_that_the_page_lists(
    kafka: KafkaBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(kafka, topic, 1)
    produce(kafka, topic, 10)
    job, told = tmp_path / "traced.py", tmp_path / "files"
    job.write_text(JOB.format(root=str(ROOT), told=str(told), lake=str(tmp_path / "lake")))
    files: set[str] = set()
    with traced(files):
        run_operator(kafka, [topic], tmp_path, monkeypatch, application=str(job))
    assert wiring.open_ledger().window("large-000001").window.state is State.COMMITTED
    files |= set(told.read_text().splitlines())
    page = (ROOT / "docs" / "how-it-works.md").read_text()
    section = page.partition("### The files on the way")[2].partition("\n## ")[0]
    listed = re.findall(r"`(\S+\.py)`", section)
    assert (files - {*listed}, {*listed} - files) == (set(), set()), "only on the way, only on the page"
    assert len(listed) == len(files)
    assert f"these {len(listed)} files" in section
