"""What the operators need when a DAG is parsed. What they need only in a task is imported there."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, get_args

from airflow_kafka_offsets.core.errors import (
    BadInputError,
    JobUnseenError,
    KafkaOffsetsError,
    NotYetError,
    rebuilt,
)
from airflow_kafka_offsets.core.fields import FLAG, POLL_INTERVAL, TEXT, Kinds, one_of, or_none
from airflow_kafka_offsets.core.group import GROUP, KafkaGroup

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.lineage import ReadWindow

_P = ParamSpec("_P")
_T = TypeVar("_T")

OnOpenWindow = Literal["wait", "skip", "fail"]


PLANNING: Kinds = {"group": GROUP, "on_open_window": one_of(get_args(OnOpenWindow)), "poll_interval": POLL_INTERVAL}
"""What every operator that plans takes. Templated values are checked after they are rendered."""

JOB: Kinds = {
    **PLANNING,
    "emit_empty": FLAG,
    "connector": or_none(TEXT),
}
"""What every operator that runs Spark takes."""


class PlanningFields:
    """The fields of every operator that plans. As a base class, it comes before the classes of Airflow's operators."""

    group: KafkaGroup
    on_open_window: OnOpenWindow
    poll_interval: float
    execution_timeout: timedelta | None


def failing_at_once(execute: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let a task fail without a retry when a person has to correct something: a retry would read the same again.

    The task is still tried again if waiting may help, as before the live lane has passed the end of a backfill's interval. It also
    fails at once if another try would start a job beside one that it can't see.
    This is for `execute` and `resume` of an operator.
    """

    @wraps(execute)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return execute(*args, **kwargs)
        except NotYetError:
            raise
        except (BadInputError, JobUnseenError) as exc:
            from airflow_kafka_offsets.airflow_versions import AirflowFailException

            # In place of `exc`: two tracebacks that end with the same sentence would be one too many.
            begun = exc.__traceback__.tb_next if exc.__traceback__ is not None else None
            raise AirflowFailException(str(exc)).with_traceback(begun) from exc.__cause__

    return checked


def check_event(event: object) -> None:
    """Raise the error that ended the triggerer's wait, see `triggers.conditions`. Otherwise the resumed task would wait again."""
    if isinstance(event, Mapping) and "error" in event:
        raise rebuilt(event["error"], event["message"])


class Stop:
    """Whether someone stopped the task: `on_kill` runs in a signal handler, and does not stop `execute`."""

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        """From now on, let the task start nothing and commit nothing."""
        self.is_set = True

    def is_kill(self, exc: BaseException) -> bool:
        """Whether the task failed because someone stopped it, and not because of its time-out, which stops it, too."""
        from airflow_kafka_offsets.airflow_versions import AirflowTaskTimeout

        return self.is_set and not isinstance(exc, AirflowTaskTimeout)

    def check(self) -> None:
        """Raise if the task was stopped."""
        if self.is_set:
            raise KafkaOffsetsError("The task was stopped: nothing more is launched, and nothing is committed")


class OneStopPerTry:
    """Gives each try of an operator its own `Stop`. As a base class, it comes before the classes of Airflow's operators.

    `airflow dags test` runs all tries of a task in one process, each on a shallow copy of the same object. So the copy keeps the flag,
    which a signal may have set already, and the object gets a new one for the next try.
    """

    _stop: Stop

    def prepare_for_execution(self) -> Any:
        """Return the copy that one try runs on; Airflow calls this as each try begins, and `on_kill` on the copy from then on."""
        copy = super().prepare_for_execution()  # type: ignore[misc]
        self._stop = Stop()
        return copy


class Lineage:
    """Gives OpenLineage the windows that a task read. As a base class, it comes before the classes of Airflow's operators."""

    _traced: tuple[str, Container[str], Callable[[], Sequence[ReadWindow]]] | None = None

    def trace(self, servers: str, topics: Container[str], read: Callable[[], Sequence[ReadWindow]]) -> None:
        """Keep what OpenLineage's provider gets. It runs in a fork of the process, where nothing should look for a connection.

        Args:
            servers: Kafka's bootstrap servers.
            topics: those that the group reads.
            read: return the windows that the task worked on.
        """
        self._traced = servers, topics, read

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return the topics with the ranges that were read, the outlets, and the windows; nothing if the task had no window."""
        from airflow_kafka_offsets.task.openlineage import lineage_of, nothing_read

        if self._traced is None:
            return nothing_read()
        servers, topics, read = self._traced
        return lineage_of(self, task_instance, servers, topics, read())

    get_openlineage_facets_on_failure = get_openlineage_facets_on_complete
