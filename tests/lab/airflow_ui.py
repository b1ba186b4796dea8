"""The part of Airflow's UI that tests use, as a person sees it: the login, and the Trigger dialog with its fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.lab.browser import paste
from tests.lab.processes import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from selenium.webdriver.remote.webdriver import WebDriver
    from selenium.webdriver.remote.webelement import WebElement

    from tests.lab.airflow import Airflow

# What a field is made of, by the name that tests call it.
_WIDGETS = {
    "date and time": "[data-testid=datetime-input]",
    "JSON": ".monaco-editor",
    "text": "input[data-scope=field]",
}
_LEFT = "iframe, [data-testid=trigger-dag-button]"
"""What is gone when the UI has left a page of a plugin, or of a DAG."""


def log_in(browser: WebDriver, airflow: Airflow) -> None:
    """Log in with user and password."""
    browser.get(f"{airflow.url}/auth/login")
    _first(browser, "[name=username]").send_keys(airflow.user)
    _first(browser, "[name=password]").send_keys(airflow.password)
    _first(browser, "button[type=submit]").click()
    wait_until(lambda: "/auth/login" not in browser.current_url, what="the login is accepted")


def show(browser: WebDriver, ui: str, path: str) -> None:
    """Show a place of the UI; what was open before is left.

    Where the UI is there already, it goes as its own links do: to load all of it again takes seconds of a processor.

    Args:
        browser: in it, someone is logged in.
        ui: the address of Airflow.
        path: the place below it.
    """
    if browser.find_elements(By.ID, "root"):
        leave(browser, ui)
        _go(browser, ui + path)
    else:
        browser.get(ui + path)


def leave(browser: WebDriver, ui: str) -> None:
    """Leave what the UI shows, and asks for news of all the time, for a place of it that asks for none."""
    _go(browser, f"{ui}/plugins")
    wait_until(lambda: not browser.find_elements(By.CSS_SELECTOR, _LEFT), what="the UI is elsewhere")


def _go(browser: WebDriver, address: str) -> None:
    browser.execute_script(
        "history.pushState(null, '', arguments[0]); dispatchEvent(new PopStateEvent('popstate'))", address
    )


def show_times_in(browser: WebDriver, zone: str) -> None:
    """Choose the zone of all times in the UI; where that is shown, it hears of it as from another tab."""
    browser.execute_script(
        "localStorage.setItem('timezone', JSON.stringify(arguments[0]));"
        "dispatchEvent(new StorageEvent('storage', {key: 'timezone'}))",
        zone,
    )


class TriggerDialog:
    """The Trigger dialog of a DAG, open; fields are found by their label."""

    def __init__(self, browser: WebDriver, airflow: Airflow, dag_id: str) -> None:
        self._browser = browser
        self._airflow = airflow
        show(browser, airflow.url, f"/dags/{dag_id}")
        _first(browser, "[data-testid=trigger-dag-button]").click()
        self.element = _first(browser, "[data-scope=dialog][role=dialog]")
        # Later than the dialog: it asks for the DAG's params first.
        self._submit = _first(self.element, "[data-testid=trigger-dag-submit]")

    def sections(self) -> list[str]:
        """Return the titles of the sections, folded up or not."""
        return [title.text for title in self._section_titles()]

    def open_section(self, title: str) -> None:
        """Unfold a section, and wait until its last editor is there."""
        next(found for found in self._section_titles() if found.text == title).click()
        wait_until(self._is_unfolded, what=f"section {title} is unfolded")

    def fields(self) -> dict[str, str]:
        """Return the fields that are to be seen: label and kind, `text`, `date and time` or `JSON`."""
        return {label: _kind(row) for label, row in self._rows().items()}

    def help(self, label: str) -> str:
        """Return the text below a field."""
        return self._rows()[label].find_element(By.CSS_SELECTOR, "[data-part=helper-text]").text

    def fill_text(self, label: str, value: str) -> None:
        """Type into a text field, in the place of what is there."""
        self._replace(self._widget(label, "text"), value)

    def fill_time(self, label: str, date: str, time: str) -> None:
        """Choose date (`2026/01/31`) and time of day (`06:30`) in the popover of a field."""
        self._widget(label, "date and time").click()
        popover = "[data-scope=popover][data-state=open] input[placeholder='{}']"
        date_input = _first(self._browser, popover.format("YYYY/MM/DD"))
        self._replace(date_input, date)
        self._replace(_first(self._browser, popover.format("HH:mm")), time)
        date_input.send_keys(Keys.ESCAPE)
        wait_until(lambda: not _is_shown(date_input), what="the popover is closed")

    def fill_json(self, label: str, value: str) -> None:
        """Paste into a JSON editor, in the place of what is there; an empty text empties it."""
        self._widget(label, "JSON").find_element(By.CSS_SELECTOR, ".view-lines").click()
        self._press("a", Keys.CONTROL)
        paste(self._browser, value)
        # The editor closes brackets by itself: what it has put behind the cursor goes, as does what an empty text left.
        self._press(Keys.END, Keys.CONTROL, Keys.SHIFT)
        self._press(Keys.DELETE)

    def screenshot(self, path: Path) -> None:
        """Save a picture of the dialog, as it is."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.element.screenshot_as_png)

    def submit(self) -> None:
        """Trigger the run, and wait until the dialog is closed."""
        wait_until(self._submit.is_enabled, what="the dialog takes what is filled in")
        self._submit.click()
        wait_until(lambda: not _is_shown(self.element), what="the dialog is closed")

    def leave(self) -> None:
        """Leave the DAG, whose page asks for news all the time that it is shown."""
        leave(self._browser, self._airflow.url)

    def _section_titles(self) -> list[WebElement]:
        return self.element.find_elements(By.CSS_SELECTOR, "[data-scope=accordion][data-part=item-trigger]")

    def _rows(self) -> dict[str, WebElement]:
        rows = _shown(self.element, "[data-scope=accordion][data-state=open] [data-scope=field][role=group]")
        return {row.find_element(By.TAG_NAME, "label").text: row for row in rows}

    def _is_unfolded(self) -> bool:
        kinds = self.fields()
        return bool(kinds) and "nothing" not in kinds.values()

    def _widget(self, label: str, kind: str) -> WebElement:
        return self._rows()[label].find_element(By.CSS_SELECTOR, _WIDGETS[kind])

    def _press(self, key: str, *held: str) -> None:
        keys = ActionChains(self._browser)
        for modifier in held:
            keys.key_down(modifier)
        keys.send_keys(key)
        for modifier in held:
            keys.key_up(modifier)
        keys.perform()

    def _replace(self, field: WebElement, value: str) -> None:
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(value or Keys.DELETE)


def _kind(row: WebElement) -> str:
    kinds = (kind for kind, selector in _WIDGETS.items() if row.find_elements(By.CSS_SELECTOR, selector))
    return next(kinds, "nothing")


def _is_shown(element: WebElement) -> bool:
    try:
        return element.is_displayed()
    except StaleElementReferenceException:  # the page has thrown it away
        return False


def _shown(where: WebDriver | WebElement, selector: str) -> list[WebElement]:
    return [element for element in where.find_elements(By.CSS_SELECTOR, selector) if _is_shown(element)]


def _first(where: WebDriver | WebElement, selector: str) -> WebElement:
    """Return the first such element as soon as it is shown."""
    wait_until(lambda: _shown(where, selector), what=f"{selector} is shown")
    return _shown(where, selector)[0]
