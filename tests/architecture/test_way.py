"""One window's way, from `execute` to its commit, runs through the files that docs/how-it-works.md names, and no others."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import airflow_kafka_offsets
from airflow_kafka_offsets import CommitWindowOperator, KafkaSparkSubmitOperator, PlanWindowOperator, wiring
from airflow_kafka_offsets.core.window import Claim, State
from tests.core.examples import claim, tp
from tests.service.world import World
from tests.task.airflow import context_of

PACKAGE = Path(airflow_kafka_offsets.__file__).parent
PAGE = PACKAGE.parent / "docs" / "how-it-works.md"


@contextmanager
def traced(files: set[str]) -> Iterator[None]:
    """Collect the files of this package whose functions are called in here. What an import runs is no function."""

    def note(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(str(PACKAGE)):
            files.add(str(Path(code.co_filename).relative_to(PACKAGE)))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def launched(world: World, folder: Path) -> None:
    """Let one task plan, launch and commit. Its spark-submit only succeeds."""
    program = folder / "spark-submit"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    arguments: dict[str, Any] = {"application": "local:///job.jar", "java_class": "Job", "spark_binary": str(program)}
    operator = KafkaSparkSubmitOperator(task_id="load", group=world.group, conn_id="spark", connector=None, **arguments)
    operator.execute(context_of(claim()))


def around(world: World, folder: Path) -> None:
    """Let one task plan, and another one commit what a foreign launcher has read."""
    planned = PlanWindowOperator(task_id="plan", group=world.group).execute(context_of(Claim("dag", "run", "plan")))
    CommitWindowOperator(task_id="commit", window=planned).execute(context_of(Claim("dag", "run", "commit")))


@pytest.mark.parametrize("way", [launched, around])
def test_one_windows_way_runs_through_the_files_that_the_page_names(
    way: Callable[[World, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", '{"conn_type": "kafka", "extra": {"bootstrap.servers": "b:9092"}}')
    world = World(tmp_path)
    world.kafka.produce(tp(0), 10)
    monkeypatch.setattr(wiring, "open_service", lambda _: world.service)
    monkeypatch.setattr(wiring, "open_service_for", lambda *_: world.service)
    files: set[str] = set()
    with traced(files):
        way(world, tmp_path)
    assert world.ledger.window("lake-000001").window.state is State.COMMITTED
    page = PAGE.read_text()
    assert sorted(file for file in files if f"`{file}`" not in page) == []
