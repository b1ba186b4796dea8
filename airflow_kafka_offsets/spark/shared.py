"""What both sides of a job need. `core` imports this one file of the job side."""

from __future__ import annotations

import hashlib
import re

MAX_NAMED = 10
"""The most partitions, windows and the like that a message names; it counts the others."""

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


_SECRET = re.compile(
    r"password|passwd|pwd|pass.?phrase|secret|(?:api|access|account).?key|token(?!\.endpoint)|credentials?$|user\.?info|jaas"
    r"|(?<!security\.)authorization|client.?assertion(?!\.(?:type|file|location))|oauthbearer\.config|key\.pem|keystore\.key",
    re.IGNORECASE,
)
# A password before the host of an address, or after its question mark; not a reference, which `core.secrets` makes a NUL. A key in PEM.
_SECRET_VALUE = re.compile(
    r"//[^/@:\s]*:(?!\0+@)[^/@\s]+@|(?:password|passwd|pwd)\d?=(?!\0)|PRIVATE KEY-----", re.IGNORECASE
)


def is_secret(name: str, value: str = "") -> bool:
    """Whether the value of a setting must never be shown, by its name or by what it holds.

    >>> [is_secret(name) for name in ("sasl.password", "kafka.SASL.jaas.config", "apikey", "ssl.key.location", "group.id")]
    [True, True, True, False, False]
    >>> is_secret("url", "https://lake:hunter2@host"), is_secret("url", "https://lake@host:8081")
    (True, False)
    """
    return bool(_SECRET.search(name) or _SECRET_VALUE.search(value))


def stage_prefix(window_id: str, table: str) -> str:
    """Return the prefix of the names of all staging tables of a window and a target.

    >>> stage_prefix("lake.orders-000012", "public.orders")
    'kafka_offsets_stage_de6437e2c4_'
    """
    return f"kafka_offsets_stage_{hashlib.sha256(f'{table} {window_id}'.encode()).hexdigest()[:10]}_"


_REPORT = re.compile(r"(\d+)-(.+)\.(\d+)")


def report_name(number: int, own: str, serial: int) -> str:
    """Return the name of the folder of one report of a job.

    Args:
        number: one more than that of any report when the job took its window. It orders jobs, because clocks may differ.
        own: unique for the job.
        serial: counts the reports of the job. The job never removes or rewrites one, so its number is never missing.
    """
    return f"{number:06d}-{own}.{serial}"


def report_order(name: str) -> tuple[int, str, int] | None:
    """Return number, own name and serial from the name of a report's folder, or None for another name.

    The largest is the last report of the job that took the window last.

    >>> report_order(report_name(7, "20260131T120000Z-5ad0", 2)), report_order("notes.txt")
    ((7, '20260131T120000Z-5ad0', 2), None)
    """
    match = _REPORT.fullmatch(name)
    return (int(match[1]), match[2], int(match[3])) if match else None


def short(value: object) -> str:
    """Return the repr of a value, cut if it is long.

    >>> short("false"), short("x" * 200)[-10:]
    ("'false'", 'xxxxxxx...')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of thousands of digits, lists in thousands of lists
        text = f"a large {type(value).__name__}"
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 3] + "..."


def error_in_short(exc: BaseException) -> str:
    r"""Return the class of an exception and the first two lines of its message; Java's first line is empty words.

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
