"""Chromium without a window, on a page of this machine: for looking at what `report --html` wrote."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

Size = tuple[int, int]
Open = Callable[[Path, Size], "Chrome"]

WIDE, PHONE = (1280, 900), (390, 844)
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
)
_OPENED_MS = "const t = performance.getEntriesByType('navigation')[0]; return t.loadEventEnd - t.startTime"


def missing() -> str:
    """What to install before a browser can be opened; "" when nothing is missing."""
    if find_spec("selenium") is None:
        return "pip install 'autofuse[browser]'"
    if _chromium() is None or shutil.which("chromedriver") is None:
        return "apt-get install chromium chromium-driver"
    return ""


@contextmanager
def browsers() -> Iterator[Open]:
    """Opens pages at a size (pixels; below 600 wide as a phone), each in a browser of its own with a fresh profile.

    RuntimeError says what is missing.
    """
    if problem := missing():
        raise RuntimeError(f"no browser: {problem}")
    from selenium import webdriver

    made: list[Chrome] = []
    with tempfile.TemporaryDirectory(prefix="autofuse-browser-", ignore_cleanup_errors=True) as folder:

        def open_page(path: Path, size: Size) -> Chrome:
            options = webdriver.ChromeOptions()
            options.binary_location = str(_chromium())
            for flag in (*FLAGS, f"--user-data-dir={Path(folder) / str(len(made))}"):
                options.add_argument(flag)
            options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
            browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
            made.append(browser)
            browser.set_page_load_timeout(30)
            metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 600}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
            browser.get(path.absolute().as_uri())
            return browser

        try:
            yield open_page
        finally:
            for browser in made:
                browser.quit()


def opened_in_s(browser: Chrome) -> float:
    """Seconds from asking for the page until it was loaded and drawn (it draws before it is loaded)."""
    return float(browser.execute_script(_OPENED_MS)) / 1000


def worked_s(browser: Chrome) -> float:
    """Seconds that the processor worked on the page so far: on an idle machine it opens in little more."""
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


def _chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")
