"""A launch as a value: what spark-submit is started with, from an operator's fields and a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.launch.jobs import YARN_WAITS, JobName, tags
from airflow_kafka_offsets.launch.job_files import (
    fill,
    handoff_of,
    joined,
    placeholders,
    refuse_file,
    window_conf,
    with_login,
)
from airflow_kafka_offsets.launch.standalone import is_python
from airflow_kafka_offsets.spark.shipping import write_zip

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.core.launch.login import ReaderOptions
    from airflow_kafka_offsets.core.window import Claim
    from airflow_kafka_offsets.service.plan import Planned
    from airflow_kafka_offsets.wiring.clusters import Target


@dataclass(frozen=True, slots=True)
class Launch:
    """What spark-submit is started with.

    Attributes:
        group: the group.
        application: what Spark runs.
        arguments: those of the provider's hook. No ``name``: the job gets the window's.
        target: where the job goes.
        reader: what Spark's reader needs to reach Kafka.
        ship: the operator's argument.
        job: the name of the job. This and the following fields are those of a window.
        key: names the job in Airflow's state store of the task.
        span: the window's, in offsets.
        report: the file in which the job reports, or None if the driver runs on another machine.
        retried_by: the task whose retry continues with the driver if this worker dies, or None if no retry can.
    """

    group: KafkaGroup
    application: str
    arguments: Mapping[str, Any]
    target: Target
    reader: ReaderOptions
    ship: bool | str
    job: JobName | None = None
    key: str = ""
    span: int = 0
    report: Path | None = None
    retried_by: Claim | None = None

    def for_window(
        self, planned: Planned, job: JobName, first_attempt: int, directory: Path, retried_by: Claim | None = None
    ) -> Launch:
        """Return the launch for a window, whose job finds window, login and job side where spark-submit puts them.

        Args:
            planned: the window.
            job: the name of its job.
            first_attempt: the ledger's number of the attempt that the retries of the task repeat.
            directory: for files of this launch.
            retried_by: the task whose retry can continue with the driver, if there is one.

        Raises:
            BadInputError: the window is too large for the place where the job runs.
        """
        window, target, given = planned.window, self.target, self.arguments
        report = None if target.is_cluster_mode else directory / "report.json"
        handoff = handoff_of(planned, with_login(self.reader, directory), self.group, report)
        handoff_conf, files = window_conf(handoff, directory)
        if files and target.is_standalone_cluster:
            refuse_file(window)
        users = given["conf"] or {}
        conf = {**self._yarn_defaults(), **users, **tags(target.master, job, users), **handoff_conf}
        if target.is_tracked:
            conf.pop(YARN_WAITS, None)  # the provider sets it, and takes no other value
        py_files = given["py_files"]
        if self.ship and is_python(self.application):
            py_files = joined(py_files, self.ship if isinstance(self.ship, str) else str(write_zip(directory)))
        arguments = {
            **given,
            "conf": conf,
            "files": joined(given["files"], *files),
            "application_args": fill(given["application_args"] or [], placeholders(window)),
            "py_files": py_files,
            "name": given["name"] or window.id,
        }
        return replace(
            self,
            arguments=arguments,
            job=job,
            key=f"{window.id}:{first_attempt}",
            span=window.span,
            report=report,
            retried_by=retried_by,
        )

    def _yarn_defaults(self) -> dict[str, str]:
        if not self.target.is_yarn:
            return {}
        # If the job is not tracked, spark-submit must wait for its end, whatever spark-defaults.conf says. If it is, the provider sets this.
        waits = {} if self.target.is_tracked else {YARN_WAITS: "true"}
        return {"spark.yarn.maxAppAttempts": "1", **waits}  # YARN would run a failing driver twice
