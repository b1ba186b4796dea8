"""The words of lag: verdicts, what to type next, and lengths of time for a person."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from airflow_kafka_offsets.core import errors
from airflow_kafka_offsets.core.window_id import name_windows, parse_window_id


class GroupVerdict(StrEnum):
    """The verdict on a group in one word, from best to worst. `core.lag.verdict` has the rules."""

    OK = "OK"
    BEHIND = "BEHIND"
    STALLED = "STALLED"
    NEEDS_RERUN = "NEEDS RERUN"
    AT_RISK = "AT RISK"
    LOST = "LOST"


_WORST_FIRST = (
    *(GroupVerdict.LOST, GroupVerdict.AT_RISK, GroupVerdict.NEEDS_RERUN, GroupVerdict.STALLED, GroupVerdict.BEHIND),
    *(None, GroupVerdict.OK),
)


def place(verdict: GroupVerdict | None) -> int:
    """Return the rank of a verdict, the worst first. A group without one may be in any state: it comes before those that are OK.

    >>> [place(verdict) for verdict in (GroupVerdict.LOST, GroupVerdict.BEHIND, None, GroupVerdict.OK)]
    [0, 4, 5, 6]
    """
    return _WORST_FIRST.index(verdict)


@dataclass(frozen=True, slots=True)
class Advice:
    """What a person types next when a group has a verdict, the same in status, watch and on the page.

    Attributes:
        words: what the command shows, and what else helps.
        command: can be pasted.
    """

    words: str
    command: str

    def __str__(self) -> str:
        return f"{self.words}: {self.command}"


_NEXT = {
    GroupVerdict.BEHIND: ("By partition", "status"),
    GroupVerdict.STALLED: ("Its open windows, and the runs that hold them", "status"),
    GroupVerdict.NEEDS_RERUN: ("What runs again, and how", "plan"),
    GroupVerdict.AT_RISK: ("To gain time, raise the retention. By partition", "status"),
    GroupVerdict.LOST: ("What is gone, and how to continue without it", "plan"),
}


def advice(group: str, verdict: GroupVerdict | None, reruns: Sequence[str] = ()) -> Advice | None:
    """Return what to do next for a group; None if nothing has to be done, or the verdict is unknown.

    Args:
        group: its name.
        verdict: the verdict.
        reruns: the windows that need another run.

    >>> print(advice("lake.orders", GroupVerdict.NEEDS_RERUN, ["lake.orders-000003"]))
    What runs again, and how: kafka-offsets plan lake.orders --windows 3
    >>> print(advice("lake.orders", GroupVerdict.LOST))
    What is gone, and how to continue without it: kafka-offsets plan lake.orders
    >>> advice("lake.orders", GroupVerdict.OK)
    """
    if verdict not in _NEXT:
        return None
    words, command = _NEXT[verdict]
    windows = ""
    if verdict == GroupVerdict.NEEDS_RERUN:
        windows = f" --windows {name_windows(parse_window_id(id_)[1] for id_ in reruns)}"
    return Advice(words, f"kafka-offsets {command} {group}{windows}")


NOT_ASKED = "Kafka was not asked"


def why_unknown(kind: str | None) -> str:
    """Return what happened to a question about a group that has no answer.

    Args:
        kind: the name of the error's class in `core.errors`; None if none is known.

    >>> [why_unknown(kind) for kind in ("KafkaRefusedError", "KafkaUnavailableError", "NoConnectionError", "KafkaOffsetsError")]
    ['Kafka refused', 'Kafka did not answer', 'Kafka was not asked', 'not known']
    >>> [why_unknown(kind) for kind in ("MissingPartitionError", "LedgerError")]
    ['Kafka has no such topic', "the ledger can't be read"]
    """
    match getattr(errors, kind or "", None):
        case errors.KafkaRefusedError:
            return "Kafka refused"
        case errors.KafkaUnavailableError:
            return "Kafka did not answer"
        case errors.MissingPartitionError:
            return "Kafka has no such topic"
        case type() as other if issubclass(other, errors.BadInputError):
            # Its connection is wrong, or a client is not installed: no question was sent.
            return NOT_ASKED
        case type() as other if issubclass(other, errors.LedgerError):
            return "the ledger can't be read"
    return "not known"


OPEN_FOR = timedelta(minutes=15)
"""A transaction that is open for longer hangs: Kafka ends it before that, unless ``transaction.max.timeout.ms`` was raised."""


def hiding(partitions: Collection[object]) -> str:
    """Return a sentence on a transaction that hangs, without its capital letter."""
    return f"a transaction that is open for more than {length(OPEN_FOR.total_seconds())} hides records of {errors.name_some(partitions, ', ')}"


_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def length(seconds: float) -> str:
    """Return a length of time in its two largest units.

    >>> [length(s) for s in (0.2, 59.6, 125, 7200, 90_000, 8_640_000)]
    ['0 s', '59 s', '2 min 5 s', '2 h', '1 d 1 h', '100 d']
    """
    left = int(seconds)
    parts: list[str] = []
    for i, (unit, size) in enumerate(_UNITS):
        number, rest = divmod(left, size)
        if number:
            parts.append(f"{number} {unit}")
            if rest and i + 1 < len(_UNITS) and (more := rest // _UNITS[i + 1][1]):
                parts.append(f"{more} {_UNITS[i + 1][0]}")
            break
    return " ".join(parts) or "0 s"
