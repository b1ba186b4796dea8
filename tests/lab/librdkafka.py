"""What the installed librdkafka knows. confluent-kafka has no function that lists its settings, so its library is asked in C."""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING

from confluent_kafka import cimpl

if TYPE_CHECKING:
    from pathlib import Path


def settings(scratch: Path) -> frozenset[str]:
    """Return the names of all settings of librdkafka, of its topics and aliases, too.

    Args:
        scratch: a file that is written.
    """
    library, libc = ctypes.CDLL(cimpl.__file__), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(str(scratch).encode(), b"w"))
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    # A table in Markdown, with a heading and a line of dashes.
    names = re.findall(r"^([a-z][\w.]+) +\|", scratch.read_text(), re.MULTILINE)
    return frozenset(names)
