"""The names of groups and windows. A window's has its group and its number."""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_kafka_offsets.core.errors import BadInputError, short

# The characters that a directory name, a Kafka group.id and a YARN tag all allow.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MAX_NAME = 200


def check_group_name(name: str) -> None:
    """Refuse a name that can't be a directory, a Kafka ``group.id`` or a cluster's tag.

    Raises:
        BadInputError: the name has other characters than these allow, or is too long.
    """
    if not isinstance(name, str) or len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise BadInputError(
            f"A group's name has 1 to {MAX_NAME} letters, digits, '.', '_' and '-', and begins with a letter or digit; got {short(name)}"
        )


def name_window(group: str, seq: int) -> str:
    """Name a window so that names sort as the windows do, up to the millionth.

    >>> name_window("lake.orders", 12)
    'lake.orders-000012'
    """
    return f"{group}-{seq:06d}"


def parse_window_id(text: str) -> tuple[str, int]:
    """Return group and seq of a window's id.

    Raises:
        BadInputError: it is not one.
    """
    group, _, seq = text.rpartition("-") if isinstance(text, str) else ("", "", "")
    # One window, one name: no second spelling with more zeros.
    if not re.fullmatch(r"[0-9]{6}|[1-9][0-9]{6,17}", seq):
        raise BadInputError(f"{short(text)} is not a window id such as lake.orders-000012")
    check_group_name(group)
    return group, int(seq)


def is_window_of(group: str, text: str) -> bool:
    """Whether a text is the id of a window of this group.

    >>> is_window_of("lake.orders", "lake.orders-000012"), is_window_of("lake.orders", "app-1")
    (True, False)
    """
    try:
        return parse_window_id(text)[0] == group
    except BadInputError:
        return False


def group_of(window_id: str) -> str:
    """Return the group of a window, by its id.

    >>> group_of("lake.orders-000012")
    'lake.orders'
    """
    return window_id.rpartition("-")[0]


def name_windows(seqs: Iterable[int]) -> str:
    """Return the text that `parse_windows` reads as these sequence numbers, which are in order.

    >>> name_windows([3, 12, 13, 14])
    '3,12-14'
    """
    runs: list[list[int]] = []
    for seq in seqs:
        if runs and runs[-1][-1] + 1 == seq:
            runs[-1].append(seq)
        else:
            runs.append([seq])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
