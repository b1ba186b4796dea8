"""Whether a text that Spark reads as a file's location is a local path."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import urlsplit

_NO_RESOURCE = "spark-internal"
"""Spark's value for "the class is in the jars": SparkLauncher.NO_RESOURCE."""


def is_path(text: str) -> bool:
    """Whether a text is a path on the machine that launches: not a URL, not empty.

    >>> [is_path(text) for text in ("jobs/orders.py", "/opt/orders.py", "s3a://jobs/orders.py", "local:/o.py", "spark-internal", "")]
    [True, True, False, False, False, False]
    """
    return text not in ("", _NO_RESOURCE) and not urlsplit(text).scheme


def is_relative(text: str) -> bool:
    """Whether a text is a relative path.

    >>> [is_relative(text) for text in ("jobs/orders.py", "/opt/orders.py", "s3a://jobs/orders.py")]
    [True, False, False]
    """
    return is_path(text) and not PurePosixPath(text).is_absolute()
