"""Whatever dies before or after whichever call: a bounded number of the schedules of `simulation`, which can go on for an hour by hand.

That each of its rules is noticed when it is broken takes minutes, and is looked at by hand: `broken_rules`.
"""

from __future__ import annotations

import re
from functools import partial
from unittest.mock import patch

import pytest

from airflow_kafka_offsets.ledger import runs
from tests.service import broken_rules
from tests.service.broken_rules import broken, first_noticed
from tests.service.simulation import main, simulate

CHUNK = 5


@pytest.mark.slow
def test_nothing_is_lost_or_owned_twice_whatever_dies_between_two_calls() -> None:
    for seed in range(CHUNK):
        simulate(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(CHUNK, 60, CHUNK))
def test_many_more_schedules_break_no_law(first: int) -> None:
    """A failure has the seed and the story of its schedule."""
    for seed in range(first, first + CHUNK):
        simulate(seed)


def test_one_seed_is_one_schedule() -> None:
    assert simulate(1).story == simulate(1).story


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["a group has versions", "the offset store follows"])
def test_a_broken_rule_is_noticed(rule: str) -> None:
    assert first_noticed(rule, schedules=20) is not None


def test_the_command_prints_the_first_schedule_that_breaks_a_law_with_its_seed_and_its_story(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with broken("the offset store follows"):
        assert main(["--seconds", "60", "--first-seed", "1"]) == 1
    first, *story, last = capsys.readouterr().out.splitlines()
    assert re.match(r"seed \d+: the store stands at .*, the watermark at ", first)
    assert any(re.match(r"  run-1 \(\w+\) asks for ", line) for line in story)
    assert re.fullmatch(r"\d+ schedules before this one were fine", last)


def test_a_crash_is_no_law_that_noticed_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of a rule that is broken by a function whose arguments are not those of today."""
    wrong = partial(patch.object, runs, "change_window", lambda: None)
    monkeypatch.setattr(broken_rules, "RULES", {"with wrong arguments": wrong})
    with pytest.raises(TypeError) as caught:
        first_noticed("with wrong arguments", schedules=5)
    assert "seed 0" in caught.value.__notes__[0]
