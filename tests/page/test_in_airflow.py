"""The page in a real browser, inside of Airflow's UI, below a base_url with a path."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import requests
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.task.links import WindowLink, in_airflow
from tests.lab.airflow_ui import show
from tests.lab.browser import console
from tests.lab.processes import wait_until
from tests.lab.waiting import ANSWER
from tests.page.server import PATH, PageServer, Story

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

DEEP = in_airflow("groups/lake.orders", f"http://host{PATH}")


def first(browser: WebDriver, css: str, ready: Callable[[WebElement], Any] = lambda _: True) -> WebElement:
    """Return the first element that a selector finds, as soon as it exists and is ready."""
    elements: list[WebElement] = []

    def there() -> bool:
        try:
            elements[:] = [e for e in browser.find_elements(By.CSS_SELECTOR, css) if ready(e)][:1]
        except StaleElementReferenceException:  # the page went between its two questions: the next one has it
            elements.clear()
        return bool(elements)

    wait_until(there, what=f"{css} is there", interval=0.2)
    return elements[0]


def first_text(browser: WebDriver, css: str, ready: Callable[[str], Any] = bool) -> str:
    """Return the text of the first element that a selector finds, as soon as it is ready; the page may be drawn again then."""
    seen: list[str] = []

    def is_ready(element: WebElement) -> bool:
        seen[:] = [element.text.strip()]
        return bool(ready(seen[0]))

    first(browser, css, is_ready)
    return seen[0]


def in_strip(browser: WebDriver, css: str, name: str = "x") -> float:
    """Return where the first of these begins in its strip, or its width, in hundredths; the page may be drawn again then."""
    seen: list[str] = []
    first(browser, css, lambda element: seen.append(str(element.get_attribute(name))) or True)
    return float(seen[-1].removesuffix("%"))


CUT_OFF = """
const right = (element) => element.getBoundingClientRect().right;
return [...document.querySelectorAll(".strip rect.edge")].filter((edge) => right(edge) > right(edge.closest("svg")) + 0.1).length;
"""
"""How many lines are not all in their strip."""


def show_in_airflow(server: PageServer, browser: WebDriver, path: str) -> None:
    """Show a place of Airflow's UI to `admin`, who alone sees it here."""
    if not browser.find_elements(By.ID, "root"):
        server.log_in(browser)
    show(browser, server.url, path)


@pytest.fixture
def framed(server: PageServer, browser: WebDriver) -> Iterator[WebDriver]:
    """Open a group in Airflow's UI, and look into its frame."""
    show_in_airflow(server, browser, f"/{DEEP}")
    browser.switch_to.frame(first(browser, "iframe"))
    first(browser, "#strips")
    yield browser
    browser.switch_to.default_content()


def dark(browser: WebDriver) -> bool:
    """Whether the page in the frame is dark."""
    return bool(browser.execute_script("return document.documentElement.classList.contains('dark')"))


def set_theme(browser: WebDriver, theme: str) -> None:
    """Choose Airflow's theme, as its own button does."""
    browser.execute_script("parent.document.documentElement.className = arguments[0]", theme)


def test_figures_come_from_kafka(framed: WebDriver) -> None:
    assert first_text(framed, "#card-lag small", lambda text: "offsets" in text) == "3,300 offsets"
    assert first_text(framed, "[data-tp='page-orders-1'] .behind") == "1,100 behind"
    assert first(framed, "[data-tp='page-orders-1'] rect.unread")
    assert in_strip(framed, "[data-tp='page-orders-0'] rect.edge.begin") == 90 * (150 - 100) / (600 - 100), (
        "Kafka begins at 150"
    )
    assert not framed.find_elements(By.CSS_SELECTOR, "[data-tp='page-orders-1'] rect.edge.begin")
    width = in_strip(framed, "[data-tp='page-orders-1'] rect.unread", "width")
    assert in_strip(framed, "[data-tp='page-orders-1'] rect.edge.end") == 90 + width, "it ends where the unread does"
    ends = [in_strip(framed, f"[data-tp='page-orders-{p}'] rect.edge.end") for p in range(3)]
    assert max(ends) == 99.7, "of the one with most"
    assert framed.execute_script(CUT_OFF) == 0


def test_it_follows_the_theme_of_airflow(framed: WebDriver) -> None:
    for theme in ("dark", "light", "dark", "light"):
        set_theme(framed, theme)
        wait_until(lambda: dark(framed) is (theme == "dark"), what=f"the page is {theme}")  # noqa: B023


@pytest.fixture
def planned(server: PageServer) -> str:
    """A run whose task has a window, and the link that a try leaves: return its place in Airflow's UI."""
    runs, headers = f"{server.url}/api/v2/dags/planned/dagRuns", {"Authorization": f"Bearer {server.token('admin')}"}
    body = {"dag_run_id": "by_hand", "logical_date": None}
    requests.post(runs, headers=headers, json=body, timeout=ANSWER).raise_for_status()
    group = KafkaGroup("lake.planned", topics=["planned"], kafka_conn_id="kafka_down")
    story = Story(server.ledger, group, dag_id="planned")
    link = in_airflow(f"windows/{story.run(story.draft(0, 5), run_id='by_hand')}", server.url)
    requests.post(
        f"{runs}/by_hand/taskInstances/load/xcomEntries",
        headers=headers,
        json={"key": WindowLink().xcom_key, "value": link},
        timeout=ANSWER,
    ).raise_for_status()
    return "/dags/planned/runs/by_hand"


def test_the_entry_the_tabs_and_the_button_of_airflow_lead_to_the_page(
    server: PageServer, browser: WebDriver, planned: str
) -> None:
    def follow(css: str, shown: str) -> None:
        """Click a link of Airflow, and wait until the frame shows it."""
        first(browser, css, WebElement.is_displayed).click()
        browser.switch_to.frame(first(browser, "iframe"))
        first(browser, f"main a[href$='{shown}']")
        browser.switch_to.default_content()

    show_in_airflow(server, browser, "/")
    first(browser, "button", lambda e: e.text.strip() == "Browse").click()
    follow("a[role=menuitem][href$='plugin/kafka-windows']", "groups/lake.planned")
    for path, route, shown in (
        ("/dags/planned", "dag", "groups/lake.planned"),
        (planned, "run", "windows/lake.planned-000001"),
        (f"{planned}/tasks/load", "task", "windows/lake.planned-000001"),
    ):
        show_in_airflow(server, browser, path)
        follow(f"a[href$='plugin/kafka-windows-{route}']", shown)
    show_in_airflow(server, browser, f"{planned}/tasks/load/details")
    button = first(browser, "a[href$='kafka-offsets/windows/lake.planned-000001']", WebElement.is_displayed)
    assert button.text == "Kafka window"
    button.click()
    browser.switch_to.frame(first(browser, "iframe"))
    assert first_text(browser, "h1").startswith("lake.planned-000001")
    browser.switch_to.default_content()


def test_a_link_leads_to_the_task_instance_without_a_reload(framed: WebDriver, server: PageServer) -> None:
    framed.execute_script("parent.stays = 1")
    first(framed, ".windows a.run").click()
    framed.switch_to.default_content()
    wait_until(lambda: "/dags/orders/runs/" in framed.current_url, what="Airflow shows the task instance")
    assert framed.current_url.startswith(f"{server.url}/dags/orders/runs/scheduled__2026-11-01T")
    assert framed.execute_script("return window.stays") == 1


def test_a_link_in_the_frame_can_be_shared(framed: WebDriver, server: PageServer) -> None:
    first(framed, ".windows td a").click()
    first(framed, ".ranges")
    framed.switch_to.default_content()
    wanted = f"{server.url}/{in_airflow('windows/lake.orders-000005', server.url)}"
    wait_until(lambda: framed.current_url == wanted, what="the address bar follows")
    framed.get(wanted)
    framed.switch_to.frame(first(framed, "iframe"))
    assert "lake.orders-000005" in first_text(framed, "h1")


def test_a_replay_from_the_strip(framed: WebDriver, server: PageServer) -> None:
    blocks = [first(framed, f"[data-tp='page-orders-1'] rect[data-w='{seq}']") for seq in (1, 2)]
    ActionChains(framed).click_and_hold(blocks[0]).move_to_element(blocks[1]).release().perform()
    assert first_text(framed, "#selected") == "2 windows selected"
    assert "000001 to 000002 · 600 offsets" in first_text(framed, "#selected-what")
    first(framed, "#replay", lambda e: e.is_enabled()).click()
    dialog = first(framed, "#dialog[open]", lambda e: "Replay 2 windows?" in e.text)
    assert dialog.text.count("can run") == 2
    first(framed, "#dialog option[value=orders]").click()
    first(framed, "#dialog [data-confirm]").click()
    link = first(framed, "#dialog .alert.good a")
    runs = f"{server.url}/api/v2/dags/orders/dagRuns/{link.text}"
    run = requests.get(runs, headers={"Authorization": f"Bearer {server.token('admin')}"}, timeout=ANSWER).json()
    assert run["conf"] == {"kafka_offsets": {"group": "lake.orders", "windows": "1-2"}}
    assert run["triggering_user_name"] == "admin"
    link.click()
    framed.switch_to.default_content()
    wait_until(lambda: framed.current_url.endswith(f"/dags/orders/runs/{link_id(run)}"), what="the run is shown")


def test_a_block_says_what_it_is_when_it_is_pointed_at(framed: WebDriver) -> None:
    block = first(framed, "[data-tp='page-orders-1'] rect[data-w='3']")
    ActionChains(framed).move_to_element(block).perform()
    assert first_text(framed, "#hint") == "000003 · backfill\npage-orders-1 · offsets [100, 200)\n100 offsets"
    ActionChains(framed).move_to_element(first(framed, "h1")).perform()
    first(framed, "#hint", lambda e: not e.is_displayed())


def test_all_that_is_shown_is_selected_at_once(framed: WebDriver) -> None:
    first(framed, "#all").click()
    assert first_text(framed, "#selected") == "4 windows selected"
    assert "000001 to 000004" in first_text(framed, "#selected-what")


def test_a_preview_that_was_closed_says_nothing_in_the_next_one(framed: WebDriver) -> None:
    first(framed, "#all").click()
    framed.execute_script(
        "window.timers = []; window.fetch = () => new Promise(() => {});"
        "window.setTimeout = (call) => { if (String(call).includes('dialog')) window.timers.push(call); };"
    )
    first(framed, "#replay").click()
    first(framed, "#dialog [data-close]").click()
    first(framed, "#replay").click()
    assert first_text(framed, "#dialog[open] h1") == "Asking Kafka…"
    framed.execute_script("window.timers[0]()")
    assert framed.execute_script("return document.getElementById('dialog-title').textContent") == "Asking Kafka…"
    framed.execute_script("window.timers[1]()")
    assert first_text(framed, "#dialog[open] h1") == "There is no answer yet"
    first(framed, "#dialog [data-close]").click()


def test_a_preview_says_that_kafka_is_asked_and_that_airflow_did_not_answer(framed: WebDriver) -> None:
    first(framed, "#all").click()
    framed.execute_script(
        "window.fetch = () => new Promise((_, fail) => { window.lose = fail; });"
        "window.setTimeout = (call) => { if (String(call).includes('dialog')) window.say_late = call; };"
    )
    first(framed, "#replay").click()
    assert first_text(framed, "#dialog[open] h1") == "Asking Kafka…"
    framed.execute_script("window.say_late()")
    late = "There is no answer yet"
    assert first_text(framed, "#dialog[open] h1") == late
    assert "nothing has started" in first_text(framed, "#dialog p")
    framed.execute_script("window.lose(new TypeError('Failed to fetch'))")
    assert first_text(framed, "#dialog[open] h1", lambda text: text != late) == "Airflow did not answer"
    below = "return arguments[0].getBoundingClientRect().bottom - arguments[1].getBoundingClientRect().bottom"
    dialog, text, buttons = (first(framed, css) for css in ("#dialog", "#dialog p", "#dialog .actions"))
    assert framed.execute_script(below, buttons, text) >= buttons.size["height"], "the text is above the buttons"
    framed.execute_script("arguments[0].style.height = '3000px'", text)
    assert framed.execute_script(below, buttons, dialog) == pytest.approx(0, abs=2), "also if the text is long"
    first(framed, "#dialog [data-close]").click()
    assert not framed.find_elements(By.CSS_SELECTOR, "#dialog[open]")


def link_id(run: dict[str, Any]) -> str:
    """Return a run's id as an address has it."""
    return requests.utils.quote(run["dag_run_id"], safe="")


def test_a_span_of_time_is_in_the_address_that_people_share(framed: WebDriver, server: PageServer) -> None:
    framed.execute_script("document.querySelector('[name=from]').value = '2026-11-01T00:30'")
    first(framed, ".span button").click()
    first(framed, "[name=from]", lambda e: e.get_attribute("value") == "2026-11-01T00:30")
    framed.switch_to.default_content()
    wait_until(lambda: "from=" in framed.current_url, what="the address bar follows")
    framed.get(framed.current_url)
    framed.switch_to.frame(first(framed, "iframe"))
    first(framed, "[name=from]", lambda e: e.get_attribute("value") == "2026-11-01T00:30")
    assert framed.find_elements(By.CSS_SELECTOR, "[data-w='1']") == []


SAY_OF_ENDS = """
const said = ([beginning, end]) => ({behind: "", lost: 0, beginning, end});
window.fetch = async () => new Response(JSON.stringify({parts: {}, partitions: Object.fromEntries(
  arguments[0].map((bounds, partition) => [`page-orders-${partition}`, said(bounds)]))}));
document.dispatchEvent(new Event("visibilitychange"));
"""
"""Let Kafka have these beginning and end offsets."""
READ, SHORT, NOT_KNOWN = (0, 600), (0, 350), (None, None)
EMPTY, SHORTER = (600, 600), (0, 50)
"""Without a record, after all were read; and one that ends before all windows that are drawn."""


@pytest.mark.parametrize(
    ("query", "bounds", "ends"),
    [
        ("", [READ, SHORT, NOT_KNOWN], {0: 90, 1: 90 * (350 - 100) / (600 - 100)}),
        ("?axis=time", [READ, SHORT, NOT_KNOWN], {0: 90}),
        ("?before=2", [READ, SHORT, NOT_KNOWN], {}),
        ("", [EMPTY, SHORTER, NOT_KNOWN], {1: 0}),
    ],
)
def test_the_end_offset_is_drawn_where_it_is(
    server: PageServer,
    browser: WebDriver,
    query: str,
    bounds: list[tuple[int | None, int | None]],
    ends: dict[int, float],
) -> None:
    server.log_in(browser)
    browser.get(f"{server.url}/kafka-offsets/groups/lake.orders{query}")
    first(browser, "[data-tp='page-orders-0'] .behind", lambda e: "behind" in e.text)
    browser.execute_script(SAY_OF_ENDS, bounds)
    first_text(browser, "[data-tp='page-orders-0'] .behind", lambda text: not text)
    colors = {
        p: in_strip(browser, css)
        for p in range(3)
        if browser.find_elements(By.CSS_SELECTOR, css := f"[data-tp='page-orders-{p}'] rect.edge.end")
    }
    assert colors == ends


def test_after_a_reset_backwards_what_is_unread_begins_at_the_watermark(server: PageServer, browser: WebDriver) -> None:
    server.log_in(browser)
    browser.get(f"{server.url}/kafka-offsets/groups/lake.back")
    strip = "[data-tp='page-orders-1']"
    assert first(browser, f"{strip} rect.unread").get_attribute("data-r") == "300-1600"
    assert first_text(browser, f"{strip} .behind") == "1,300 behind"
    assert len(browser.find_elements(By.CSS_SELECTOR, f"{strip} rect.superseded")) == 2


def test_no_heading_of_the_list_runs_into_the_next_one(server: PageServer, browser: WebDriver) -> None:
    server.log_in(browser)
    browser.get(f"{server.url}/kafka-offsets/groups")
    first(browser, ".groups th")
    headings = browser.find_elements(By.CSS_SELECTOR, ".groups th")
    wider = "return arguments[0].scrollWidth > arguments[0].clientWidth"
    assert [heading.text for heading in headings if browser.execute_script(wider, heading)] == []


def test_what_retention_took_is_drawn_as_lost_and_the_rest_as_unread(server: PageServer, browser: WebDriver) -> None:
    server.log_in(browser)
    browser.get(f"{server.url}/kafka-offsets/groups/lake.late")
    strip = "[data-tp='page-orders-0']"
    assert first_text(browser, f"{strip} .behind") == "100 lost"
    assert (
        first(browser, f"{strip} .behind").get_attribute("title") == "1,450 behind, of which 100 are lost to retention"
    )
    lost = browser.find_elements(By.CSS_SELECTOR, f"{strip} rect.lost")
    assert [rect.get_attribute("data-r") for rect in lost] == ["50-100", "100-150"], "in the open window, and after it"
    unread = first(browser, f"{strip} rect.unread")
    edge = first(browser, f"{strip} rect.edge.begin")
    assert unread.get_attribute("data-r") == "150-1500"
    assert edge.get_attribute("x") == unread.get_attribute("x")
    ActionChains(browser).move_to_element(lost[1]).perform()
    assert first_text(browser, "#hint") == "lost to retention\npage-orders-0 · offsets [100, 150)\n50 offsets"
    other = "[data-tp='page-orders-1']"
    assert first_text(browser, f"{other} .behind") == "1,550 behind"
    assert browser.find_elements(By.CSS_SELECTOR, f"{other} rect.lost") == []


SAY_OF_CELLS = """
const cells = [...document.querySelectorAll(".heat[data-topic=clicks] rect")].map((cell) => [parseInt(cell.dataset.p), 7, 1, "quiet", 0]);
cells[0].splice(3, 2, "lost", 40);
cells[1].splice(3, 2, "risk", 0);
window.fetch = async () => new Response(JSON.stringify({parts: {}, heat: {clicks: cells}, folded: {danger: 3, lag: 9}}));
document.dispatchEvent(new Event("visibilitychange"));
"""


def test_of_many_partitions_the_page_tells_which_are_lost_and_that_others_need_a_look_more(
    server: PageServer, browser: WebDriver
) -> None:
    server.log_in(browser)
    browser.get(f"{server.url}/kafka-offsets/groups/lake.wide")
    first(browser, "#verdict .badge", lambda e: e.text == "NOT KNOWN")
    assert not browser.find_element(By.ID, "folded").is_displayed()
    browser.execute_script(SAY_OF_CELLS)
    assert first_text(browser, "#folded").startswith("9 that need it more"), "this Kafka has never answered"
    row = ".heat[data-topic=clicks]"
    lost = first(browser, f"{row} rect.heat-lost")
    assert len(browser.find_elements(By.CSS_SELECTOR, f"{row} rect.heat-risk")) == 1
    ActionChains(browser).move_to_element(lost).perform()
    assert first_text(browser, "#hint").endswith("\n7 behind, 40 lost to retention")
    first(browser, "#folded a").click()
    first(browser, "#folded", lambda e: not e.is_displayed())


def test_a_replay_of_a_span_of_time(server: PageServer, browser: WebDriver) -> None:
    server.log_in(browser)
    browser.get(f"{server.url}/kafka-offsets/groups/lake.orders?from=2026-11-01T00:30")
    first(browser, "#all").click()
    assert "000002 to 000004" in first_text(browser, "#selected-what")
    first(browser, "#replay", lambda e: e.is_enabled()).click()
    dialog = first(browser, "#dialog[open]", lambda e: "Replay 2 windows?" in e.text)
    assert "000001" not in dialog.text, "it was cut before this time"
    body = first(browser, "#dialog [data-confirm]").get_attribute("data-confirm")
    assert json.loads(str(body))["conf"] == {"kafka_offsets": {"group": "lake.orders", "windows": "2,4"}}


def test_a_viewer_may_look_and_not_replay(server: PageServer, browser: WebDriver) -> None:
    server.log_in(browser, "viewer")
    browser.get(f"{server.url}/kafka-offsets/groups/lake.orders")
    first(browser, "#all").click()
    first(browser, "#replay", lambda e: e.is_enabled()).click()
    dialog = first(browser, "#dialog[open]", lambda e: "can run" in e.text)
    assert "No DAG can run this for you: orders (you may not run this DAG)" in dialog.text
    assert dialog.find_elements(By.CSS_SELECTOR, "[data-confirm]") == []
    assert first_text(browser, "#dialog [data-close]") == "Close"


def test_the_axis_of_time_is_in_the_zone_of_the_ui(server: PageServer, browser: WebDriver) -> None:
    server.log_in(browser)
    browser.get(f"{server.url}/kafka-offsets/static/icon.svg")
    browser.execute_script("localStorage.setItem('timezone', '\"Asia/Tokyo\"')")
    try:
        browser.get(f"{server.url}/kafka-offsets/groups/lake.orders?axis=time")
        tick = first(browser, ".ticks text[data-at='2026-11-01T02:00:00+00:00']")
        assert tick.get_attribute("textContent") in ("1 Nov 11:00", "1 Nov 2026 11:00")
        assert first_text(browser, ".zone") == "Times are in Asia/Tokyo."
    finally:
        browser.execute_script("localStorage.removeItem('timezone')")


def test_hostile_names_do_nothing(server: PageServer, browser: WebDriver) -> None:
    server.log_in(browser)
    for page in ("groups", "groups/lake.hostile", "windows/lake.hostile-000002"):
        browser.get(f"{server.url}/kafka-offsets/{page}")
        browser.execute_script("window.boom = () => { window.was = 1; }")
        first(browser, "h1")
        assert browser.find_elements(By.CSS_SELECTOR, "main img, main b[onmouseover], main q script") == []
        assert browser.execute_script("return window.was") is None


VIEWS = [
    "groups",
    "groups/lake.orders",
    "groups/lake.orders?axis=time&from=2026-11-01T00:30",
    "groups/lake.wide",
    "groups/lake.pruned",
    "windows/lake.orders-000004",
    "run?dag_id=orders&run_id=scheduled__2026-11-01T00",
]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_console_stays_empty(server: PageServer, browser: WebDriver, theme: str) -> None:
    server.log_in(browser)
    browser.execute_script("localStorage.setItem('theme', arguments[0])", theme)
    console(browser)
    for page in VIEWS:
        browser.get(f"{server.url}/kafka-offsets/{page}")
        first(browser, "h1")
        assert dark(browser) is (theme == "dark")
        wait_until(lambda: not browser.find_elements(By.CSS_SELECTOR, ".badge.wait"), what="Kafka's answer")
        assert console(browser) == [], page


def test_the_console_is_read(server: PageServer, browser: WebDriver) -> None:
    browser.get(f"{server.url}/kafka-offsets/static/missing")
    assert any("404" in line or "401" in line for line in console(browser))


LISTEN = """
window.said = [document.body.textContent];
new MutationObserver(() => window.said.push(document.body.textContent)).observe(document.body, {childList: true, subtree: true});
"""


def test_a_kafka_that_never_answers_is_told_before_it_is_given_up(server: PageServer, browser: WebDriver) -> None:
    server.log_in(browser)

    def is_told_first() -> bool:
        browser.get(f"{server.url}/kafka-offsets/groups/lake.silent")
        browser.execute_script(LISTEN)
        first(browser, "#verdict .badge", lambda e: e.text == "NOT KNOWN")
        return bool(browser.execute_script("return said.some(text => text.includes('Kafka has not answered yet'))"))

    # If another test has asked that Kafka, the page keeps the answer for ten seconds.
    wait_until(is_told_first, what="a page that waits for Kafka", interval=1)


FAIL = """
window.fetch = async () => new Response(JSON.stringify({error: "It is away."}), {status: arguments[0]});
document.dispatchEvent(new Event("visibilitychange"));
"""
"""Let the next answer be an error."""

NO_LONGER_KNOWN = {401: "Your session has ended. Reload Airflow.", 503: "It is away."}


@pytest.mark.parametrize("status", NO_LONGER_KNOWN)
def test_without_a_newer_answer_a_group_keeps_no_old_verdict(
    server: PageServer, browser: WebDriver, status: int
) -> None:
    server.log_in(browser)
    browser.get(f"{server.url}/kafka-offsets/groups/lake.orders")
    verdict = first_text(browser, "#verdict .badge", lambda text: text not in ("", "…"))
    assert verdict != "NOT KNOWN"
    browser.execute_script(FAIL, status)
    first(browser, "#verdict .badge.plain", lambda e: e.text == "NOT KNOWN")
    for card in ("#card-lag", "#card-headroom"):
        assert [first_text(browser, f"{card} {part}") for part in ("b", "small")] == ["?", "not known"]
    assert first_text(browser, "#reason") == NO_LONGER_KNOWN[status]
    assert first_text(browser, "[data-tp='page-orders-1'] .behind") == "—"
    assert browser.find_elements(By.CSS_SELECTOR, ".strip g rect") == [], "what was unread, and the edges of the log"


COLOR = """
document.getElementById("folded").hidden = false;
for (const cell of document.querySelectorAll(".heat rect")) {
  cell.setAttribute("class", "heat-lost level-3");
  Object.assign(cell.dataset, {lag: 5, lost: 2, risk: true});
}
"""
"""Color all cells as an answer does."""
LOOK_AT_CELLS = """
const cells = [...document.querySelectorAll(".heat rect")];
return cells.map((cell) => ["data-lag", "data-shade", "class"].map((name) => cell.getAttribute(name)));
"""
"""All at once: to ask for each of hundreds took seconds of a processor."""


def test_without_a_newer_answer_no_partition_keeps_an_old_color(server: PageServer, browser: WebDriver) -> None:
    server.log_in(browser)
    browser.get(f"{server.url}/kafka-offsets/groups/lake.wide")
    first(browser, ".heat rect")
    browser.execute_script(COLOR)
    browser.execute_script(FAIL, 503)
    first(browser, ".heat rect:not([data-lag])")
    cells = browser.execute_script(LOOK_AT_CELLS)
    assert cells
    assert {lag for lag, _, _ in cells} == {None}
    assert all(f"heat-{shade} level-0" == classes for _, shade, classes in cells)
    assert not browser.find_element(By.ID, "folded").is_displayed()


ASK_TWICE = """
const real = window.fetch, ask = () => document.dispatchEvent(new Event("visibilitychange"));
window.fetch = () => new Promise(answer => { window.first = answer; });
ask();
document.querySelector("#verdict .badge").textContent = "old";
window.fetch = real;
ask();
"""
ANSWER_THE_FIRST = """
window.first(new Response(JSON.stringify({error: "It is away."}), {status: 503}));
setTimeout(arguments[0], 100);
"""


def test_an_answer_that_comes_after_that_to_a_later_question_changes_nothing(
    server: PageServer, browser: WebDriver
) -> None:
    server.log_in(browser)
    browser.get(f"{server.url}/kafka-offsets/groups/lake.orders")
    first_text(browser, "#verdict .badge", lambda text: text not in ("", "…"))
    browser.execute_script(ASK_TWICE)
    verdict = first_text(browser, "#verdict .badge", lambda text: text != "old")
    browser.execute_async_script(ANSWER_THE_FIRST)
    assert first_text(browser, "#verdict .badge") == verdict != "NOT KNOWN"


def test_without_a_newer_answer_the_list_keeps_no_old_verdict(server: PageServer, browser: WebDriver) -> None:
    server.log_in(browser)
    browser.get(f"{server.url}/kafka-offsets/groups")
    row = "tr[data-group='lake.orders']"
    first_text(browser, f"{row} .badge", lambda text: text not in ("", "…", "NOT KNOWN"))
    browser.execute_script(FAIL, 503)
    first(browser, f"{row} .badge.plain", lambda e: e.text == "NOT KNOWN")
    for cell in ("lag", "headroom"):
        assert first_text(browser, f"{row} [data-now-cell={cell}] b") == "?"
    groups = browser.find_elements(By.CSS_SELECTOR, "tr[data-group]")
    assert first_text(browser, "#needs") == str(len(groups)), "each may need a look"
    assert first_text(browser, "#summary") == "· It is away."


def test_a_ledger_that_never_answers_is_told(server: PageServer, browser: WebDriver, silent: int) -> None:
    server.log_in(browser)
    with server.with_ledger_at(silent):
        browser.get(f"{server.url}/kafka-offsets/groups")
        assert first_text(browser, "h1") == "The ledger does not answer"
    first(browser, "a.button").click()
    first(browser, ".groups")


@pytest.mark.parametrize("width", [1280, 1920])
@pytest.mark.parametrize("page", ["groups", "groups/lake.orders", "groups/lake.wide", "windows/lake.orders-000004"])
def test_nothing_is_wider_than_the_window(server: PageServer, browser: WebDriver, page: str, width: int) -> None:
    server.log_in(browser)
    browser.set_window_size(width, 1000)
    browser.get(f"{server.url}/kafka-offsets/{page}")
    first(browser, "h1")
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def test_the_list_finds_groups(server: PageServer, browser: WebDriver) -> None:
    server.log_in(browser)
    browser.get(f"{server.url}/kafka-offsets/groups")
    first(browser, "#find").send_keys("SALAR")
    shown = [
        row.get_attribute("data-group")
        for row in browser.find_elements(By.CSS_SELECTOR, ".groups tbody tr")
        if row.is_displayed()
    ]
    assert shown == ["dwh.secret"]
