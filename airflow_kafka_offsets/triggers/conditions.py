"""The trigger of a deferred sensor, and of a task that waits for another run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent


class ConditionTrigger(BaseTrigger):
    """Fires when a condition is met, or when waiting can no longer help.

    :param condition: the condition as JSON-able data, see `core.conditions.condition_to_json`.
    :param poll_interval: seconds between two looks, at least 5.
    :param silent_fail: keep waiting after any error.
    """

    def __init__(self, *, condition: Mapping[str, Any], poll_interval: float, silent_fail: bool = False) -> None:
        super().__init__()
        self.condition = condition
        self.poll_interval = poll_interval
        self.silent_fail = silent_fail

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the triggerer needs to make this trigger again: names of connections, no secret."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {"condition": dict(self.condition), "poll_interval": self.poll_interval, "silent_fail": self.silent_fail},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait. What does not answer is asked again, until the task's time-out."""
        from airflow_kafka_offsets.core.conditions import condition_from_json
        from airflow_kafka_offsets.core.errors import KafkaOffsetsError, may_pass
        from airflow_kafka_offsets.triggers.polling import answered, shortest_deferral

        condition = condition_from_json(self.condition)
        while True:
            try:
                answer = await answered(condition, self.poll_interval, shortest_deferral())
            except KafkaOffsetsError as exc:
                if may_pass(exc) or self.silent_fail:
                    self.log.warning("Still waiting: %s", exc)
                    continue
                yield TriggerEvent({"error": type(exc).__name__, "message": str(exc)})
                return
            yield TriggerEvent({"seen": dict(answer.facts)})
            return
