"""A window's page, from a ledger to HTML."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_kafka_offsets import documents
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.schemas import Subject
from airflow_kafka_offsets.core.window import Claim
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.page import render, views
from airflow_kafka_offsets.service import pictures
from tests.page.server import Story

NAME = "lake.orders"


@pytest.fixture
def story(quick_folder: Path) -> Story:
    """A window that was committed with its third try, and an open one."""
    story = Story(Ledger(f"sqlite:///{quick_folder / 'ledger.db'}", create=True), KafkaGroup(NAME, topics=["orders"]))
    story.run(story.draft(0, 40), tries=3)
    story.run(story.draft(40, 50), is_open=True)
    return story


def page(story: Story, seq: int, *readable: str, sees_group: bool = True) -> str:
    """Return the page of a window."""
    picture = pictures.window(story.ledger, f"{NAME}-{seq:06d}", list)
    view = views.window_view(picture, readable, story.at, sees_group=sees_group)
    around = {"root": "/kafka-offsets", "base": "/af", "now": story.at}
    return render.html("window.html", {**around, "view": view, "group": picture.group})


def button(text: str) -> str:
    """Return the button of the replay."""
    [button] = re.findall(r'<button[^>]*id="replay"[^>]*>', text)
    return str(button)


def test_each_try_has_its_outcome_records_duration_and_a_link_to_its_task_instance(story: Story) -> None:
    table = page(story, 1, "orders").partition("<h2>Attempts</h2>")[2].partition("</table>")[0]
    rows = [re.sub(r"<[^>]*>", " ", row).split() for row in re.findall(r"<tr>(<td.*?)</tr>", table, re.DOTALL)]
    assert [row[:2] for row in rows] == [["3", "succeeded"], ["2", "failed"], ["1", "failed"]]
    assert rows[0][2:] == ["1", "Nov", "00:06", "3", "min", "120", "3", "orders/scheduled__2026-11-01T00/load"]
    assert rows[2][-3:-1] == ["—", "1"]
    assert table.count('href="/af/dags/orders/runs/scheduled__2026-11-01T00/tasks/load"') == 3


def test_the_version_of_the_bundle_is_shown_if_a_try_had_one_to_those_who_may_read_its_dag(story: Story) -> None:
    assert "Bundle version" not in page(story, 1, "orders")
    opened = story.ledger.window(f"{NAME}-000002")
    story.ledger.start_attempt(opened.id, opened.holder, Try(2, bundle_version="<3f2a>"), story.at)
    table = page(story, 2, "orders").partition("<h2>Attempts</h2>")[2].partition("</table>")[0]
    newest, first = re.findall(r"<tr>(<td.*?)</tr>", table, re.DOTALL)
    assert "<th>Bundle version</th>" in table
    assert ("<td>&lt;3f2a&gt;</td>" in newest, "<td>—</td>" in first) == (True, True)
    hidden = page(story, 2, "clicks")
    assert "Bundle version" not in hidden
    assert "3f2a" not in hidden
    picture = pictures.window(story.ledger, opened.id, list)
    assert "3f2a" in documents.as_json(views.window_document(picture, {"orders"}))
    assert "3f2a" not in documents.as_json(views.window_document(picture, {"clicks"}))


def test_what_is_committed_can_be_replayed_and_what_is_open_can_not(story: Story) -> None:
    committed, opened = page(story, 1, "orders"), page(story, 2, "orders")
    assert "disabled" not in button(committed)
    assert 'data-replay="/kafka-offsets/groups/lake.orders/replay"' in committed
    assert 'data-windows="1"' in committed
    assert "disabled" in button(opened)
    assert "this window is still open" in opened
    assert '<span class="badge warn">planned</span>' in opened, "also while a job reads it: that is its state"


def test_what_a_replay_would_read_is_told_with_the_condition_that_only_kafka_knows(story: Story) -> None:
    text = page(story, 1, "orders").partition('id="selected-what">')[2].partition("</span>")[0]
    assert text == (
        "Read the same 120 offsets again, under the same id, if Kafka still holds all of them. "
        "Replay… asks Kafka, and starts nothing yet. "
        "A sink that replaces its output by window id then has each record once."
    )
    assert "Kafka still holds" not in page(story, 2, "orders"), "an open window can't be replayed at all"


def test_the_schemas_that_are_frozen_with_a_window_are_shown(story: Story) -> None:
    assert "Frozen schemas" not in page(story, 1, "orders")
    frozen = {"<orders>-value": Subject("AVRO", 7, {7: '"long"', 3: '"int"'}), "orders-key": None}
    story.ledger.freeze([(story.ledger.window(f"{NAME}-000001").window, frozen)])
    text = page(story, 1, "orders")
    table = text.partition("<h2>Frozen schemas</h2>")[2].partition("</table>")[0]
    assert re.findall(r"<td>(.*?)</td>", table) == [
        "&lt;orders&gt;-value",
        "AVRO, latest 7, ids 3, 7",
        "orders-key",
        "not there",
    ]


def test_without_the_group_there_is_no_replay_and_no_link_that_ends_in_an_error(story: Story) -> None:
    text = page(story, 1, "orders", sees_group=False)
    assert "disabled" in button(text)
    assert "Your DAGs have no part in this group any longer" in text
    assert 'href="/kafka-offsets/groups/lake.orders"' not in text
    assert 'href="/kafka-offsets/groups/lake.orders"' in page(story, 1, "orders")


def test_the_windows_of_a_run_are_the_documents_of_the_command_line(quick_folder: Path) -> None:
    ledger = Ledger(f"sqlite:///{quick_folder / 'run.db'}", create=True)
    mine, theirs = (Story(ledger, KafkaGroup(name, topics=["orders"])) for name in ("lake.orders", "lake.clicks"))
    for story in (mine, mine, theirs):
        story.run(story.draft(0, 5), run_id="run")
    taken = ledger.window("lake.orders-000001")
    ledger.hold([taken], Claim("other", "run", "load"), mine.at)
    windows = pictures.windows_of_run(ledger, ledger.windows_of_run("orders", "run"))
    assert [line.id for line, _ in windows] == ["lake.clicks-000001", "lake.orders-000001", "lake.orders-000002"]
    for line, window in windows:
        document = views.run_document(line, window, {"orders", "other"})
        assert document == documents.window_document(ledger.window(line.id)) | {"run": Claim("orders", "run", "load")}
    hidden = views.run_document(*windows[1], {"orders"})
    assert (hidden["held_by"], hidden["id"]) == (None, "lake.orders-000001")
    assert "other" not in documents.as_json(hidden)
