"""What Airflow says about one try of a task. It is read once, as the try begins."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from airflow_kafka_offsets.core.tries import Try
from airflow_kafka_offsets.core.window import Claim


@dataclass(frozen=True, slots=True)
class Run:
    """One try of a task, in one run of its DAG.

    Attributes:
        claim: who asks for windows.
        this_try: which try of the task it is.
        kind: Airflow's name for the kind of run: scheduled, manual, backfill, asset_triggered, ...
        interval: start and end of the data interval, in UTC; None if the run has no interval.
        conf: what the run was triggered with.
        params: the values of the DAG's params in this run.
        declared: the names of the DAG's params.
        groups: the names of the groups that the tasks of the DAG read.
        has_retry_policy: the task has a retry policy, which can refuse a retry.
        keeps_state: Airflow keeps values for the task between its tries.
    """

    claim: Claim
    this_try: Try = field(default_factory=Try)
    kind: str = "manual"
    interval: tuple[datetime, datetime] | None = None
    conf: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    declared: Set[str] = frozenset()
    groups: Set[str] = frozenset()
    has_retry_policy: bool = False
    keeps_state: bool = False

    @property
    def next_try(self) -> int | None:
        """The number of the try that Airflow starts after a failure of this one; None if no retry is left."""
        return None if self.this_try.number > self.this_try.max_tries else self.this_try.number + 1
