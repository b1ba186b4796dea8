"""What our operators need when a DAG is parsed; what they do in a task is imported there."""

from __future__ import annotations

from typing import Literal, get_args

from airflow_kafka_offsets.core.errors import BadInputError, KafkaOffsetsError

OnOpenWindow = Literal["wait", "skip", "fail"]


def check_on_open_window(value: str) -> None:
    """Refuse another answer than wait, skip or fail.

    Raises:
        BadInputError: with the three.
    """
    if value not in get_args(OnOpenWindow):
        raise BadInputError(f"on_open_window must be one of {', '.join(get_args(OnOpenWindow))}; got {value!r}")


class Stop:
    """Whether somebody stopped the task: `on_kill` runs in a signal handler, and does not stop `execute`."""

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        """Let the task start nothing and commit nothing any more."""
        self.is_set = True

    def check(self) -> None:
        """Raise if the task was stopped."""
        if self.is_set:
            raise KafkaOffsetsError("The task was stopped: nothing is launched any more, and nothing is committed")
