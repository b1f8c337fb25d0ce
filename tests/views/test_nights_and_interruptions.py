"""The report of a job, and of what was cut off: what was done, what was not, and the command that goes on."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from typer.testing import CliRunner

from autofuse.cli.main import app
from autofuse.database.records import ChosenGroup, content_key
from autofuse.database.tables.schema import RunRow
from autofuse.values.arguments import Constant
from autofuse.views.frames.analysis import open_analysis
from autofuse.views.frames.columns import COLUMNS
from autofuse.views.report.night_text import render_text


def autofuse(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def cut_off(recorder: Any, night: int, path: Path) -> Path:
    """A job of three models: one done, one searched, one not begun; its process was killed."""
    second = recorder.run("second", graph=content_key("another graph"))
    recorder.candidate(second, "Gemm 1x8", 1, 50.0)
    recorder.database.finish_run(second, "interrupted")
    recorder.job("nights", [night, second, None], end=None, results={0: {"chosen": "search"}})
    return path


def test_a_job_has_a_row_for_each_model_and_device(cut_off: Path) -> None:
    with open_analysis(cut_off) as analysis:
        frame = analysis.night("nights")
    assert list(frame.columns) == list(COLUMNS["night"])
    first, second, third = frame.to_dict("records")
    assert [row["model"] for row in (first, second, third)] == ["net0", "net1", "net2"]
    assert [row["state"] for row in (first, second, third)] == ["done", "searched, not confirmed", "not begun"]
    assert first["gain"] == pytest.approx(1.3, rel=0.02) and first["gain_lo"] < 1.3 < first["gain_hi"]
    assert first["over_onnxruntime"] == pytest.approx(1.01, rel=0.02)
    assert (first["trusted"], first["untrusted_groups"], first["left"]) == (True, 1, 0.03)
    assert first["interval_width"] == pytest.approx(2.0) and first["trusted_share"] == pytest.approx(2 / 3)
    assert second["interval_width"] == pytest.approx(2.0) and second["gain"] != second["gain"]
    assert second["next"] == third["next"] == "run the job on"


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({}, "more time: an hour may save another 3 %"),
        ({"gain": 0.0}, "compile it"),
        ({"trusted": False}, "undecided: run it again while the machine is quiet"),
        ({"failed": True}, "see the failure; tune this model alone to look into it"),
    ],
)
def test_each_row_says_what_to_do_next(recorder: Any, path: Path, changes: dict[str, Any], advice: str) -> None:
    run = recorder.run("run")
    best = recorder.candidate(run, "Conv 1x8", 1, 100.0)
    recorder.whole(run, "search", 300.0)
    groups = [ChosenGroup(("conv1", "relu1"), content_key("Conv 1x8"), best, 100.0)]
    recorder.database.record_choice(run, "search", groups, median_us=300.0, trusted=changes.get("trusted", True))
    recorder.job("job", [run], gain=changes.get("gain", 0.03), failed=changes.get("failed", False))
    with open_analysis(path) as analysis:
        (row,) = analysis.night("job").to_dict("records")
    assert row["next"] == advice
    assert row["failure"] == ("crashed: no memory" if changes.get("failed") else "")


def test_a_job_says_its_words_and_what_its_runs_share_once(cut_off: Path) -> None:
    text = autofuse("report", "--db", cut_off, "--run", "nights")
    assert text.count("# Words\n") == 1 and text.count("| seed | ") == 1
    assert text.index("## Provenance") < text.index("## net: ")


def test_a_run_of_a_job_has_the_jobs_budget(cut_off: Path) -> None:
    text = autofuse("report", "--db", cut_off, "--run", "nights")
    assert "| budget | a share of the 1 h 00 min of job nights |" in text
    assert "no limit" not in text
    assert "a share of the 1 h 00 min of job nights" in autofuse("report", "--db", cut_off, "--run", "1")


@pytest.mark.long
def test_the_report_of_a_job_holds_its_table_and_the_report_of_each_run(cut_off: Path) -> None:
    text = autofuse("report", "--db", cut_off, "--run", "nights")
    assert text.startswith("# nights: interrupted\n")
    assert "| net0 | board | done | 300.0 µs | 1.30x [" in text
    assert text.count("\n## net: ") == 2 and text.count("\n### Groups\n") == 2
    body = json.loads(autofuse("report", "--db", cut_off, "--run", "nights", "--format", "json"))
    assert [row["model"] for row in body["models"]] == ["net0", "net1", "net2"]
    assert [run["run"]["name"] for run in body["runs"]] == ["night", "second"]
    assert body["job"]["state"] == "interrupted"


def test_the_page_of_a_job_holds_its_table_and_the_page_of_each_run(cut_off: Path, tmp_path: Path) -> None:
    autofuse("report", "--db", cut_off, "--run", "nights", "--html", tmp_path / "night.html")
    html = (tmp_path / "night.html").read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None and "<title>nights: autofuse job</title>" in html
    book = json.loads(found[1])
    assert [row["model"] for row in book["night"]["models"]] == ["net0", "net1", "net2"]
    assert [page["run"]["id"] for page in book["pages"]] == [row["run_id"] for row in book["night"]["models"]][:2]
    assert any("To go on from there" in text for text in book["night"]["standing"])
    assert any("To go on from there" in text for text in book["pages"][1]["run"]["standing"])


def test_an_interrupted_job_says_what_was_done_and_how_to_go_on(cut_off: Path) -> None:
    text = autofuse("report", "--db", cut_off, "--run", "nights")
    assert "It was interrupted after 30 min 00 s (budget 1 h 00 min)." in text
    assert "1 of 3 done, 1 searched but not confirmed, 1 not begun." in text
    command = "autofuse tune /models/net0.onnx /models/net1.onnx /models/net2.onnx --run nights --device board"
    assert f"To go on from there: {command} --threads 1 --budget 3600s --db {cut_off}" in text


def test_the_tables_of_a_job_are_those_of_all_its_runs(cut_off: Path, tmp_path: Path) -> None:
    with open_analysis(cut_off) as analysis:
        runs = [info.id for info in analysis.runs_of("nights")]
        assert list(analysis.frame("runs", "nights")["run_id"]) == runs
        labels = set(analysis.frame("candidates", "nights")["label"])
        assert labels == {"Conv 1x8", "Gemm 1x8"}
        assert analysis.frame("devices", "nights").shape[0] == 1
    autofuse("report", "--db", cut_off, "--run", "nights", "-o", tmp_path / "folder")
    assert (tmp_path / "folder" / "report.md").read_text().startswith("# nights")
    assert "Gemm 1x8" in (tmp_path / "folder" / "candidates.csv").read_text()


def test_a_job_of_which_nothing_was_begun_has_a_report_too(recorder: Any, path: Path) -> None:
    recorder.job("early", [None, None], end=None)
    with open_analysis(path) as analysis:
        assert "0 of 2 done, 2 not begun" in render_text(analysis, "early")
        assert analysis.frame("candidates", "early").empty


def test_a_run_that_was_cut_off_says_what_was_done_and_how_to_go_on(recorder: Any, path: Path) -> None:
    run = recorder.run("cut")
    recorder.candidate(run, "Conv 1x8", 1, 200.0)
    recorder.candidate(run, "Conv 1x8", 2, None)
    with open_analysis(path) as analysis:
        running = render_text(analysis)
        assert "It has been running for" in running and "that comes at the end of the run" in running
        assert "interrupted" not in running
        recorder.database.finish_run(run, "interrupted")
        text = render_text(analysis)
    assert re.search(r"It was interrupted after .+ \(budget 1 min 00 s\)\.", text)
    assert "2 candidates measured (1 failed), 0 plans tried, no plan measured whole, none chosen" in text
    assert f"To go on from there: autofuse tune net.onnx --threads 1 --budget 60s --db {path}" in text
    assert "the run ended before its finalists were measured" in text
    body = json.loads(autofuse("report", "--db", path, "--format", "json"))
    assert any("To go on" in sentence for sentence in body["standing"])


def test_a_run_that_ended_by_itself_needs_no_such_words(analysis: Any) -> None:
    assert "To go on" not in render_text(analysis) and "interrupted" not in render_text(analysis)


def test_a_run_whose_process_was_killed_is_no_longer_running_in_any_table(recorder: Any, path: Path) -> None:
    recorder.run("killed")
    with open_analysis(path) as analysis:
        assert list(analysis.runs["state"]) == ["running"]
        with sqlite3.connect(path) as sql:
            sql.execute("UPDATE af_run SET owner_boot_id = 'an earlier boot'")
        assert list(analysis.runs["state"]) == ["interrupted"]
        assert "It was interrupted after 0 s" in render_text(analysis)


def test_the_command_that_goes_on_says_all_that_the_first_one_said(recorder: Any, path: Path) -> None:
    told = {"shapes": {"x": [1, 3]}, "constants": {"n": Constant((), (2,)).to_json()}, "space": "wide", "exact": True}
    run = recorder.run("cut")
    with recorder.database.writing() as sql:
        sql.execute(update(RunRow).where(RunRow.id == run).values(arguments={"model": "net.onnx", **told}))
    recorder.database.finish_run(run, "interrupted")
    with open_analysis(path) as analysis:
        text = render_text(analysis)
    options = f"--shape x=1,3 --constant n=2 --exact --space wide --db {path}"
    assert f"autofuse tune net.onnx --threads 1 --budget 60s {options}" in text
