"""Answers of Kafka, kept for some seconds: many people look at one page, and each answer is for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_T = TypeVar("_T")


@dataclass(eq=False)
class Kept(Generic[_T]):
    """Answers by name. Threads that need the same answer wait for one that is under way.

    Attributes:
        seconds: how long an answer is kept.
        most: how many are kept.
        clock: seconds that only grow.
    """

    seconds: float = 10.0
    most: int = 100
    clock: Callable[[], float] = time.monotonic
    _kept: dict[str, tuple[float, Future[_T]]] = field(default_factory=dict)
    _last: dict[str, _T] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, name: str, ask: Callable[[], _T]) -> _T:
        """Return the answer that is kept or under way, or ask for one. An error is not kept.

        Raises:
            Exception: what `ask` raises.
        """
        with self._lock:
            at, answer = self._kept.get(name, (0.0, None))
            has_to_ask = answer is None or (answer.done() and self.clock() - at >= self.seconds)
            if has_to_ask or answer is None:
                answer = self._begin(name)
        if has_to_ask:
            self._ask(name, answer, ask)
        return answer.result()

    def last(self, name: str) -> _T | None:
        """Return the newest answer, however old it is; None if there was none. It stays while a newer one is under way or fails."""
        with self._lock:
            return self._last.get(name)

    def _begin(self, name: str) -> Future[_T]:
        answer: Future[_T] = Future()
        self._kept.pop(name, None)
        while len(self._kept) >= self.most:
            self._kept.pop(next(iter(self._kept)))
        self._kept[name] = (self.clock(), answer)
        return answer

    def _ask(self, name: str, answer: Future[_T], ask: Callable[[], _T]) -> None:
        try:
            answer.set_result(ask())
        except BaseException as exc:
            with self._lock:
                self._kept.pop(name, None)
            answer.set_exception(exc)
        else:
            with self._lock:
                self._kept[name] = (self.clock(), answer)
                self._last.pop(name, None)
                while len(self._last) >= self.most:
                    self._last.pop(next(iter(self._last)))
                self._last[name] = answer.result()
