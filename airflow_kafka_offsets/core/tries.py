"""One try of a task, and which earlier ones it continues (docs/adr/0008).

A retry continues what the tries before it did; a clear begins again. Airflow does not say which of the two a try is. It sets
`max_tries` when a run is made, and moves it with each clear of this very task to the number of the last try plus the retries that
the task has at that moment. A retry moves nothing. So `max_tries` tells tries apart that a clear divides, but for one case: an edit of
`retries` can bring a clear to the number of before. Two more facts settle that: the number of each try, which only grows, and the start of
the run, which a clear moves once the run has ended, and which another run under the same id does not share.

Where these leave a doubt, the try begins again: that costs a job, and the other mistake costs records. Two clears still look like a
retry, and nothing that Airflow says tells them apart: of a run that is still at work, with retries that were lowered before it and raised
again after it; and of a task whose worker was dead already, as Airflow moves `max_tries` only once the worker's process has ended well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from airflow_kafka_offsets.core.history import Attempt


@dataclass(frozen=True, slots=True)
class Try:
    """What Airflow says of one try of a task.

    Attributes:
        number: counts the tries of the task in its run, from 1; retries and clears count on.
        max_tries: moved by a clear of this very task; not by its retry, and not by the clear of another task.
        retries: those of the task as it is now; whoever edits the DAG changes them between two tries.
        run_started: when the run began, or began again after it had ended; None: Airflow does not say.
    """

    number: int = 1
    max_tries: int = 0
    retries: int = 0
    run_started: datetime | None = None

    @property
    def series(self) -> str:
        """What all automatic retries share with the try that they repeat."""
        started = "" if self.run_started is None else self.run_started.astimezone(UTC).isoformat()
        return f"{self.max_tries} {started}".rstrip()

    @property
    def last_clear(self) -> int:
        """The number of the try after which the task was last cleared, by the retries that it has now; 0: never."""
        return max(0, self.max_tries - self.retries)

    def continues(self, earlier: Attempt) -> bool:
        """Whether this try is a retry of an earlier one of the same task: no clear lies between them, as far as Airflow says."""
        return earlier.series == self.series and earlier.try_number > self.last_clear


def first_of_series(this_try: Try, begun: Sequence[Attempt]) -> Attempt:
    """Return the oldest of the tries that a try continues, or the try itself, which begins again.

    Args:
        this_try: the try.
        begun: what one task has begun, oldest first; the try is one of them.
    """
    continued = [one for one in begun if this_try.continues(one)]
    itself = [one for one in begun if one.try_number == this_try.number]
    return continued[0] if continued else itself[-1]
