"""The search in the timestamp index finds when the records up to a watermark were written, with few questions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.lag.search import CLOSE_MS, CLOSE_SHARE, MAX_ROUNDS, Hit, Search, learn_all, probes
from tests.core.examples import tp

NOW = 1_780_000_000_000
DAY = 86_400_000
ENOUGH = 40
"""With so many rounds, each search ends. A look stops it after `MAX_ROUNDS`: then its bounds are right, and not as close."""


@dataclass(frozen=True)
class Log:
    """A partition as ListOffsets sees it: records by offset, some of which may be gone."""

    records: dict[int, int]

    def first(self, time_ms: int) -> Hit | None:
        """Return the first record of this time or a later one."""
        return next((Hit(offset, at) for offset, at in self.records.items() if at >= time_ms), None)

    def newest_to(self, watermark: int) -> int:
        """Return the largest timestamp up to the watermark, or up to the first record that is left."""
        upto = max(watermark, next(iter(self.records)))
        return min(NOW, max(at for offset, at in self.records.items() if offset <= upto))


def search(
    log: Log, watermark: int, *, retention: int | None = None, guess: int | None = None, rounds: int = MAX_ROUNDS
) -> tuple[Search, int]:
    """Search; return how often Kafka was asked, too."""
    end = max(log.records) + 1
    found = Search(tp(), watermark, end, NOW, None if retention is None else NOW - retention)
    asked = 0
    while not found.is_done and asked < rounds:
        question = found.question(guess)
        asked += 1
        found.learn(question, log.first(question))
    return found, asked


times = st.one_of(
    st.integers(NOW - 7 * DAY, NOW),
    st.integers(NOW - 1000, NOW + 1000),
    st.integers(0, NOW + 30 * DAY),
    st.sampled_from([0, 1, NOW - DAY, NOW, NOW + DAY]),
)
logs = st.one_of(
    st.lists(times, min_size=1, max_size=60),
    st.lists(times, min_size=1, max_size=60).map(sorted),
).flatmap(
    # Compaction leaves offsets without a record.
    lambda at: st.lists(st.integers(1, 3), min_size=len(at), max_size=len(at)).map(
        lambda steps: Log(dict(zip(accumulate(steps), at, strict=True)))
    )
)


@given(logs, st.integers(0, 200), st.one_of(st.none(), times), st.one_of(st.none(), st.integers(0, 40 * DAY)))
def test_what_is_found_is_never_too_young_and_never_above_the_other_bound(
    log: Log, at: int, guess: int | None, retention: int | None
) -> None:
    watermark = at % (max(log.records) + 1)
    for rounds in (MAX_ROUNDS, ENOUGH):
        found, _ = search(log, watermark, retention=retention, guess=guess, rounds=rounds)
        assert found.low <= log.newest_to(watermark) < found.high
    assert found.is_done


@given(logs, st.integers(0, 200), st.lists(times, max_size=8))
def test_answers_to_other_questions_make_no_bound_wrong(log: Log, at: int, questions: list[int]) -> None:
    watermark = at % (max(log.records) + 1)
    found = Search(tp(), watermark, max(log.records) + 1, NOW)
    for question in questions:
        if question or watermark >= next(iter(log.records)):
            found.learn(question, log.first(question))
    assert found.low <= log.newest_to(watermark)
    assert found.low_offset is None or log.newest_to(watermark) < found.high


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9, 0.999])
def test_of_a_steady_log_a_few_questions_give_the_age_to_two_percent(share: float) -> None:
    log = Log({offset: NOW - 7 * DAY + offset * 60_000 for offset in range(7 * 24 * 60)})
    watermark = int(share * len(log.records))
    found, asked = search(log, watermark)
    assert found.low <= log.newest_to(watermark) < found.high
    age = NOW - log.newest_to(watermark)
    assert NOW - found.low - age <= max(CLOSE_MS, CLOSE_SHARE * (NOW - found.low))
    assert asked <= 6


def test_close_to_the_end_of_retention_the_headroom_is_searched_more_closely() -> None:
    log = Log({offset: NOW - 7 * DAY + offset * 1000 for offset in range(20_000)})
    watermark = 3600  # an hour from the end of retention
    far, _ = search(log, watermark)
    near, _ = search(log, watermark, retention=7 * DAY)
    assert far.high - far.low > CLOSE_SHARE * 3_600_000 * 1.1
    assert near.high - near.low <= CLOSE_SHARE * 3_600_000 * 1.1


def test_a_good_guess_needs_one_question() -> None:
    log = Log({offset: NOW - DAY + offset * 1000 for offset in range(1000)})
    found, asked = search(log, 500, guess=NOW - DAY + 499_500)
    assert (asked, found.low) == (1, NOW - DAY + 500_000)


def test_the_first_record_that_is_left_counts_if_the_watermark_holds_none() -> None:
    found, asked = search(Log({7: NOW - DAY, 8: NOW}), 3)
    assert (asked, found.low, found.high) == (1, NOW - DAY, NOW - DAY + 1)


def test_a_log_that_has_only_offsets_is_empty() -> None:
    found = Search(tp(), 3, 9, NOW)
    found.learn(found.question(), None)
    assert (found.is_empty, found.is_done) == (True, True)


def test_searches_of_many_groups_share_questions_and_answers() -> None:
    log = Log({offset: NOW - DAY + offset * 10_000 for offset in range(5000)})
    searches = [Search(tp(partition), watermark, 5000, NOW) for partition in (0, 1) for watermark in (7, 7, 4000)]
    first = probes(searches, {})
    assert [(probe.partition, probe.time_ms) for probe in first] == [(tp(0), 0), (tp(1), 0)]
    rounds = 0
    while asked := probes(searches, {}):
        learn_all(searches, {probe: log.first(probe.time_ms) for probe in asked})
        rounds += 1
    assert rounds < MAX_ROUNDS
    assert {s.watermark: s.low <= log.newest_to(s.watermark) < s.high for s in searches} == {7: True, 4000: True}


@pytest.mark.parametrize(("ahead", "is_ahead"), [(59_000, False), (61_000, True)])
def test_a_record_dated_in_the_future_is_noticed_and_counts_as_the_present(ahead: int, is_ahead: bool) -> None:
    log = Log({0: NOW - DAY, 1: NOW + ahead, 2: NOW - DAY})
    found, _ = search(log, 2)
    assert (found.low, found.is_ahead) == (NOW, is_ahead)
    assert not search(log, 0)[0].is_ahead
