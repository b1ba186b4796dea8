"""The params with which a person asks a DAG for a replay, as a form in Airflow's Trigger dialog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Param

# The form folds a section up, and it has no text of its own: so its name has to say when it may stay folded.
_SECTION = "Replay (leave empty to run what is new)"

_WINDOWS = """\
By number: `12-15,18`, or by id: `lake.orders-000012`.

Name windows, a time span or offset ranges. **Whole windows** run again: the same offsets, under the same ids.
"""
_FROM = "The windows that were planned until a later time than this ..."
_TO = "... and until this time or earlier."
_GROUP = "Only in a DAG with several groups: the group to replay. Tasks of the others are skipped."
_STARTING = 'The windows with offsets from these on: `{"orders": {"0": 120}}` ...'
_ENDING = '... and before these: `{"orders": {"0": 180}}`.'

# Types only, so that most mistakes reach the planner: Airflow would answer them with the bare words of jsonschema.
_TEXT: dict[str, Any] = {"type": ["null", "string"]}
# A number stands for a window, too. Without `examples`, the form has one large field for values of several types.
_WINDOW_IDS: dict[str, Any] = {"type": ["null", "string", "integer"], "examples": ["12-15,18"]}
_TIME: dict[str, Any] = {**_TEXT, "format": "date-time"}
# Offsets come as text as well, when a template renders them; `examples` keep the form's editor to JSON objects.
_OFFSETS: dict[str, Any] = {"type": ["null", "object", "string"], "examples": [{"orders": {"0": 120}}]}


def replay_params() -> dict[str, Param]:
    """Return the params of a replay: ``DAG(..., params=replay_params())``, ``params={**replay_params(), "mine": 1}``.

    All are None by default. A run whose params here are all None reads what is new; Airflow's form sends those that
    no one filled in as well, so only a value that is not None asks for a replay.
    """
    from airflow.sdk import Param

    fields = {
        "windows": ("Windows", _WINDOWS, _WINDOW_IDS),
        "from": ("Time span: from", _FROM, _TIME),
        "to": ("Time span: to", _TO, _TIME),
        "starting_offsets": ("Offset ranges: start", _STARTING, _OFFSETS),
        "ending_offsets": ("Offset ranges: end", _ENDING, _OFFSETS),
        "group": ("Group", _GROUP, _TEXT),
    }
    return {
        key: Param(None, title=title, description_md=text, section=_SECTION, **schema)
        for key, (title, text, schema) in fields.items()
    }
