"""A window around any other launcher: plan it, let Databricks, EMR, Livy or Kubernetes read it, commit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.fields import CONN_ID, FLAG, check_attributes, or_none
from airflow_kafka_offsets.task.assets import emit_events
from airflow_kafka_offsets.task.definition import PLANNING, check_event, failing_at_once
from airflow_kafka_offsets.task.lineage import Lineage
from airflow_kafka_offsets.task.links import WindowLink, show_windows

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.core.window import Window
    from airflow_kafka_offsets.launch.job_files import Report
    from airflow_kafka_offsets.service.windows import Planned
    from airflow_kafka_offsets.task.definition import OnOpenWindow
    from airflow_kafka_offsets.task.exchange import HandOver


class _PlanOperator(BaseOperator):
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
        return self._plan(context)

    @failing_at_once
    def resume(self, context: Context, event: Any = None) -> Any:
        """Ask again after waiting."""
        check_event(event)
        return self._plan(context)

    def _plan(self, context: Context) -> Any:
        raise NotImplementedError

    def _planned(self, context: Context, at_most: int, new: int, given: Any = None) -> list[Planned]:
        """Plan, or take the window that a plan task of the run handed over; commit what is empty, and return the others."""
        from airflow_kafka_offsets import wiring
        from airflow_kafka_offsets.core.ending import NO_JOB
        from airflow_kafka_offsets.core.window import Scope
        from airflow_kafka_offsets.task.ending import Ending, until_windows
        from airflow_kafka_offsets.task.plan import id_of_given, plan, take
        from airflow_kafka_offsets.task.runs import claim_of
        from airflow_kafka_offsets.task.work import commit

        with until_windows(context, self.group.name, id_of_given(given)):
            service = wiring.open_service(self.group)
            claim = claim_of(context, Scope.RUN)
            if given is None:
                planned = plan(self, context, service, claim, at_most, new)
            else:
                planned = [take(self, context, service, claim, given)]
        show_windows(context, [p.window for p in planned])
        empty = [p for p in planned if not p.window.span]
        if empty:
            with Ending(context, service, claim, empty) as ending:
                for p in empty:
                    ending.job_done(NO_JOB)
                    commit(service, claim, p, ending)
        return [p for p in planned if p.window.span]

    def _handed_on(self, planned: Planned) -> dict[str, Any]:
        from airflow_kafka_offsets.launch.job_files import placeholders
        from airflow_kafka_offsets.task.results import window_result

        return {**window_result(self.group, planned), **placeholders(planned.window)}


class PlanWindowOperator(_PlanOperator):
    """Plan the run's window and hand it on: ``starting_offsets``, ``ending_offsets`` and ``assign`` as Spark's JSON.

    A window with nothing to read is committed at once; then this task, and with it the launcher, is skipped. A replay of
    several windows is refused: see `PlanBacklogOperator`.

    :param group: the group.
    :param window: instead of planning: the window to hand on, one item of what a `PlanBacklogOperator` of the same run
        returned. If only the tasks of a mapped task group are cleared, this makes sure that no other run has taken the
        window meanwhile. An empty one is committed, too. (templated)
    :param exchange: the address of a folder in storage that the workers and the Spark job reach, such as ``s3://bucket/kafka-offsets``. The
        window is left there for ``current_window(spark, uri)``, and the job reports there what it read. Then the commit task commits
        only what was reported. What this task returns has the ``uri`` as ``exchange``, and as ``handover`` an id for the
        launcher's own tokens and names: 32 hexadecimal digits, new each time this task runs. None: only Spark's JSON is handed on.
        (templated)
    :param exchange_conn_id: the Airflow connection to that storage; None: the worker needs none.
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

    def _plan(self, context: Context) -> dict[str, Any]:
        from airflow_kafka_offsets.airflow_versions import AirflowSkipException
        from airflow_kafka_offsets.task.ending import tell_handed_on, until_windows
        from airflow_kafka_offsets.task.plan import id_of_given

        with until_windows(context, self.group.name, id_of_given(self.window)):
            to_job = self._to_job()
        windows = self._planned(context, at_most=1, new=1, given=self.window)
        if not windows:
            raise AirflowSkipException("The window is empty and committed: nothing to launch")
        result = {**self._handed_on(windows[0]), **(to_job.put(windows[0]) if to_job is not None else {})}
        tell_handed_on(windows)
        return result

    def _to_job(self) -> HandOver | None:
        """Refuse what can't be handed over before anything is planned."""
        if self.exchange is None:
            return None
        from airflow_kafka_offsets.task.exchange import hand_over

        return hand_over(self.group, self.exchange, self.exchange_conn_id)


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

    def _plan(self, context: Context) -> list[dict[str, Any]]:
        from airflow_kafka_offsets.airflow_versions import conf
        from airflow_kafka_offsets.task.ending import tell_handed_on
        from airflow_kafka_offsets.task.results import small_together

        at_most = conf.getint("core", "max_map_length")
        windows = self._planned(context, at_most, new=min(self.group.max_open_windows, at_most))
        results = small_together([self._handed_on(p) for p in windows])
        tell_handed_on(windows)  # last, because a log line says what is left out of the results
        return results


class CommitWindowOperator(Lineage, BaseOperator):
    """Commit the window that a `PlanWindowOperator` or `PlanBacklogOperator` of the same run planned.

    If the plan task has an `exchange`, the evidence is what the job reported there: it must have read the whole window. Only the job that
    took the window last counts, and only what it reported since the plan task ran. Otherwise the only evidence of the job's success is that
    this task runs. So let it run only after the launcher's success. It also runs if a person marks the launcher green.

    :param window: what the plan task returned (``plan.output``, or one of its items), or a window id. If that task has an `exchange`: what it returned, unless
        `green_is_enough`. (templated)
    :param ledger_conn_id: the ledger, if `window` is only an id; None: the configured one.
    :param green_is_enough: True: commit without a report of the job, also if the plan task has an `exchange`.
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
        from airflow_kafka_offsets import wiring
        from airflow_kafka_offsets.core.launch.login import spark_servers
        from airflow_kafka_offsets.core.plan.ownership import How
        from airflow_kafka_offsets.core.window import Scope, State
        from airflow_kafka_offsets.core.window_id import parse_window_id
        from airflow_kafka_offsets.launch.job_files import NO_REPORT
        from airflow_kafka_offsets.service.windows import Planned
        from airflow_kafka_offsets.task.ending import Ending, until_windows
        from airflow_kafka_offsets.task.plan import id_of_given, named_window, patiently
        from airflow_kafka_offsets.task.results import committed_result
        from airflow_kafka_offsets.task.runs import claim_of
        from airflow_kafka_offsets.task.work import commit, record
        from airflow_kafka_offsets.wiring.connections import kafka_config

        with until_windows(context, None, id_of_given(self.window)):
            window_id, ledger_conn_id = named_window(self.window)
            service = wiring.open_service_for(parse_window_id(window_id)[0], ledger_conn_id or self.ledger_conn_id)
            window = service.window(window_id)
            group = service.definition(window.group)
            servers = spark_servers(kafka_config(group.kafka_conn_id), group.spark_options)
        show_windows(context, [window])
        # As planned: a second try finds the window committed, and still is the first run.
        known = self.window.get("is_rerun") if isinstance(self.window, Mapping) else None
        is_rerun = window.state is State.COMMITTED if known is None else bool(known)
        claim, planned = claim_of(context, Scope.RUN), Planned(window, is_rerun, How.GIVEN)
        with self.traced(servers, group.reads, Ending(context, service, claim, [planned])) as ending:
            report = self._report(window, group)
            told = report or NO_REPORT
            ending.job_done(_evidence(window, report))
            patiently(lambda: service.check(window))
            if report is not None:
                record(service, window, claim, context, report)
            commit(service, claim, planned, ending, report=told)
            result = {**committed_result(window, is_rerun=is_rerun), "records": told.records}
            emit_events(self, context, [result], emit_empty=True)
        return {"window_id": window_id, "is_rerun": is_rerun, "records": told.records, "bad": told.bad}

    def _report(self, window: Window, group: KafkaGroup) -> Report | None:
        """Return what the job reported; None: a green task is enough.

        Raises:
            BadInputError: the plan task before this one has an exchange, and did not say where in it.
        """
        if self.green_is_enough:
            return None
        if isinstance(self.window, Mapping) and self.window.get("exchange") is not None:
            from airflow_kafka_offsets.task.exchange import reported

            return reported(window, group, self.window)
        if (planner := self._planner_with_exchange(group)) is not None:
            raise BadInputError(
                f"Window {window.id}: task {planner} leaves the windows of group {group.name} in an exchange, and this task did not get what "
                "it returned. So it can't look for the job's report, and nothing was committed. Set window=plan.output, the output of that "
                "task. If a green task is evidence enough for you: CommitWindowOperator(green_is_enough=True)"
            )
        return None

    def _planner_with_exchange(self, group: KafkaGroup) -> str | None:
        """Return the id of a task before this one that leaves the windows of the group in an exchange."""
        for task in self.get_flat_relatives(upstream=True) if self.has_dag() else ():
            options = getattr(task, "partial_kwargs", None) or vars(task)  # those of a mapped task, or of another one
            planned = options.get("group")
            if options.get("exchange") is not None and getattr(planned, "name", None) == group.name:
                return str(task.task_id)
        return None


def _evidence(window: Window, report: Report | None) -> str:
    from airflow_kafka_offsets.core.ending import GREEN_TASK, evidence

    if report is None:
        return GREEN_TASK
    return evidence(window.span, records=report.records, written=report.written, took_window=True, bad=report.bad)
