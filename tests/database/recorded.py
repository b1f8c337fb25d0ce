"""Databases with rows of every kind, for tests of what handles a whole database."""

from __future__ import annotations

import json
import random
from pathlib import Path

from sqlalchemy import text

from autofuse.database.database import ProfilingDatabase, open_database
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
from autofuse.fusion.plan import FusionPlan, Group

TARGET = Target("znver4", 16, 32, 2, 32768, 1 << 20)
LABELS = ("conv", "matmul", "pool")
GRAPH = content_key("graph")
PLAN = FusionPlan((Group(("op",)),))


def setting_of(database: ProfilingDatabase, device: str = "laptop", tvm: str = "0.27") -> Setting:
    return database.setting(
        fingerprint=content_key(device),
        device_name=device,
        device_facts={"cores": 2},
        target=TARGET,
        threads=1,
        versions={"tvm": tvm},
    )


def outcome(
    label: str, tile: int, us: float | None, uid: str = "", state: str = "timeout", code: str = "today"
) -> CandidateOutcome:
    workload = json.dumps({"workload": label})
    digest = content_key(f"{label} {tile} {code}")
    candidate = Candidate(content_key(workload), workload, label, json.dumps({"tile": tile}), digest)
    if us is None:
        return CandidateOutcome(candidate=candidate, state=state, failure="over 30 s", uid=uid)
    blocks = tuple(SampleBlock((us * factor,), 1.0, flagged=factor > 2) for factor in (0.99, 1.0, 1.01, 3.0))
    times = {"median_us": us, "ci_lo_us": us * 0.99, "ci_hi_us": us * 1.01, "trusted": True, "blocks": blocks}
    return CandidateOutcome(candidate=candidate, state="ok", uid=uid, build_s=1.0, **times)  # type: ignore[arg-type]


def lease(database: ProfilingDatabase, setting: Setting, outcome: CandidateOutcome) -> int:
    """A candidate that a process is building: what versions up to r0004 left in a file while they worked."""
    number = database.record_candidate(setting, outcome)
    with database.writing() as sql:
        for statement in (
            "DELETE FROM af_measurement WHERE candidate_id = :id",
            "UPDATE af_candidate SET state = 'building', failure = NULL, owner_host = 'here', owner_pid = 1, "
            "owner_boot_id = 'b', owner_started = 1.0 WHERE id = :id",
        ):
            sql.execute(text(statement), {"id": number})
    return number


def fill(path: Path, seed: int, measurements: int = 25, busy: bool = True) -> Path:
    """A database with a run of every kind of row; candidates overlap with those of other seeds.

    `busy`: a process still works on a candidate of it.
    """
    dice = random.Random(seed)
    with open_database(path) as database:
        setting = setting_of(database, device=dice.choice(("laptop", "board")))
        start = RunStart(name=f"run{seed}", model_name="net", model_sha256="0" * 64, graph_key=GRAPH, seed=seed)
        run = database.start_run(setting, start)
        chosen = None
        for _ in range(measurements):
            us = dice.choice((None, dice.uniform(50, 150), dice.uniform(50, 150)))
            made = outcome(dice.choice(LABELS), dice.randrange(4), us)
            number = database.record_candidate(setting, made, run)
            chosen = number if made.candidate.workload_label == LABELS[0] else chosen
        if busy:
            lease(database, setting, outcome("conv", 99, None))
        database.record_plan(GRAPH, PLAN.key, PLAN.to_json(), f"origin{seed}")
        for number, composed in enumerate((9.0, 8.0, 11.0)):
            database.record_trial(
                run,
                Trial(number=number, answers={"x": number}, state="complete", plan_key=PLAN.key, composed_us=composed),
            )
        times = {
            "median_us": 5.0,
            "ci_lo_us": 4.0,
            "ci_hi_us": 6.0,
            "trusted": True,
            "blocks": (SampleBlock((5.0,)),) * 2,
        }
        database.record_plan_measurement(
            run,
            PlanOutcome(name="search", series="s", plan_key=PLAN.key, state="ok", **times),  # type: ignore[arg-type]
        )
        database.record_plan_measurement(run, PlanOutcome(name="tvm", series="s", state="run_error", failure="no"))
        group = ChosenGroup(("op",), outcome(LABELS[0], 0, None).candidate.workload_key, chosen, 5.0)
        database.record_workload(group.workload_key, '{"workload": "conv"}', "conv")
        database.record_choice(run, PLAN.key, [group], median_us=100.0 + seed, trusted=True)
        database.record_edges(run, PLAN.key, [EdgeDecision("a", "b", True, "chosen_measured")])
        database.finish_run(run, summary={"seed": seed})
    return path
