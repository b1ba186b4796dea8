"""The name of a window: its group and its number."""

from __future__ import annotations

import re

from airflow_kafka_offsets.core.errors import BadInputError, short
from airflow_kafka_offsets.core.group import check_group_name


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


def group_of(window_id: str) -> str:
    """Return the group of a window, by its id.

    >>> group_of("lake.orders-000012")
    'lake.orders'
    """
    return window_id.rpartition("-")[0]
