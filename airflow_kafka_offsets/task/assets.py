"""Asset events of committed windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

_TOLD = ("window_id", "seq", "lane", "planned_until", "is_rerun", "span", "records", "ranges")


def emit_events(
    operator: BaseOperator, context: Context, windows: Sequence[Mapping[str, Any]], *, emit_empty: bool
) -> None:
    """Put what was committed into the event of each asset outlet. Windows without an offset make no event, unless asked.

    An alias has no event of its own: a task that uses one adds its assets itself.

    Args:
        operator: the task, with its outlets.
        context: of the task.
        windows: as `window_result` makes them.
        emit_empty: emit also when all of them are empty.
    """
    from airflow.sdk import Asset
    from airflow.sdk.definitions.asset import AssetRef

    if not emit_empty and not any(window["span"] for window in windows):
        # Airflow reads the outlets after the task has succeeded; it knows no other way to succeed without an event.
        operator.outlets = []
    extra = event_extra(windows)
    for outlet in operator.outlets:
        if isinstance(outlet, Asset | AssetRef):
            context["outlet_events"][outlet].extra.update(extra)


def event_extra(windows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what an asset event says: the group, and each window with its ranges and whether it was run again."""
    return {"group": windows[0]["group"], "windows": [{key: window[key] for key in _TOLD} for window in windows]}
