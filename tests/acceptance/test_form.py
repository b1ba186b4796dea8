"""A replay in a real browser: Airflow's Trigger dialog, of a DAG with `replay_params()`, and the page.

With `SAVE_SCREENSHOTS=1` in the environment, the picture in the docs is taken again:
`SAVE_SCREENSHOTS=1 python -m pytest tests/acceptance/test_form.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.group import KafkaGroup
from tests.acceptance.conftest import Lab
from tests.lab.airflow_ui import TriggerDialog, log_in, show_times_in
from tests.lab.browser import open_browser
from tests.lab.processes import wait_until
from tests.lab.topics import create_topic, produce
from tests.page.server import Story
from tests.page.test_in_airflow import first, first_text

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SECTION = "Replay (leave empty to run what is new)"
NULLS = dict.fromkeys(["windows", "from", "to", "starting_offsets", "ending_offsets", "group"])


@pytest.fixture(scope="module")
def browser(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    """Open a browser in which `admin` is logged in; the whole form fits into its window."""
    lab.api.unpause("form")
    with open_browser(tmp_path_factory.mktemp("browser"), width=1000, height=1700) as opened:
        log_in(opened, lab.airflow)
        yield opened


@pytest.fixture
def dialog(browser: WebDriver, lab: Lab) -> TriggerDialog:
    """Return the dialog with the section of the replay unfolded."""
    opened = TriggerDialog(browser, lab.airflow, "form")
    opened.open_section(SECTION)
    return opened


def submit(lab: Lab, dialog: TriggerDialog) -> dict[str, Any]:
    """Trigger the run; return its conf, which is what its task gets as params, too."""
    before = {run["dag_run_id"] for run in lab.api.runs("form")}
    dialog.submit()
    dialog.leave()

    def new() -> list[str]:
        return [run["dag_run_id"] for run in lab.api.runs("form") if run["dag_run_id"] not in before]

    wait_until(new, what="the run is there", interval=0.5)
    (run,) = new()
    lab.api.wait_for_run("form", run)
    conf = lab.api.run("form", run)["conf"]
    assert lab.api.xcom("form", run, "asked") == {"params": conf, "conf": conf}
    return conf


def test_a_replay_is_a_section_that_an_ordinary_run_leaves_folded_up(browser: WebDriver, lab: Lab) -> None:
    dialog = TriggerDialog(browser, lab.airflow, "form")
    assert dialog.sections()[0] == SECTION
    assert dialog.fields() == {}
    assert submit(lab, dialog) == NULLS


def test_each_field_is_of_the_kind_that_its_value_needs(dialog: TriggerDialog) -> None:
    assert dialog.fields() == {
        "Windows": "text",
        "Time span: from": "date and time",
        "Time span: to": "date and time",
        "Offset ranges: start": "JSON",
        "Offset ranges: end": "JSON",
        "Group": "text",
    }


def test_the_form_says_what_happens(dialog: TriggerDialog) -> None:
    said = dialog.help("Windows")
    assert "12-15,18" in said
    assert "Whole windows run again" in said
    assert not [label for label in dialog.fields() if set("`*") & set(dialog.help(label))], "Markdown is not rendered"


def test_windows_are_sent_as_text_and_the_rest_as_null(lab: Lab, dialog: TriggerDialog) -> None:
    dialog.fill_text("Windows", "1-2")
    if os.environ.get("SAVE_SCREENSHOTS"):
        dialog.screenshot(IMAGES / "trigger-form.png")
    assert submit(lab, dialog) == {**NULLS, "windows": "1-2"}


@pytest.mark.parametrize(
    ("zone", "sent"),
    [
        ("Europe/Berlin", ["2026-07-31T04:30:00.000Z", "2026-12-31T23:00:00.000Z"]),
        ("UTC", ["2026-07-31T06:30:00.000Z", "2027-01-01T00:00:00.000Z"]),
    ],
)
def test_times_are_in_the_zone_that_the_ui_shows(browser: WebDriver, lab: Lab, zone: str, sent: list[str]) -> None:
    show_times_in(browser, zone)
    dialog = TriggerDialog(browser, lab.airflow, "form")
    dialog.open_section(SECTION)
    dialog.fill_time("Time span: from", "2026/07/31", "06:30")
    dialog.fill_time("Time span: to", "2027/01/01", "00:00")
    assert submit(lab, dialog) == {**NULLS, "from": sent[0], "to": sent[1]}


def test_offsets_are_sent_as_objects(lab: Lab, dialog: TriggerDialog) -> None:
    dialog.fill_json("Offset ranges: start", '{"orders": {"0": 120}}')
    dialog.fill_json("Offset ranges: end", '{"orders": {"0": 180}}')
    assert submit(lab, dialog) == {
        **NULLS,
        "starting_offsets": {"orders": {"0": 120}},
        "ending_offsets": {"orders": {"0": 180}},
    }


def test_a_field_that_is_emptied_again_asks_for_nothing(lab: Lab, dialog: TriggerDialog) -> None:
    dialog.fill_text("Windows", "1-2")
    dialog.fill_text("Windows", "")
    dialog.fill_json("Offset ranges: start", '{"orders": {"0": 120}}')
    dialog.fill_json("Offset ranges: start", "")
    assert submit(lab, dialog) == NULLS


def test_the_page_starts_a_replay_in_an_airflow_whose_address_has_no_path(browser: WebDriver, lab: Lab) -> None:
    # The tests of the page have an Airflow with a path.
    topic = name = "form.page"
    create_topic(lab.kafka, topic, 1)
    produce(lab.kafka, topic, 10)
    ids = KafkaLog(lab.kafka.client_config(), 20).topic_ids([topic])
    story = Story(lab.ledger, KafkaGroup(name, topics=[topic]), dag_id="form", topic_ids=ids)
    story.run(story.draft(0, 10, partitions=1))
    browser.get(f"{lab.airflow.url}/plugin/kafka-windows")
    browser.switch_to.frame(first(browser, "iframe"))
    first(browser, f".groups a[href$='groups/{name}']").click()
    assert first_text(browser, "#card-lag small", lambda text: "unread" in text) == "nothing unread"
    first(browser, "#all").click()
    first(browser, "#replay", lambda button: button.is_enabled()).click()
    first(browser, "#dialog [data-confirm]").click()
    run = first_text(browser, "#dialog .alert.good a")
    conf = lab.api.wait_for_run("form", run)["conf"]
    assert conf == {"kafka_offsets": {"group": name, "windows": "1"}}
    browser.switch_to.default_content()
    deep = f"{lab.airflow.url}/plugin/kafka-windows/kafka-offsets/groups/{name}"
    wait_until(lambda: browser.current_url == deep, what="the address bar follows")
    browser.switch_to.frame(first(browser, "iframe"))
    first(browser, "#dialog .alert.good a").click()
    browser.switch_to.default_content()
    there = f"{lab.airflow.url}/dags/form/runs/"
    wait_until(lambda: browser.current_url.startswith(there), what="the run is shown")
