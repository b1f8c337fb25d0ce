"""How long a finalist's library takes to build: a kernel that the search has compiled is only linked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autofuse.search.budget.time_budget import (
    FINALE_SHARE,
    LINK_S,
    LINKED_KERNEL_S,
    MOST_FOR_ONE,
    SLACK,
    finale_most_s,
    race_until_decided_s,
)
from autofuse.search.finals.finale import OBJECTS, UNTRIED, Estimates, Opening, wishes
from autofuse.search.schedules.evidence import ENOUGH_TO_TELL, Counts, SearchEvidence


def estimates(
    folder: Path, codes: Mapping[str, str], best: Mapping[str, str | None], doubted: float = 1.0
) -> Estimates:
    """Of a search with two workloads, whose candidates took 0.5 and 1.5 s to build."""
    searches = {
        name: SimpleNamespace(bound=SimpleNamespace(workload=name), best=best[name], build_s=build_s)
        for name, build_s in (("a", 0.5), ("b", 1.5))
    }
    seen = SimpleNamespace(seen=lambda workload, schedule: codes.get(f"{workload}-{schedule}", ""))
    environment = SimpleNamespace(target=None, codes=seen)
    evidence: Any = SimpleNamespace(
        searches=searches, of=lambda _: list(searches.values()), environment=environment, doubted_share=doubted
    )
    return Estimates.of(evidence, Opening(1.0, 1.0), 2, 60.0, folder)


@pytest.mark.parametrize(
    ("best", "kernels_s"),
    [
        ({"a": "x", "b": "y"}, 0.5 + LINKED_KERNEL_S),
        ({"a": "x", "b": "z"}, 0.5 + 1.5),
        ({"a": None, "b": None}, 0.5 + 1.5),
    ],
    ids=["b is compiled", "b's best is another schedule", "nothing has a time"],
)
def test_only_a_kernel_whose_object_is_there_costs_no_compilation(
    tmp_path: Path, best: Mapping[str, str | None], kernels_s: float
) -> None:
    (tmp_path / OBJECTS).mkdir()
    (tmp_path / OBJECTS / "code-by.o").touch()
    found = estimates(tmp_path, {"a-x": "code-ax", "b-y": "code-by", "b-z": "code-bz"}, best)
    assert found.build_s(SimpleNamespace()) == pytest.approx(LINK_S + kernels_s)  # type: ignore[arg-type]


def test_finalists_that_were_built_faster_than_expected_leave_time_for_others(tmp_path: Path) -> None:
    """And the race is no shorter for it."""
    found = estimates(tmp_path, {}, {"a": None, "b": None})
    plans: Any = {name: SimpleNamespace() for name in ("default", "search", "composed", "previous", "none")}
    slow, quick = (found.finale(plans, 24.0, ("default",), pace) for pace in (1.0, 0.2))
    assert set(quick.left_out) < set(slow.left_out)
    assert quick.race_s >= slow.race_s
    assert quick.seconds <= 24.0 and slow.seconds <= 24.0


def test_few_finalists_need_a_short_race_and_a_crowded_machine_a_longer_one(tmp_path: Path) -> None:
    found = estimates(tmp_path, {}, {"a": None, "b": None})
    crowded = replace(found, opening=Opening(1.0, 1.0, 3.0))
    assert [found.least_race_s(count) for count in (1, 2, 5, 50)] == [2.0, 2.0, 2.5, 6.0]
    assert [crowded.least_race_s(count) for count in (1, 2, 5)] == [2.0, 3.0, 6.0]


@pytest.mark.parametrize(
    ("allowed_s", "built", "names"),
    [(15.0, (), ("default",)), (20.0, (), ("untuned", "search")), (20.0, ("default",), ("default", "untuned"))],
    ids=["one fits", "two fit", "two fit, and the default is built"],
)
def test_no_race_goes_without_what_is_compiled_untuned(
    tmp_path: Path, allowed_s: float, built: tuple[str, ...], names: tuple[str, ...]
) -> None:
    found = estimates(tmp_path, {}, {"a": None, "b": None})
    for search in found.evidence.searches.values():
        search.rule = None  # type: ignore[misc]
    plans: Any = {name: SimpleNamespace() for name in ("default", "search", "untuned", "none")}
    assert found.finale(plans, allowed_s, built).names == names


def test_where_times_are_trusted_less_is_kept_for_the_race(tmp_path: Path) -> None:
    plans: Any = {name: SimpleNamespace() for name in ("default", "search", "composed", "none")}
    noisy, quiet = (
        estimates(tmp_path, {}, {"a": None, "b": None}, doubted).finale(plans, 600.0) for doubted in (0.5, 0.1)
    )
    assert quiet.names == noisy.names == tuple(plans)
    assert quiet.race_s < noisy.race_s / 2
    assert quiet.seconds < noisy.seconds


def test_doubts_that_the_database_had_stand_against_the_times_that_it_had() -> None:
    """A search that goes on in an old database on a quiet machine is not taken for one in noise."""
    share = SearchEvidence.doubted_share
    seen: Any = SimpleNamespace(untrusted=set(range(40)), counts=Counts(ok=10, hits=190))
    assert share.fget is not None and share.fget(seen) == 0.2
    seen.counts = Counts(ok=ENOUGH_TO_TELL - 1, hits=190)
    assert share.fget(seen) == 1.0


@pytest.mark.parametrize(("us", "raced"), [(105.0, True), (125.0, False)])
def test_a_fixed_plan_near_the_best_sum_is_raced_behind_others_that_are_better(us: float, raced: bool) -> None:
    times = {"default": 103.0, "search": 100.0, "composed": 101.0, "model": 102.0, "always": us}
    plans = {name: SimpleNamespace(key=name, groups=()) for name in times}
    evidence = SimpleNamespace(
        expected_us=lambda plan: times[plan.key], of=lambda _: [], is_tuned=lambda _: False, missing=lambda _: []
    )
    standing: Any = SimpleNamespace(evidence=evidence, plans=lambda: plans, previous="", best=plans["search"])
    found = list(wishes(standing))
    assert found[:3] == ["default", "search", "composed"] and (found[-1] == "always") == raced


@pytest.mark.parametrize(
    ("us", "missing", "raced"),
    [(None, 1, True), (None, UNTRIED + 1, False), (90.0, 0, True), (400.0, 0, False)],
    ids=["few kernels without a time", "many", "among the best", "far behind"],
)
def test_a_fixed_plan_that_a_short_search_has_not_come_to_is_raced_where_few_kernels_have_no_time(
    us: float | None, missing: int, raced: bool
) -> None:
    times = {"default": 100.0, "none": 120.0, "always": us}
    plans = {name: SimpleNamespace(key=name, groups=()) for name in times}
    evidence = SimpleNamespace(
        expected_us=lambda plan: times[plan.key], of=lambda _: [], is_tuned=lambda _: False,
        missing=lambda plan: [object()] * (missing if plan.key == "always" else 0),
    )  # fmt: skip
    standing: Any = SimpleNamespace(evidence=evidence, plans=lambda: plans, previous="", best=plans["default"])
    found = list(wishes(standing))
    assert ("always" in found) == raced and found[0] == "default" and "none" in found


@pytest.mark.parametrize(
    ("race_s", "left_s", "most_s"),
    [(6.0, 100.0, 30.0), (6.0, 12.0, 12.0), (6.0, 0.0, 1.0), (12.0, math.inf, 40.0), (40.0, math.inf, 40.0)],
)
def test_a_race_lasts_until_it_is_decided_but_not_long_beyond_a_job_without_a_budget_of_time(
    race_s: float, left_s: float, most_s: float
) -> None:
    assert race_until_decided_s(race_s, left_s) == most_s


def test_the_finalists_get_as_much_of_a_budget_as_the_readme_says(tmp_path: Path) -> None:
    found = estimates(tmp_path, {}, {"a": None, "b": None})
    plans: Any = {name: SimpleNamespace() for name in ("default", "search", "none")}
    several, one = FINALE_SHARE * SLACK, FINALE_SHARE * SLACK * MOST_FOR_ONE
    kept = {budget_s: found.kept(plans, finale_most_s(budget_s)) for budget_s in range(1, 120)}
    assert {len(finale.names) for finale, _ in kept.values()} == {0, 1, 2, 3}
    for budget_s, (finale, seconds) in kept.items():
        assert not finale.names or seconds <= (several if len(finale.names) > 1 else one) * budget_s
    assert any(finale.names and seconds > several * budget_s for budget_s, (finale, seconds) in kept.items())
    readme = " ".join((Path(__file__).parents[2] / "README.md").read_text().split())
    assert (
        f"up to {several:.0%} of the budget ({one:.0%} where there is time for a single plan)".replace("%", " %")
        in readme
    )
