"""A window around any other launcher: plan it, let Databricks, EMR, Livy or Kubernetes read it, commit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.window import Scope, parse_window_id
from airflow_kafka_offsets.operators.planning import (
    OnOpenWindow,
    check_on_open_window,
    placeholders,
    plan,
    window_result,
)
from airflow_kafka_offsets.operators.runs import claim_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kafka_offsets.core.group import KafkaGroup


class PlanWindowOperator(BaseOperator):
    """Plan the run's window and hand it on: ``starting_offsets``, ``ending_offsets`` and ``assign`` as Spark's JSON.

    A window with nothing to read is committed at once; then this task, and with it the launcher, is skipped.

    :param group: the group.
    :param on_open_window: while another run works on the open window: ``wait`` (deferred), ``skip`` or ``fail``.
    :param poll_interval: seconds between two looks while waiting.
    """

    ui_color = "#d5e8f0"

    def __init__(
        self, *, group: KafkaGroup, on_open_window: OnOpenWindow = "wait", poll_interval: float = 10, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        check_on_open_window(on_open_window)
        self.group = group
        self.on_open_window = on_open_window
        self.poll_interval = poll_interval

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan, and return the window."""
        return self._plan(context)

    def resume(self, context: Context, event: Any = None) -> dict[str, Any]:
        """Ask again after waiting."""
        return self._plan(context)

    def _plan(self, context: Context) -> dict[str, Any]:
        service = wiring.open_service(self.group)
        claim = claim_of(context, Scope.RUN)
        planned = plan(self, context, service, self.group, claim, self.on_open_window, self.poll_interval)
        window = planned.window
        result = window_result(self.group, window, is_rerun=planned.is_rerun)
        if window.span == 0:
            service.commit(window.id, claim)
            raise AirflowSkipException(f"Window {window.id} is empty and committed: nothing to launch")
        return {**result, **placeholders(window)}


class CommitWindowOperator(BaseOperator):
    """Commit the window that a `PlanWindowOperator` of the same run planned.

    That this task runs is all the evidence of the job's success there is: let it run only after the launcher's success,
    and know that a person who marks the launcher green lets it run too.

    :param window: what the plan task returned (``plan.output``), or a window id. (templated)
    :param ledger_conn_id: the ledger, when `window` is only an id; None: the configured one.
    """

    template_fields: Sequence[str] = ("window",)
    ui_color = "#d5e8f0"

    def __init__(self, *, window: Any, ledger_conn_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.window = window
        self.ledger_conn_id = ledger_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Commit."""
        is_dict = isinstance(self.window, Mapping)
        window_id = self.window.get("window_id") if is_dict else self.window
        ledger_conn_id = self.window.get("ledger_conn_id") if is_dict else self.ledger_conn_id
        if not isinstance(window_id, str):
            raise BadInputError(
                f"CommitWindowOperator needs a planned window (plan.output) or a window id, got {self.window!r}"
            )
        service = wiring.open_service_for(parse_window_id(window_id)[0], ledger_conn_id)
        window = service.window(window_id)
        service.check(window)
        is_first = service.commit(window_id, claim_of(context, Scope.RUN))
        return {"window_id": window_id, "is_rerun": not is_first}
