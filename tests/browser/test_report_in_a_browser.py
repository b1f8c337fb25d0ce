"""The report in a real browser: every plot drawn, no complaint on the console, links that lead somewhere, no sideways
scrolling on a phone. Runs under `make test-browser` only; screenshots are kept in `out/browser`.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from autofuse.views.frames.analysis import open_analysis
from autofuse.views.report.page import write_html
from experiments.browser import PHONE, WIDE, Open, browsers, missing, opened_in_s
from experiments.database.synthetic import write_database

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.browser

SHOTS = Path("out/browser")
PLOTS = ("worth", "progress", "speedups", "shares", "noise", "failures", "predicted", "transfer")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a night of 50,000 candidates."""
    folder = tmp_path_factory.mktemp("night")
    path = write_database(folder / "night.db", 50_000, seed=1)
    with open_analysis(path) as analysis:
        return write_html(analysis, None, folder / "report.html")


@pytest.fixture(scope="module")
def opened() -> Iterator[Open]:
    if problem := missing():
        pytest.fail(f"no browser: {problem}")
    with browsers() as open_page:
        yield open_page


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a job that really tuned two small networks: so many candidates, however busy the machine is."""
    import onnx

    from autofuse import api
    from experiments.architectures import mobilenet_v2, weenet

    folder = tmp_path_factory.mktemp("tuned")
    models = folder / "mobilenet.onnx", folder / "weenet.onnx"
    onnx.save(mobilenet_v2.build(0.25, 64), models[0])
    onnx.save(weenet.build(), models[1])
    api.tune_all(models, run="night", database=str(folder / "p.db"), trials=160, threads=1)
    return folder / "p.db"


def shoot(browser: Chrome, name: str) -> None:
    """Keep a picture of the whole page, in parts that a person can look at."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    width, height = browser.execute_script(
        "return [document.documentElement.clientWidth, document.documentElement.scrollHeight]"
    )
    for part, top in enumerate(range(0, min(height, 12_000), 2000)):
        clip = {"x": 0, "y": top, "width": width, "height": min(2000, height - top), "scale": 1}
        found = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        (SHOTS / f"{name}-{part}.png").write_bytes(base64.b64decode(found["data"]))


@pytest.mark.parametrize(("name", "size"), [("wide", WIDE), ("phone", PHONE)])
def test_the_report_is_drawn_without_a_complaint(opened: Open, page: Path, name: str, size: tuple[int, int]) -> None:
    browser = opened(page, size)
    shoot(browser, f"report-{name}")
    assert browser.get_log("browser") == []
    for plot in PLOTS:
        marks, empty = browser.execute_script(
            "const place = document.getElementById(arguments[0]);"
            "const marks = place.querySelectorAll('svg path[d], svg circle, svg rect').length;"
            "return [marks, place.querySelector('.none') !== null]",
            plot,
        )
        assert (marks > 0) != empty, plot
        assert not empty or plot == "transfer", plot
    assert "NaN" not in browser.execute_script("return document.getElementById('main').innerHTML")
    assert fits(browser)


def fits(browser: Chrome) -> bool:
    """Whether the page is no wider than its window; its tables scroll by themselves."""
    page, window = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    return bool(page <= window)


@pytest.mark.parametrize(("name", "size"), [("1280", WIDE), ("390", PHONE)])
def test_a_tuned_network_and_its_job_are_drawn(
    opened: Open, tuned: Path, tmp_path: Path, name: str, size: tuple[int, int]
) -> None:
    with open_analysis(tuned) as analysis:
        runs = [info.id for info in analysis.runs_of("night")]
        night = write_html(analysis, "night", tmp_path / "night.html")
        network = write_html(analysis, runs[0], tmp_path / "network.html")
    for kind, page in (("network", network), ("job", night)):
        browser = opened(page, size)
        shoot(browser, f"tuned-{kind}-{name}")
        assert browser.get_log("browser") == [] and fits(browser)
        assert "NaN" not in browser.execute_script("return document.body.innerHTML.split('<script')[0]")


def test_each_model_of_a_job_leads_to_its_run_and_back(opened: Open, tuned: Path, tmp_path: Path) -> None:
    with open_analysis(tuned) as analysis:
        names = [info.model_name for info in analysis.runs_of("night")]
        page = write_html(analysis, "night", tmp_path / "night.html")
    browser = opened(page, PHONE)
    for number, name in enumerate(names):
        link = browser.find_elements("css selector", "#models td a")[number]
        assert link.text == name
        browser.execute_script("arguments[0].click()", link)
        wait_for(lambda name=name: browser.find_element("tag name", "h1").text.startswith(f"{name} on "))
        assert browser.execute_script("return document.querySelectorAll('.plot svg').length") > 2
        browser.execute_script("document.querySelector('nav a').click()")  # a place on the page, not another page
        assert browser.find_element("tag name", "h1").text.startswith(f"{name} on ")
        browser.execute_script("document.querySelector('a.back').click()")
        wait_for(lambda: browser.find_element("tag name", "h1").text == "night")
    assert browser.get_log("browser") == []


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(50):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("the page did not change within five seconds")


def test_tables_show_on_a_phone_that_they_scroll(opened: Open, page: Path) -> None:
    browser = opened(page, PHONE)
    sides = "return [...document.querySelector('#groups .scroll').classList].filter(name => name !== 'scroll')"
    mark = "return getComputedStyle(document.querySelector('#groups .scroll'), arguments[0]).content"
    browser.execute_script("document.querySelector('#groups').scrollIntoView()")
    assert browser.execute_script(sides) == ["more"] and "›" in browser.execute_script(mark, "::after")
    scroll = "const pane = document.querySelector('#groups .pane'); pane.scrollLeft = arguments[0]"
    browser.execute_script(scroll, 100)
    wait_for(lambda: sorted(browser.execute_script(sides)) == ["less", "more"])
    browser.execute_script(scroll, 100_000)
    wait_for(lambda: browser.execute_script(sides) == ["less"])
    wide = opened(page, WIDE)
    assert wide.execute_script("return document.querySelectorAll('.scroll.more').length") == 0, "at 1280 all tables fit"


def test_a_long_list_of_fusions_begins_with_what_pays_most_and_opens_whole(opened: Open, page: Path) -> None:
    browser = opened(page, WIDE)
    rows = "return [...document.querySelectorAll('#edges table')].map(table => table.tBodies[0].rows.length)"
    _, first, whole = browser.execute_script(rows)
    assert first == 20 < whole
    summary = browser.find_element("css selector", "#edges details summary")
    assert summary.text == f"All {whole}"
    assert not browser.find_elements("css selector", "#edges details td")[0].is_displayed()
    browser.execute_script("arguments[0].click()", summary)
    assert browser.find_elements("css selector", "#edges details td")[0].is_displayed()


def test_the_first_screen_answers_the_first_questions(opened: Open, page: Path) -> None:
    for size in (WIDE, PHONE):
        browser = opened(page, size)
        seen = browser.execute_script(
            "return [...document.querySelectorAll('#head *')].filter(e => e.children.length === 0 &&"
            " e.getBoundingClientRect().bottom <= window.innerHeight).map(e => e.textContent).join(' | ')"
        )
        text = browser.find_element("id", "head").text
        assert "as fast as without fusion" in text and "95 % interval" in text and "trusted" in text
        for title in ("Decisions", "Coverage", "Failures", "Provenance"):
            assert title in seen, (size, title)


def test_it_opens_at_once(opened: Open, page: Path) -> None:
    assert min(opened_in_s(opened(page, WIDE)) for _ in range(3)) < 2.0
    assert page.stat().st_size < 10 * 2**20


def test_links_lead_somewhere_and_nothing_is_loaded(opened: Open, page: Path) -> None:
    browser = opened(page, WIDE)
    targets = browser.execute_script("return [...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert len(targets) > 8
    for target in targets:
        assert target.startswith("#")
        assert browser.execute_script("return document.getElementById(arguments[0]) !== null", target[1:])
    browser.find_element("css selector", "nav a[href='#noise']").click()
    assert browser.execute_script("return window.scrollY") > 300
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_plots_answer_to_pointer_legend_and_columns(opened: Open, page: Path) -> None:
    from selenium.webdriver import ActionChains

    browser = opened(page, WIDE)
    dot = browser.find_element("css selector", "#speedups svg g.hit")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", dot)
    ActionChains(browser).move_to_element(dot).perform()
    tip = browser.find_element("id", "tip")
    assert tip.is_displayed() and "of the time" in tip.text
    paths = "return document.querySelectorAll('#progress svg path').length"
    before = browser.execute_script(paths)
    button = browser.find_element("css selector", "#progress .legend button")
    browser.execute_script("arguments[0].click()", button)
    assert browser.execute_script(paths) == before - 1
    head = browser.find_element("css selector", "#groups th button")
    for order in ("descending", "ascending"):
        browser.execute_script("arguments[0].click()", head)
        cells = browser.execute_script(
            "return [...document.querySelectorAll('#groups tbody tr td:first-child')].map(cell => cell.textContent)"
        )
        assert cells == sorted(cells, reverse=order == "descending")


def test_a_run_that_was_cut_off_has_a_page_too(opened: Open, tmp_path: Path) -> None:
    from autofuse.database.database import open_database
    from autofuse.database.records import RunStart
    from tests.database.recorded import setting_of

    with open_database(tmp_path / "p.db") as database:
        start = RunStart(
            name="<b>cut</b>", model_name="</script><i>net", model_sha256="0" * 64, graph_key="1" * 64, seed=0
        )
        database.start_run(setting_of(database), start)
    with open_analysis(tmp_path / "p.db") as analysis:
        path = write_html(analysis, None, tmp_path / "cut.html")
    browser = opened(path, PHONE)
    shoot(browser, "report-cut-off")
    assert browser.get_log("browser") == []
    assert "</script><i>net" in browser.find_element("tag name", "h1").text
    head = browser.find_element("id", "head").text
    assert "No plan confirmed yet" in head and "It has been running for" in head and "0 candidates measured" in head
    assert browser.execute_script("return document.querySelectorAll('.plot').length") == 0


def test_optuna_dashboard_shows_an_export(opened: Open, tmp_path: Path) -> None:
    """Its own server, on the loopback, over a file that it may not write."""
    import subprocess
    import sys
    import urllib.request

    pytest.importorskip("optuna_dashboard", reason="pip install 'autofuse[dashboard]'")
    from autofuse.database.database import open_database
    from autofuse.search.plans.optuna_export import write_optuna_journal

    path = write_database(tmp_path / "night.db", 100, seed=1)
    journal = tmp_path / "studies.journal"
    with open_database(path, read_only=True) as database:
        name, *_ = write_optuna_journal(database, journal)
    journal.chmod(0o444)
    before = journal.read_bytes()
    command = [str(Path(sys.executable).with_name("optuna-dashboard")), str(journal), "--port", "18473"]
    server = subprocess.Popen([*command, "--host", "127.0.0.1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = "http://127.0.0.1:18473/dashboard"
        for _ in range(100):
            try:
                urllib.request.urlopen(address, timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        blank = tmp_path / "blank.html"
        blank.write_text("<!doctype html><title>blank</title>")
        browser = opened(blank, WIDE)
        browser.get(address)
        for _ in range(50):
            if name in browser.find_element("tag name", "body").text:
                break
            time.sleep(0.2)
        shoot(browser, "optuna-dashboard")
        assert name in browser.find_element("tag name", "body").text
        assert journal.read_bytes() == before
    finally:
        server.terminate()
        server.wait(10)
