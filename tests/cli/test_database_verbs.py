"""Verbs that read the profiling database: on a run recorded by hand, without a device."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from autofuse import api
from autofuse.api.databases import DatabaseCheck
from autofuse.cli.main import app
from autofuse.cli.screens.render import explained
from autofuse.cli.screens.run_view import run_text
from autofuse.database.database import open_database
from autofuse.database.records import Candidate, CandidateOutcome, ChosenGroup, PlanOutcome, RunStart, SampleBlock
from autofuse.device.target import Target
from autofuse.fusion.plan import FusionPlan, Group
from autofuse.search.lab.revalidation import Revalidated
from autofuse.values.arguments import micros

TARGET = Target(mcpu="znver3", lanes=8, registers=16, cores=2, l1_bytes=32768, l2_bytes=524288)
PLAN = FusionPlan((Group(("a", "b")),))
WORKLOAD = hashlib.sha256(b"{}").hexdigest()
"""Key of a workload whose text is that of an empty one."""


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run: a candidate that has a time, one that failed, a chosen plan."""
    path = tmp_path_factory.mktemp("database") / "p.db"
    blocks = tuple(SampleBlock((10.0 + index / 10,)) for index in range(9))
    times = {"state": "ok", "median_us": 10.4, "ci_lo_us": 10.1, "ci_hi_us": 10.6, "trusted": True}
    with open_database(path) as opened:
        setting = opened.setting(
            fingerprint="f" * 64, device_name="box", device_facts={}, target=TARGET, threads=2, versions={"tvm": "1"}
        )
        start = RunStart(name="net-2t", model_name="net", model_sha256="0" * 64, graph_key="1" * 64, seed=0)
        run = opened.start_run(setting, start)
        candidates = [Candidate(WORKLOAD, "{}", "Conv+Relu 1x8x4x4", json.dumps({"k.tile": n})) for n in (1, 2)]
        first = opened.record_candidate(setting, CandidateOutcome(candidate=candidates[0], blocks=blocks, **times), run)
        failed = CandidateOutcome(candidate=candidates[1], state="build_error", failure="no such loop")
        opened.record_candidate(setting, failed, run)
        opened.record_plan("1" * 64, PLAN.key, PLAN.to_json(), "default")
        opened.record_plan_measurement(
            run, PlanOutcome(name="default", series="s", plan_key=PLAN.key, blocks=blocks, **times)
        )
        group = ChosenGroup(("a", "b"), WORKLOAD, first, 10.3)
        opened.record_choice(run, PLAN.key, [group], median_us=10.3, trusted=True)
        opened.finish_run(run)
    return path


def test_status_tells_how_the_newest_run_stands(database: Path) -> None:
    body = json.loads(call("status", "--db", database, "--format", "json").stdout)
    assert (body["run"], body["state"], body["model"], body["threads"]) == (1, "finished", "net", 2)
    assert (body["measured"], body["outcomes"]) == (2, {"ok": 1, "build_error": 1})
    assert [row["median_us"] for row in body["whole_model"]] == [10.4]
    text = call("status", "--db", database).stdout
    assert text.splitlines()[0] == "net, 2 threads, run 1: finished"
    assert "1 ok, 1 failed (1 build error)" in text
    assert f"default {micros(10.4)}" in text and "not trusted" not in text


def test_status_puts_the_fastest_plan_first_and_says_whom_not_to_trust() -> None:
    times = {"none": 9.0, "search": 6.0, "tvm": None}
    whole = [
        {"name": name, "state": "timeout" if us is None else "ok", "median_us": us, "ci_lo_us": us, "ci_hi_us": us,
         "trusted": None if us is None else False, "series": "s", "verdict": "not trusted",
         "speedup": us and 9.0 / us, "speedup_lo": us and 8.9 / us, "speedup_hi": us and 9.1 / us}
        for name, us in times.items()
    ]  # fmt: skip
    body = {
        "run": 3, "state": "running", "model": "net", "threads": 1, "started_at": "2026-01-01T00:00:00+00:00",
        "elapsed_s": 90.0, "budget": {"seconds": 600.0}, "measured": 30, "outcomes": {"ok": 30}, "summary": {},
        "whole_model": whole,
    }  # fmt: skip
    screen = Console(width=200)
    with screen.capture() as capture:
        screen.print(explained(run_text(body)))
    lines = [" ".join(line.split()) for line in capture.get().splitlines()]
    assert lines[1:4] == [
        "time 1 min 30 s gone, 8 min 30 s left",
        "candidates 30 ok, 0 failed, 1,200 an hour",
        "fastest search 6.0 µs, 1.50x (1.48-1.52) of no fusion (not trusted)",
    ]
    table = next(number for number, line in enumerate(lines) if line.startswith("plan "))
    assert [line.split()[0] for line in lines[table + 1 : table + 4]] == ["search", "none", "tvm"]
    assert {line.split(":")[0] for line in lines[table + 5 :]} >= {"ratio", "no fusion", "trusted"}


def test_status_says_whole_what_a_run_left_out() -> None:
    said = [f"{number} of the 30 distinct kernels of plan default were not measured" for number in (12, 13)]
    body = {
        "run": 3, "state": "finished", "model": "net", "threads": 1, "started_at": "2026-01-01T00:00:00+00:00",
        "elapsed_s": 90.0, "budget": {}, "measured": 0, "outcomes": {}, "summary": {"left_out": said},
        "whole_model": [],
    }  # fmt: skip
    screen = Console(width=200)
    with screen.capture() as capture:
        screen.print(run_text(body))
    assert "; ".join(said) in capture.get()


def test_status_of_a_run_that_is_not_there_says_so(database: Path) -> None:
    result = call("status", "--db", database, "--run", 9)
    assert (result.exit_code, "no run 9 recorded" in result.stderr) == (2, True)


def test_status_of_an_empty_database_says_how_to_start(tmp_path: Path) -> None:
    open_database(tmp_path / "p.db").close()
    assert "`autofuse tune` starts one" in call("status", "--db", tmp_path / "p.db").stderr


def test_db_info_counts_what_is_there(database: Path) -> None:
    body = json.loads(call("db", "info", "--db", database, "--format", "json").stdout)
    assert (body["rows"]["candidate"], body["rows"]["plan"], body["rows"]["trial"]) == (2, 1, 0)
    assert [row["name"] for row in body["devices"]] == ["box"]
    assert [row["model_name"] for row in body["runs"]] == ["net"]
    assert body["file_bytes"] == database.stat().st_size
    assert "box" in call("db", "info", "--db", database).stdout


def test_db_check_finds_a_sound_database_sound(database: Path) -> None:
    result = call("db", "check", "--db", database)
    said, _, then = result.stdout.partition("\n\nnext  ")
    assert (result.exit_code, said, then.split()[:4]) == (
        0, f"{database}: sound", ["autofuse", "db", "check", "--revalidate"]
    )  # fmt: skip


def test_db_check_fails_on_a_damaged_one(database: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "p.db"
    content = bytearray(database.read_bytes())
    half = len(content) // 2
    content[half : half + 8192] = b"\xff" * 8192
    damaged.write_bytes(bytes(content))
    result = call("db", "check", "--db", damaged)
    assert result.exit_code in (1, 2)
    assert str(damaged) in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("verdict", "ended"), [("faster", 0), ("slower", 0), ("failed", 1)])
def test_db_check_ends_with_an_error_for_winners_that_fail_not_for_slower_ones(
    verdict: str, ended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    winner = Revalidated("Conv", "w", "{}", 1, False, 10.0, 12.0, 0.83, 0.82, 0.84, verdict)
    monkeypatch.setattr(api, "db_check", lambda *_args, **_named: DatabaseCheck("p.db", True, (), (winner,)))
    result = call("db", "check", "--db", "p.db", "--revalidate", 1)
    assert (result.exit_code, verdict in result.stdout) == (ended, True)


def test_report_prints_markdown(database: Path) -> None:
    for form in ("text", "markdown"):
        page = call("report", "--db", database, "--format", form)
        assert page.exit_code == 0
        assert page.stdout.startswith("# net: ")
        assert "Conv+Relu 1x8x4x4" in page.stdout


def test_report_finds_a_run_by_number_and_by_name(database: Path) -> None:
    by_number, by_name = (call("report", "--db", database, "--run", run).stdout for run in (1, "net-2t"))
    assert by_number.partition("\nnext ")[0] == by_name.partition("\nnext ")[0]
    assert "next  autofuse report --run net-2t" in by_name
    assert "next  autofuse" not in call("report", "--db", database, "--format", "markdown").stdout
    missing = call("report", "--db", database, "--run", "other")
    assert (missing.exit_code, "no run 'other'" in missing.stderr) == (2, True)


def test_report_gives_the_same_facts_as_json(database: Path) -> None:
    body = json.loads(call("report", "--db", database, "--format", "json").stdout)
    assert body["run"]["name"] == "net-2t"
    assert [group["label"] for group in body["groups"]] == ["Conv+Relu 1x8x4x4"]
    assert [failure["failure"] for failure in body["failures"]] == ["no such loop"]


def test_report_prints_one_table_in_each_form(database: Path) -> None:
    arguments = ["report", "--db", database, "--frame", "candidates"]
    rows = json.loads(call(*arguments, "--format", "json").stdout)
    assert sorted(row["state"] for row in rows) == ["build_error", "ok"]
    lines = call(*arguments, "--format", "csv").stdout.splitlines()
    assert (len(lines), lines[0].split(",")[0]) == (3, "candidate_id")
    assert "build_error" in call(*arguments).stdout
    unknown = call("report", "--db", database, "--frame", "songs")
    assert (unknown.exit_code, "frame 'songs': allowed are" in unknown.stderr) == (2, True)


def test_csv_without_a_table_says_how_to_name_one(database: Path) -> None:
    result = call("report", "--db", database, "--format", "csv")
    assert (result.exit_code, "--frame" in result.stderr, "--output" in result.stderr) == (2, True, True)


def test_report_writes_a_page_and_its_tables(database: Path, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "here"
    result = call("report", "--db", database, "-o", folder)
    files = [Path(line) for line in result.stdout.splitlines()]
    assert files[0] == folder / "report.md"
    assert {"candidates.csv", "groups.csv"} <= {file.name for file in files}
    assert all(file.stat().st_size for file in files)
    asked = json.loads(call("report", "--db", database, "-o", folder, "--format", "json").stdout)
    assert asked["files"] == [str(file) for file in files]


def test_reading_verbs_change_nothing(database: Path) -> None:
    before = database.read_bytes()
    for verb in (["status"], ["db", "info"], ["db", "check"], ["report"]):
        assert call(*verb, "--db", database).exit_code == 0
    assert database.read_bytes() == before
