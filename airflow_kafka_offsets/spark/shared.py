"""What Airflow's side of a job and its Spark side must both know. `core` imports this one file of the job side."""

from __future__ import annotations

import hashlib

MAX_NAMED = 10
"""How many partitions, windows and the like one message names; of the others it gives the number."""

MAX_VALUE = 100
"""Characters that a message shows of a value."""

# Options that a window fixes, or that Spark's connector refuses. In lower case, because Spark ignores case.
FIXED_OPTIONS = frozenset(
    {
        "assign",
        "subscribe",
        "subscribepattern",
        "startingoffsets",
        "endingoffsets",
        "startingtimestamp",
        "endingtimestamp",
        "startingoffsetsbytimestamp",
        "endingoffsetsbytimestamp",
        "startingoffsetsbytimestampstrategy",
        "failondataloss",
        "kafka.isolation.level",
        "kafka.auto.offset.reset",
        "kafka.enable.auto.commit",
        "kafka.key.deserializer",
        "kafka.value.deserializer",
        "kafka.interceptor.classes",
    }
)


def stage_prefix(window_id: str, table: str) -> str:
    """Return the prefix of the names of all staging tables of a window and a target.

    >>> stage_prefix("lake.orders-000012", "public.orders")
    'kafka_offsets_stage_fd2b9e51bc_'
    """
    return f"kafka_offsets_stage_{hashlib.sha256(f'{table} {window_id}'.encode()).hexdigest()[:10]}_"


def short(value: object) -> str:
    """Return how Python writes a value, cut if it is long.

    >>> short("false"), short("x" * 200)[-10:]
    ("'false'", 'xxxxxxx...')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of thousands of digits, lists in thousands of lists
        text = f"a {type(value).__name__} too large to be shown"
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 3] + "..."


def error_in_short(exc: BaseException) -> str:
    r"""Return the kind of an exception, and the first two lines of what it says: of one of Java, the first says nothing.

    >>> error_in_short(ValueError("An error occurred\nNo such file\n\tat Main.java"))
    'ValueError: An error occurred No such file'
    """
    return f"{type(exc).__name__}: {' '.join(str(exc).splitlines()[:2])}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "window"), counted(2, "window")
    ('1 window', '2 windows')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"
