"""The HTML page: one file without the network, whose numbers are those of the frames."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from autofuse.cli.main import app
from autofuse.database.records import Candidate, CandidateOutcome, ChosenGroup, SampleBlock, content_key
from autofuse.errors import InputError
from autofuse.views.frames.analysis import Analysis, open_analysis
from autofuse.views.report import series
from autofuse.views.report.page import _knobs, page_data, render_html, write_html
from autofuse.views.report.render import render_markdown


def data_of(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    parsed = json.loads(found[1])
    assert parsed["night"] is None
    (run,) = parsed["pages"]
    assert isinstance(run, dict)
    return run


def test_the_page_holds_the_first_screen(analysis: Analysis) -> None:
    data = data_of(render_html(analysis))
    speedup = data["speedup"]
    assert (speedup["plan"], speedup["over"], speedup["us"]) == ("search", "none", 300.0)
    assert speedup["ratio"]["value"] == pytest.approx(1.3, rel=0.02) and speedup["ratio"]["trusted"]
    assert speedup["ratio"]["lo"] < speedup["ratio"]["value"] < speedup["ratio"]["hi"]
    assert (data["trust"]["groups"], data["trust"]["measured"], data["trust"]["trusted_share"]) == (3, 2, 0.8)
    assert (data["counts"]["measured"], data["counts"]["failed"]) == (4, 1)
    assert {row["fact"]: row["value"] for row in data["tables"]["provenance"]}["governor"] == "unknown"
    assert {row["name"]: row["state"] for row in data["rivals"]}["tvm-untuned"] == "run_error"


def test_the_first_screen_says_what_was_decided(analysis: Analysis) -> None:
    value, words = data_of(render_html(analysis))["trust"]["card"]
    assert value == "100 % trusted"
    assert words == "by time; whole-model time trusted; groups with a trusted time: 80 %"


def test_kernels_that_were_decided_on_make_no_plan_that_was_measured(recorder: Any, path: Path) -> None:
    run = recorder.run("unconfirmed")
    recorder.candidate(run, "Conv 1x8", 1, 200.0)
    best = recorder.candidate(run, "Conv 1x8", 2, 100.0)
    groups = (ChosenGroup(("conv1",), content_key("Conv 1x8"), best, 100.0),)
    recorder.database.record_choice(run, "search", groups, median_us=None, trusted=False)
    recorder.database.finish_run(run, summary={})
    with open_analysis(path) as opened:
        value, words = data_of(render_html(opened))["trust"]["card"]
        page = render_markdown(opened)
    assert value == "100 % trusted, of kernels"
    assert words.startswith("by time; no plan was measured whole, so the plan follows from the times of its kernels; ")
    assert "100 % of the time that was decided on rests on trusted decisions about kernels." in page
    assert "- No plan was measured whole" in page


def test_the_page_holds_the_waterfall_and_what_was_not_reached(analysis: Analysis) -> None:
    worth = data_of(render_html(analysis))["worth"]
    assert worth["ratio"] == pytest.approx(1.3) and worth["start"] == "no fusion" and worth["measured"]
    assert [row["left_us"] for row in worth["steps"]] == list(analysis.waterfall["left_us"])
    assert [row["kind"] for row in worth["not_asked"]] == ["schedules", "plans"]
    assert worth["more"] == {"seconds": 45.0, "gain_us": 12.0}


def test_it_loads_nothing_and_nothing_can_break_out(recorder: Any, path: Path) -> None:
    from autofuse.database.records import RunStart

    start = RunStart(name="n", model_name="</script><b>&", model_sha256="0" * 64, graph_key="1" * 64, seed=0)
    recorder.database.start_run(recorder.setting, start)
    with open_analysis(path) as opened:
        html = render_html(opened)
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "") and "https://" not in html
    assert "default-src 'none'" in html
    assert html.count("</script>") == 2 and "<b>&" not in html.replace("\\u003c", "")
    assert data_of(html)["run"]["model"] == "</script><b>&"
    assert data_of(html)["speedup"] is None


def test_plots_show_what_was_recorded(analysis: Analysis) -> None:
    plots = data_of(render_html(analysis))["plots"]
    (group,) = plots["speedups"]
    assert (group["label"], group["verdict"]) == ("Conv 1x8", "faster") and group["value"] == pytest.approx(2, rel=0.05)
    assert {part["label"]: (part["before"], part["after"]) for part in plots["shares"]} == {
        "Conv 1x8": (400.0, 200.0),
        "Pool 1x8": (50.0, 50.0),
    }
    assert plots["failures"] == [{"label": "timeout", "value": 1}]
    assert [point["y"] for point in plots["progress"]["plans"]] == [400.0, 300.0]
    assert [point["y"] for point in plots["progress"]["groups"]] == pytest.approx([400.6, 200.6, 190.6])
    assert 1 <= len(plots["noise"]) <= 3, "three measurements, those of one moment together"
    assert plots["noise"][0]["clock"] == pytest.approx(99)
    assert [(point["label"], point["x"], point["y"]) for point in plots["predicted"]] == [("search", 250.9, 300.0)]
    assert plots["transfer"]["names"] == []


def test_tables_say_schedules_as_knobs_and_values(analysis: Analysis) -> None:
    data = data_of(render_html(analysis))
    assert [row["schedule"] for row in data["tables"]["groups"]] == ["tile=2", "fixed rule"]
    assert _knobs('{"a.x": 1, "a.y": "two", "b.x": 3}') == "a: x=1 y=two; b: x=3"
    assert _knobs("{}") == "as the family has it"
    assert [part["rest"] for part in data["plots"]["shares"]] == [False, False]


def test_schedules_are_judged_on_other_devices(recorder: Any, night: int, path: Path) -> None:
    """The board's best tile is 2; on the other device tile 1 takes 40 µs, tile 2 takes 50."""
    from autofuse.device.target import Target

    other = recorder.database.setting(
        fingerprint="e" * 64, device_name="laptop", device_facts={}, target=Target("znver4", 16, 32, 2, 32768, 1 << 20),
        threads=1, versions={"tvm": "0.27"},
    )  # fmt: skip
    for tile, us in ((1, 40.0), (2, 50.0)):
        candidate = Candidate(
            content_key("Conv 1x8"), '"Conv 1x8"', "Conv 1x8", f'{{"tile":{tile}}}', content_key(f"{tile}")
        )
        outcome = CandidateOutcome(
            candidate=candidate,
            state="ok",
            median_us=us,
            ci_lo_us=us,
            ci_hi_us=us,
            trusted=True,
            blocks=(SampleBlock((us,)),),
        )
        recorder.database.record_candidate(other, outcome)
    with open_analysis(path) as opened:
        found = series.device_transfer(opened.candidates)
        board, laptop = (found["names"].index(name) for name in ("board | lab, 1t", "laptop, 1t"))
        cells = [[cell["value"] for cell in line] for line in found["cells"]]
    assert (cells[board][laptop], cells[laptop][board]) == (pytest.approx(0.8), pytest.approx(0.5))
    assert cells[board][board] == cells[laptop][laptop] == 1.0


def test_a_kernel_without_a_time_has_no_share_of_it() -> None:
    nan = float("nan")
    groups = pd.DataFrame(
        {
            "workload_key": ["timed", "timed", "guessed"],
            "label": ["Conv", "Conv", "Gemm"],
            "position": [0, 1, 2],
            "us": [2.0, 2.0, nan],
            "first_us": [3.0, 3.0, nan],
        }
    )
    parts = series.time_shares(groups)
    assert parts == [{"label": "Conv", "uses": 2, "before": 6.0, "after": 4.0, "rest": False}]
    assert series.time_shares(groups[groups["us"].isna()]) == []


def test_the_size_of_a_plot_does_not_grow_with_the_run() -> None:
    count = 20_000
    start = pd.Timestamp("2026-01-01", tz="UTC")
    times = start + pd.to_timedelta(np.arange(count), unit="s")
    us = np.linspace(1000, 10, count)
    noise = pd.DataFrame(
        {
            "created_at": times,
            "ci_lo_us": us * 0.9,
            "ci_hi_us": us * 1.1,
            "median_us": us,
            "clock_ratio": 1.0,
            "trusted": True,
        }
    )
    noise["trusted"] = True
    assert len(series.noise_over_time(noise, start)) <= series.MAX_BINS
    measured = pd.DataFrame({"state": "ok", "created_at": times, "candidate_id": range(count), "median_us": us})
    groups = pd.DataFrame({"workload_key": ["w", "w"]})
    points = series.best_so_far(groups, measured, pd.Series("w", index=range(count)), start)
    assert len(points) <= series.MAX_POINTS
    assert (points[0]["y"], points[-1]["y"]) == pytest.approx((2000.6, 20.6))
    assert all(b["y"] < a["y"] for a, b in itertools.pairwise(points))


def test_a_page_goes_where_it_was_asked_to(analysis: Analysis, path: Path, tmp_path: Path) -> None:
    assert write_html(analysis, "night", tmp_path / "r.html").stat().st_size > 20_000
    with pytest.raises(InputError, match="name another file"):
        write_html(analysis, None, tmp_path / "absent" / "r.html")
    result = CliRunner().invoke(app, ["report", "--db", str(path), "--html", str(tmp_path / "q.html")])
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'q.html'}\n")
    assert (tmp_path / "q.html").read_text() == (tmp_path / "r.html").read_text()


def test_page_data_is_plain(analysis: Analysis) -> None:
    info = analysis.run()
    first = {"run", "speedup", "open", "rivals", "trust", "counts"}
    assert set(page_data(analysis, info)) == {*first, "accuracy", "worth", "plots", "left", "tables"}
