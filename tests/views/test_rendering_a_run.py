"""The page of a run: its first screen answers how much faster, how sure, how complete, what failed, from where."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from autofuse.cli.main import app
from autofuse.errors import InputError
from autofuse.views.frames.analysis import Analysis, open_analysis
from autofuse.views.report import markdown
from autofuse.views.report.render import CSV_FRAMES, render_markdown, write_csv
from autofuse.views.report.tables import rates_text


def section(page: str, title: str) -> str:
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_page_opens_with_the_speedup_and_its_interval(analysis: Analysis) -> None:
    page = render_markdown(analysis, "night")
    assert page.startswith("# net: 1.30x as fast as without fusion [1.2")
    assert "device board \\| lab, 1 thread." in page and "finished" in page
    order = ["Whole model", "Trust and coverage", "Failures", "Provenance", "Groups", "Edges", "Search"]
    places = [page.index(f"\n## {title}\n") for title in order]
    assert places == sorted(places)


def test_each_baseline_has_its_ratio_interval_and_verdict(analysis: Analysis) -> None:
    rows = section(render_markdown(analysis), "Whole model")
    none = next(line for line in rows.splitlines() if line.startswith("| none "))
    assert "1.30" in none and "[" in none and "| faster |" in none
    assert "| **search** (chosen) | 300.0 µs [" in rows
    assert "| tvm-untuned | run_error: no \\|kernel\\| &lt;here> |" in rows
    rival = next(line for line in rows.splitlines() if line.startswith("| onnxruntime "))
    assert "1.01" in rival or "1.00" in rival


def test_coverage_trust_failures_and_unknown_facts_are_said(analysis: Analysis) -> None:
    page = render_markdown(analysis)
    trust = section(page, "Trust and coverage")
    assert "2 of 3 groups have a measured schedule" in trust
    assert "80 % of the measured time" in trust and "whole-model time is trusted" in trust
    assert "| timeout | Conv 1x8 | over 30 s | 1 |" in section(page, "Failures")
    assert "| governor | unknown |" in section(page, "Provenance")


def test_equal_groups_stand_together_with_their_gain_over_the_first_schedule(analysis: Analysis) -> None:
    rows = [line for line in section(render_markdown(analysis), "Groups").splitlines() if line.startswith("| ")]
    unknown = "|  |  |  |  |  |"  # of a workload that cannot be read, the roofline
    assert rows[2] == f'| Conv 1x8 | 2 | 80.0 % | 100.0 µs | 2.00x [1.71, 2.39] | 4 | yes {unknown} `{{"tile":2}}` |'
    assert rows[3] == f"| Pool 1x8 | 1 | 20.0 % | 50.0 µs |  | 0 |  {unknown} fixed rule |"


def test_edges_and_progress_are_summed_up(analysis: Analysis) -> None:
    page = render_markdown(analysis)
    edges = section(page, "Edges")
    assert "| fused | chosen_measured | fused in the plan that was measured and chosen | 2 | 12.0 µs |" in edges
    assert "| conv1 | relu1 | Conv 1x8 | 100.0 µs | 12.0 µs | 11 % |" in edges
    search = section(page, "Search")
    status = CliRunner().invoke(app, ["status", "--db", str(analysis.database.location.path)]).stdout
    an_hour = re.findall(r"([\d,]+) an hour", search + status)
    assert len(an_hour) == 2 and an_hour[0] == an_hour[1]
    assert "4 candidates were measured" in search and "4 plans were tried" in search
    assert [line.split(" | ")[0] for line in search.splitlines() if "µs" in line] == ["| 0", "| 2"]


def test_an_undecided_result_is_not_sold_as_a_speedup(recorder: Any, path: Path) -> None:
    run = recorder.run("noisy")
    recorder.whole(run, "none", 301.0)
    recorder.whole(run, "search", 300.0)
    recorder.database.record_choice(run, "search", (), median_us=300.0, trusted=False)
    with open_analysis(path) as opened:
        page = render_markdown(opened)
    assert "(undecided)" in page.splitlines()[0]
    assert "| undecided | yes |" in section(page, "Whole model") and "faster |" not in section(page, "Whole model")


def test_a_decided_ratio_carries_no_doubt_where_the_clock_of_the_times_drifted(recorder: Any, path: Path) -> None:
    run = recorder.run("drifting")
    recorder.whole(run, "none", 400.0, trusted=False)
    recorder.whole(run, "search", 300.0, trusted=False)
    recorder.database.record_choice(run, "search", (), median_us=300.0, trusted=True)
    with open_analysis(path) as opened:
        page = render_markdown(opened)
    assert "1.33x as fast as without fusion" in page.splitlines()[0] and "trusted" not in page.splitlines()[0]
    assert "| faster | no |" in section(page, "Whole model")


def test_a_run_that_was_cut_off_still_has_a_page(recorder: Any, path: Path) -> None:
    run = recorder.run("cut")
    with open_analysis(path) as opened:
        assert "no plan confirmed yet" in render_markdown(opened, run)
        assert "still running" in render_markdown(opened, "cut")
        recorder.whole(run, "none", 400.0)
        page = render_markdown(opened, run)
        assert "| none | 400.0 µs | ok |" in section(page, "Whole model")
        assert section(page, "Failures").strip() == "None."


@pytest.mark.parametrize(("distinct", "told"), [(3, "12 regions, 3 of them distinct"), (12, "12 regions")])
def test_the_exact_composition_is_told_beside_the_sampled_plans(
    recorder: Any, path: Path, distinct: int, told: str
) -> None:
    run = recorder.run("composed")
    facts = {"composed_us": 200.0, "sampled_us": 210.0, "gap": 0.05, "regions": 12, "distinct": distinct}
    recorder.database.finish_run(run, summary={"composition": facts})
    with open_analysis(path) as opened:
        page = section(render_markdown(opened, "composed"), "Search")
    assert f"({told}): 200.0 µs, 5.00 % faster than the best sampled plan." in page


def test_csv_files_hold_the_frames(analysis: Analysis, night: int, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "csv"
    paths = write_csv(analysis, "night", folder)
    assert [path.name for path in paths] == [f"{name}.csv" for name in CSV_FRAMES]
    for path in paths:
        read = pd.read_csv(path)
        frame = analysis.frame(path.stem, night)
        assert list(read.columns) == list(frame.columns) and len(read) == len(frame) > 0
    assert pd.read_csv(folder / "groups.csv")["operators"][0] == '["conv1", "relu1"]'


def test_a_folder_that_cannot_be_written_is_named(analysis: Analysis, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="name another folder"):
        write_csv(analysis, None, tmp_path / "file" / "csv")


def test_cells_stay_on_one_line_and_inside_their_column() -> None:
    assert markdown.text("a|b\n  c <script>") == "a\\|b c &lt;script>"
    assert markdown.text(None) == markdown.text(float("nan")) == markdown.text(pd.NA) == ""
    assert len(markdown.text("x" * 5000)) == 300
    assert markdown.code("`a|b`" + "x" * 500).startswith("`'a\\|b'xxx")
    assert [markdown.duration(s) for s in (0.25, 61, 3 * 3600 + 125)] == ["0.2 s", "1 min 1 s", "3 h 2 min"]
    assert markdown.interval(float("nan"), 1.0) == "" and markdown.micros(12345.678) == "12.346 ms"


def test_a_candidate_that_was_measured_again_is_one_candidate_on_every_screen(recorder: Any, path: Path) -> None:
    run = recorder.run("again")
    for us in (100.0, 101.0, 102.0):
        recorder.candidate(run, "Conv", 1, us)
    recorder.candidate(run, "Conv", 2, 90.0)
    recorder.database.finish_run(run, summary={})
    with open_analysis(path) as opened:
        assert "2 candidates were measured" in (search := section(render_markdown(opened, "again"), "Search"))
        assert "in 4 measurements" in search
    status = CliRunner().invoke(app, ["status", "--db", str(path), "--format", "json"]).stdout
    assert json.loads(status)["measured"] == 2 and json.loads(status)["outcomes"] == {"ok": 2}


def test_a_time_and_its_interval_have_one_unit() -> None:
    assert markdown.timing(11308.5, 10564.0, 14613.7) == "11.309 ms [10.564, 14.614]"
    assert markdown.timing(300.0, 299.0, 301.5) == "300.0 µs [299.0, 301.5]"
    assert markdown.timing(2.5e6, 2.4e6, 2.6e6) == "2.500 s [2.400, 2.600]"
    assert markdown.timing(float("nan"), 1.0, 2.0) == ""


def test_the_probed_rates_are_told_in_words() -> None:
    rates = {"gflops_1": 241.163, "gflops_n": 447.22, "dram_gbs_1": 25.8095, "dram_gbs_n": 27.62, "threads": 2}
    assert rates_text(rates) == (
        "1 thread: 241.2 GFLOP/s, memory 25.81 GB/s; 2 threads: 447.2 GFLOP/s, memory 27.62 GB/s"
    )
    assert rates_text({"gflops_1": 241.2, "threads": 1}) == "1 thread: 241.2 GFLOP/s"
    assert rates_text("unknown") == "unknown"
