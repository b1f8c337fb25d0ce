"""Searches replayed on an oracle: the product's own code asks, recorded answers come back, and nothing is made up."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autofuse.database.database import open_database
from autofuse.database.records import Candidate, CandidateOutcome, RunStart
from autofuse.environment.environment import environment_of
from autofuse.environment.named_plans import named_plan
from autofuse.environment.space import load_space
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.rewriting import RewritingPlanner
from autofuse.graph.key import graph_key
from autofuse.graph.loading.load import load
from autofuse.kernels.schedule.knobs import declared_names
from autofuse.search.schedules.evidence import SearchEvidence
from autofuse.search.schedules.schedule_search import WorkloadSearch, schedule_text
from autofuse.values.ratios import Timed
from autofuse.values.statistics import median_interval
from experiments.oracle.run import SPACE
from experiments.profitability import networks
from experiments.replay.expectations import Bounds, gains_of_changes, gains_of_schedules, lags
from experiments.replay.first_schedules import Case, cases, choice
from experiments.replay.floor import floor
from experiments.replay.policies import POLICIES, Policy
from experiments.replay.recorded import Oracle, read_oracles, undisturbed
from experiments.replay.regret import RULE, decisions, judged
from experiments.replay.regret import text as regret_text
from experiments.replay.run import CLOSE, best_us, everything, evidence_of, replay
from experiments.replay.table import BASE, Row, markdown, means_of
from experiments.replay.wholes import foretold, table

NETWORK = "pointwise3"
PHASES, QUESTIONS, _, RANDOM = POLICIES


def law(key: str, schedule: str) -> float:
    """Microseconds between 10 and 30 that depend on the candidate alone."""
    return 10.0 + int(hashlib.sha256(f"{key} {schedule}".encode()).hexdigest()[:6], 16) / 16**6 * 20.0


def every(search: WorkloadSearch) -> Iterator[str]:
    """Every schedule that a search would ask for."""
    while (schedule := search.ask()) is not None:
        search.learn(schedule, law(search.key, schedule_text(schedule)))
        yield schedule_text(schedule)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def oracle(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """Every candidate of the fixed plans and of every changed decision, with a time by the law."""
    graph = load(networks.find(NETWORK, models), {})
    with open_database(tmp_path_factory.mktemp("oracle") / "times.db") as base:
        environment = environment_of(base, "local", 1, measuring=False)
        space = load_space(str(SPACE), environment.target.isa, declared_names())
        evidence = SearchEvidence(graph, space, environment, base, 0)
        planner = RewritingPlanner(graph, space.fusion)
        plans = [named_plan(graph, name) for name in ("none", "tvm", "dnnfusion")]
        plans += [planner.plan({one.name: choice}) for one in planner.decisions for choice in one.choices]
        start = RunStart(name=NETWORK, model_name=NETWORK, model_sha256="0" * 64, graph_key=graph_key(graph), seed=0)
        run = base.start_run(environment.setting, start)
        for plan in {plan.key: plan for plan in plans}.values():
            base.record_plan(graph_key(graph), plan.key, plan.to_json(), "test")
            evidence.admit(plan)
        for search in evidence.searches.values():
            workload = search.bound.workload
            for text in every(search):
                us = law(search.key, text)
                outcome = CandidateOutcome(
                    candidate=Candidate(workload.key, workload.text, workload.label, text), state="ok",
                    median_us=us, ci_lo_us=us, ci_hi_us=us, trusted=True,
                )  # fmt: skip
                base.record_candidate(environment.setting, outcome, run)
        base.finish_run(run)
        (found,) = read_oracles(base, models)
    return found


@pytest.fixture(scope="module")
def aim_us(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> float:
    with open_database(tmp_path_factory.mktemp("best") / "best.db") as base:
        return best_us(oracle, base)


@pytest.mark.parametrize("policy", [PHASES, QUESTIONS, RANDOM], ids=lambda policy: policy.name)
def test_every_policy_comes_to_the_oracles_best_with_its_answers(policy: Policy, oracle: Oracle, aim_us: float) -> None:
    row = replay(oracle, policy, aim_us, None)
    assert 0 < row.asked - row.strangers <= row.recorded == len(oracle.answers), "groups of combined changes are not"
    assert 0.0 < row.seconds <= row.recorded_s + 1e-6
    assert row.end is not None and row.end <= 1 / 0.98


def test_no_policy_needs_fewer_than_perfect_knowledge(oracle: Oracle, aim_us: float, tmp_path: Path) -> None:
    with open_database(tmp_path / "best.db") as base:
        known = everything(oracle, base)
    needed = floor(known, aim_us, CLOSE)
    default = RewritingPlanner(oracle.graph, known.space.fusion).plan({})
    assert len(known.of(default)) <= needed <= replay(oracle, QUESTIONS, aim_us, None).asked
    assert floor(known, aim_us / 2, CLOSE) == 0, "nothing comes so close"


def test_the_plan_of_a_search_is_held_to_the_best_and_its_decisions_to_our_rules(oracle: Oracle) -> None:
    rows = {row.judge: row for row in judged(oracle, ["1s", "10h"])}
    assert rows[RULE].decisions == rows[RULE].harmful == 0 and {"none", "dnnfusion"} <= rows.keys()
    short, long = rows["tune, 1s"], rows["tune, 10h"]
    assert all(row.regret is None or row.regret >= -1e-9 for row in rows.values())
    assert all(row.harmful <= row.decisions for row in rows.values()) and long.harmful == 0
    assert long.regret is not None and short.regret is not None
    assert long.regret < 1e-9 <= short.regret + 1e-9, "it asked for everything"
    told = regret_text(list(rows.values()))
    assert f"| {RULE} | 1 |" in told and "tune, 10h:" in told and "wanted: 8%" in told


def test_no_decision_is_counted_about_a_kernel_that_the_search_could_not_see(oracle: Oracle, tmp_path: Path) -> None:
    with open_database(tmp_path / "known.db") as base:
        known = everything(oracle, base)
        ruled, bare = named_plan(oracle.graph, RULE), named_plan(oracle.graph, "none")
        every = decisions(known, ruled, bare)
        fused = next(search.key for search in known.of(ruled) if len(search.bound.workload.operators) > 1)
        seen = decisions(known, ruled, bare, frozenset({fused}))
    assert len(seen) < len(every)


def test_expectations_are_held_to_what_the_oracle_says(oracle: Oracle, tmp_path: Path) -> None:
    with open_database(tmp_path / "known.db") as base:
        known = everything(oracle, base)
        evidence = evidence_of(oracle, base)
        schedules = list(gains_of_schedules(oracle, known, evidence))
    assert schedules and all(number >= 2 and 0.0 <= part < 2 / 3 for number, part, _ in schedules), "10 to 30 us each"
    changes = list(gains_of_changes(oracle, known))
    behind = list(lags(oracle, evidence, [change for *_, change in changes]))
    assert len(behind) == len(changes) and all(one.trusted and one.times >= 1.0 for one in behind)
    assert all(one.gained == 0.0 for one in behind if one.times > 3.1), "10 to 30 us each, and a launch"
    assert changes and all(part < 1.0 and change.come != change.gone for _, part, change in changes)
    slow = dict.fromkeys(("gflops_1", "l1_gbs_1", "l2_gbs_1", "l3_gbs_1"), 1e-3)
    workload = next(iter(known.searches.values())).bound.workload
    assert Bounds(slow, strict=False).us(workload) >= Bounds(slow, strict=True).us(workload) > 0.0


def test_a_first_schedule_is_judged_by_what_it_takes_over_the_best(oracle: Oracle) -> None:
    found = list(cases(oracle))
    assert found and all(case.regret(case.guess) >= 0.0 == case.regret(min(case.times, key=case.times.__getitem__))
                         for case in found)  # fmt: skip
    case = Case("a", (), {"guess": 12.0, "other": 10.0}, "guess")
    assert case.regret("guess") == pytest.approx(0.2)
    assert choice(case, {"guess": 0.0, "other": -0.1}, 0.0) == "other"
    assert choice(case, {"guess": 0.0, "other": -0.1}, 0.2) == "guess", "it does not promise enough"


def test_what_the_other_plans_of_a_race_teach_foretells_the_one_that_is_left_out(
    oracle: Oracle, tmp_path: Path
) -> None:
    """A kernel of one operator takes half as long inside."""
    with open_database(tmp_path / "known.db") as base:
        known = everything(oracle, base)
        default = RewritingPlanner(oracle.graph, known.space.fusion).plan({})
        plans = {"default": default} | {f"plan {n}": plan for n, (plan, _) in enumerate(known.known_plans())}

        def timed(plan: FusionPlan) -> Timed:
            searches = (known.searches[bound.workload.key] for bound in known.admit(plan).kernels)
            us = sum((one.best_us or 0.0) * min(2, len(one.bound.workload.operators)) / 2 for one in searches)
            return Timed(median_interval([us] * 9), True, (us,) * 9, "race", tuple(range(9)))

        race = {name: (plan, timed(plan)) for name, plan in plans.items() if known.summed(plan) is not None}
        found = list(foretold(NETWORK, known, race))
    assert len(found) == len(race) - 1 > 2
    off = [(abs(one.by_sums - one.measured), abs(one.corrected - one.measured)) for one in found]
    assert sum(corrected for _, corrected in off) < 0.5 * sum(by_sums for by_sums, _ in off)
    assert table(found)[-1].startswith(f"| all | {len(found)} |")


def test_a_replay_says_the_same_twice(oracle: Oracle, aim_us: float) -> None:
    assert replay(oracle, QUESTIONS, aim_us, None) == replay(oracle, QUESTIONS, aim_us, None)


def test_times_that_are_not_trusted_may_be_left_out_where_there_are_others(oracle: Oracle) -> None:
    """Of every kernel the first time is not trusted, and of one kernel none."""
    bare, kernels = next(iter(oracle.answers))[0], set[str]()
    doubted = set()
    for asked in oracle.answers:
        if asked[0] not in kernels or asked[0] == bare:
            doubted.add(asked)
        kernels.add(asked[0])
    answers = {
        asked: replace(answer, stored=replace(answer.stored, trusted=asked not in doubted))
        for asked, answer in oracle.answers.items()
    }
    left = undisturbed(replace(oracle, answers=answers)).answers
    several = {key for key, _ in answers.keys() - doubted}
    assert answers.keys() - left.keys() == {asked for asked in doubted if asked[0] in several}
    assert {key for key, _ in left} == kernels, "what has no other time keeps the one that it has"


def test_what_was_not_recorded_is_counted_and_never_made_up(oracle: Oracle, aim_us: float) -> None:
    kept = {asked: answer for number, (asked, answer) in enumerate(oracle.answers.items()) if number % 3}
    row = replay(replace(oracle, answers=kept), QUESTIONS, aim_us / 2, None)
    assert row.asked == 0 and row.strangers > 0
    assert row.end is None or row.end >= 2.0 - 1e-9


def test_the_table_compares_with_the_first_policy() -> None:
    rows = [
        Row("a", "here", BASE, 100, 50.0, 40, 20.0, 0, 1.0), Row("a", "here", RANDOM.name, 100, 50.0, 80, 40.0, 2, 1.0),
        Row("b", "here", BASE, 100, 50.0, 25, 20.0, 0, 1.0), Row("b", "here", RANDOM.name, 100, 50.0, 0, 0.0, 0, 1.2),
    ]  # fmt: skip
    assert means_of(rows)[RANDOM.name] == (pytest.approx((2.0 * 4.0) ** 0.5), 2)
    text = markdown(rows)
    assert "80 (40 s, 2 not recorded)" in text and "never, 1.20" in text


def test_the_table_keeps_kinds_of_devices_apart(oracle: Oracle, aim_us: float) -> None:
    """The same network on two kinds is two lines, and each kind has its own mean."""
    here = replay(oracle, QUESTIONS, aim_us, None)
    assert here.device == oracle.where.target.mcpu, "the kind, as two machines are both called local"
    rows = [replace(here, device=device, policy=BASE, asked=asked) for device, asked in (("zen4", 10), ("zen5", 20))]
    rows += [replace(row, policy=RANDOM.name, asked=40) for row in rows]
    means = [row.split("|")[2:] for row in markdown(rows).splitlines() if "geometric mean" in row]
    assert [(cells[0].strip(), cells[5].strip()) for cells in means] == [("zen4", "4.00 (1)"), ("zen5", "2.00 (1)")]
