"""The report's sections about what decisions were worth and what was not reached."""

from __future__ import annotations

from autofuse.views.frames.analysis import Analysis
from autofuse.views.report.render import render_markdown
from autofuse.views.report.worth_text import what_it_was_worth
from tests.views.conftest import SUMMARY


def test_the_report_tells_each_step_with_what_is_left_after_it(analysis: Analysis) -> None:
    text = render_markdown(analysis)
    assert "1.30x as fast as no fusion." in text
    assert "| rule | what the fixed rule fuses (3x) | -60.0 µs | -15.4 % | 330.0 µs |" in text
    assert "| apart | Conv+Add -> Conv \\| Add (2x) | +5.0 µs | +1.3 % | 295.0 µs |" in text


def test_the_report_tells_what_was_not_reached(analysis: Analysis) -> None:
    text = render_markdown(analysis)
    assert "45.0 s more of search are expected to take off 12.0 µs" in text
    assert "| plans | none was tried |  |" in text


def test_sums_of_kernels_are_not_called_measured() -> None:
    summed = {**SUMMARY, "waterfall": {**SUMMARY["waterfall"], "measured": False, "remainder_us": 0.0}}
    text = "\n".join(what_it_was_worth(summed))
    assert "measured whole" not in text and "remainder" not in text
    assert "no plan whole beside no fusion" in text


def test_a_run_that_says_nothing_has_no_such_section() -> None:
    assert what_it_was_worth(None) == [] and what_it_was_worth({"composition": {}}) == []
