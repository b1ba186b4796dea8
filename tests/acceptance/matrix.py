"""The matrix of runs and reruns: its cells, what each must come to, and the table of it that stands in docs/guarantees.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Engine

DAY = datetime(2026, 1, 5, tzinfo=UTC)
TOPIC = "matrix"
PARTITIONS = 2
"""Of the topic. Spark opens a consumer for each at each of two hundred reads; the other tests have four."""

KINDS = ("scheduled", "manual", "asset-triggered", "backfill")
ACTIONS = ("retry", "clear", "clear with downstream", "mark failed, clear", "reprocess")
STAGES = ("planned", "committing", "committed")

AGAIN = "the same window; its job runs again, and it is committed"
FINISHED = "the same window; its commit is finished, and its job is not run again"
DONE = "the same window; nothing is left to do, and its job is not run again"
REPLAYED = "the same window; its commit is finished, then its job runs again and replaces the output"
REPLACED = "the same window; its job runs again and replaces the output"

OUTCOMES = {
    "retry": {"planned": AGAIN, "committing": FINISHED, "committed": DONE},
    **{action: {"planned": AGAIN, "committing": REPLAYED, "committed": REPLACED} for action in ACTIONS[1:]},
}
"""What becomes of the window, by what is done to the run and where its window stood: the same for every kind of run."""


@dataclass(frozen=True)
class Cell:
    """One DAG of the matrix."""

    kind: str
    action: str
    stage: str

    @property
    def dag_id(self) -> str:
        """Name of its DAG, group and lake."""
        return "matrix." + "_".join(
            word.replace(", ", "_").replace(" ", "_") for word in (self.kind, self.action, self.stage)
        )

    @property
    def starting_offsets(self) -> str:
        """Return where the group starts: the past of a backfill has no owner yet."""
        return "latest" if self.kind == "backfill" else "earliest"

    @property
    def runs_job_again(self) -> bool:
        """Whether the job is run a second time."""
        return OUTCOMES[self.action][self.stage] not in (FINISHED, DONE)

    @property
    def runs_after_again(self) -> bool:
        """Whether the task behind the load is run a second time."""
        return self.action in ("clear with downstream", "reprocess")

    @property
    def is_rerun(self) -> bool:
        """Whether the second try is told that its window was committed before; a retry finds its own commit."""
        return self.stage != "planned" and self.action != "retry"

    @property
    def is_held(self) -> bool:
        """Whether the first try has to be in the middle of its job: what has failed can't be marked as failed."""
        return (self.action, self.stage) == ("mark failed, clear", "planned")

    @property
    def fails_first(self) -> bool:
        """Whether the first try fails by itself: what is done to a run that went well needs no failure."""
        return self.action == "retry" or (self.stage == "planned" and not self.is_held)


def stop_commit_half_way(engine: Engine, group: str) -> None:
    """Leave the group's newest window as a commit leaves it that was stopped half-way."""
    from sqlalchemy import text

    query = (
        "UPDATE kafka_offsets_windows SET state = 'committing', committed_at = NULL WHERE group_id = "
        "(SELECT id FROM kafka_offsets_groups WHERE name = :name) AND seq = (SELECT max(seq) FROM "
        "kafka_offsets_windows WHERE group_id = (SELECT id FROM kafka_offsets_groups WHERE name = :name))"
    )
    with engine.begin() as connection:
        connection.execute(text(query), {"name": group})


def cells() -> Iterator[Cell]:
    """Return all cells that Airflow can bring about: it reprocesses runs by their logical date, which one by asset lacks."""
    for kind in KINDS:
        for action in ACTIONS:
            if (kind, action) != ("asset-triggered", "reprocess"):
                yield from (Cell(kind, action, stage) for stage in STAGES)


def table() -> str:
    """Return the table for people."""
    lines = [
        f"| what is done to the run | {' | '.join(f'its window is {stage}' for stage in STAGES)} |",
        "|---|---|---|---|",
    ]
    lines += [f"| {action} | {' | '.join(OUTCOMES[action][stage] for stage in STAGES)} |" for action in ACTIONS]
    return "\n".join(lines)
