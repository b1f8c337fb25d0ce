"""What a search builds whole, races and decides on is what `compile` takes of the database afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autofuse.database.database import open_database
from autofuse.database.records import DOUBT, Candidate, CandidateOutcome, RunStart
from autofuse.environment.environment import environment_of
from autofuse.fusion.planner.baselines import default_plan
from autofuse.graph.key import graph_key
from autofuse.graph.loading.load import load
from autofuse.search.schedules.evidence import SearchEvidence, searched_space
from autofuse.search.schedules.schedule_search import schedule_text

TRUSTED_US = 10.0


@pytest.mark.parametrize("doubted_us", [TRUSTED_US / DOUBT - 0.5, TRUSTED_US - 0.1, TRUSTED_US + 1.0])
def test_a_time_that_is_not_trusted_counts_as_longer_in_a_search_as_in_the_database(
    doubted_us: float, two_layers: Path, tmp_path: Path
) -> None:
    graph = load(two_layers, {})
    plan = default_plan(graph)
    with open_database(tmp_path / "profile.db") as base:
        environment = environment_of(base, "local", 1, measuring=False)
        evidence = SearchEvidence(graph, searched_space(None, environment, False), environment, base, 0)
        search = next(one for one in evidence.of(plan) if one.limit > 1)
        trusted, doubted = search.ask(), search.ask()
        assert trusted is not None and doubted is not None
        times = {schedule_text(trusted): (TRUSTED_US, True), schedule_text(doubted): (doubted_us, False)}
        evidence.untrusted.add((search.key, schedule_text(doubted)))
        start = RunStart(name="a", model_name="a", model_sha256="0" * 64, graph_key=graph_key(graph), seed=0)
        run, workload = base.start_run(environment.setting, start), search.bound.workload
        for text, (us, trust) in times.items():
            search.learn(json.loads(text), us)
            candidate = Candidate(workload.key, workload.text, workload.label, text)
            outcome = CandidateOutcome(
                candidate=candidate, state="ok", median_us=us, ci_lo_us=us, ci_hi_us=us, trusted=trust
            )  # fmt: skip
            base.record_candidate(environment.setting, outcome, run)
        best = base.ranked(environment.setting, [search.key])[search.key][0]
    assert evidence.schedules(plan)[search.key] == json.loads(best.schedule)
    assert evidence.taken(search) == (doubted if doubted_us * DOUBT < TRUSTED_US else trusted)
