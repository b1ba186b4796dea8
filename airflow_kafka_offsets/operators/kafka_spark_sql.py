"""One task: plan the window, run a SQL file on it, check, commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_kafka_offsets.core.fields import MAPPING, check_attributes
from airflow_kafka_offsets.launch.statements import VIEW, check_statements, run_statements, split
from airflow_kafka_offsets.operators.kafka_spark import KafkaSparkOperator

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pyspark.sql import SparkSession

    from airflow_kafka_offsets.launch.session import SessionLaunch
    from airflow_kafka_offsets.spark import KafkaWindow
    from airflow_kafka_offsets.task.airflow import Task


class KafkaSparkSqlOperator(KafkaSparkOperator):
    """Plan the run's window of a Kafka group, run SQL statements on it, and commit it only after the last one succeeded.

    The statements read the window's records from a view, in the columns of Spark's Kafka source. Kafka is read once, and the
    records are counted and kept (`persist`) before the first statement. A statement gets its window through the named markers
    ``:window_id``, ``:seq``, ``:group``, ``:lane``, ``:planned_until`` and ``:is_rerun``. Where Spark's grammar takes no marker (a
    partition, a path, a view), it can use ``${window_id}`` and ``${seq}``. A rerun runs all statements again: each has to replace
    what it wrote before, see docs/howto/taskflow.md.

    All other parameters are those of `KafkaSparkOperator`.

    :param sql: statements, separated by ``;``; or the name of a ``.sql`` file; or a list of these. (templated)
    :param group: the group.
    :param conn_id: connection of type ``spark_connect`` for Spark Connect, ``spark`` for a master; without it, ``local[*]``.
    :param view: the name of the view.
    :param read: how the records are read: arguments of ``window.persisted()``, such as ``{"value": "avro"}``.
    :param parameters: named markers of your own. (templated)
    """

    template_fields: Sequence[str] = ("sql", "parameters", "conn_id", "config_kwargs", "window")
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers: ClassVar[dict[str, str]] = {"sql": "sql", "parameters": "json"}

    def __init__(
        self,
        *,
        sql: str | Sequence[str],
        view: str = "kafka_window",
        read: Mapping[str, Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(python_callable=run_statements, **kwargs)
        self.sql = sql
        self.view = view
        self.read = {} if read is None else read
        self.parameters = {} if parameters is None else parameters
        check_attributes(self, {"view": VIEW, "read": MAPPING})

    def execute(self, context: Context) -> None:
        """Plan, run the statements, check, commit."""
        super().execute(context)

    def _check_and_prepare(self, task: Task) -> SessionLaunch:
        check_statements(split(self.sql), self.view, self.parameters)
        return super()._check_and_prepare(task)

    def call_function(self, spark: SparkSession, window: KafkaWindow) -> None:
        """Run the statements on a window."""
        run_statements(spark, window, split(self.sql), self.view, self.parameters, self.read)
