"""What differs between the versions of Airflow that this package runs on: the modules of some names, and what a version lacks.

Airflow's own provider `common.compat` knows most of these modules. A name is looked up when it is first used, because the parse of a
DAG imports as little as possible. A name that all versions have in one module does not belong here: import it from there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

    from airflow.dag_processing.dagbag import BundleDagBag as BundleDagBag
    from airflow.providers.common.compat.sdk import AirflowException as AirflowException
    from airflow.providers.common.compat.sdk import AirflowFailException as AirflowFailException
    from airflow.providers.common.compat.sdk import AirflowNotFoundException as AirflowNotFoundException
    from airflow.providers.common.compat.sdk import (
        AirflowOptionalProviderFeatureException as AirflowOptionalProviderFeatureException,
    )
    from airflow.providers.common.compat.sdk import AirflowPlugin as AirflowPlugin
    from airflow.providers.common.compat.sdk import AirflowSensorTimeout as AirflowSensorTimeout
    from airflow.providers.common.compat.sdk import AirflowSkipException as AirflowSkipException
    from airflow.providers.common.compat.sdk import AirflowTaskTimeout as AirflowTaskTimeout
    from airflow.providers.common.compat.sdk import DagRunTriggerException as DagRunTriggerException
    from airflow.providers.common.compat.sdk import DownstreamTasksSkipped as DownstreamTasksSkipped
    from airflow.providers.common.compat.sdk import Stats as Stats
    from airflow.providers.common.compat.sdk import TaskDeferred as TaskDeferred
    from airflow.providers.common.compat.sdk import conf as conf
    from airflow.providers.common.compat.sdk import mask_secret as mask_secret
    from airflow.providers.common.compat.sdk import redact as redact
    from airflow.sdk.exceptions import AirflowRescheduleException as AirflowRescheduleException
    from airflow.sdk.exceptions import AirflowTaskTerminated as AirflowTaskTerminated
    from airflow.sdk.exceptions import TaskAwaitingInput as TaskAwaitingInput

_COMPAT = ("airflow.providers.common.compat.sdk",)
_EXCEPTIONS = ("airflow.sdk.exceptions", "airflow.exceptions")

PLACES: dict[str, tuple[str, ...]] = {
    "AirflowException": _COMPAT,
    "AirflowFailException": _COMPAT,
    "AirflowNotFoundException": _COMPAT,
    "AirflowOptionalProviderFeatureException": _COMPAT,
    "AirflowPlugin": _COMPAT,
    "AirflowRescheduleException": _EXCEPTIONS,
    "AirflowSensorTimeout": _COMPAT,
    "AirflowSkipException": _COMPAT,
    "AirflowTaskTerminated": _EXCEPTIONS,
    "AirflowTaskTimeout": _COMPAT,
    "BundleDagBag": ("airflow.dag_processing.dagbag", "airflow.models.dagbag"),
    "DagRunTriggerException": _COMPAT,
    "DownstreamTasksSkipped": _COMPAT,
    "Stats": _COMPAT,
    "TaskAwaitingInput": _EXCEPTIONS,
    "TaskDeferred": _COMPAT,
    "conf": _COMPAT,
    "mask_secret": _COMPAT,
    "redact": _COMPAT,
}
"""The modules in which a name may be, the newest version's first."""


NO_TASK_STATE = "Airflow keeps no state of this task between its tries (it does from version 3.3 on)"
"""Begins the sentence about what a retry can't do. The context of a task then has no `task_state_store`."""


def partition_of(dag_run: Any) -> tuple[str | None, datetime | None]:
    """Return the key and the date of a run's partition. Airflow 3.1 has no partitions, and 3.2 does not tell tasks the date."""
    return getattr(dag_run, "partition_key", None), getattr(dag_run, "partition_date", None)


def bundle_version_of(task_instance: Any) -> str | None:
    """Return the version of the DAG's bundle whose code a task runs, or None. `airflow dags test` gives its tasks no bundle."""
    version: str | None = getattr(getattr(task_instance, "bundle_instance", None), "version", None)
    return version


def has_partitions() -> bool:
    """Whether a task can give an asset's event the keys of partitions. Before Airflow 3.3, an event has the key of its run, or none."""
    import airflow.sdk

    return hasattr(airflow.sdk, "PartitionedAtRuntime")


class NeverRaised(BaseException):
    """Stands for an exception that this version of Airflow does not have, so that no one raises it."""


_IF_ABSENT = {"TaskAwaitingInput": NeverRaised}


def found(name: str) -> Any:
    """Return what a name stands for in the installed Airflow.

    Raises:
        ImportError: this Airflow has it nowhere.
    """
    cause: Exception | None = None
    for module in PLACES[name]:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError) as exc:
            cause = exc
    if name in _IF_ABSENT:
        return _IF_ABSENT[name]
    raise ImportError(f"The installed Airflow has {name} in none of {', '.join(PLACES[name])}") from cause


if not TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name not in PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found(name)
        return globals()[name]
