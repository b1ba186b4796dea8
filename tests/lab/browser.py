"""A real browser without a screen: Chromium from Debian's packages, driven with Selenium."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

import requests

from tests.lab.debian import ensure_program
from tests.lab.processes import LOOPBACK, Server, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from selenium.webdriver.remote.webdriver import WebDriver

_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # as root, Chromium has none
    "--disable-dev-shm-usage",  # a container's /dev/shm is too small
    "--disable-gpu",
    "--no-first-run",
    # It goes where the test sends it, and nowhere else.
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def chromium() -> str:
    """Return the path of the browser; install it if it is missing."""
    return ensure_program(lambda: shutil.which("chromium"), package="chromium")


def chromedriver() -> str:
    """Return the path of the server that drives the browser; install it if it is missing."""
    return ensure_program(lambda: shutil.which("chromedriver"), package="chromium-driver")


@contextlib.contextmanager
def open_browser(folder: Path, *, width: int = 1200, height: int = 900) -> Iterator[WebDriver]:
    """Open one window of a browser that has no history and speaks English; close it at the end.

    Args:
        folder: Where it keeps its profile and log.
        width: The window's, in pixels.
        height: The window's, in pixels.
    """
    from selenium.webdriver import ChromeOptions, Remote
    from selenium.webdriver.chrome.remote_connection import ChromeRemoteConnection

    options = ChromeOptions()
    options.binary_location = chromium()
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for option in (*_OPTIONS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}", "--lang=en"):
        options.add_argument(option)
    with _driver(folder) as url:
        browser = Remote(ChromeRemoteConnection(url), options=options)
        try:
            yield browser
        finally:
            browser.quit()


def paste(browser: WebDriver, text: str) -> None:
    """Put text where the cursor is, all at once."""
    browser.execute("executeCdpCommand", {"cmd": "Input.insertText", "params": {"text": text}})


def console(browser: WebDriver) -> list[str]:
    """Return what pages wrote to the console since the last call, errors of the browser included."""
    return [entry["message"] for entry in browser.execute("getLog", {"type": "browser"})["value"]]


@contextlib.contextmanager
def _driver(folder: Path) -> Iterator[str]:
    # As one of our servers, not as Selenium's: that one, and its browser, would outlive a test run that is killed.
    port = free_port()
    url = f"http://{LOOPBACK}:{port}"
    with Server(
        "ChromeDriver",
        [chromedriver(), f"--port={port}"],
        log=folder / "chromedriver.log",
        ready=lambda: _answers(url),
    ):
        yield url


def _answers(url: str) -> bool:
    return bool(requests.get(f"{url}/status", timeout=5).json()["value"]["ready"])
