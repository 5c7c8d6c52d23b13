"""A real Chromium without a window, driven over WebDriver."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from naiad.testing.waiting import wait_until

WAIT_S = 20.0
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
PROGRAMS = ("chromium", "chromedriver")


def needs_browser() -> None:
    """Skip the calling module, with the reason, where there is no browser or no driver for it."""
    pytest.importorskip("selenium", reason="selenium is not installed: no browser can be driven")
    for program in PROGRAMS:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: the dashboard is not tried in a browser", allow_module_level=True)


class Browser:
    """A window of the browser; elements are named by CSS selectors."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        """Load a page anew, also when only what follows "#" differs."""
        self.driver.get("about:blank")
        self.driver.get(address)

    def go(self, view: str) -> None:
        """Show another view of the page that is open."""
        self.run("location.hash = arguments[0]", view)

    def run(self, script: str, *arguments: object) -> Any:
        """The result of JavaScript in the page."""
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def texts(self, selector: str) -> list[str]:
        """The texts of all fitting elements, those that are out of sight included."""
        script = "return [...document.querySelectorAll(arguments[0])].map((node) => node.textContent)"
        return [str(text) for text in self.run(script, selector)]

    def find(self, selector: str, text: str = "") -> Any:
        """The first fitting element whose text contains ``text``, as soon as there is one."""
        found: list[Any] = []

        def is_there() -> bool:
            script = (
                "return [...document.querySelectorAll(arguments[0])].find((node) => "
                "node.textContent.includes(arguments[1]) && node.getClientRects().length) ?? null"
            )
            found[:] = [self.run(script, selector, text)]
            return found[0] is not None

        wait_until(is_there, WAIT_S, f"{selector} with {text!r} is there; the page: {self.texts('body')}")
        return found[0]

    def click(self, selector: str, text: str = "") -> None:
        self.find(selector, text).click()

    def fill(self, selector: str, text: str) -> None:
        """Put ``text`` into a field in the place of what is there."""
        field = self.find(selector)
        script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))"
        self.run(script, field, text)

    def until(self, condition: Callable[[], object], what: str) -> None:
        wait_until(lambda: bool(condition()), WAIT_S, what)

    def press(self, *keys: str) -> None:
        """Send keys to what has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def size(self, width: int, height: int) -> None:
        """The size of the page itself, which may be smaller than a window can be."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def complaints(self) -> list[str]:
        """Errors in the console since the last call, broken rules of the content security policy among them."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


@contextmanager
def started_browser(folder: Path) -> Iterator[Browser]:
    """A browser with an empty profile; all its files are in ``folder``."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}", "--window-size=1440,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # It leaves folders behind in that of temporary files.
    temporary = folder / "temporary"
    temporary.mkdir()
    driver = webdriver.Chrome(
        options, Service(shutil.which("chromedriver") or "", env=os.environ | {"TMPDIR": str(temporary)})
    )
    driver.set_script_timeout(60)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
