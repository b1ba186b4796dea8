"""The link from a task instance in Airflow's UI to the page of its windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.bases.operatorlink import BaseOperatorLink as Link
    from airflow.sdk.types import TaskInstanceKey
else:
    # Airflow reads only its attributes, so no parse of a DAG has to import the class.
    Link = object

NAV, APP = "plugin/kafka-windows", "kafka-offsets"
"""The route in Airflow's UI, and in it the address of the page."""


class WindowLink(Link):
    """The button "Kafka window" of a task instance: its window, or the list of its windows."""

    name = "Kafka window"

    @property
    def xcom_key(self) -> str:
        """Where Airflow stores the link when the task ends."""
        return "kafka_window_link"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the link, or an empty text if the task has no window."""
        from airflow_kafka_offsets.airflow_versions import conf

        window_ids = getattr(operator, "kafka_window_ids", ())
        page = page_of(window_ids, ti_key.dag_id, ti_key.run_id, ti_key.task_id, ti_key.map_index)
        return in_airflow(page, conf.get("api", "base_url", fallback="")) if page else ""


def page_of(window_ids: Sequence[str], dag_id: str, run_id: str, task_id: str, map_index: int | None) -> str:
    """Return the page of a task's windows, or an empty text if it has none.

    >>> page_of(["lake.orders-000012"], "orders", "manual", "load", -1)
    'windows/lake.orders-000012'
    >>> page_of(["lake.orders-000012", "lake.orders-000013"], "orders", "manual__2026+00", "load", -1)
    'task?dag_id=orders&run_id=manual__2026%2B00&task_id=load&map_index=-1'
    """
    if len(window_ids) == 1:
        return f"windows/{window_ids[0]}"
    if not window_ids:
        return ""
    query = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": str(map_index)}
    return "task?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())


def in_airflow(page: str, base_url: str = "") -> str:
    """Return the address of one of our pages in Airflow's UI, relative to the UI's own.

    The UI's frame takes an address from the root of the host on, so a path in ``base_url`` comes in it once more.

    >>> in_airflow("groups")
    'plugin/kafka-windows/kafka-offsets/groups'
    >>> in_airflow("groups", "https://example.org/air/")
    'plugin/kafka-windows/air/kafka-offsets/groups'
    """
    return f"{NAV}{urlsplit(base_url).path.rstrip('/')}/{APP}/{page}"
