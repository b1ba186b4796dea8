"""A replay finds the owners of offsets without reading the history; what it finds is what reading all of it finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import text

from airflow_kafka_offsets.core.history import Act
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan import replay
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.plan.request import Ranges
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import Claim, Draft, Lane, Outcome, State, WindowRecord
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service.replay import FIRST_PAGE, live_windows, pages
from airflow_kafka_offsets.service.windows import WindowService
from tests.lab.history import History, write
from tests.ledger.examples import NOW, group
from tests.ledger.new_ledger import in_a_file
from tests.ledger.test_few_statements import counting
from tests.service.memory_log import MemoryLog


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Return the URL of a ledger in a file."""
    with in_a_file() as url:
        yield url


@dataclass
class Story:
    """A group whose windows are cut as planning cuts them: each starts where the last one ends, and names what each before it named."""

    ledger: Ledger
    name: str
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=lambda: {"orders": "1"})
    incarnations: int = 1
    runs: int = 0
    moves_by: tuple[str, ...] = ("reset", "import")

    def window(self, spans: list[int]) -> None:
        """Cut and commit a window; more spans than partitions add partitions."""
        self._cut(spans, State.COMMITTED)

    def abandoned(self, spans: list[int]) -> None:
        """Cut a window, and give it up: what it owned is planned again."""
        self._cut(spans, State.ABANDONED)

    def _cut(self, spans: list[int], state: State) -> None:
        known = self.offsets or {TopicPartition("orders", 0): 0}
        starts = {**{TopicPartition("orders", p): 0 for p in range(len(spans))}, **known}
        ranges = {tp: OffsetRange(at, at + spans[tp.partition % len(spans)]) for tp, at in starts.items()}
        self.runs += 1
        by = Claim("dag", f"{self.name} {self.runs}", "load")
        drafted = Draft(OffsetRanges(ranges), self.ids, NOW, IsolationLevel.READ_COMMITTED)
        version = self.ledger.load(self.name).version
        [held] = self.ledger.add_windows(group(self.name), version, [drafted], by, NOW)
        if state is State.ABANDONED:
            self.ledger.abandon(held.window.id, Act("abandon", "ada", "why", NOW))
        else:
            attempt = self.ledger.start_attempt(held.id, by, Try(), NOW)
            self.ledger.end_attempt(attempt, Outcome.SUCCEEDED, None, NOW)
            self.ledger.commit(held.window.id, by, attempt, NOW)
        position = self.ledger.load(self.name).position
        assert position
        self.offsets = dict(position.offsets)

    def back(self, windows: int) -> None:
        """Reset to where one of the newest windows starts."""
        found = list(pages(self.ledger, self.name, states=(State.COMMITTED,), lane=Lane.LIVE))[: windows + 1]
        same = [held.window for held in found if held.window.topic_ids == self.ids]
        if same:
            self.offsets |= same[-1].ranges.starts
            self._reset([window.seq for window in same if window.span])  # an empty one owns nothing, and stays

    def forward(self, offsets: int) -> None:
        """Reset past offsets that no one owns then."""
        self.offsets = {tp: at + offsets for tp, at in self.offsets.items()}
        self._reset([])

    def another(self, partitions: int) -> None:
        """Read a topic that was recreated, from its beginning."""
        if self.offsets:
            self.incarnations += 1
            self.offsets = {TopicPartition("orders", p): 0 for p in range(partitions)}
            self.ids = {"orders": str(self.incarnations)}
            self._reset([])

    def _reset(self, superseded: list[int]) -> None:
        if self.runs:
            version = self.ledger.load(self.name).version
            position = Position(self.offsets, self.ids)
            act = Act(self.moves_by[self.runs % len(self.moves_by)], "ada", "why", NOW)
            self.ledger.reset(self.name, version, position, superseded, act)


_SPANS = st.lists(st.integers(0, 5), min_size=1, max_size=3)
_STEPS = st.one_of(
    st.tuples(st.just("window"), _SPANS),
    st.tuples(st.just("window"), _SPANS),
    st.tuples(st.just("window"), _SPANS),
    st.tuples(st.just("abandoned"), _SPANS),
    st.tuples(st.sampled_from(["back", "forward", "another"]), st.integers(1, 4)),
)
_ASKED = st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=3)


def ranges_of(asked: Mapping[int, tuple[int, int]]) -> OffsetRanges:
    """Return offset ranges of partitions by start and span."""
    return OffsetRanges(
        (TopicPartition("orders", p), OffsetRange(start, start + span)) for p, (start, span) in asked.items()
    )


@given(st.lists(_STEPS, min_size=1, max_size=25), st.lists(_ASKED, min_size=1, max_size=8))
@example([("window", [5]), ("another", 2), ("window", [5]), ("another", 1)], [{0: (0, 5)}])
@example([("window", [5]), ("another", 2), ("window", [5]), ("another", 1), ("window", [5])], [{0: (0, 5)}])
def test_what_is_found_is_what_reading_all_of_the_history_finds(
    url: str, steps: list[tuple[str, Any]], questions: list[dict[int, tuple[int, int]]]
) -> None:
    ledger = Ledger(url)
    story = Story(ledger, f"lake-{len(ledger.groups())}")
    for step, value in steps:
        getattr(story, step)(value)
    if not story.runs:
        return
    history = list(pages(ledger, story.name, states=(State.COMMITTED,), lane=Lane.LIVE))
    position = ledger.load(story.name).position
    assert position
    for question in questions:
        asked = ranges_of(question)
        found = replay.overlapping(
            asked, live_windows(ledger, story.name, asked, position.topic_ids), position.topic_ids
        )
        assert found == [held for held in history if owns_any(held, asked, position.topic_ids)]


def owns_any(held: WindowRecord, asked: OffsetRanges, ids: Mapping[str, str]) -> bool:
    """Whether a window owns any of these offsets, in the topics of today."""
    window = held.window
    return any(
        max(owned.start, asked[tp].start) < min(owned.end, asked[tp].end)
        for tp, owned in window.ranges.items()
        if tp in asked and window.topic_ids.get(tp.topic) == ids.get(tp.topic)
    )


class Counting(Ledger):
    """A ledger that counts what it is asked for."""

    windows_read: ClassVar = Counter[str]()

    def windows(self, group: str, **wanted: Any) -> Any:  # type: ignore[override]
        """See `Ledger.windows`."""
        found = super().windows(group, **wanted)
        self.windows_read[group] += len(found)
        return found

    def excerpt(self, group: str, *asked: Any, **wanted: Any) -> Any:
        """See `Ledger.excerpt`."""
        self.windows_read[group] += 1
        return super().excerpt(group, *asked, **wanted)


@pytest.mark.parametrize("how", ["reset", "import"])
@pytest.mark.parametrize(
    ("before", "back", "after", "offset", "owner"),
    [
        ([5] * 10 + [0] * 6, 15, [5] * 10, 0, 17),
        ([20] * 4 + [1] + [0] * 6, 7, [20, 1, 0, 1, 0, 5, 20], 60, 12),
    ],
)
def test_empty_windows_from_before_a_reset_do_not_lead_past_the_owner(
    url: str, how: str, before: list[int], back: int, after: list[int], offset: int, owner: int
) -> None:
    """They lie above what was asked, and the windows after the reset, which are newer, lie below them."""
    story = Story(Ledger(url), f"empties-{how}-{owner}", moves_by=(how,))
    for span in before:
        story.window([span])
    story.back(back)
    for span in after:
        story.window([span])
    asked = ranges_of({0: (offset, 5)})
    found = replay.overlapping(asked, live_windows(story.ledger, story.name, asked, story.ids), story.ids)
    assert [held.window.seq for held in found] == [owner]


def test_after_a_reset_of_an_earlier_version_all_of_the_history_is_read(url: str) -> None:
    """It did not record which window was the first one after it."""
    ledger = Ledger(url)
    story = Story(ledger, "earlier", moves_by=("reset",))
    for _ in range(12):
        story.window([5])
    for _ in range(3):
        story.window([0])
    story.back(14)
    for _ in range(12):
        story.window([5])
    with ledger._engine.begin() as connection:
        connection.execute(text("UPDATE kafka_offsets_acts SET details = '{}'"))
    asked = ranges_of({0: (3, 20)})
    found = replay.overlapping(asked, live_windows(ledger, "earlier", asked, story.ids), story.ids)
    assert [held.window.seq for held in found] == [20, 19, 18, 17, 16]


@pytest.mark.slow
@pytest.mark.parametrize("windows", [1_000, 20_000])
@pytest.mark.parametrize("back", [3, 900])
def test_how_much_is_read_does_not_depend_on_the_length_of_an_even_history(url: str, windows: int, back: int) -> None:
    ledger = Counting(url)
    history = History(group(f"long-{windows}-{back}"), {"orders": 2}, {"orders": "1"}, windows, span=5)
    write(ledger._engine, [history])
    end = (windows - back) * 5
    asked = ranges_of({0: (end - 10, 10), 1: (end - 7, 3)})
    found = replay.overlapping(
        asked, live_windows(ledger, history.group.name, asked, history.topic_ids), history.topic_ids
    )
    assert [held.window.seq for held in found] == [windows - back, windows - back - 1]
    assert ledger.windows_read[history.group.name] <= 4 + FIRST_PAGE


def test_owners_are_found_on_one_connection(url: str) -> None:
    """Loading the group takes another one."""
    ledger, kafka = Ledger(url), MemoryLog()
    kafka.create("orders", partitions=2)
    for partition in (0, 1):
        kafka.produce(TopicPartition("orders", partition), 5_000)
    history = History(group("one-connection"), {"orders": 2}, kafka.topic_ids(["orders"]), 1_000, span=5)
    write(ledger._engine, [history])
    asked = Ranges(ranges_of({0: (2_001, 3), 1: (1_998, 4)}))
    with counting(ledger._engine) as counts:
        found, drafts = WindowService(ledger, kafka).answer(history.group, asked)
    assert [window.seq for window in found] == [400, 401]
    assert not drafts
    assert counts.connections == 2
    assert counts.statements <= 12
