"""What a person types next when a group has a verdict. Status, watch and the page say the same; docs/howto tells why."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_kafka_offsets.core.lag.words import GroupVerdict


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do next.

    Attributes:
        words: what the command tells, and what else helps; a colon and the command follow.
        command: can be pasted.
    """

    words: str
    command: str

    def __str__(self) -> str:
        return f"{self.words}: {self.command}"


_NEXT = {
    GroupVerdict.BEHIND: ("By partition", "status"),
    GroupVerdict.STALLED: ("Its open windows, if it has any, and the runs that hold them", "status"),
    GroupVerdict.AT_RISK: ("To gain time, raise the retention of its topics. By partition", "status"),
    GroupVerdict.LOST: ("What is gone, and what to type to continue without it", "plan"),
}


def advice(group: str, verdict: GroupVerdict | None) -> Advice | None:
    """Return what to do next for a group; None if nothing has to be done, or no verdict is known.

    >>> print(advice("lake.orders", GroupVerdict.LOST))
    What is gone, and what to type to continue without it: kafka-offsets plan lake.orders
    >>> advice("lake.orders", GroupVerdict.OK)
    """
    if verdict not in _NEXT:
        return None
    words, command = _NEXT[verdict]
    return Advice(words, f"kafka-offsets {command} {group}")
