"""The params with which a person asks a DAG for a replay, as a form in Airflow's Trigger dialog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Param

# The form folds a section up, and it has no text of its own: so its name has to say when it may stay folded.
_SECTION = "Replay (leave empty to run what is new)"

_WINDOWS = """\
By number: `12-15,18`, or by id: `lake.orders-000012`.

There are three ways to say what to run again: windows, a time span, offset ranges. It is always **whole windows** that run again:
the same offsets, under the same ids. With nothing filled in, the run reads what is new.
"""
_FROM = "Runs every window again that was cut after this time ..."
_TO = "... and at this time or before."
_GROUP = """\
Which group is replayed. Needed in a DAG with several groups only; tasks of the others are skipped then. For a run that reads what is new it
means nothing.
"""
_STARTING = """\
The first offset of each partition: `{"orders": {"0": 120}}`. Runs every window again that holds one of the offsets from here on ...
"""
_ENDING = '... and before these: `{"orders": {"0": 180}}`.'

# Types only, so that most mistakes reach the planner: Airflow would answer them with the bare words of jsonschema.
_TEXT: dict[str, Any] = {"type": ["null", "string"]}
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
        "windows": ("Windows", _WINDOWS, _TEXT),
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
