"""Whatever dies before or after whichever call: a bounded number of the schedules of `simulation`, which can go on for an hour by hand.

That each of its rules is noticed when it is broken takes minutes, and is looked at by hand: `broken_rules`.
"""

from __future__ import annotations

import pytest

from tests.service.broken_rules import first_noticed
from tests.service.simulation import simulate

CHUNK = 5


def test_nothing_is_lost_or_owned_twice_whatever_dies_between_two_calls() -> None:
    for seed in range(CHUNK):
        simulate(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(CHUNK, 60, CHUNK))
def test_many_more_schedules_break_no_law(first: int) -> None:
    """A failure names the seed and tells the story of its schedule."""
    for seed in range(first, first + CHUNK):
        simulate(seed)


def test_one_seed_is_one_schedule() -> None:
    assert simulate(1).story == simulate(1).story


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["a group has versions", "the offset store follows"])
def test_a_broken_rule_is_noticed(rule: str) -> None:
    assert first_noticed(rule, schedules=20) is not None
