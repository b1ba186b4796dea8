"""What a text means that Spark takes for the place of a file."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import urlsplit

_NO_RESOURCE = "spark-internal"
"""What Spark takes for "the class is in the jars": SparkLauncher.NO_RESOURCE."""


def is_path(text: str) -> bool:
    """Whether it is a path of the machine that launches: no URL, and something at all.

    >>> [is_path(text) for text in ("jobs/orders.py", "/opt/orders.py", "s3a://jobs/orders.py", "local:/o.py", "spark-internal", "")]
    [True, True, False, False, False, False]
    """
    return text not in ("", _NO_RESOURCE) and not urlsplit(text).scheme


def is_relative(text: str) -> bool:
    """Whether it is a path that begins somewhere else than at the root.

    >>> [is_relative(text) for text in ("jobs/orders.py", "/opt/orders.py", "s3a://jobs/orders.py")]
    [True, False, False]
    """
    return is_path(text) and not PurePosixPath(text).is_absolute()
