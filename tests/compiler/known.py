"""A database that knows what a test wants of a model: what the ladder of `compile` looks up."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import select

import autofuse
from autofuse.compiler import CompileReport
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.database.records import Candidate, CandidateOutcome, RunStart, Setting
from autofuse.database.tables.schema import VersionsRow
from autofuse.environment.environment import Environment, environment_of
from autofuse.environment.rates import RATES
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.baselines import default_plan, none_plan
from autofuse.graph.key import graph_key
from autofuse.graph.loading.load import load
from autofuse.kernels.emission import Emission
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.tir.digest import digest

GOOD = {"contraction.pixels": 1, "contraction.vectors": 1}


class Known:
    """A database that is told measurements, and what compiles from it."""

    def __init__(self, model: Path, path: Path) -> None:
        self.model, self.path = model, path
        self.base: ProfilingDatabase = open_database(path)
        self.environment: Environment = environment_of(self.base, "local", 1, measuring=False)

    def setting(self, versions: str = "", **facts: Any) -> Setting:
        """This device's; or that of another with other facts, or of other versions."""
        own = self.environment.device.fingerprint
        made = self.base.setting(
            fingerprint=f"other {sorted(facts)}" if facts else own.key,
            device_name="other",
            device_facts={**own.facts, **facts},
            target=self.environment.target,
            threads=1,
            versions={"tvm": versions},
        )
        return made if versions or facts else self.environment.setting

    def measured(
        self, setting: Setting, batch: int = 4, plan: FusionPlan | None = None, text: str | None = None,
        schedule: Mapping[str, int | str] = GOOD, code: str = "", us: float = 10.0,
        trusted: bool = True,
    ) -> None:  # fmt: skip
        """Every group of the default plan, at 10 µs with the schedule `GOOD`; `code`: in place of what is built."""
        with self.base.reading() as sql:
            query = select(VersionsRow.text).where(VersionsRow.key == setting.versions)
            versions = json.loads(sql.execute(query).scalar_one())
        target, emission = self.environment.target, Emission(self.environment.target)
        graph = load(self.model, {"x": (batch, 32)})
        plan = plan or default_plan(graph)
        for bound in lower(graph, plan, self.environment.target, [group.operators for group in plan.groups]).kernels:
            load_ = bound.workload
            made = digest(code or emission.code(load_, schedule), target, versions)
            candidate = Candidate(load_.key, load_.text, load_.label, text or json.dumps(schedule), made)
            outcome = CandidateOutcome(
                state="ok", median_us=us, ci_lo_us=us * 0.9, ci_hi_us=us * 1.1, trusted=trusted, candidate=candidate
            )
            self.base.record_candidate(setting, outcome)

    def probed(self, setting: Setting, times: float) -> None:
        """A run on a device that is so many times as fast as one of 100 GFLOP/s and 50 GB/s."""
        start = RunStart(
            name=f"probe {times}", model_name="probe", model_sha256="0" * 64, graph_key="0" * 64, seed=0,
            provenance={RATES: {"gflops_1": 100.0 * times, "l2_gbs_1": 50.0 * times, "threads": 1}},
        )  # fmt: skip
        self.base.finish_run(self.base.start_run(setting, start))

    def chosen(
        self,
        setting: Setting,
        batch: int = 4,
        plan: Callable[[Any], FusionPlan] = none_plan,
        timed: bool = True,
        **limits: Any,
    ) -> None:
        """A finished job that chose a plan. `timed`: it had the time to measure it whole."""
        import hashlib

        graph = load(self.model, {"x": (batch, 32)})
        sha = hashlib.sha256(self.model.read_bytes()).hexdigest()
        start = RunStart(name="run", model_name="net", model_sha256=sha, graph_key=graph_key(graph), seed=0)
        run = self.base.start_run(setting, start)
        made = plan(graph)
        self.base.record_plan(graph_key(graph), made.key, made.to_json(), "search")
        self.base.record_choice(
            run, made.key, [], median_us=5.0 if timed else None, trusted=timed, limits=limits or None
        )
        self.base.finish_run(run)

    def compile(self, batch: int = 4, **options: Any) -> CompileReport:
        """A dry run."""
        options.setdefault("shapes", {"x": (batch, 32)})
        return autofuse.compile(self.model, dry_run=True, database=str(self.path), threads=1, **options)
