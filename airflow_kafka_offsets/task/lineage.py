"""What an operator has for OpenLineage. Airflow's OpenLineage provider asks for it; without this provider, no one does."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kafka_offsets.task.ending import Ending


class Lineage:
    """Lets OpenLineage know which windows a task read. As a base class, it comes before the classes of Airflow's operators."""

    _traced: tuple[str, Container[str], Ending] | None = None

    def traced(self, servers: str, topics: Container[str], ending: Ending) -> Ending:
        """Remember where the windows of the task are noted, Kafka's bootstrap servers, and the topics that the group reads.

        The provider asks in a fork of the task's process. There, nothing should ask Airflow for a connection.
        """
        self._traced = (servers, topics, ending)
        return ending

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return the topics with the ranges that were read, the outlets, and the windows; nothing: the task had no window."""
        from airflow_kafka_offsets.task.openlineage import lineage_of, nothing_read

        if self._traced is None:
            return nothing_read()
        servers, topics, ending = self._traced
        return lineage_of(self, task_instance, servers, topics, ending.read())

    get_openlineage_facets_on_failure = get_openlineage_facets_on_complete


def with_parent_run(conf: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Return Spark's properties with those that name the task's run to OpenLineage's listener in Spark, if Airflow is told to add them.

    The Spark provider does this for spark-submit only.
    """
    from airflow_kafka_offsets.airflow_versions import conf as settings

    if not settings.getboolean("openlineage", "spark_inject_parent_job_info", fallback=False):
        return dict(conf)
    # It imports several hundred modules.
    from airflow.providers.common.compat.openlineage.utils import spark

    return dict(spark.inject_parent_job_information_into_spark_properties(dict(conf), context))
