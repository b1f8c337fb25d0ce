"""The damage trial: every column of the profiling database holds, one at a time, what it must not hold.

Either `db check` names it, or nothing that reads the database fails. No verb ends in a defect of autofuse.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from autofuse.errors import InputError
from experiments.fuzz.samples import models

THREADS = 1
TEXTS = ("nonsense", "", "\x1b[31m\x07", "a" * 100_000)
NUMBERS = (-1, 0, 2**63 - 1, 1e308, 5e-324, float("inf"), float("nan"), "nan", 1.5)
DATES = ("2026-13-45 99:99:99", "0001-01-01 00:00:00.000000", "9999-12-31 23:59:59.999999", "yesterday")
DOCUMENTS = (
    "{",
    "[]",
    "{}",
    "null",
    '"text"',
    "[NaN]",
    "[[[1e999]]]",
    '{"groups": 3}',
    "[" * 5000,
    "[-1]",
    "[0, 1e308]",
)
DIGESTS = ("0" * 64, "f" * 63, "Z" * 64)
ANYWHERE = (None, b"\xff\x00", "nonsense", -1)
READERS: tuple[tuple[str, ...], ...] = (
    ("report",), ("report", "--format", "json"), ("report", "-o", "pages"), ("status",), ("db", "info"),
    ("compare", "1", "2"), ("db", "export", "exported"), ("db", "export", "--optuna", "optuna.log"),
    ("db", "prune", "--dry-run", "--older-than", "90d"),
    *(("report", "--frame", name, "--format", "csv") for name in ("candidates", "groups", "edges")),
    ("compile", "model.onnx", "-o", "new.so", "-n", str(THREADS), "--dry-run"),
    ("plan", "show", "model.onnx", "--plan", "best", "-n", str(THREADS)),
    ("explain", "model.onnx", "-n", str(THREADS), "--plan", "best"),
    ("model", "eval"), ("report", "--run", "night"),
)  # fmt: skip
MAY_REFUSE = frozenset((("model", "eval"),))
"""What needs more rows than there are."""
FEW = 3
"""Readers that are tried where `db check` named the damage: they may refuse, and must do so in a line."""
EXITS = frozenset((0, 1, 2, 3, 4, 6, 75))


@cache
def damages() -> tuple[tuple[str, str, Any], ...]:
    """Every (table, column, value), in the order of the tables."""
    from sqlalchemy import JSON, Boolean, DateTime, Float, Integer, TypeDecorator

    from autofuse.database.tables import job_schema  # noqa: F401  its tables
    from autofuse.database.tables.schema import Base

    found = []
    for table in Base.metadata.sorted_tables:
        for column in table.columns:
            kind = column.type.impl_instance if isinstance(column.type, TypeDecorator) else column.type
            values: Sequence[Any]
            if column.foreign_keys:
                values = (999_999, 0)
            elif isinstance(kind, JSON) or (column.name in ("text", "facts")):
                values = DOCUMENTS
            elif isinstance(kind, DateTime):
                values = DATES
            elif isinstance(kind, Boolean | Integer | Float):
                values = NUMBERS
            else:
                values = (*TEXTS, *DIGESTS) if getattr(kind, "length", None) in (64, 128) else TEXTS
            found += [(table.name, column.name, value) for value in dict.fromkeys((*ANYWHERE, *values))]
    return tuple(found)


def prepare(folder: Path) -> None:
    """A database with rows in every table, in which `compile` finds a plan and times of a small model."""
    if not (folder / "sound.db").exists():
        (folder / "model.onnx").write_bytes(models()["convolution"])
        _write(folder / "model.onnx", folder / "sound.db")


def _write(model: Path, path: Path) -> None:
    import hashlib

    from autofuse.database.database import open_database
    from autofuse.database.records import ChosenGroup, EdgeDecision, PlanOutcome, RunStart, SampleBlock, Trial
    from autofuse.environment.environment import environment_of
    from autofuse.fusion.planner.baselines import default_plan, none_plan
    from autofuse.graph.key import graph_key
    from autofuse.graph.loading.load import load

    graph, sha = load(model), hashlib.sha256(model.read_bytes()).hexdigest()
    key = graph_key(graph)
    blocks = tuple(SampleBlock((us,), 0.99) for us in (9.9, 10.0, 10.1) * 4)
    times: dict[str, Any] = {"state": "ok", "median_us": 10.0, "ci_lo_us": 9.9, "ci_hi_us": 10.1, "trusted": True,
                             "max_rel_error": 1e-6, "blocks": blocks}  # fmt: skip
    with open_database(path) as base:
        known = environment_of(base, "local", THREADS, measuring=False)
        plans = {"none": none_plan(graph), "search": default_plan(graph)}
        for number in range(2):
            start = RunStart(name=f"run{number}", model_name="model", model_sha256=sha, graph_key=key, seed=number,
                             provenance={"tvm": "0.27", "git": None})  # fmt: skip
            run = base.start_run(known.setting, start)
            kernels = _measured(base, known, graph, plans, run, times)
            for name, plan in plans.items():
                base.record_plan(key, plan.key, plan.to_json(), name)
                base.record_plan_measurement(run, PlanOutcome(name=name, series="s", plan_key=plan.key, **times))
            base.record_plan_measurement(run, PlanOutcome(name="onnxruntime", series="s", **times))
            base.record_plan_measurement(run, PlanOutcome(name="tvm", series="s", state="run_error", failure="no"))
            for trial in range(3):
                base.record_trial(run, Trial(number=trial, answers={"x": trial}, state="complete",
                                             plan_key=plans["search"].key, composed_us=12.0 - trial))  # fmt: skip
            groups = [ChosenGroup(names, workload, candidate, 10.0) for names, workload, candidate in kernels]
            base.record_choice(run, plans["search"].key, groups, median_us=10.0, trusted=True, details={"gap": 0.1})
            producer, consumer = (node.name for node in graph.operators[:2])
            edge = EdgeDecision(producer, consumer, True, "chosen_measured", 1.5)
            base.record_edges(run, plans["search"].key, [edge])
            base.finish_run(run, summary={"speedup": 1.5})
        base.doubt(["doubted"], "the sentinel was slower")
        _night(base, sha, run)


def _measured(base: Any, known: Any, graph: Any, plans: Any, run: int, times: Any) -> list[tuple[Any, str, int | None]]:
    """Candidates of every group; the groups of the chosen plan with theirs."""
    import json
    from dataclasses import replace

    from autofuse.database.records import Candidate, CandidateOutcome
    from autofuse.kernels.lowering.lower import lower
    from autofuse.kernels.workload.free_reshape import is_free_reshape

    chosen = []
    for name, plan in plans.items():
        groups = lower(graph, plan, known.target, [one.operators for one in plan.groups]).groups
        for number, (group, bound) in enumerate(zip(plan.groups, groups, strict=True)):
            load_, row = bound.workload, None
            base.record_workload(load_.key, load_.text, load_.label)
            if not is_free_reshape(load_):
                candidate = Candidate(load_.key, load_.text, load_.label, json.dumps({"tile": number}))
                outcome = CandidateOutcome(candidate=candidate, build_s=0.1, **times)
                row = base.record_candidate(known.setting, outcome, run)
            if name == "search":
                chosen.append((group.operators, load_.key, row))
            if name == "none" and not number:
                failed = CandidateOutcome(
                    candidate=replace(candidate, schedule='{"tile":99}'), state="timeout", failure="over 30 s"
                )
                base.record_candidate(known.setting, failed, run)
                base.record_candidate(known.setting, replace(outcome, uid="doubted"), run)
    return chosen


def _night(base: Any, sha: str, run: int) -> None:
    """A job of two models, of which one is done."""
    from autofuse.database.job_records import TaskProgress, TaskStart

    queue = base.jobs
    job = queue.open_job("night", [TaskStart(f"/models/{n}.onnx", sha, "local") for n in "ab"], {"budget_s": 60.0})
    worker = queue.join(job.id, "local", "local")
    queue.beat(job.id, 30.0)
    task = queue.claim(job.id, "local", "search")
    queue.finish(task.id, {"trusted": True}, TaskProgress(spent_s=10.0, measured=5, failed=1, gain=0.1, reserve_s=1.0,
                                                           best_us=10.0, baseline_us=12.0, run_id=run))  # fmt: skip
    queue.claim(job.id, "local", "search")
    queue.note(worker, "searching", 5)


def attempt(folder: Path, seed: int) -> None:
    """The damage of a number (modulo how many there are); what `db check` says of it, and what readers do."""
    table, column, value = damages()[seed % len(damages())]
    path = Path(shutil.copy(folder / "sound.db", folder / "own.db"))
    shutil.rmtree(folder / "exported", ignore_errors=True)
    (folder / "optuna.log").unlink(missing_ok=True)
    if not _put(path, table, column, value):
        raise InputError(f"{table}.{column}: SQLite itself refuses {str(value)[:30]!r}")
    what = f"{table}.{column} = {str(value)[:40]!r}"
    code, said = _verb("db", "check", "--db", "own.db")
    readers: Sequence[tuple[str, ...]] = READERS if code == 0 else random.Random(seed).sample(READERS, FEW)
    for words in readers:
        answer, told = _verb(*words, "--db", "own.db")
        # The damage made another machine, model or job of this one.
        unknown = "knows no plan" in told or "no run 'night'" in told
        if code == 0 and answer and words not in MAY_REFUSE and not unknown:
            raise AssertionError(f"{what} is sound, and yet {' '.join(words)} ends with {answer}: {told[-400:]}")
    if code:
        raise InputError(f"{what}: {said.splitlines()[0][:200]}")


def _put(path: Path, table: str, column: str, value: Any) -> bool:
    """Whether a row could be damaged so."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;")
        key = "rowid" if table != "af_sample" else "measurement_id * 1000 + block"
        try:
            query = f'UPDATE "{table}" SET "{column}" = ? WHERE {key} = (SELECT MIN({key}) FROM "{table}")'
            changed = connection.execute(query, (value,)).rowcount
        except sqlite3.IntegrityError:
            return False
        connection.commit()
        assert changed == 1, f"{table} has no row"
    return True


def _verb(*words: str) -> tuple[int, str]:
    """Exit code and output of a verb; AssertionError when it ends as none may."""
    from typer.testing import CliRunner

    from autofuse.cli.main import app

    found = CliRunner().invoke(app, list(words))
    said = found.stdout + found.stderr
    if found.exit_code not in EXITS or "defect of autofuse" in said or "Traceback" in said:
        raise AssertionError(f"{words} -> {found.exit_code}: {said[-600:]} {found.exception!r}")
    return found.exit_code, said
