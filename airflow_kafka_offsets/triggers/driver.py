"""The trigger of a task that has given its worker slot back while its Spark driver runs on a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_kafka_offsets.core.launch.jobs import SILENT_LOOKS, JobState

_GOES_ON = {"deferred", "scheduled", "queued", "running"}
"""States of a task that nobody has ended. A cleared task that is here already stops its old driver itself."""


class DriverTrigger(BaseTrigger):
    """Fires when a driver is over, when the task's time is over, or after `SILENT_LOOKS` looks without an answer.

    The event only names the driver: the resumed task looks itself, as a retry does.

    :param cluster: leads to the cluster: the name of the Spark connection, and no secret.
    :param driver: the driver's id there.
    :param poll_interval: seconds between two looks, at least 5.
    :param until: when the task's time is over, as a text in ISO's form, or None if it has no end.
    """

    def __init__(
        self, *, cluster: Mapping[str, str | None], driver: str, poll_interval: float, until: str | None = None
    ) -> None:
        super().__init__()
        self.cluster = cluster
        self.driver = driver
        self.poll_interval = poll_interval
        self.until = until

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the triggerer needs to make this trigger again: names of connections, no secret."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "cluster": dict(self.cluster),
                "driver": self.driver,
                "poll_interval": self.poll_interval,
                "until": self.until,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch the driver. Whoever runs this trigger next, after a triggerer died, begins again."""
        from airflow_kafka_offsets.core.conditions import DriverOver
        from airflow_kafka_offsets.triggers.polling import answered, shortest_deferral

        over = DriverOver(self.cluster, self.driver)
        for _ in range(SILENT_LOOKS):
            try:
                async with asyncio.timeout(self._seconds_left(shortest_deferral())):
                    await answered(over, self.poll_interval, shortest_deferral())
                break
            except TimeoutError:
                break
            except Exception as exc:  # whatever it is, the driver goes on, and someone has to see its end
                self.log.warning("Still waiting for driver %s: %s", self.driver, exc)
        yield TriggerEvent({"driver": self.driver})

    def _seconds_left(self, at_least: float) -> float | None:
        if self.until is None:
            return None
        return max(at_least, (datetime.fromisoformat(self.until) - datetime.now(UTC)).total_seconds())

    async def on_kill(self) -> None:
        """Stop the driver, because a person marked or cleared the task."""
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        from airflow_kafka_offsets.core.window import Claim
        from airflow_kafka_offsets.launch.submit_hook import cluster_of
        from airflow_kafka_offsets.wiring.runs import task_state

        ti: Any = self.task_instance
        # Airflow also calls this when another triggerer has taken over, because this one was slow: then the task still waits or goes on.
        if task_state(Claim(ti.dag_id, ti.run_id, ti.task_id, ti.map_index)) in _GOES_ON:
            return
        cluster = cluster_of(self.cluster)
        if cluster.state(self.driver) is JobState.ALIVE:  # one that has ended may have a success that nobody has noted
            self.log.info("Stopping driver %s: its task was marked or cleared", self.driver)
            cluster.stop(self.driver)
