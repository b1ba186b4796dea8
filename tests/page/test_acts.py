"""What people did to a group may name another one: that goes out only to those who see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.plan.overview import Outline
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.documents import as_json
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.page import render, views
from airflow_kafka_offsets.page.strips import Axis
from airflow_kafka_offsets.page.zoom import read_zoom
from airflow_kafka_offsets.service import pictures
from tests.page.server import Story

MINE, THEIRS = "lake.mine", "hr.salaries"


def sight(*may_read: str) -> Callable[[Iterable[Outline]], list[Outline]]:
    """Return which groups someone sees who may read the runs of these DAGs."""
    return lambda outlines: [one for one in outlines if one.dag_ids & set(may_read)]


def details(ledger: Ledger, *may_read: str) -> list[Any]:
    """Return the details of the acts in the JSON of our group."""
    visible = sight(*may_read)
    [full] = pictures.in_full(ledger, [pictures.group_line(ledger, MINE, visible)], visible)
    document = json.loads(as_json(views.group_document(full, set(may_read) & full.dag_ids)))
    return [act["details"] for act in document["acts"]]


def page_acts(ledger: Ledger, *may_read: str) -> str:
    """Return the part of our group's page about what people did."""
    zoom = read_zoom(Axis.OFFSET, "", "", None)
    picture = pictures.group(ledger, MINE, sight(*may_read))
    view = views.group_view(picture, set(may_read), story_at(ledger), zoom)
    around = {"root": "/kafka-offsets", "base": "", "now": story_at(ledger)}
    return render.html("group.html", {**around, "view": view, "group": picture.group}).partition("What people did")[2]


def story_at(ledger: Ledger) -> Any:
    """Return a moment after all that happened."""
    return max(act.at for act in ledger.acts(MINE))


@pytest.fixture
def ledger(quick_folder: Path) -> Ledger:
    """A ledger for two groups."""
    return Ledger(f"sqlite:///{quick_folder / 'ledger.db'}", create=True)


@pytest.fixture
def mine(ledger: Ledger) -> Story:
    """A group of the DAG `mine`, with three windows."""
    story = Story(ledger, KafkaGroup(MINE, topics=["orders"]), "mine")
    story.hours(3)
    return story


@pytest.fixture
def theirs(ledger: Ledger) -> Story:
    """A group of the DAG `payroll`, with three windows."""
    story = Story(ledger, KafkaGroup(THEIRS, topics=["orders"]), "payroll")
    story.hours(3)
    return story


def window(seq: int, group: str = MINE) -> str:
    """Return the id of a window."""
    return name_window(group, seq)


@pytest.mark.parametrize("kind", ["import", "copy", "export"])
def test_the_name_and_the_offsets_of_a_hidden_group_are_not_in_the_json_of_another(
    mine: Story, theirs: Story, kind: str
) -> None:
    mine.act(kind, "ada", "a second output", source="ledger", name=THEIRS, found={"orders-0": 1_300})
    assert details(mine.ledger, "mine") == [{}]
    assert details(mine.ledger, "mine", "payroll") == [
        {"source": "ledger", "name": THEIRS, "found": {"orders-0": 1_300}}
    ]


def test_what_an_offset_store_holds_under_the_name_of_a_hidden_group_is_not_told_either(
    mine: Story, theirs: Story
) -> None:
    mine.act("import", "ada", "a second output", source="redis", name=THEIRS)
    mine.act("import", "ada", "moving over", source="redis", name="a consumer group of another tool")
    mine.act("copy", "ada", "monthly", source="ledger", name=MINE)
    assert [bool(each) for each in details(mine.ledger, "mine")] == [False, True, True]


def test_windows_of_a_hidden_group_that_were_pruned_are_not_named(mine: Story, theirs: Story) -> None:
    mine.act("import", "ada", "a second output", left_open=[window(1, THEIRS)])
    assert details(mine.ledger, "mine") == [{}]
    theirs.prune(2)
    assert details(mine.ledger, "mine") == [{}], "they count as windows of their group's DAGs, and not of ours"
    assert details(mine.ledger, "mine", "payroll") == [{"left_open": [window(1, THEIRS)]}]


def test_pruned_windows_of_a_group_that_is_seen_are_named_for_who_may_read_all_of_its_dags(
    mine: Story, theirs: Story
) -> None:
    theirs.run(theirs.draft(1_300, 1_400), dag_id="mine")
    mine.act("import", "ada", "a second output", left_open=[window(1, THEIRS)])
    theirs.prune(2)
    assert details(mine.ledger, "mine") == [{}], "the group is seen, and its window may be of a DAG that is not"
    assert details(mine.ledger, "mine", "payroll") != [{}]


def test_a_window_of_a_group_that_the_ledger_does_not_have_is_named_to_no_one(mine: Story) -> None:
    mine.act("import", "ada", "a second output", left_open=["lake.gone-000001"])
    assert details(mine.ledger, "mine") == [{}]


def test_the_page_names_the_windows_of_its_own_group_whoever_has_those_that_an_import_left_open(
    mine: Story, theirs: Story
) -> None:
    mine.run(mine.draft(1_300, 1_400), dag_id="other")
    mine.act("import", "ada", "theirs is right", superseded=[window(2), window(3)], left_open=[window(3, THEIRS)])
    assert "000002 to 000003 (2 windows)" in page_acts(mine.ledger, "mine")
    mine.act("import", "ada", "again", superseded=[window(3), window(4)], left_open=[window(1)])
    assert "000004" not in page_acts(mine.ledger, "mine"), "it is of a DAG that may not be read"
    assert "000003 to 000004 (2 windows)" in page_acts(mine.ledger, "mine", "other")
    assert THEIRS not in page_acts(mine.ledger, "mine", "other", "payroll")


def test_the_groups_that_acts_name_are_asked_about_only_if_there_are_some(mine: Story, theirs: Story) -> None:
    questions: list[list[str]] = []

    def visible(outlines: Iterable[Outline]) -> list[Outline]:
        questions.append([one.group for one in outlines])
        return []

    line = pictures.group_line(mine.ledger, MINE, list)
    mine.act("commit", "ada", "checked", window=window(1))
    pictures.in_full(mine.ledger, [line], visible)
    mine.act("export", "ada", "nightly", source="ledger", name=THEIRS)
    pictures.in_full(mine.ledger, [line], visible)
    assert [names for names in questions if names] == [[THEIRS]]
