"""What an operator has for OpenLineage. Airflow's OpenLineage provider asks for it; without this provider, no one does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_kafka_offsets.task.ending import Ending


class Lineage:
    """Lets OpenLineage know which windows a task read. As a base class, it comes before the classes of Airflow's operators."""

    _traced: tuple[str, Ending] | None = None

    def traced(self, servers: str, ending: Ending) -> Ending:
        """Remember where the windows of the task are noted, and Kafka's bootstrap servers.

        The provider asks in a fork of the task's process. There, nothing should ask Airflow for a connection.
        """
        self._traced = (servers, ending)
        return ending

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return the topics with the ranges that were read, the outlets, and the windows; nothing: the task had no window."""
        from airflow_kafka_offsets.task.openlineage import lineage_of, nothing_read

        if self._traced is None:
            return nothing_read()
        servers, ending = self._traced
        return lineage_of(self, task_instance, servers, ending.read())

    get_openlineage_facets_on_failure = get_openlineage_facets_on_complete
