"""Every kind of run, and what people and Airflow do to it, at every state of its window: always the same window, once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from airflow_kafka_offsets import KafkaGroup
from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.window import Claim, Lane, Scope, State
from airflow_kafka_offsets.service.windows import WindowService
from tests.acceptance.conftest import Lab, expect_once
from tests.acceptance.matrix import ACTIONS, DAY, PARTITIONS, TOPIC, Cell, cells, stop_commit_half_way, table
from tests.lab.airflow_api import UnexpectedStateError
from tests.lab.topics import create_topic, produce

# First what waits longest: until Airflow has noticed that a backfill is over.
CELLS = sorted(cells(), key=lambda cell: cell.action != "reprocess")
RECORDS = 10
AT_ONCE = 12
"""Cells that are under way at one moment. Most of them wait: for a retry, the scheduler, or Airflow to notice an end."""


@pytest.fixture(scope="module")
def runs(lab: Lab) -> Iterator[dict[Cell, Future[str]]]:
    """Let every cell take its course, some at a time; each tells its own test of its run, or of its failure."""
    create_topic(lab.kafka, TOPIC, PARTITIONS, {"retention.ms": "-1"})
    for partition in range(PARTITIONS):
        produce(lab.kafka, TOPIC, RECORDS, partition=partition, timestamp_ms=int(DAY.timestamp() * 1000) + 1)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {cell: pool.submit(take_course, lab, cell) for cell in CELLS}
        pool.shutdown(cancel_futures=True)


def take_course(lab: Lab, cell: Cell) -> str:
    """Bring the cell's run to its stage, do to it what the cell says, wait for the end, and return the run."""
    told = lab.folder / "matrix" / f"{cell.dag_id}.{'held' if cell.is_held else cell.stage}"
    if cell.is_held or cell.fails_first:
        told.touch()
    try:
        if cell.kind == "backfill":
            own_nothing_but_a_watermark(lab, cell)
        run = start(lab, cell)
        bring_to_stage(lab, cell, run)
        act(lab, cell, run)
        lab.api.wait_for_task(cell.dag_id, run, "load", "success", try_number=2)
        lab.api.wait_for_run(cell.dag_id, run, "success")
        return run
    except BaseException:
        # What fails must not hold a slot of the executor, which the others wait for.
        told.unlink(missing_ok=True)
        (lab.folder / "matrix" / f"{cell.dag_id}.let-go").touch()
        lab.api.pause(cell.dag_id)
        raise


def own_nothing_but_a_watermark(lab: Lab, cell: Cell) -> None:
    """Let a group begin at the end of the log, as one that was started live and later than its topic."""
    service = WindowService(lab.ledger, KafkaLog(lab.kafka.client_config(), 240))
    group = KafkaGroup(cell.dag_id, topics=[TOPIC], starting_offsets="latest")
    claim = Claim(cell.dag_id, "before", "load", scope=Scope.RUN)
    [planned] = service.plan(group, claim, lambda _: True)
    service.commit(planned.window.id, claim)


def start(lab: Lab, cell: Cell) -> str:
    """Start the cell's run, and return its id."""
    lab.api.unpause(cell.dag_id)
    if cell.kind == "manual":
        return lab.api.trigger(cell.dag_id, logical_date=DAY)
    if cell.kind == "asset-triggered":
        lab.api.create_asset_event(cell.dag_id)
    if cell.kind == "backfill":
        lab.api.backfill(cell.dag_id, DAY, DAY)
    return str(lab.api.wait_for_first_run(cell.dag_id)["dag_run_id"])


def bring_to_stage(lab: Lab, cell: Cell, run: str) -> None:
    """Wait until the first try is over, or in the middle of its job, and see to it that the window is as the cell says."""
    if cell.action == "retry":  # Airflow does it, and does not wait
        return
    if cell.is_held:
        reached = lab.folder / "matrix" / f"{cell.dag_id}.reached"
        lab.api.watch(cell.dag_id).wait_until(reached.exists, what=f"{cell.dag_id} is in the middle of its job")
    else:
        # What is cleared in the moment in which the scheduler ends its run is not run again.
        lab.api.wait_for_run(cell.dag_id, run, "success")
        lab.api.wait_for_task(cell.dag_id, run, "load", "failed" if cell.fails_first else "success")
    if cell.stage == "committing":
        assert state_of(lab, cell) is State.COMMITTED
        stop_commit_half_way(lab.ledger._engine, cell.dag_id)
    assert state_of(lab, cell).value == cell.stage


def state_of(lab: Lab, cell: Cell) -> State:
    """Return the state of the cell's window."""
    return lab.windows(cell.dag_id)[-1].window.state


def first_outcomes(cell: Cell) -> tuple[str, ...]:
    """Return how the first job may have ended: who is killed has not always the time to say so."""
    if cell.is_held:
        return ("killed", "lost")
    return ("failed",) if cell.stage == "planned" else ("succeeded",)


def act(lab: Lab, cell: Cell, run: str) -> None:
    """Do to the run what the cell says."""
    if cell.action == "mark failed, clear":
        lab.api.mark_task(cell.dag_id, run, "load", "failed")
        lab.api.wait_for_run(cell.dag_id, run, "success")
    if cell.action in ACTIONS[1:4]:
        lab.api.clear(cell.dag_id, run, ["load"], downstream="downstream" in cell.action)
    if cell.action == "reprocess":
        lab.api.wait_for_no_backfill(cell.dag_id)
        lab.api.backfill(cell.dag_id, DAY, DAY, reprocess="completed")


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.dag_id.removeprefix("matrix."))
def test_a_rerun_has_the_same_window_and_the_lake_holds_it_once(
    lab: Lab, runs: dict[Cell, Future[str]], cell: Cell
) -> None:
    run = runs[cell].result()
    rows = [row for row in lab.windows(cell.dag_id) if row.window.span]
    (row,) = rows
    window = row.window
    assert window.state is State.COMMITTED
    assert window.lane is (Lane.BACKFILL if cell.kind == "backfill" else Lane.LIVE)
    assert window.span == RECORDS * PARTITIONS
    assert row.holder.run_id == run
    jobs = [attempt.outcome.value for attempt in lab.attempts(row)]
    assert jobs[0] in first_outcomes(cell)
    assert jobs[1:] == ["succeeded"] * cell.runs_job_again
    told = lab.api.xcom(cell.dag_id, run, "load", "window")
    assert told["window_id"] == window.id
    assert told["is_rerun"] == cell.is_rerun
    assert lab.api.task(cell.dag_id, run, "after")["try_number"] == 1 + cell.runs_after_again
    expect_once(lab, cell.dag_id, [window])


@pytest.mark.parametrize("is_held", [True, False])
def test_a_cell_that_fails_lets_go_of_what_it_holds_and_starts_no_more(tmp_path: Path, is_held: bool) -> None:
    cell = next(cell for cell in CELLS if (cell.is_held if is_held else cell.fails_first))
    folder = tmp_path / "matrix"
    folder.mkdir()
    held: list[Path] = []

    def fail(dag_id: str) -> None:
        held.extend(folder.iterdir())
        raise UnexpectedStateError(f"{dag_id} is not there")

    lab = Mock(folder=tmp_path)
    lab.api.unpause = fail
    with pytest.raises(UnexpectedStateError, match="is not there"):
        take_course(lab, cell)
    assert len(held) == 1, "it held nothing: this shows nothing"
    assert [path.name for path in folder.iterdir()] == [f"{cell.dag_id}.let-go"]
    lab.api.pause.assert_called_once_with(cell.dag_id)


def test_the_docs_have_the_table_that_was_tested() -> None:
    page = Path(__file__).parents[2] / "docs" / "guarantees.md"
    assert table() in page.read_text()
