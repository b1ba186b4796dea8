"""What holds a job: it lets go whatever happens, and no one waits for a job that will not come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Hold
from tests.lab.airflow_api import AirflowApi, UnexpectedStateError


class Failing(AirflowApi):
    """An Airflow of which a task fails while it is waited for."""

    def __init__(self) -> None:
        super().__init__("http://nowhere", "no one", "")
        self.failed = {("yesterday", "load", -1, 1)}

    def failures(self, dag_id: str) -> set[tuple[Any, ...]]:
        """Return those of before, and one more the next time."""
        now, self.failed = self.failed, self.failed | {("today", "load", -1, 3)}
        return now

    def story(self, dag_id: str, run_id: str) -> str:
        """Return what became of a run."""
        return f"the log of {run_id}"


def test_whoever_fails_while_it_holds_a_job_lets_it_go(tmp_path: Path) -> None:
    path = tmp_path / "orders"

    def fail() -> None:
        with Hold(path) as hold:
            (tmp_path / "orders.reached").touch()
            hold.wait()
            assert path.exists()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_no_one_waits_for_a_job_whose_task_has_failed_for_good(tmp_path: Path) -> None:
    wait: Callable[..., object] = Failing().watch("orders").wait_until
    with (
        Hold(tmp_path / "orders", wait) as hold,
        pytest.raises(UnexpectedStateError, match=r"load of today has failed.*a job reaches orders\nthe log of today"),
    ):
        hold.wait()
