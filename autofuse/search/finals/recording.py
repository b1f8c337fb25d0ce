"""What a search records at its end: the choice, how sure it is, and why each edge is as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping

from autofuse.database.records import BestSchedule, ChosenGroup, EdgeDecision, Json, MeasuredSchedule
from autofuse.environment.plan_evidence import fitting, known_pieces
from autofuse.fusion.evidence import Evidence
from autofuse.fusion.explain import explain
from autofuse.fusion.skeleton import settled
from autofuse.kernels.workload.workload import Workload
from autofuse.search.finals.verdict import Verdict
from autofuse.search.lab.lab import Lab
from autofuse.search.schedules.evidence import SearchEvidence
from autofuse.search.schedules.schedule_search import schedule_text
from autofuse.values.names import UNTUNED


def record_choice(lab: Lab, verdict: Verdict) -> None:
    """What `compile` takes from now on, how sure that is, and why each edge is as it is."""
    evidence, plan = lab.evidence, verdict.plan
    codes, workloads = evidence.environment.codes, {one.key: one.bound.workload for one in evidence.of(plan)}
    known = _rows_of_the_rule(evidence, workloads) if verdict.name == UNTUNED else _best_rows(evidence, workloads)
    groups = []
    for group, bound in zip(plan.groups, evidence.admit(plan).groups, strict=True):
        best = known.get(bound.workload.key)
        us = best.median_us if best else None
        evidence.database.record_workload(bound.workload.key, bound.workload.text, bound.workload.label)
        groups.append(ChosenGroup(group.operators, bound.workload.key, best.candidate_id if best else None, us))
    evidence.database.record_choice(
        lab.run_id, plan.key, groups,
        median_us=verdict.times[verdict.name].median_us, trusted=verdict.trusted, details=_details(verdict),
        limits=evidence.limits.to_json() or None,
    )  # fmt: skip
    alike = [known for known in evidence.known_plans() if known[0].rewrites == plan.rewrites]
    pieces = known_pieces(
        evidence.graph, alike, evidence.database, evidence.environment.setting, evidence.limits, codes
    )
    seen = Evidence(settled(evidence.graph, plan)[0], pieces)
    # Several tensors may connect two operators: the first row tells.
    rows: dict[tuple[str, str], EdgeDecision] = {}
    for row in explain(evidence.graph, plan, "chosen_measured", seen):
        edge = EdgeDecision(row.producer, row.consumer, row.fused, row.code, row.gain_us)
        rows.setdefault((row.producer, row.consumer), edge)
    evidence.database.record_edges(lab.run_id, plan.key, list(rows.values()))


def _details(verdict: Verdict) -> dict[str, Json]:
    """How the choice was decided, for the database."""
    found: dict[str, Json] = {"name": verdict.name, "pinned": verdict.name == UNTUNED}
    decision = verdict.decision
    if decision is not None and decision.verdict:
        found |= {"verdict": decision.verdict, "against": decision.against, "together": verdict.together}
    return found


Rows = Mapping[str, BestSchedule | MeasuredSchedule]


def _best_rows(evidence: SearchEvidence, workloads: Mapping[str, Workload]) -> Rows:
    """The best candidate of each workload, as `compile` finds it."""
    stored = evidence.database.ranked(evidence.environment.setting, workloads, fitting(evidence.limits))
    found = {key: evidence.environment.codes.best(workloads[key], rows) for key, rows in stored.items()}
    return {key: best for key, best in found.items() if best is not None}


def _rows_of_the_rule(evidence: SearchEvidence, workloads: Mapping[str, Workload]) -> Rows:
    """The candidate of each workload that has the rules' schedule."""
    found: dict[str, MeasuredSchedule] = {}
    for key, workload in workloads.items():
        wanted = schedule_text(evidence.searches[key].rule)
        for row in evidence.database.measured_schedules(evidence.environment.setting, key):
            same = row.median_us is not None and schedule_text(json.loads(row.schedule)) == wanted
            if same and evidence.environment.codes.knows(workload, row):
                found[key] = row
    return found
