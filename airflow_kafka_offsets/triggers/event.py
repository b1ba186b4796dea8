"""Run a DAG when enough has arrived in Kafka: a trigger for an AssetWatcher."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_kafka_offsets.core.conditions import Arrived, Event, UnreadAtLeast, condition_from_json, condition_to_json
from airflow_kafka_offsets.core.errors import KafkaOffsetsError, may_pass
from airflow_kafka_offsets.core.fields import POLL_INTERVAL, check_fields
from airflow_kafka_offsets.core.group import KafkaGroup


class KafkaOffsetsTrigger(BaseEventTrigger):
    """Fires each time that enough has arrived in a group's topics, or that something unread is old enough.

    It looks at offsets only: it joins no consumer group and reads no record. After it has fired, the same records do not count
    again until a run has planned, or 15 minutes have passed without one. If the triggerer restarts in between, it may fire once
    more, and that run finds less, or nothing. It also fires once for an error that keeps a run from planning (records are gone, a login
    is refused), because people notice only a run that fails.

    :param group: the group.
    :param min_span: offsets that no window owns yet, summed over all partitions.
    :param max_age: how old the oldest of them may become, by Kafka's timestamps.
    :param poll_interval: seconds between two looks, at least 5.
    """

    def __init__(
        self,
        *,
        group: KafkaGroup | Mapping[str, Any],
        min_span: int | None = None,
        max_age: timedelta | None = None,
        poll_interval: float = 60,
    ) -> None:
        super().__init__()
        if isinstance(group, Mapping):  # from `serialize`
            stored = {"kind": UnreadAtLeast.__name__, "group": group, "min_span": min_span, "max_age": max_age}
            enough = condition_from_json(stored)
            assert isinstance(enough, UnreadAtLeast)
            self.enough = enough
        else:
            check_fields({"poll_interval": poll_interval}, {"poll_interval": POLL_INTERVAL})
            self.enough = UnreadAtLeast(group, min_span, max_age)
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the triggerer needs to make this trigger again: names of connections, no secret."""
        enough = {name: value for name, value in condition_to_json(self.enough).items() if name != "kind"}
        return f"{type(self).__module__}.{type(self).__qualname__}", {**enough, "poll_interval": self.poll_interval}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, fire, and count from there."""
        from airflow_kafka_offsets.triggers.polling import answered

        last: Event | None = None
        told: type[KafkaOffsetsError] | None = None
        while True:
            try:
                answer = await answered(Arrived(self.enough, last), self.poll_interval)
            except KafkaOffsetsError as exc:
                self.log.warning("Group %s: %s", self.enough.group.name, exc)
                if not may_pass(exc) and type(exc) is not told:
                    told = type(exc)
                    yield self._event({"error": str(exc)})
                continue
            last, told = answer.event, None
            yield self._event(answer.facts)

    def _event(self, seen: Mapping[str, Any]) -> TriggerEvent:
        return TriggerEvent({"group": self.enough.group.name, "time": datetime.now(UTC).isoformat(), **seen})
