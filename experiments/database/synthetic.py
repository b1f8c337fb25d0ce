"""Profiling databases of any size with made-up times: for measuring how the tools scale, never for results."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from autofuse.database.database import open_database
from autofuse.database.records import (
    Candidate,
    CandidateOutcome,
    ChosenGroup,
    EdgeDecision,
    PlanOutcome,
    RunStart,
    SampleBlock,
    Trial,
    content_key,
)
from autofuse.device.target import Target
from autofuse.environment.worth import Waterfall, WaterfallStep
from autofuse.fusion.plan import FusionPlan, Group

TARGET = Target("znver3", 8, 16, 2, 32768, 524288)
FAILURES = ("build_error", "timeout", "wrong")
BATCH = 20_000
STEPS = (WaterfallStep("rule", "what the fixed rule fuses", 9, 120.0), WaterfallStep("apart", "a+b -> a | b", 2, -5.0))
WATERFALL = Waterfall("none", 450.0, STEPS, 35.0, "search", 300.0, True, 430.0, 315.0)
PLANS = {"none": FusionPlan((Group(("a",)), Group(("b",)))), "search": FusionPlan((Group(("a", "b")),))}


def write_database(
    path: Path, candidates: int, *, seed: int, blocks: int = 30, shared: float = 0.5, hours: float = 8.0
) -> Path:
    """A database with one finished run of `candidates` candidates over 8 hours, `blocks` times each.

    A `shared` part of the candidates is the same for every seed, measured anew; the rest is the seed's own.
    """
    dice = random.Random(seed)
    workloads = [json.dumps({"workload": number}) for number in range(max(20, candidates // 48))]
    with open_database(path) as database:
        setting = database.setting(
            fingerprint=content_key("bench"),
            device_name="bench",
            device_facts={"cores": 2},
            target=TARGET,
            threads=1,
            versions={"tvm": "0.27"},
        )
        graph = content_key("graph")
        start = RunStart(
            name=f"night-{seed}", model_name="synthetic", model_sha256="0" * 64, graph_key=graph, seed=seed,
            provenance={"tvm": "0.27", "git": "0" * 40, "governor": None},
        )  # fmt: skip
        run = database.start_run(setting, start)
        first = [
            database.record_candidate(setting, _outcome(text, number, 100.0 + number), run)
            for number, text in enumerate(workloads[:40])
        ]
        for name, plan in PLANS.items():
            database.record_plan(graph, plan.key, plan.to_json(), name)
        for number in range(60):
            us = 5000.0 - 20 * number + dice.uniform(-200, 200)
            trial = Trial(number=number, answers={f"edge{number % 7}": "fuse"}, state="complete",
                          plan_key=PLANS["search"].key, composed_us=us)  # fmt: skip
            database.record_trial(run, trial)
        for name, us in (("none", 6000.0), ("search", 4000.0)):
            times = _times(us, seed)
            database.record_plan_measurement(
                run,
                PlanOutcome(name=name, series="s", plan_key=PLANS[name].key, **times),  # type: ignore[arg-type]
            )
    with closing(sqlite3.connect(path)) as connection:
        _append(connection, run, candidates - 40, workloads, dice, seed, blocks, shared, hours)
    with open_database(path) as database:
        groups = [
            ChosenGroup((f"op{number}",), content_key(text), candidate, 100.0 + number)
            for number, (text, candidate) in enumerate(zip(workloads, first, strict=False))
        ]
        database.record_choice(run, PLANS["search"].key, groups, median_us=4000.0, trusted=True)
        edges = [EdgeDecision(f"op{n}", f"op{n + 1}", n % 3 > 0, "chosen_measured", float(n)) for n in range(200)]
        database.record_edges(run, PLANS["search"].key, edges)
        database.finish_run(run, summary={"speedup": 1.5, "waterfall": asdict(WATERFALL)})
    return path


def _times(us: float, seed: int) -> dict[str, object]:
    dice = random.Random(seed + int(us))
    blocks = tuple(SampleBlock((us * dice.gauss(1.0, 0.01),), 0.98) for _ in range(20))
    return {
        "state": "ok", "median_us": us, "ci_lo_us": us * 0.99, "ci_hi_us": us * 1.01, "trusted": True,
        "max_rel_error": 1e-6, "blocks": blocks,
    }  # fmt: skip


def _outcome(text: str, tile: int, us: float) -> CandidateOutcome:
    candidate = Candidate(
        content_key(text),
        text,
        f"Conv+Relu {tile}",
        json.dumps({"tile": -1 - tile}),
        content_key(f"{text} {-1 - tile}"),
    )
    return CandidateOutcome(candidate=candidate, build_s=0.2, **_times(us, tile))  # type: ignore[arg-type]


def _append(
    connection: sqlite3.Connection, run: int, count: int, workloads: list[str], dice: random.Random,
    seed: int, blocks: int, shared: float, hours: float,
) -> None:  # fmt: skip
    """Rows straight into the tables: recording a hundred thousand one by one takes minutes."""
    connection.execute("PRAGMA synchronous = OFF")
    began = datetime.now(UTC) - timedelta(hours=hours)
    now = _text(began)
    connection.execute("UPDATE af_run SET started_at = ? WHERE id = ?", (now, run))
    keys = [(content_key(text), text, f"Conv+Relu {number}", now) for number, text in enumerate(workloads)]
    connection.executemany("INSERT OR IGNORE INTO af_workload (key, text, label, created_at) VALUES (?, ?, ?, ?)", keys)
    numbers = dict(connection.execute("SELECT text, id FROM af_workload").fetchall())
    per_workload = count // len(workloads) + 1
    schedules = [json.dumps({"own": own, "tile": tile}, separators=(",", ":"))
                 for own in ("shared", f"seed {seed}") for tile in range(per_workload + 1)]  # fmt: skip
    connection.executemany(
        "INSERT INTO af_schedule (key, text) VALUES (?, ?)", [(content_key(text), text) for text in schedules]
    )
    codes = [content_key(f"{text} {schedule}") for text in workloads for schedule in schedules]
    connection.executemany("INSERT INTO af_code (digest) VALUES (?)", [(digest,) for digest in codes])
    code_ids = dict(connection.execute("SELECT digest, id FROM af_code").fetchall())
    schedule_ids = dict(connection.execute("SELECT text, id FROM af_schedule").fetchall())
    candidate = connection.execute("SELECT MAX(id) FROM af_candidate").fetchone()[0]
    measurement = connection.execute("SELECT MAX(id) FROM af_measurement").fetchone()[0]
    rows, measured, samples = [], [], []
    for number in range(count):
        text = workloads[number % len(workloads)]
        tile, own = number // len(workloads), "shared" if number < shared * count else f"seed {seed}"
        written = json.dumps({"own": own, "tile": tile}, separators=(",", ":"))
        schedule, code = schedule_ids[written], code_ids[content_key(f"{text} {written}")]
        candidate, measurement = candidate + 1, measurement + 1
        when = _text(began + timedelta(hours=hours * (number + 1) / count))
        failed = dice.random() < 0.1
        us = dice.uniform(90, 400)
        outcome = (
            (dice.choice(FAILURES), "LLVM said no: register pressure", None, None, None, None, None)
            if failed
            else ("ok", None, us, us * 0.99, us * 1.01, 1, 1e-6)
        )
        rows.append((candidate, numbers[text], schedule, 0.2, when, when, 1, 1, 1, 1, code, *outcome))
        measured.append((measurement, candidate, run, f"{seed:08x}{number:024x}", 0.2, when, *outcome))
        if not failed:
            samples += [(measurement, block, f"[{us * dice.gauss(1, 0.01):.6g}]", 0.98, 0) for block in range(blocks)]
        if len(rows) == BATCH or number == count - 1:
            _insert(connection, rows, measured, samples)
            rows, measured, samples = [], [], []
    connection.commit()


def _insert(connection: sqlite3.Connection, rows: list, measured: list, samples: list) -> None:  # type: ignore[type-arg]
    timing = "state, failure, median_us, ci_lo_us, ci_hi_us, trusted, max_rel_error"
    setting = "device_id, target_id, threads, versions_id, code_id"
    connection.executemany(
        "INSERT INTO af_candidate (id, workload_id, schedule_id, build_s, created_at, updated_at, "
        f"{setting}, {timing}) VALUES ({', '.join('?' * 18)})",
        rows,
    )
    connection.executemany(
        f"INSERT INTO af_measurement (id, candidate_id, run_id, uid, build_s, created_at, {timing}) "
        f"VALUES ({', '.join('?' * 13)})",
        measured,
    )
    connection.executemany("INSERT INTO af_sample VALUES (?, ?, ?, ?, ?)", samples)


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")
