"""Databases of networks whose every kernel takes a time by a simple law: for tests of what reads them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from autofuse.database.database import open_database
from autofuse.database.records import Candidate, CandidateOutcome, RunStart
from autofuse.environment.environment import environment_of
from autofuse.graph.key import graph_key
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.lower import Lowering
from autofuse.kernels.workload.workload import Workload
from experiments.profitability import candidates, networks

PLANS = 9


def law(workload: Workload) -> float:
    """Microseconds: ten a kernel, and two an operator, or eight where a kernel holds more than one Exp or Tanh."""
    kinds = [operator.op_type for operator in workload.operators]
    dear = sum(kind in ("Exp", "Tanh") for kind in kinds) > 1
    return 10.0 + len(kinds) * (8.0 if dear else 2.0)


def record(database: Path, folder: Path, name: str) -> None:
    """Times by the law of every kernel of the first plans of a network."""
    graph = load(networks.find(name, folder), {})
    key = graph_key(graph)
    with open_database(database) as base:
        environment = environment_of(base, "local", 1, measuring=False)
        start = RunStart(name=name, model_name=name, model_sha256="0" * 64, graph_key=key, seed=0)
        number, lowering = base.start_run(environment.setting, start), Lowering(graph, environment.target)
        for origin, plan in islice(candidates.plans(graph, 0), PLANS):
            base.record_plan(key, plan.key, plan.to_json(), origin)
            for workload in {bound.workload.key: bound.workload for bound in lowering.lower(plan).kernels}.values():
                us = law(workload)
                outcome = CandidateOutcome(
                    candidate=Candidate(workload.key, workload.text, workload.label, "{}"), state="ok",
                    median_us=us, ci_lo_us=us * 0.99, ci_hi_us=us * 1.01, trusted=True,
                )  # fmt: skip
                if workload.key not in base.lookup(environment.setting, [workload.key]):
                    base.record_candidate(environment.setting, outcome, number)
        base.finish_run(number)
