"""`tune` as a job, `status --watch` and `stop`: flags, the view, the log, what is called at the end, exit codes."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from autofuse import api
from autofuse.api import left_s
from autofuse.cli.main import app
from autofuse.cli.screens import job_view
from autofuse.cli.screens.job_view import JobView, job_body, job_line, job_text, outcome_text
from autofuse.cli.screens.next_steps import after_job
from autofuse.cli.verbs import jobs
from autofuse.database.database import open_database
from autofuse.database.job_records import JobInfo, TaskInfo, TaskStart, WorkerInfo
from autofuse.errors import DatabaseError
from autofuse.job.outcome import JobOutcome, TaskOutcome
from autofuse.search.progress import ChoiceDecision

TASK = TaskInfo(
    id=1, job_id=1, position=0, model="/m/net.onnx", model_sha256="0" * 64, device="local", phase="search",
    state="running", attempts=0, spent_s=50.0, reserve_s=None, gain=0.1, measured=30, failed=2, best_us=50.0,
    baseline_us=100.0, run_id=1, failure=None, result=None,
)  # fmt: skip
WORKER = WorkerInfo(
    id=1, name="local 1", device="local", state="working", note="net, schedules: conv", measured=6, beat_age_s=1.0,
    alive=True,
)  # fmt: skip
JOB = JobInfo(
    id=1, name="night", state="running", created_at=datetime(2026, 11, 21, tzinfo=UTC), finished_at=None,
    active_s=120.0, stop_asked=False, settings={"budget_s": 600.0}, summary=None, tasks=(TASK,), workers=(WORKER,),
)  # fmt: skip
DONE = TaskOutcome(
    "/m/net.onnx", "local", "done", "search", 50.0, 2.0, 1.9, 2.1, True, 36, 2, 300.0, untrusted=("Conv 1x8", "Gemm")
)
OUTCOME = JobOutcome("night", "finished", True, 0, 600.0, 36, 2, (DONE,))


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Files that the command line finds: a.onnx and b.onnx."""
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def tune(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`tune` whose job ends as told; what it was asked is kept in `tune.asked`."""

    def run(end: JobOutcome | Exception, *flags: object) -> Result:
        def tune_all(models: list[Path], **named: Any) -> JobOutcome:
            run.asked = {"models": models, **named}  # type: ignore[attr-defined]
            named["listener"].watch(JOB)
            if isinstance(end, Exception):
                raise end
            return end

        monkeypatch.setattr(api, "tune_all", tune_all)
        return call("tune", "a.onnx", *flags)

    return run


def test_the_flags_of_a_job_reach_it(tune: Any) -> None:
    result = tune(
        OUTCOME, "b.onnx", "--until", "06:30", "--run", "night", "--early-stopping", "0.5", "--memory-limit", "4G",
        "--disk-limit", "2G", "--device", "pi4", "--device", "pi5", "--threads", 2,
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    asked = {name: tune.asked[name] for name in ("models", "until", "run", "early_stopping", "memory_limit", "devices")}
    assert asked == {
        "models": [Path("a.onnx"), Path("b.onnx")], "until": "06:30", "run": "night", "early_stopping": "0.5",
        "memory_limit": "4G", "devices": ["pi4", "pi5"],
    }  # fmt: skip
    assert (tune.asked["disk_limit"], tune.asked["executor"]) == ("2G", None)


def test_a_job_takes_open_sizes_and_its_end_names_them(tune: Any) -> None:
    decision = ChoiceDecision("default", "faster", True, 1.2, 1.18, 1.23)
    done = replace(DONE, speedup=None, sizes=("batch=1:16",), decision=decision)
    result = tune(
        replace(OUTCOME, tasks=(done, replace(DONE, model="/m/b.onnx"))), "--run", "n", "--sizes", "batch=1:16"
    )
    assert result.exit_code == 0, result.stderr
    assert (tune.asked["sizes"], tune.asked["trace"]) == (["batch=1:16"], None)
    assert "net: batch=1:16 open; against plan default: faster, 1.20x (1.18-1.23)" in result.stdout
    commands = [line for line in result.stdout.splitlines() if "autofuse compile" in line]
    assert [line.endswith("--sizes batch=1:16") for line in commands] == [True, False]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--sizes", "batch=1:4", "--trace", "none.csv"], "--trace: none.csv"),
        (["--sizes", "batch=1:4", "--model", "default"], "--sizes: --model is for searches at fixed sizes"),
        (["--until", "25:00"], "--until: got '25:00'"),
        (["--until", "06:30", "--budget", "8h"], "--budget and --until exclude each other"),
        (["--early-stopping", "200"], "--early-stopping: got '200'"),
        (["--memory-limit", "lots"], "--memory-limit: got 'lots'"),
        (["--disk-limit", "0"], "--disk-limit: got '0'"),
        (["--executor", "ray://x:1"], "--executor: got 'ray://x:1'"),
        (["--workers", "2"], "--workers needs --rpc-tracker"),
        (["--boards", "2"], "--workers needs --rpc-tracker"),
    ],
)
def test_a_job_that_cannot_be_meant_is_refused(flags: list[str], message: str) -> None:
    result = call("tune", "a.onnx", "--run", "night", *flags)
    assert result.exit_code == 2
    assert message in result.stderr


def test_the_command_at_the_end_gets_the_summary(tune: Any, tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    command = f'cat > {told}; echo "$AUTOFUSE_RUN $AUTOFUSE_STATE $AUTOFUSE_EXIT_CODE" > {tmp_path / "words"}'
    assert tune(OUTCOME, "--on-finish", command).exit_code == 0
    assert json.loads(told.read_text())["tasks"][0]["chosen"] == "search"
    assert (tmp_path / "words").read_text() == "night finished 0\n"


def test_it_is_called_too_when_the_job_ends_with_an_error(tune: Any, tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    result = tune(DatabaseError("the disk is full"), "--run", "night", "--on-finish", f"cat > {told}")
    assert result.exit_code == 2
    assert json.loads(told.read_text()) == {
        "run": "night", "state": "failed", "exit_code": 2, "failure": "the disk is full"
    }  # fmt: skip


def test_its_failure_is_told_and_changes_nothing(tune: Any) -> None:
    result = tune(OUTCOME, "--on-finish", "exit 3")
    assert result.exit_code == 0
    assert "--on-finish: 'exit 3' ended with 3" in result.stderr


@pytest.mark.parametrize("code", [0, 4, 5, 6, 75, 130])
def test_the_exit_code_is_the_jobs(tune: Any, code: int) -> None:
    outcome = JobOutcome("night", "finished", True, code, 1.0, 1, 0, (DONE,))
    assert tune(outcome, "--run", "night", "--format", "json").exit_code == code


def test_a_log_is_rotated_before_it_grows_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_view, "LOG_BYTES", 1000)
    log, now = tmp_path / "night.log", 0.0
    screen = Console(file=io.StringIO(), force_terminal=False, width=1000)
    with JobView(screen, log, clock=lambda: now) as view:
        for minute in range(200):
            now = minute * 60.0
            view(JOB)
            view(JOB)
    assert screen.file.getvalue().count("night running") == 200, "one line a minute"  # type: ignore[attr-defined]
    files = sorted(tmp_path.glob("night.log*"))
    assert [path.name for path in files] == ["night.log", "night.log.1", "night.log.2", "night.log.3"]
    assert all(0 < path.stat().st_size <= 1000 for path in files)


def test_a_line_tells_the_whole_state() -> None:
    assert job_line(JOB) == (
        "night running: 0 of 1 models done, 36 candidates, 2 failed, 2 min 00 s gone, 8 min 00 s left"
        " (local 1: net, schedules: conv)"
    )


def test_what_is_left_is_known_for_a_budget_and_for_an_end() -> None:
    assert left_s(JOB, 0.0) == 480.0
    until = JobInfo(**{**vars(JOB), "settings": {"ends_at": 1000.0}})
    assert left_s(until, 400.0) == 600.0
    assert left_s(JobInfo(**{**vars(JOB), "settings": {"trials": 10}}), 0.0) is None
    assert left_s(JobInfo(**{**vars(JOB), "state": "finished"}), 0.0) is None


def test_a_job_with_an_end_says_until_when_and_no_budget() -> None:
    until = JobInfo(**{**vars(JOB), "settings": {"ends_at": datetime(2026, 11, 23, 6, 30).astimezone().timestamp()}})
    screen = Console(file=io.StringIO(), width=200)
    screen.print(job_text(until))
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "until             06:30" in text and "budget" not in text
    assert "until" not in job_body(JOB)


def test_an_interrupted_job_ends_with_the_command_that_goes_on() -> None:
    named = {"until": "06:30", "threads": 2, "devices": ["local", "pi"], "database": "n.db", "trace": "s.csv"}
    named["sizes"] = ["batch=1:16"]
    screen = Console(file=io.StringIO(), width=200)
    screen.print(after_job([], "night", named, [Path("a.onnx"), Path("b.onnx")]))
    first = screen.file.getvalue().splitlines()[0]  # type: ignore[attr-defined]
    assert "tune a.onnx b.onnx --run night --until 06:30 --device pi --threads 2 --db n.db" in first
    assert first.rstrip().endswith("--sizes batch=1:16 --trace s.csv")


def test_what_is_left_is_never_less_than_the_finalists_take() -> None:
    late = replace(JOB, active_s=590.0)
    builds = replace(TASK, reserve_s=40.0)
    open_tasks = tuple(replace(builds, id=number, position=number) for number in range(3))
    left = left_s(replace(late, tasks=open_tasks), 0.0)
    assert left == pytest.approx(3 * (40.0 + 25.0))
    assert left_s(replace(late, tasks=tuple(replace(task, state="done") for task in open_tasks)), 0.0) == 10.0


def test_a_workers_note_says_the_phase_and_the_best_so_far() -> None:
    from autofuse.job.searcher import doing
    from autofuse.search.progress import Progress

    state = Progress("search", "Conv 1x8", 1.0, None, asking="plans")
    assert doing(state) == "phase 3 of 4, search of plans, Conv 1x8"
    known = replace(state, best_us=100.0, baseline_us=150.0, rival_us=120.0)
    assert doing(known).endswith("Conv 1x8; best 100.0 µs, 1.50x of no fusion, 1.20x of ONNX Runtime")


def test_the_end_names_what_is_not_trusted() -> None:
    screen = Console(file=io.StringIO(), width=200)
    screen.print(outcome_text(OUTCOME))
    text = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "net: not trusted are the times of Conv 1x8, Gemm" in text
    assert "2.00 (1.90–2.10)" in text


def test_status_watches_a_job_until_it_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.db"
    with open_database(path) as base:
        queue = base.jobs
        job = queue.open_job("night", [TaskStart("/m/net.onnx", "0" * 64, "local")], {"budget_s": 60.0})
        worker = queue.join(job.id, "local 1", "local")
        queue.note(worker, "net, schedules", 3)

        def end(_pause_s: float) -> None:
            queue.leave(worker)
            queue.end_job(job.id, "interrupted", {})

        monkeypatch.setattr(jobs, "time", SimpleNamespace(sleep=end))  # between two looks
        shown = call("status", "--db", path, "--watch")
    lines = shown.stdout.splitlines()
    assert shown.exit_code == 0, shown.stderr
    assert lines[0].startswith("night running: 0 of 1 models done, 3 candidates")
    assert lines[-1].startswith("night interrupted")


def test_status_names_the_row_of_a_job_that_something_else_changed(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    with open_database(path) as base:
        base.jobs.open_job("night", [TaskStart("/m/net.onnx", "0" * 64, "local")], {"budget_s": 60.0})
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE af_task SET measured = X'00FF'")
    shown = call("status", "--db", path)
    assert shown.exit_code == 2, shown.stderr
    assert "column measured holds no number" in shown.stderr and "db check" in shown.stderr


def test_stop_leaves_a_word_for_the_coordinator(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    with open_database(path) as base:
        job = base.jobs.open_job("night", [TaskStart("/m/net.onnx", "0" * 64, "local")], {})
        base.jobs.join(job.id, "local 1", "local")
        assert call("stop", "--db", path).exit_code == 0
        assert base.jobs.beat(job.id, 1.0)[0], "it is asked to stop"
