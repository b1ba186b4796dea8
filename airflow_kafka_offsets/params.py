"""The params with which a person asks a DAG for a replay, as a form in Airflow's Trigger dialog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Param

# The form folds a section up, and it has no text of its own: so its name has to say when it may stay folded.
_SECTION = "Replay (leave empty to run what is new)"

_WINDOWS = """\
Windows to run again, by number: `12-15,18`, or by id: `lake.orders-000012`.

Whatever is asked for here, in one of the three ways, **windows** are run again: the same offsets, under the same ids. Nothing
filled in is an ordinary run, which reads what is new.
"""
_FROM = "Or a time span: run again every window that was cut after this time ..."
_TO = "... and at this time or before. Without it: up to now."
_STARTING = """\
Or offset ranges: the first offset of each partition, such as `{"orders": {"0": 120}}`. Every window that owns one of the offsets
is run again, as a whole ...
"""
_ENDING = '... and the offset after the last one: `{"orders": {"0": 180}}`.'

# Types only, so that most mistakes reach the planner: Airflow would answer them with the bare words of jsonschema.
_TEXT: dict[str, Any] = {"type": ["null", "string"]}
_TIME: dict[str, Any] = {**_TEXT, "format": "date-time"}
# Offsets come as text as well, when a template renders them; `examples` keep the form's editor to JSON objects.
_OFFSETS: dict[str, Any] = {"type": ["null", "object", "string"], "examples": [{"orders": {"0": 120}}]}


def replay_params() -> dict[str, Param]:
    """Return the params of a replay: ``DAG(..., params=replay_params())``, ``params={**replay_params(), "mine": 1}``.

    All are None by default. A run whose params here are all None reads what is new; Airflow's form sends those that
    nobody filled in as well, so only a value that is not None asks for a replay.
    """
    from airflow.sdk import Param

    fields = {
        "windows": ("Windows", _WINDOWS, _TEXT),
        "from": ("From", _FROM, _TIME),
        "to": ("To", _TO, _TIME),
        "starting_offsets": ("Starting offsets", _STARTING, _OFFSETS),
        "ending_offsets": ("Ending offsets", _ENDING, _OFFSETS),
    }
    return {
        key: Param(None, title=title, description_md=text, section=_SECTION, **schema)
        for key, (title, text, schema) in fields.items()
    }
