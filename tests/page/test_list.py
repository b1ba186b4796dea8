"""The list of groups, from a ledger to the cells of a row."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.page import render, views
from airflow_kafka_offsets.service import pictures
from tests.page.server import Story


def cells(story: Story, readable: set[str]) -> list[str]:
    """Return the HTML of each cell of the only row."""
    [line] = pictures.groups(story.ledger, list)
    row = views.list_row(line, readable, story.at + timedelta(hours=1))
    around = {"root": "/kafka-offsets", "base": "/af", "title": "Kafka windows", "dag_id": None, "now": story.at}
    text = render.html("groups.html", {**around, "rows": [row]})
    return re.findall(r"<td[^>]*>(.*?)</td>", text, re.DOTALL)


def test_a_row_has_what_the_ledger_knows_and_leaves_room_for_what_kafka_says(quick_folder: Path) -> None:
    topics = ["clicks", "orders", "returns", "views"]
    story = Story(Ledger(f"sqlite:///{quick_folder / 'l.db'}", create=True), KafkaGroup("lake.all", topics=topics))
    story.hours(2, span=10)
    for at, unread in ((1_020, 120), (1_030, 240)):
        story.run(replace(story.draft(at, at + 10), unread=unread), is_open=True)
    verdict, name, lag, curve, headroom, opened, last = cells(story, {"orders"})
    assert [verdict.count("…"), lag.count("…"), headroom.count("…")] == [1, 1, 1]
    assert '<a class="name" href="/kafka-offsets/groups/lake.all" title="lake.all">lake.all</a>' in name
    assert 'title="clicks, orders, returns, views">clicks, orders, returns and 1 more</small>' in name
    assert 'points="0,12 37,12 73,12 110,2"' in curve, "the lag at each: each of the four took 120 offsets"
    assert '<a href="/kafka-offsets/windows/lake.all-000003">000003</a></b> <span class="muted">+1</span>' in opened
    assert "planned · 3 h · " in opened
    assert 'href="/af/dags/orders/runs/scheduled__2026-11-01T02/tasks/load"' in opened
    assert last.startswith("3 h ago<small><time ")
    assert "1 Nov 01:06</time>" in last


def test_a_row_has_the_pattern_of_a_group_and_the_topics_that_it_matched(quick_folder: Path) -> None:
    by_pattern = KafkaGroup("lake.all", topics_pattern="shop-[a-z<>]+").having_matched(["shop-eu", "shop-us"])
    story = Story(Ledger(f"sqlite:///{quick_folder / 'l.db'}", create=True), by_pattern)
    story.run(story.draft(0, 5))
    name = cells(story, {"orders"})[1]
    assert ">shop-eu, shop-us (match shop-[a-z&lt;&gt;]+)</small>" in name


def test_a_row_names_no_window_and_no_dag_that_is_hidden(quick_folder: Path) -> None:
    story = Story(Ledger(f"sqlite:///{quick_folder / 'l.db'}", create=True), KafkaGroup("lake.all", topics=["orders"]))
    story.run(story.draft(0, 5), is_open=True)
    *_, opened, last = cells(story, set())
    assert "<b>open</b>" in opened
    assert "another DAG" in opened
    assert "lake.all-" not in opened
    assert last == "—<small></small>"


@pytest.mark.parametrize(
    ("unread", "heights"),
    [
        ([120, 120, 120], [12, 12, 12]),
        ([119, 120, 121], [12, 12, 12]),
        ([0, 0], [22, 22]),
        ([100, 150, 200], [12, 7, 2]),
    ],
)
def test_a_lag_that_stays_is_drawn_in_the_middle_and_no_lag_at_the_bottom(
    unread: list[int], heights: list[int]
) -> None:
    assert [int(point.split(",")[1]) for point in views.curve(unread).split(" ")] == heights
