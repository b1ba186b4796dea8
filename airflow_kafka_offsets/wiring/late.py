"""Opens something when it is first used, so that a command which does not need it, such as abandon, works while Kafka is down."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

_T = TypeVar("_T")


class _Late:
    def __init__(self, open_it: Callable[[], object], known: dict[str, object]) -> None:
        self.__dict__.update(known)
        self._open = cache(open_it)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._open(), name)


def late(open_it: Callable[[], _T], **known: object) -> _T:
    """Stand in for something that is opened when it is first used. Until then its connection does not have to exist.

    Args:
        open_it: opens it; what it raises is raised by whatever is asked first.
        known: attributes that can be read without opening it.
    """
    return cast("_T", _Late(open_it, known))
