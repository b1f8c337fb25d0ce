"""A profiling database with one finished run, one that was cut off, and an analysis of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.job_records import TaskProgress, TaskStart
from autofuse.database.records import (
    Candidate,
    CandidateOutcome,
    ChosenGroup,
    EdgeDecision,
    PlanOutcome,
    RunStart,
    SampleBlock,
    Setting,
    Trial,
    content_key,
)
from autofuse.device.target import Target
from autofuse.views.frames.analysis import Analysis, open_analysis

GRAPH = content_key("graph")
TARGET = Target("znver4", 16, 32, 2, 32768, 1 << 20)


class Recorder:
    """Short ways to fill a database."""

    def __init__(self, database: ProfilingDatabase) -> None:
        self.database = database
        self.setting: Setting = database.setting(
            fingerprint="f" * 64,
            device_name="board | lab",
            device_facts={"cores": 2},
            target=TARGET,
            threads=1,
            versions={"tvm": "0.27"},
        )

    def run(self, name: str, graph: str = GRAPH) -> int:
        start = RunStart(
            name=name,
            model_name="net",
            model_sha256=content_key("net"),
            graph_key=graph,
            seed=3,
            arguments={"threads": 1},
            budget={"seconds": 60},
            provenance={"git": "abc", "governor": None},
        )
        for plan, groups in (("none", 3), ("search", 2)):
            text = '{"groups": [' + ", ".join(['["a"]'] * groups) + "]}"
            self.database.record_plan(graph, plan, text, plan)
        return self.database.start_run(self.setting, start)

    def candidate(
        self, run: int, workload: str, tile: int, us: float | None, trusted: bool = True, seed: int = 0
    ) -> int:
        candidate = Candidate(
            content_key(workload), f'"{workload}"', workload, f'{{"tile":{tile}}}', content_key(f"{workload} {tile}")
        )
        if us is None:
            outcome = CandidateOutcome(candidate=candidate, state="timeout", failure="over 30 s\nworker killed")
        else:
            outcome = CandidateOutcome(candidate=candidate, **times(us, seed, trusted))  # type: ignore[arg-type]
        return self.database.record_candidate(self.setting, outcome, run)

    def whole(self, run: int, name: str, us: float, series: str = "s", trusted: bool = True, seed: int = 0) -> None:
        plan = name if name in ("none", "search") else None
        outcome = PlanOutcome(name=name, series=series, plan_key=plan, **times(us, seed, trusted))  # type: ignore[arg-type]
        self.database.record_plan_measurement(run, outcome)

    def doubt(self, candidate: int) -> None:
        """The newest measurement of a candidate is not trusted after all."""
        with sqlite3.connect(str(self.database.location.path)) as sql:
            query = "SELECT uid FROM af_measurement WHERE candidate_id = ? ORDER BY id DESC LIMIT 1"
            (uid,) = sql.execute(query, (candidate,)).fetchone()
        self.database.doubt([uid], "the sentinel was slower")

    def job(
        self,
        name: str,
        runs: Sequence[int | None],
        end: str | None = "finished",
        results: Mapping[int, Mapping[str, object]] | None = None,
        gain: float = 0.03,
        failed: bool = False,
    ) -> None:
        """A job of models net0, net1, ... with these runs (None: not begun); `end` None: it was cut off.

        `results`: of the tasks that are done, by position (None: all of them, with nothing to say).
        """
        queue = self.database.jobs
        starts = [TaskStart(f"/models/net{at}.onnx", content_key(f"net{at}"), "board") for at in range(len(runs))]
        job = queue.open_job(name, starts, {"budget_s": 3600.0, "threads": 1})
        board = queue.join(job.id, "local", "board")
        queue.beat(job.id, 1800.0)
        for at, run in enumerate(runs):
            if run is None:
                continue
            task = queue.claim(job.id, "board", "search")
            assert task is not None
            progress = TaskProgress(
                spent_s=60.0, measured=20, failed=1, gain=gain, best_us=100.0, baseline_us=150.0, run_id=run
            )
            if failed:
                queue.give_back(task.id, progress)
                assert queue.claim(job.id, "board", "search") is not None
                queue.fail(task.id, "crashed: no memory", {"exit_code": 75})
            elif results is None or at in results:
                queue.finish(task.id, (results or {}).get(at, {}), progress)
            else:
                queue.give_back(task.id, progress)
        queue.leave(board)
        if end is not None:
            queue.end_job(job.id, end, {})


def times(us: float, seed: int, trusted: bool) -> dict[str, object]:
    """Columns of a time: 11 blocks of 2 samples, noise of 0.5 %, drifting by half from start to end."""
    noise = np.random.default_rng(seed + int(us * 1000)).normal(1.0, 0.005, (11, 2))
    drift = np.linspace(1.0, 1.5, 11)[:, None]
    values = us * noise * drift
    values *= us / np.median(np.median(values, axis=1))
    blocks = tuple(SampleBlock(tuple(row), 0.99) for row in values)
    return {
        "state": "ok",
        "median_us": us,
        "ci_lo_us": us * 0.99,
        "ci_hi_us": us * 1.01,
        "trusted": trusted,
        "max_rel_error": 1e-6,
        "blocks": blocks,
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "profile.db"


@pytest.fixture
def recorder(path: Path) -> Iterator[Recorder]:
    with open_database(path) as database:
        yield Recorder(database)


SUMMARY: dict[str, Any] = {
    "speedup": 1.3,
    "waterfall": {
        "start": "none",
        "start_us": 390.0,
        "steps": [
            {"kind": "rule", "what": "what the fixed rule fuses", "times": 3, "us": 60.0},
            {"kind": "schedules", "what": "better schedules of the default plan's kernels", "times": 1, "us": 40.0},
            {"kind": "apart", "what": "Conv+Add -> Conv | Add", "times": 2, "us": -5.0},
        ],
        "remainder_us": -5.0,
        "end": "search",
        "end_us": 300.0,
        "measured": True,
        "start_sum_us": 380.0,
        "end_sum_us": 285.0,
    },
    "not_asked": [
        {"kind": "schedules", "gain_us": 12.0, "cost_s": 30.0},
        {"kind": "plans", "gain_us": None, "cost_s": None},
    ],
    "more_time": {"seconds": 45.0, "gain_us": 12.0},
}
"""What the run of `night` said at its end."""


@pytest.fixture
def night(recorder: Recorder) -> int:
    """A finished run: a convolution used twice, a pooling by the fixed rule, one failure."""
    run = recorder.run("night")
    recorder.candidate(run, "Conv 1x8", 1, 200.0)
    best = recorder.candidate(run, "Conv 1x8", 2, 100.0)
    recorder.candidate(run, "Conv 1x8", 3, None)
    recorder.candidate(run, "Conv 1x8", 4, 95.0, trusted=False)
    pool = content_key("Pool 1x8")
    recorder.database.record_workload(pool, '"pool"', "Pool 1x8")
    for number, us in enumerate((400.0, 450.0, 300.0)):
        trial = Trial(number=number, answers={"fuse": number}, state="complete", plan_key="search", composed_us=us)
        recorder.database.record_trial(run, trial)
    recorder.database.record_trial(run, Trial(number=3, answers={}, state="fail"))
    recorder.whole(run, "none", 390.0)
    recorder.whole(run, "onnxruntime", 303.0)
    recorder.whole(run, "search", 300.0)
    recorder.database.record_plan_measurement(
        run, PlanOutcome(name="tvm", series="s", state="run_error", failure="no |kernel| <here>")
    )
    groups = (
        ChosenGroup(("conv1", "relu1"), content_key("Conv 1x8"), best, 100.0),
        ChosenGroup(("conv2", "relu2"), content_key("Conv 1x8"), best, 100.0),
        ChosenGroup(("pool1",), pool, None, 50.0),
    )
    recorder.database.record_choice(run, "search", groups, median_us=300.0, trusted=True)
    edges = [
        EdgeDecision("conv1", "relu1", True, "chosen_measured", 12.0),
        EdgeDecision("conv2", "relu2", True, "chosen_measured"),
        EdgeDecision("relu1", "conv2", False, "within_noise"),
    ]
    recorder.database.record_edges(run, "search", edges)
    recorder.database.finish_run(run, summary=SUMMARY)
    return run


@pytest.fixture
def analysis(path: Path, night: int) -> Iterator[Analysis]:
    with open_analysis(path) as opened:
        yield opened
