"""Wait for a commit: how a DAG follows another one's windows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.conditions import CommittedUntil, WindowCommitted, parse_until
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.fields import CONN_ID, Kind, check_fields, or_none
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.window_id import check_group_name
from airflow_kafka_offsets.sensors.condition import ConditionSensor

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.conditions import LedgerCondition

_KINDS = {
    "group": or_none(Kind("a KafkaGroup or the name of one", lambda group: isinstance(group, KafkaGroup | str))),
    "ledger_conn_id": or_none(CONN_ID),
}


class WindowCommittedSensor(ConditionSensor):
    """Wait until one window, or all that a group could read at a planned-until time, is committed. Only the ledger is asked.

    :param group: the group, or its name.
    :param until: the planned-until time, usually ``"{{ data_interval_end }}"``. The sensor waits for a committed live window that was
        cut then or later, that ``max_offsets`` did not cap, and that has no older open window before it. If a group is
        capped for hours, the sensor waits until it has caught up. It fails if the window of that time was abandoned and left a gap. (templated)
    :param window_id: instead of `until`: one window. (templated)
    :param ledger_conn_id: the ledger, if `group` is only a name. By default, the configured one.
    """

    template_fields: Sequence[str] = ("until", "window_id")

    def __init__(
        self,
        *,
        group: KafkaGroup | str | None = None,
        until: datetime | str | None = None,
        window_id: str | None = None,
        ledger_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if (until is None) is (window_id is None) or (until is not None and group is None):
            raise BadInputError("Give group and until, or window_id")
        check_fields({"group": group, "ledger_conn_id": ledger_conn_id}, _KINDS)
        if isinstance(group, str):
            check_group_name(group)
        self.group = group
        self.until = until
        self.window_id = window_id
        self.ledger_conn_id = group.ledger_conn_id if isinstance(group, KafkaGroup) else ledger_conn_id

    def condition(self) -> LedgerCondition:
        """Return what is waited for."""
        if self.until is None:
            return WindowCommitted(str(self.window_id), self.ledger_conn_id)
        name = self.group.name if isinstance(self.group, KafkaGroup) else str(self.group)
        return CommittedUntil(name, parse_until(self.until), self.ledger_conn_id)
