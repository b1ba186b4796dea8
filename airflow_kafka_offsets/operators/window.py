"""A window around any other launcher: plan it, let Databricks, EMR, Livy or Kubernetes read it, commit it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_kafka_offsets.core.fields import CONN_ID, FLAG, check_attributes, or_none
from airflow_kafka_offsets.task.definition import PLANNING, Lineage, PlanningFields, check_event, failing_at_once
from airflow_kafka_offsets.task.links import WindowLink

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kafka_offsets.core.evidence import Report
    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.core.window import Window
    from airflow_kafka_offsets.service.plan import Planned
    from airflow_kafka_offsets.service.windows import WindowService
    from airflow_kafka_offsets.task.airflow import Task
    from airflow_kafka_offsets.task.definition import OnOpenWindow
    from airflow_kafka_offsets.task.exchange import Exchange

logger = logging.getLogger(__name__)


class _PlanOperator(PlanningFields, BaseOperator):
    ui_color = "#d5e8f0"
    operator_extra_links = (WindowLink(),)

    def __init__(
        self, *, group: KafkaGroup, on_open_window: OnOpenWindow = "wait", poll_interval: float = 10, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.group = group
        self.on_open_window = on_open_window
        self.poll_interval = poll_interval
        check_attributes(self, PLANNING)

    @failing_at_once
    def execute(self, context: Context) -> Any:
        """Plan, and return what the tasks after this one get."""
        from airflow_kafka_offsets.core.window import Scope
        from airflow_kafka_offsets.task.airflow import Task

        return self._run(Task(self, context, Scope.RUN))

    @failing_at_once
    def resume(self, context: Context, event: Any = None) -> Any:
        """Plan again after waiting."""
        from airflow_kafka_offsets.core.window import Scope
        from airflow_kafka_offsets.task.airflow import Task

        check_event(event)
        return self._run(Task(self, context, Scope.RUN))

    def _run(self, task: Task) -> Any:
        raise NotImplementedError

    def _to_hand_off(self, task: Task, service: WindowService, planned: Sequence[Planned]) -> list[Planned]:
        """Commit the windows that have nothing to read, and return the others."""
        from airflow_kafka_offsets.task.work import Work

        task.show([p.window for p in planned])
        if empty := [p for p in planned if not p.window.span]:
            with Work(task.run, service, self.group, empty) as work:
                for p in empty:
                    work.commit(p)
        return [p for p in planned if p.window.span]

    def _result(self, planned: Planned) -> dict[str, Any]:
        from airflow_kafka_offsets.launch.job_files import placeholders
        from airflow_kafka_offsets.task.work import window_result

        return {**window_result(self.group, planned), **placeholders(planned.window)}


class PlanWindowOperator(_PlanOperator):
    """Plan the run's window and hand it off: ``starting_offsets``, ``ending_offsets`` and ``assign`` as Spark's JSON.

    A window with nothing to read is committed at once; then this task, and with it the launcher, is skipped. A replay of
    several windows is refused: see `PlanBacklogOperator`.

    :param group: the group.
    :param window: instead of planning: the window to hand off, one item of what a `PlanBacklogOperator` of the same run
        returned. If only the tasks of a mapped task group are cleared, this makes sure that no other run has taken the
        window meanwhile. An empty one is committed, too. (templated)
    :param exchange: the address of a folder in storage that the workers and the Spark job reach, such as ``s3://bucket/kafka-offsets``. The
        window is left there for ``current_window(spark, uri)``, and the job reports there what it read. Then the commit task commits
        only what was reported. What this task returns has the ``uri`` as ``exchange``, and as ``handoff`` an id for the
        launcher's own tokens and names: 32 hexadecimal digits, new each time this task runs. Without it, only Spark's JSON is handed off.
        (templated)
    :param exchange_conn_id: the Airflow connection to that storage, if the worker needs one.
    :param on_open_window: while another run works on the open window: ``wait`` (deferred), ``skip`` or ``fail``.
    :param poll_interval: seconds between two looks while waiting.
    """

    template_fields: Sequence[str] = ("window", "exchange")

    def __init__(
        self, *, window: Any = None, exchange: str | None = None, exchange_conn_id: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.window = window
        self.exchange = exchange
        self.exchange_conn_id = exchange_conn_id
        check_attributes(self, {"exchange_conn_id": or_none(CONN_ID)})

    def _run(self, task: Task) -> dict[str, Any]:
        from airflow_kafka_offsets import wiring
        from airflow_kafka_offsets.airflow_versions import AirflowSkipException
        from airflow_kafka_offsets.core.ending import end_of_handoff
        from airflow_kafka_offsets.task.plan import log_failure_before_window, plan, take

        with log_failure_before_window(task.run, self.group.name, self.window):
            exchange = self._open_exchange()
            service = wiring.open_service(self.group)
            if self.window is None:
                planned = plan(self, task.run, service, at_most=1)
            else:
                planned = [take(self, task.run, service, self.window)]
        windows = self._to_hand_off(task, service, planned)
        if not windows:
            raise AirflowSkipException("The window is empty and committed: nothing to launch")
        result = self._result(windows[0])
        if exchange is not None:
            result |= exchange.hand_off(windows[0], service, task.run.claim)
        logger.info("%s", end_of_handoff([windows[0].window]))
        return result

    def _open_exchange(self) -> Exchange | None:
        """Refuse what can't be handed off before anything is planned."""
        if self.exchange is None:
            return None
        from airflow_kafka_offsets.task.exchange import checked_exchange

        return checked_exchange(self.group, self.exchange, self.exchange_conn_id)


class PlanBacklogOperator(_PlanOperator):
    """Plan all windows of the run, for mapped tasks: ``KafkaSparkSubmitOperator.partial(...).expand(window=plan.output)``.

    An ordinary run adopts the open windows of dead runs and cuts new ones, up to the group's `max_open_windows` in all. A
    replay gives every window that it names. An empty window is committed at once. If no other window is left, the mapped tasks
    are skipped. Airflow's ``max_active_tis_per_dagrun`` of the mapped task limits how many run in parallel.

    If the windows have more than 1,000 offset ranges in all, the ranges stay in the ledger. `KafkaSparkSubmitOperator` needs only
    the windows' names. For another launcher, a `PlanWindowOperator` in the mapped task group returns each window's offsets.

    :param group: the group.
    :param on_open_window: while another run works on the open windows: ``wait`` (deferred), ``skip`` or ``fail``.
    :param poll_interval: seconds between two looks while waiting.
    """

    def _run(self, task: Task) -> list[dict[str, Any]]:
        from airflow_kafka_offsets import wiring
        from airflow_kafka_offsets.airflow_versions import conf
        from airflow_kafka_offsets.core.ending import end_of_handoff
        from airflow_kafka_offsets.task.plan import log_failure_before_window, plan
        from airflow_kafka_offsets.task.work import small_together

        at_most = conf.getint("core", "max_map_length")
        with log_failure_before_window(task.run, self.group.name):
            service = wiring.open_service(self.group)
            planned = plan(self, task.run, service, at_most, new=min(self.group.max_open_windows, at_most))
        windows = self._to_hand_off(task, service, planned)
        results = small_together([self._result(p) for p in windows])
        if windows:  # last: `small_together` may log before
            logger.info("%s", end_of_handoff([p.window for p in windows]))
        return results


class CommitWindowOperator(Lineage, BaseOperator):
    """Commit the window that a `PlanWindowOperator` or `PlanBacklogOperator` of the same run planned.

    If the plan task has an `exchange`, the evidence is what the job reported there: it must have read the whole window. Only the job that
    took the window last counts, and only what it reported since the plan task ran. Otherwise the only evidence of the job's success is that
    this task runs. So let it run only after the launcher's success. It also runs if a person marks the launcher green.

    :param window: what the plan task returned (``plan.output``, or one of its items), or a window id. (templated)
    :param ledger_conn_id: the ledger, if `window` is only an id and the ledger is not the configured one.
    :param green_is_enough: whether to commit without a report of the job, also if the plan task has an `exchange`.
    """

    template_fields: Sequence[str] = ("window",)
    ui_color = "#d5e8f0"
    operator_extra_links = (WindowLink(),)

    def __init__(
        self, *, window: Any, ledger_conn_id: str | None = None, green_is_enough: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.window = window
        self.ledger_conn_id = ledger_conn_id
        self.green_is_enough = green_is_enough
        check_attributes(self, {"ledger_conn_id": or_none(CONN_ID), "green_is_enough": FLAG})

    @failing_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        """Commit."""
        from airflow_kafka_offsets.core.window import Scope
        from airflow_kafka_offsets.task.airflow import Task

        return self._run(Task(self, context, Scope.RUN))

    def _run(self, task: Task) -> dict[str, Any]:
        from airflow_kafka_offsets import wiring
        from airflow_kafka_offsets.core.ending import GREEN_TASK, LOOKS_AGAIN
        from airflow_kafka_offsets.core.launch.login import spark_servers
        from airflow_kafka_offsets.core.plan.ownership import How
        from airflow_kafka_offsets.core.window import Outcome, State
        from airflow_kafka_offsets.core.window_id import parse_window_id
        from airflow_kafka_offsets.service.plan import Planned
        from airflow_kafka_offsets.task.plan import log_failure_before_window, named_window, patiently
        from airflow_kafka_offsets.task.work import Work, evidence_of
        from airflow_kafka_offsets.wiring.connections import kafka_extra

        run = task.run
        with log_failure_before_window(run, None, self.window):
            window_id, ledger_conn_id = named_window(self.window)
            service = wiring.open_service_for(parse_window_id(window_id)[0], ledger_conn_id or self.ledger_conn_id)
            window = service.ledger.window(window_id).window
            group = service.ledger.group(window.group)
            servers = spark_servers(kafka_extra(group.kafka_conn_id), group.spark_options)
        task.show([window])
        # As planned: a second try finds the window committed, and still is the first run. A clear is not.
        is_rerun = self.window.get("is_rerun") if isinstance(self.window, Mapping) else None
        if is_rerun is None or run.this_try.is_first_after_clear:
            is_rerun = is_rerun or window.state is State.COMMITTED
        planned = Planned(window, bool(is_rerun), How.GIVEN)
        work = Work(run, service, group, [planned], again=LOOKS_AGAIN)
        self.trace(servers, group.reads, work.read)
        with work:
            report = self._report(window, group, service)
            if report is None:
                work.succeeded(GREEN_TASK)
            else:
                work.succeeded(evidence_of(window, report), report)
            patiently(lambda: service.check_same_topics(window))
            if report is not None:
                # No one reported when the other launcher's job began and ended.
                attempt = patiently(lambda: service.start_attempt(window, run.claim, run.this_try))
                patiently(lambda: service.end_attempt(attempt, Outcome.SUCCEEDED, report.records))
            work.commit(planned)
            [result] = work.results()
            task.emit([window], [result], work.reached, emit_empty=True)
        return {name: result[name] for name in ("window_id", "is_rerun", "records", "bad")}

    def _report(self, window: Window, group: KafkaGroup, service: WindowService) -> Report | None:
        """Return what the job reported; None if a green task is enough.

        Raises:
            BadInputError: this task got another exchange than that of the plan task.
        """
        if self.green_is_enough:
            return None
        from airflow_kafka_offsets.core.exchange import check_given
        from airflow_kafka_offsets.task.exchange import reported
        from airflow_kafka_offsets.task.plan import patiently

        place = patiently(lambda: service.ledger.place(window.id))
        check_given(window.id, place, self.window if isinstance(self.window, Mapping) else {})
        return None if place is None else reported(window, group, place)
