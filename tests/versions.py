"""What the installed Airflow has, for tests of what only some of the supported versions have; see docs/compatibility.md."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from airflow.sdk import DAG


def has(module: str, name: str) -> bool:
    """Whether the installed Airflow has a name in a module."""
    try:
        return hasattr(import_module(module), name)
    except ImportError:
        return False


IS_AIRFLOW_3_1 = find_spec("airflow.sdk.providers_manager_runtime") is None
"""The oldest one that is supported."""

HAS_COMMANDS_OF_PROVIDERS = not IS_AIRFLOW_3_1
"""Whether there is ``airflow kafka-offsets``."""

KEEPS_TASK_STATE = has("airflow.sdk", "ResumableJobMixin")
"""Whether a retry knows what the try before it noted."""

PASSES_ON_SIGNALS = KEEPS_TASK_STATE
"""Whether a worker that is asked to stop asks its task, too: from Airflow 3.3 on."""

needs_task_state = pytest.mark.skipif(
    not KEEPS_TASK_STATE, reason="Airflow keeps the state of a task from version 3.3 on"
)
needs_retry_policies = pytest.mark.skipif(
    not has("airflow.sdk", "RetryPolicy"), reason="Airflow has retry policies from version 3.3 on"
)
needs_awaiting_input = pytest.mark.skipif(
    not has("airflow.sdk.exceptions", "TaskAwaitingInput"),
    reason="in this Airflow, no task can wait for a person's input",
)
needs_light_providers = pytest.mark.skipif(
    IS_AIRFLOW_3_1,
    reason="in Airflow 3.1, the parse of a TaskFlow function imports what each provider says of itself",
)


def stored(dag: DAG) -> dict[str, Any]:
    """Return a DAG as Airflow stores it."""
    document: dict[str, Any] = _serialization().to_dict(dag)
    return document


def read_again(document: dict[str, Any]) -> Any:
    """Return a DAG from what Airflow stored of it."""
    return _serialization().from_dict(document)


def _serialization() -> Any:
    from airflow.serialization import serialized_objects

    # Airflow 3.1 has both functions in the class of what they make.
    return getattr(serialized_objects, "DagSerialization", serialized_objects.SerializedDAG)
