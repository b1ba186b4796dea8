"""Kafka is asked once for many people."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from airflow_kafka_offsets.page.looks import Kept
from tests.lab.waiting import LONGEST


class Clock:
    """Seconds that go on when a test adds some."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def counter() -> tuple[list[int], Kept[int], Clock]:
    """Return a list that grows with each question, and where its answers are kept."""
    clock = Clock()
    return [], Kept(10, clock=clock), clock


def test_an_answer_is_kept_for_some_seconds() -> None:
    calls, kept, clock = counter()

    def ask() -> int:
        calls.append(1)
        return len(calls)

    assert [kept.get("a", ask), kept.get("a", ask)] == [1, 1]
    clock.now = 9.9
    assert kept.get("a", ask) == 1
    clock.now = 10
    assert kept.get("a", ask) == 2
    assert kept.get("b", ask) == 3


def test_whoever_asks_meanwhile_waits_for_the_same_answer() -> None:
    calls, kept, _ = counter()
    go_on, began = Event(), Event()

    def ask() -> int:
        calls.append(1)
        began.set()
        assert go_on.wait(LONGEST)
        return 7

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(kept.get, "a", ask)
        assert began.wait(LONGEST)
        waiting = [pool.submit(kept.get, "a", ask) for _ in range(3)]
        go_on.set()
        assert [future.result(LONGEST) for future in (first, *waiting)] == [7] * 4
    assert len(calls) == 1


def test_an_error_is_told_and_not_kept() -> None:
    _, kept, _ = counter()

    def fail() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        kept.get("a", fail)
    assert kept.get("a", lambda: 5) == 5


def test_old_answers_make_room() -> None:
    kept: Kept[int] = Kept(10, most=2, clock=Clock())
    for name in "abc":
        kept.get(name, lambda: 1)
    assert kept.get("a", lambda: 2) == 2
    assert kept.get("c", lambda: 2) == 1


def test_the_last_answer_stays_while_a_newer_one_is_on_its_way_and_if_that_is_an_error() -> None:
    _, kept, clock = counter()
    assert kept.last("a") is None
    kept.get("a", lambda: 1)
    clock.now = 10
    seen: list[int | None] = []

    def ask() -> int:
        seen.append(kept.last("a"))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        kept.get("a", ask)
    assert [*seen, kept.last("a")] == [1, 1]
    kept.get("a", lambda: 2)
    assert kept.last("a") == 2


def test_of_the_last_answers_the_oldest_makes_room() -> None:
    kept: Kept[str] = Kept(10, most=2, clock=Clock())
    for name in "abac":
        kept.get(name, lambda: "said")
    assert [name for name in "abc" if kept.last(name)] == ["b", "c"]
