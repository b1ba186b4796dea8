"""A group's page, from a ledger to HTML, without a server."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_kafka_offsets.core.errors import PrunedWindowError, UnknownWindowError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.lag.lag import GroupLag, GroupVerdict, PartitionLag
from airflow_kafka_offsets.core.lag.retention import Retention
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.planning import Verdict
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.window import Outcome
from airflow_kafka_offsets.documents import as_json
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.page import render, views
from airflow_kafka_offsets.page.heat import Shade
from airflow_kafka_offsets.page.strips import Axis
from airflow_kafka_offsets.page.zoom import read_zoom
from airflow_kafka_offsets.service import pictures
from tests.page.server import HOUR, Story

NAME = "lake.pruned"


@pytest.fixture
def story(quick_folder: Path) -> Story:
    """Four hours, of which the first two were pruned, and a backfill below them."""
    ledger = Ledger(f"sqlite:///{quick_folder / 'ledger.db'}", create=True)
    story = Story(ledger, KafkaGroup(NAME, topics=["orders"]))
    story.hours(4)
    story.backfill(100, 200)
    story.prune(2)
    return story


def page(
    story: Story,
    start: str = "",
    end: str = "",
    before: int | None = None,
    axis: Axis = Axis.OFFSET,
    readable: Collection[str] = frozenset({"orders"}),
) -> str:
    """Return the page of the group."""
    zoom = read_zoom(axis, start, end, before)
    picture = pictures.group(story.ledger, NAME, list, zoom.before, zoom.cut_in)
    view = views.group_view(picture, readable, story.at, zoom)
    around = {"root": "/kafka-offsets", "base": "", "now": story.at}
    return render.html("group.html", {**around, "view": view, "group": picture.group})


def looked(partitions: dict[int, PartitionLag]) -> GroupLag:
    """Keep this as Kafka's newest answer about a group."""
    lags = {TopicPartition("orders", p): one for p, one in partitions.items()}
    return GroupLag(NAME, datetime(2026, 11, 1, tzinfo=UTC), GroupVerdict.OK, "Because", lags)


def words_of(text: str) -> str:
    """Return the text of a page, without its tags."""
    return " ".join(re.sub(r"<[^>]+>", "", text).split())


def drawn(text: str) -> set[str]:
    """Return the kinds of the blocks in the strips of a page."""
    return set(re.findall(r'<rect class="([a-z-]+)[^>]*data-r', text))


def labels(text: str) -> list[tuple[str, str]]:
    """Return the labels of a page's strips: the part that gives way if there is no room, and the part that stays."""
    return re.findall(r'<div class="label"[^>]*><span>(.*?)</span><i>(.*?)</i>', text)


def numbers(text: str) -> set[str]:
    """Return the numbers of the windows in the strips of a page."""
    return set(re.findall(r'data-w="(\d+)"', text))


def test_a_long_topic_is_cut_in_its_middle(quick_folder: Path) -> None:
    ledger = Ledger(f"sqlite:///{quick_folder / 'ledger.db'}", create=True)
    topics = [f"prod.eu-west.{'orders-' * 30}{end}" for end in ("created", "deleted")]
    story = Story(ledger, KafkaGroup(NAME, topics=topics))
    story.hours(1, partitions=1)
    text = page(story)
    assert labels(text) == [(topics[0][:-8], "-created-0"), (topics[1][:-8], "-deleted-0")]
    assert 'class="log long"' in text


def test_short_topics_leave_the_strips_their_room(story: Story) -> None:
    text = page(story)
    assert labels(text)[0] == ("", "orders-0")
    assert 'class="log"' in text


def test_what_was_pruned_is_drawn_as_pruned(story: Story) -> None:
    text = page(story)
    assert "pruned before 000003" in text
    assert drawn(text) == {"committed", "backfill", "pruned"}, "no gap: windows that left had owned it"
    assert 'class="strip torn"' in text
    assert "before 000003" in text.partition("What people did")[2]


def test_there_is_no_link_to_windows_that_are_gone(story: Story) -> None:
    assert "There is no window before 000003: pruned before lake.pruned-000003" in page(story, before=3)
    left = pictures.window(story.ledger, f"{NAME}-000003", list)
    assert views.window_view(left, {"orders"}, story.at).before is None
    with pytest.raises(PrunedWindowError, match="000002 was pruned from the ledger: Kafka no longer"):
        pictures.window(story.ledger, f"{NAME}-000002", list)


def test_without_a_prune_nothing_is_said_of_one(quick_folder: Path) -> None:
    ledger = Ledger(f"sqlite:///{quick_folder / 'other.db'}", create=True)
    story = Story(ledger, KafkaGroup(NAME, topics=["orders"]))
    story.hours(2)
    text = page(story)
    assert drawn(text) == {"committed"}
    assert "pruned before" not in text
    assert "torn" not in text


@pytest.mark.parametrize("axis", Axis)
def test_a_span_of_time_has_its_windows_and_stays_in_the_links(story: Story, axis: Axis) -> None:
    story.hours(2, start=1_400)
    text = page(story, "2026-11-01T02:30", "2026-11-01T03:30", axis=axis)
    assert numbers(text) == {"4"}, "the backfill after it read other offsets"
    other = Axis.TIME if axis is Axis.OFFSET else Axis.OFFSET
    assert f'href="?axis={other}&amp;from=2026-11-01T02%3A30&amp;to=2026-11-01T03%3A30"' in text
    assert 'name="from" value="2026-11-01T02:30"' in text
    assert 'data-newest="no"' in text
    assert 'data-newest="yes"' in page(story, "2026-11-01T02:30", axis=axis)


def test_an_empty_span_says_so_and_can_be_changed(story: Story) -> None:
    text = page(story, "2026-10-01", "2026-10-02")
    assert "There is no window with a planned-until time in this span. Pruned before lake.pruned-000003." in text
    assert 'name="from" value="2026-10-01T00:00"' in text


def test_a_window_is_there_for_the_dag_that_had_it_long_ago(quick_folder: Path) -> None:
    story = Story(Ledger(f"sqlite:///{quick_folder / 'ledger.db'}", create=True), KafkaGroup(NAME, topics=["orders"]))
    window = story.run(story.draft(0, 10), dag_id="mine")
    story.hours(20)
    picture = pictures.window(story.ledger, window, lambda _: [])
    assert picture.dag_ids == {"mine"}
    for unknown in (f"{NAME}-000999", "lake.nowhere-000001"):
        with pytest.raises(UnknownWindowError, match=f"There is no window {unknown} that you may see"):
            pictures.window(story.ledger, unknown, lambda _: [])


def test_that_a_window_was_pruned_is_told_to_who_sees_the_group_only(story: Story) -> None:
    with pytest.raises(UnknownWindowError, match=r"There is no window lake\.pruned-000002 that you may see"):
        pictures.window(story.ledger, f"{NAME}-000002", lambda _: [])


@pytest.mark.slow
def test_page_by_page_each_window_is_drawn(quick_folder: Path) -> None:
    story = Story(Ledger(f"sqlite:///{quick_folder / 'ledger.db'}", create=True), KafkaGroup(NAME, topics=["orders"]))
    story.hours(100, partitions=64)
    seen: set[str] = set()
    before: int | None = None
    while True:
        picture = pictures.group(story.ledger, NAME, list, before)
        view = views.group_view(picture, {"orders"}, story.at, read_zoom(Axis.OFFSET, "", "", before))
        first, last = map(int, view.drawn)
        seen |= {f"{seq:06d}" for seq in range(first, last + 1)}
        before = picture.older
        if before is None:
            break
        assert before == first
    assert len(seen) == 100


def test_a_span_knows_who_filled_what_it_leaves_open(story: Story) -> None:
    first = story.at
    story.run(story.draft(1_400, 1_500))
    story.run(story.draft(1_600, 1_700))  # 1,500 to 1,599 is read by a backfill, which was cut later
    last = story.at
    story.backfill(1_500, 1_600)
    story.hours(1, start=1_700)
    text = page(story, f"{first - HOUR:%Y-%m-%dT%H:%M}", f"{last - HOUR:%Y-%m-%dT%H:%M}")
    assert drawn(text) >= {"committed", "backfill"}
    assert "gap" not in drawn(text)


def test_of_many_partitions_those_are_unfolded_that_are_furthest_behind(quick_folder: Path) -> None:
    story = Story(Ledger(f"sqlite:///{quick_folder / 'ledger.db'}", create=True), KafkaGroup(NAME, topics=["orders"]))
    story.hours(1, partitions=100)
    picture = pictures.group(story.ledger, NAME, list)
    lags = looked({p: PartitionLag(1_100, 0, 1_100 + p, lag=p) for p in range(100)})
    view = views.group_view(picture, {"orders"}, story.at, read_zoom(Axis.OFFSET, "", "", None), lags)
    assert view.figure
    assert [strip.tp.partition for strip in view.figure.strips] == list(range(80, 100))
    assert "the 20 that need a look most, as far as the ledger tells." in words_of(page(story))


def test_of_many_partitions_those_are_unfolded_that_lost_records_or_will_soon(quick_folder: Path) -> None:
    story = Story(Ledger(f"sqlite:///{quick_folder / 'ledger.db'}", create=True), KafkaGroup(NAME, topics=["orders"]))
    story.hours(1, partitions=100)
    many = {p: PartitionLag(1_100, 0, 9_999, lag=8_899) for p in range(100)}
    many[30] = PartitionLag(1_100, 1_101, 1_102, Verdict.DATA_LOSS, lag=2, headroom_offsets=-1)
    many[40] = PartitionLag(1_100, 1_000, 1_101, lag=1, headroom_seconds=60.0, retention=Retention(timedelta(days=7)))
    view = views.group_view(
        pictures.group(story.ledger, NAME, list),
        {"orders"},
        story.at,
        read_zoom(Axis.OFFSET, "", "", None),
        looked(many),
    )
    assert view.figure
    assert {30, 40} < {strip.tp.partition for strip in view.figure.strips}
    assert [(c.first, c.worst) for c in view.heat[0].cells if c.danger is not Shade.QUIET] == [
        (30, Shade.LOST),
        (40, Shade.RISK),
    ]


@pytest.fixture
def empty(quick_folder: Path) -> Story:
    """A group that has no window yet."""
    return Story(Ledger(f"sqlite:///{quick_folder / 'empty.db'}", create=True), KafkaGroup(NAME, topics=["orders"]))


def ranges(*bounds: tuple[int, int]) -> OffsetRanges:
    """Return a range for each partition."""
    return OffsetRanges((TopicPartition("orders", p), OffsetRange(*b)) for p, b in enumerate(bounds))


def strips_of(text: str) -> list[tuple[str, ...]]:
    """Return partition, first and last of each strip of a page."""
    return re.findall(r'data-tp="orders-(\d+)" data-first="(\d+)" data-last="(\d+)"', text)


def test_a_partition_that_lags_has_a_strip_though_no_window_has_anything_of_it(empty: Story) -> None:
    empty.run(replace(empty.draft(0, 1), ranges=ranges((0, 10), (7, 7))))
    assert strips_of(page(empty)) == [("0", "0", "10"), ("1", "7", "7")]


def test_of_many_partitions_the_one_that_is_furthest_behind_is_unfolded_though_no_window_has_anything_of_it(
    empty: Story,
) -> None:
    empty.run(replace(empty.draft(0, 1), ranges=ranges((40, 40), *[(0, 10)] * 99)))
    picture = pictures.group(empty.ledger, NAME, list)
    lags = looked({0: PartitionLag(40, 0, 1_000_040, lag=1_000_000)})
    view = views.group_view(picture, {"orders"}, empty.at, read_zoom(Axis.OFFSET, "", "", None), lags)
    assert view.figure
    assert len(view.figure.strips) == 20
    assert (view.figure.strips[0].tp.partition, view.figure.strips[0].first) == (0, 40)


def test_a_partition_that_only_windows_have_has_its_strip(empty: Story) -> None:
    empty.hours(2)
    empty.reset({TopicPartition("orders", p): 1_200 for p in (0, 1)})
    assert labels(page(empty)) == [("", f"orders-{p}") for p in range(3)]


def test_a_group_whose_windows_are_all_empty_has_its_strips(empty: Story) -> None:
    empty.run(replace(empty.draft(0, 1), ranges=ranges((5, 5), (7, 7))))
    assert strips_of(page(empty)) == [("0", "5", "5"), ("1", "7", "7")]


def test_a_number_that_is_hidden_is_nowhere_on_the_page(empty: Story) -> None:
    mine, theirs = empty.run(empty.draft(0, 5), dag_id="mine"), empty.run(empty.draft(5, 9), dag_id="other")
    empty.act("commit", "ada", "checked", window=mine)
    empty.act("abandon", "ada", "wrong", window=theirs)
    empty.act("reset", "ada", "again", superseded=[mine, theirs])
    empty.act("import", "ada", "moved", left_open=[theirs])
    text, all_of_it = page(empty, readable={"mine"}), page(empty, readable={"mine", "other"})
    assert "000001" in text
    assert "000002" not in text
    assert "<b>abandon</b> 1 window of another DAG" in text
    assert "000001 to 000002 (2 windows)" in all_of_it
    assert "5 offsets · 000002" in re.sub(r"\b12\b", "5", all_of_it)
    [full] = pictures.in_full(empty.ledger, [pictures.group_line(empty.ledger, NAME, list)], list)
    picture = pictures.group(empty.ledger, NAME, list)
    document = json.loads(as_json(views.picture_document(picture, full, {"mine"})))
    assert "000002" not in json.dumps(document)
    assert [bool(act["details"]) for act in document["acts"]] == [True, False, False, False]
    picture_document = json.loads(as_json(views.picture_document(picture, full, {"mine", "other"})))
    assert all(act["details"] for act in picture_document["acts"])


def test_whose_a_pruned_window_was_is_not_known_so_only_who_sees_all_gets_its_number(empty: Story) -> None:
    empty.hours(4)
    empty.run(empty.draft(1_400, 1_500), dag_id="other")
    empty.act("commit", "ada", "checked", window=f"{NAME}-000001")
    empty.prune(2)
    assert "<b>commit</b> 000001" in page(empty, readable={"orders", "other"})
    assert "<b>commit</b> 1 window of another DAG" in page(empty)


def test_the_link_to_the_json_has_the_span_that_is_shown(story: Story) -> None:
    text = page(story, "2026-11-01T02:30", "2026-11-01T03:30", before=9)
    query = "?axis=offset&amp;from=2026-11-01T02%3A30&amp;to=2026-11-01T03%3A30&amp;before=9"
    assert f'href="{query}&amp;format=json"' in text


def test_the_times_of_the_axis_are_there_for_the_zone_of_the_ui(story: Story) -> None:
    assert 'data-at="2026-11-01T02:00:00+00:00">1 Nov 02:00</text>' in page(story, axis=Axis.TIME)


def test_who_did_what_and_why_is_shown(story: Story) -> None:
    story.act("commit", "ada", "the job wrote it all", window=f"{NAME}-000004")
    acts = re.sub(r"\s+", " ", page(story).partition("What people did")[2])
    row = r'<td class="muted"><time datetime="2026-11-01T05:00:00\+00:00".*?</td><td>ada</td><td class="wide"><b>commit</b> 000004 '
    assert re.search(row + "<q>the job wrote it all</q></td>", acts)


def test_of_what_people_did_the_newest_is_shown_and_where_the_rest_is(story: Story) -> None:
    assert "kafka-offsets status" not in page(story)
    for number in range(pictures.MOST_ACTS + 5):
        story.act("export", "ada", f"night {number}", window=f"{NAME}-000004")
    acts = page(story).partition("What people did")[2]
    assert re.findall(r"<q>night (\d+)</q>", acts) == [str(number) for number in range(24, 4, -1)]
    assert f'The newest 20. All: <code class="command">kafka-offsets status {NAME}</code>' in acts
    [full] = pictures.in_full(story.ledger, [pictures.group_line(story.ledger, NAME, list)], list)
    document = views.group_document(full, {"orders"})
    assert [act["why"] for act in document["acts"]] == [f"night {number}" for number in range(5, 25)]


def test_an_act_that_names_too_many_windows_to_look_up_names_none_for_programs(empty: Story) -> None:
    window = empty.run(empty.draft(0, 5))
    empty.act("commit", "ada", "checked", window=window)
    empty.act("reset", "ada", "again", superseded=[f"{NAME}-{seq:06d}" for seq in range(1, pictures.MOST_NAMED + 1)])
    empty.act("commit", "ada", "again", window=window)
    [full] = pictures.in_full(empty.ledger, [pictures.group_line(empty.ledger, NAME, list)], list)
    acts = views.group_document(full, {"orders"})["acts"]
    assert [act["details"] for act in acts] == [{"window": window}, {}, {"window": window}]
    assert "000001 to 001000 (1000 windows)" in page(empty), "the page asks for the first and the last one only"


def test_after_a_reset_the_next_window_starts_at_the_watermark(empty: Story) -> None:
    empty.hours(3, start=0, partitions=1)
    assert 'data-first="0" data-last="300" data-next="300"' in page(empty)
    empty.reset(100, [2, 3])
    text = page(empty)
    assert 'data-first="0" data-last="300" data-next="100"' in text
    assert drawn(text) == {"committed", "superseded"}
    empty.reset(250)
    assert drawn(page(empty)) == {"committed", "superseded", "gap"}


def test_an_open_window_tells_how_its_last_try_ended_and_leads_to_all_of_them(empty: Story) -> None:
    empty.run(empty.draft(0, 5), tries=2)
    failed = empty.ledger.window(empty.run(empty.draft(5, 9), is_open=True, tries=3))
    [*_, last] = empty.ledger.attempts(failed.window.id)
    runs = page(empty)
    assert "last failed" not in runs, "the last one still runs"
    assert '<span class="badge warn">planned</span>' in runs, "the state, as the list and the command line name it"
    empty.ledger.end_attempt(last.id, Outcome.FAILED, None, empty.at)
    text = page(empty)
    assert f'<a href="/kafka-offsets/windows/{failed.window.id}">3</a>, <span class="bad">last failed</span>' in text
    assert text.count("last failed") == 1, "the one before succeeded in the end"
    assert '<span class="badge warn">planned</span>' in text
    hidden = page(empty, readable={"another"})
    assert "3, " in words_of(hidden)
    assert failed.window.id not in hidden


def test_the_page_of_a_group_has_its_pattern_and_the_topics_that_it_matched(quick_folder: Path) -> None:
    by_pattern = KafkaGroup(NAME, topics_pattern="shop-.*").having_matched(["shop-eu", "shop-us"])
    story = Story(Ledger(f"sqlite:///{quick_folder / 'ledger.db'}", create=True), by_pattern)
    story.hours(1)
    assert "Topics shop-eu, shop-us (those that match <code>shop-.*</code>), 6 partitions." in page(story)
