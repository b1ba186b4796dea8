"""Wait until one of some windows is free: its holder is over, or it is committed or abandoned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

MIN_POLL = 5.0
"""Seconds before the first look, and between looks: a trigger that fires within two seconds can fail its task, as
Airflow 3.3 may still be writing down that the task was deferred."""


class WindowFreeTrigger(BaseTrigger):
    """Fires when another run may work on one of the windows, or on the next one.

    :param window_ids: the windows.
    :param ledger_conn_id: connection of the ledger; None: the configured one.
    :param is_rerun: whether the window was committed when the task was refused.
    :param poll_interval: seconds between two looks, at least 5.
    """

    def __init__(
        self, *, window_ids: Sequence[str], ledger_conn_id: str | None, is_rerun: bool, poll_interval: float
    ) -> None:
        super().__init__()
        self.window_ids = list(window_ids)
        self.ledger_conn_id = ledger_conn_id
        self.is_rerun = is_rerun
        self.poll_interval = max(poll_interval, MIN_POLL)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the triggerer needs to make this trigger again: names only, no secret."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "window_ids": self.window_ids,
                "ledger_conn_id": self.ledger_conn_id,
                "is_rerun": self.is_rerun,
                "poll_interval": self.poll_interval,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look, wait, look again. A ledger that does not answer is looked at again too: the waiting task is innocent."""
        from asgiref.sync import sync_to_async

        from airflow_kafka_offsets.core.errors import LedgerUnavailableError

        while True:
            await asyncio.sleep(self.poll_interval)
            try:
                # A thread of its own: a ledger that hangs must not hold up what other triggers ask.
                is_free = await sync_to_async(self.is_free, thread_sensitive=False)()
            except LedgerUnavailableError as exc:
                self.log.warning("Waiting for window %s: %s", self.window_ids[0], exc)
                continue
            if is_free:
                yield TriggerEvent({"window_ids": self.window_ids})
                return

    def is_free(self) -> bool:
        """Look once."""
        from airflow_kafka_offsets.core.plan import ownership
        from airflow_kafka_offsets.wiring.absent import open_ledger_to_look
        from airflow_kafka_offsets.wiring.runs import is_over

        ledger = open_ledger_to_look(self.ledger_conn_id)
        held_windows = (ledger.window(window_id).held for window_id in self.window_ids)
        return any(ownership.is_free(h, is_rerun=self.is_rerun, holder_is_over=is_over(h.holder)) for h in held_windows)
