"""Which earlier tries of a task a try continues: Airflow's numbers, as Airflow moves them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.history import Attempt
from airflow_kafka_offsets.core.run import Try, first_of_series
from airflow_kafka_offsets.core.window import Outcome
from tests.core.examples import NOON, claim


def recorded(done: Try) -> Attempt:
    number = done.number
    return Attempt(number, "lake-000001", claim(), number, Outcome.SUCCEEDED, None, NOON, None, done.series)


FIRST = Try(number=1, max_tries=1, retries=1, run_started=NOON)


def test_a_retry_continues_the_try_before_it() -> None:
    assert replace(FIRST, number=2).continues(recorded(FIRST))


def test_a_cleared_task_begins_again_although_retries_were_added_since() -> None:
    cleared = Try(number=3, max_tries=1 + 1, retries=3, run_started=NOON)
    assert not cleared.continues(recorded(FIRST))


def test_a_cleared_task_begins_again_although_it_has_the_number_of_before_with_less_retries() -> None:
    cleared = Try(number=2, max_tries=1 + 0, retries=0, run_started=NOON)
    assert cleared.max_tries == FIRST.max_tries
    assert not cleared.continues(recorded(FIRST))


def test_a_task_that_was_cleared_in_a_run_that_had_ended_begins_again_whatever_its_numbers_are() -> None:
    cleared = replace(FIRST, number=2, run_started=NOON + timedelta(hours=1))
    assert not cleared.continues(recorded(FIRST))


def test_a_run_that_was_deleted_and_made_again_continues_nothing() -> None:
    made_again = replace(FIRST, run_started=NOON + timedelta(days=1))
    assert not made_again.continues(recorded(FIRST))
    assert not replace(made_again, number=2).continues(recorded(FIRST))


@pytest.mark.xfail(strict=True, reason="Airflow says of this clear what it says of a retry; see docs/guarantees.md")
def test_a_cleared_task_begins_again_although_retries_went_down_before_the_clear_and_up_after_it() -> None:
    airflow = Airflow(retries=1)
    done = airflow.attempt()
    airflow.edit(0)
    airflow.clear()
    airflow.edit(1)
    assert not airflow.attempt().continues(recorded(done))


def test_a_retry_with_more_retries_than_before_still_continues() -> None:
    assert replace(FIRST, number=2, retries=5).continues(recorded(FIRST))


def test_a_series_begins_with_the_oldest_try_that_is_continued() -> None:
    before, cleared = FIRST, Try(2, 2 + 1, 2, NOON)
    done = [recorded(t) for t in (before, cleared, replace(cleared, number=3))]
    retry = replace(cleared, number=4)
    assert first_of_series(retry, [*done, recorded(retry)]) == done[1]
    again = Try(5, 4 + 2, 2, NOON)
    assert first_of_series(again, [*done, recorded(again)]) == recorded(again)
    fewer = replace(cleared, number=4, retries=0)  # a doubt: so it begins again
    assert first_of_series(fewer, [*done, recorded(fewer)]) == recorded(fewer)


@dataclass
class Airflow:
    """What Airflow does with the numbers of one task: `clear_task_instances` and the scheduler of 3.3."""

    retries: int
    max_tries: int = 0
    number: int = 0
    begun: int = 0
    ended: bool = False
    clears: int = 0
    tries: list[tuple[int, Try]] = field(default_factory=list)  # after how many clears, and the try

    def __post_init__(self) -> None:
        self.max_tries = self.retries

    def edit(self, retries: int) -> None:
        self.retries = retries

    def clear(self) -> None:
        self.max_tries = self.number + self.retries
        self.clears += 1
        self.begun += self.ended
        self.ended = False

    def end(self) -> None:
        self.ended = True

    def attempt(self) -> Try:
        self.number += 1
        this_try = Try(self.number, self.max_tries, self.retries, NOON + timedelta(hours=self.begun))
        self.tries.append((self.clears, this_try))
        return this_try


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("edit"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["clear", "end", "attempt"])),
    ),
    max_size=20,
)


@given(st.integers(0, 3), STEPS)
def test_no_try_continues_one_from_before_a_clear_unless_retries_went_down_and_up_around_it(
    retries: int, steps: list
) -> None:
    airflow = Airflow(retries)
    raised = False
    for name, *values in steps:
        if name == "clear":
            raised = False
        if name == "edit" and values[0] > airflow.retries and airflow.clears:
            raised = True
        if name != "attempt":
            getattr(airflow, name)(*values)
            continue
        before = list(airflow.tries)
        this_try = airflow.attempt()
        for clears, earlier in before:
            if clears < airflow.clears and this_try.continues(recorded(earlier)):
                assert raised, "only retries that were raised after the clear can hide it"
                assert not airflow.begun or earlier.run_started == this_try.run_started


@given(st.integers(0, 3), st.integers(1, 4))
def test_without_an_edit_all_retries_continue_the_first_try(retries: int, tries: int) -> None:
    airflow = Airflow(retries)
    for _ in range(2):
        done = [recorded(airflow.attempt()) for _ in range(tries)]
        retry = airflow.attempt()
        assert first_of_series(retry, [*done, recorded(retry)]) == done[0]
        airflow.clear()


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC"])
def test_a_series_is_the_same_whatever_the_zone_of_the_start(zone: str) -> None:
    from zoneinfo import ZoneInfo

    assert replace(FIRST, run_started=NOON.astimezone(ZoneInfo(zone))).series == FIRST.series
