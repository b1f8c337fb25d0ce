"""Search over the schedules of one workload, against every schedule there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from autofuse.device.target import Target
from autofuse.fusion.plan import ScheduleLimits
from autofuse.fusion.planner.baselines import none_plan
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.lower import lower
from autofuse.kernels.schedule.knobs import canonical, fits_registers
from autofuse.search.schedules.lessons import CERTAIN, Lessons
from autofuse.search.schedules.prospects import Stake, next_candidates
from autofuse.search.schedules.schedule_search import MAX_CANDIDATES, WorkloadSearch, schedule_text

Schedule = Mapping[str, int | str]
TARGET = Target("znver4", 16, 32, 2, 32768, 1 << 20)
SMALL: dict[str, dict[str, tuple[int | str, ...]]] = {
    "contraction": {
        "algorithm": ("direct",),
        "vectors": (1, 2, 4),
        "pixels": (2, 4, 30),
        "rows_per_task": (4, 1),
        "panels_per_task": (1,),
        "order": ("weights", "pixels"),
        "pixel_rows": (1,),
        "k_blocking": (1,),
    }
}


@pytest.fixture
def search(onnx_builder: Any, tmp_path: Path) -> Callable[..., WorkloadSearch]:
    """`search(seed, space)`: of a 3x3 convolution, nothing tried yet."""
    b = onnx_builder()
    path = b.save(tmp_path / "net.onnx", {"x": [1, 32, 32, 32]}, [b.op("Conv", "conv", "x", b.weights(64, 32, 3, 3))])
    graph = load(path, {})
    plan = none_plan(graph)
    lowered = lower(graph, plan, TARGET, [group.operators for group in plan.groups])

    def make(seed: int = 0, space: Mapping[str, Any] = SMALL) -> WorkloadSearch:
        return WorkloadSearch.create(lowered.kernels[0], lowered.graph, TARGET, space, seed)

    return make


def every(search: WorkloadSearch) -> dict[str, dict[str, int | str]]:
    """All schedules of the space that can be built, by their text."""
    found = {}
    for values in product(*search.knobs.values()):
        schedule = canonical(dict(zip(search.knobs, values, strict=True)), search.knobs)
        if fits_registers(schedule, TARGET):
            found[schedule_text(schedule)] = schedule
    return found


def spend(search: WorkloadSearch, cost: Callable[[Schedule], float | None], count: int = 1000) -> list[str]:
    """Asks and tells until the search is complete, or `count` times."""
    asked = []
    for _ in range(count):
        schedule = search.ask()
        if schedule is None:
            break
        asked.append(schedule_text(schedule))
        search.learn(schedule, cost(schedule), "failed")
    return asked


def distance(schedule: Schedule) -> float:
    """A smooth landscape: each knob by itself costs what it is off its best value."""
    best = {
        "contraction.vectors": 2,
        "contraction.pixels": 7,
        "contraction.rows_per_task": 2,
        "contraction.pixel_rows": 4,
    }
    factors = [1 + abs(float(schedule.get(knob, 1)) - value) / 4 for knob, value in best.items()]
    penalty = 1.5 if schedule.get("contraction.order") == "pixels" else 1.0
    penalty *= 1.4 if schedule.get("contraction.algorithm") == "winograd2" else 1.0
    result = 10.0 * penalty
    for factor in factors:
        result *= factor
    return result


@pytest.mark.parametrize("seed", range(5))
def test_a_small_space_is_tried_whole_and_its_best_found(seed: int, search: Callable[..., WorkloadSearch]) -> None:
    one = search(seed)
    schedules = every(one)
    times = {text: 100.0 + hash_of(seed, text) for text in schedules}
    asked = spend(one, lambda schedule: times[schedule_text(schedule)])
    assert sorted(asked) == sorted(schedules), "each once"
    assert (one.complete, one.limit, one.ask()) == (True, len(schedules), None)
    assert one.best_us == min(times.values())
    assert one.best is not None
    assert times[schedule_text(one.best)] == one.best_us


def hash_of(*parts: object) -> float:
    import hashlib

    return int(hashlib.sha256(repr(parts).encode()).hexdigest()[:6], 16) / 1e5


def test_schedules_that_overflow_the_registers_are_never_asked_for(search: Callable[..., WorkloadSearch]) -> None:
    one = search()
    asked = spend(one, lambda _schedule: 1.0)
    assert one.knobs["contraction.vectors"] == (1, 2, 4)
    assert 30 in one.knobs["contraction.pixels"]
    assert not any('"contraction.pixels":30,' in text and '"contraction.vectors":4' in text for text in asked)


@pytest.mark.parametrize("seed", range(3))
def test_a_large_space_comes_close_to_its_best_in_few_candidates(
    seed: int, search: Callable[..., WorkloadSearch]
) -> None:
    one = search(seed, {"contraction": {"k_blocking": (1,)}})
    times = sorted(distance(schedule) for schedule in every(one).values())
    assert len(times) > 10 * MAX_CANDIDATES
    asked = spend(one, distance)
    assert len(asked) == len(set(asked)) == MAX_CANDIDATES
    assert one.best_us is not None
    assert one.best_us <= times[len(times) // 100], "among the best hundredth, after far fewer than a tenth"


def test_the_first_guess_is_that_of_the_rules(search: Callable[..., WorkloadSearch]) -> None:
    assert search(seed=1).ask() == search(seed=2).ask()


def test_the_rules_are_asked_once_however_often_their_schedule_is(
    search: Callable[..., WorkloadSearch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finalists' estimate wants the rules' schedule of every workload after each candidate."""
    found = search()
    rule = found.rule
    monkeypatch.setattr("autofuse.search.schedules.schedule_search.first_schedules", None)
    found.rule["contraction.vectors"] = 99
    assert found.rule == rule


def test_a_limit_on_schedules_asks_the_rules_anew(search: Callable[..., WorkloadSearch]) -> None:
    found = search(space={})
    assert found.rule["contraction.algorithm"] == "winograd4"
    found.limit_schedules(ScheduleLimits(winograd_tile=0))
    assert found.rule["contraction.algorithm"] == "direct"


def test_a_candidate_under_way_is_not_asked_for_again(search: Callable[..., WorkloadSearch]) -> None:
    one = search()
    asked = [one.ask() for _ in range(one.limit)]
    assert len({schedule_text(schedule) for schedule in asked if schedule is not None}) == one.limit
    assert one.ask() is None


def test_what_the_database_knows_is_not_asked_for(search: Callable[..., WorkloadSearch]) -> None:
    known, fresh = search(), search(seed=3)
    tried = spend(known, distance, count=7)
    for text in tried:
        fresh.learn(dict(every(known)[text]), known.tried[text])
    assert fresh.best_us == known.best_us
    assert set(spend(fresh, distance)).isdisjoint(tried)
    assert len(fresh.tried) == fresh.limit


def test_failures_count_as_tried_and_never_as_best(search: Callable[..., WorkloadSearch]) -> None:
    one = search()
    spend(one, lambda schedule: None if schedule["contraction.vectors"] != 2 else distance(schedule))
    assert len(one.tried) == one.limit
    assert one.best is not None
    assert one.best["contraction.vectors"] == 2
    assert one.failure == "failed"


def test_a_workload_that_only_fails_is_given_up(search: Callable[..., WorkloadSearch]) -> None:
    one = search()
    asked = spend(one, lambda _schedule: None)
    assert len(asked) == 8 < one.limit
    assert (one.hopeless, one.complete, one.best) == (True, True, None)


def test_late_success_after_many_failures_is_no_reason_to_stop(search: Callable[..., WorkloadSearch]) -> None:
    one = search()
    count = [0]

    def cost(_schedule: Schedule) -> float | None:
        count[0] += 1
        return 5.0 if count[0] == 7 else None

    assert len(spend(one, cost)) == one.limit
    assert one.best_us == 5.0


def test_a_good_schedule_of_a_relative_is_tried_next(search: Callable[..., WorkloadSearch]) -> None:
    one = search()
    one.ask()
    wanted = {"contraction.vectors": 4, "contraction.pixels": 4, "elementwise.tasks": 8}
    one.suggest(wanted)
    asked = one.ask()
    assert asked is not None
    assert (asked["contraction.vectors"], asked["contraction.pixels"]) == (4, 4)
    one.suggest(wanted)
    again = one.ask()
    assert again is not None and schedule_text(again) != schedule_text(asked)


def test_behind_a_suggestion_comes_what_would_be_compiled_untuned(search: Callable[..., WorkloadSearch]) -> None:
    one = search()
    for pixels in (2, 4):
        one.suggest({"contraction.vectors": 4, "contraction.pixels": pixels, "elementwise.tasks": 8})
    first = one.ask()
    assert first is not None and first["contraction.pixels"] == 4 and not one.lacks_rules_own
    one.learn(first, 5.0)
    assert one.lacks_rules_own
    assert one.peek(2) == [one.guesses()[0], {**one.suggested[0]}]
    assert one.ask() == one.guesses()[0]
    assert not one.lacks_rules_own


def stakes(**times: float) -> dict[str, list[Stake]]:
    return {key: [Stake(us)] for key, us in times.items()}


def test_candidates_go_where_they_are_expected_to_save_most(search: Callable[..., WorkloadSearch]) -> None:
    heavy, light, done, idle = (_renamed(search(), number, stride=number + 1) for number in range(4))
    spend(done, distance)
    weights = stakes(**{heavy.key: 900.0, light.key: 200.0, done.key: 5000.0})
    chosen, saved_us = next_candidates([light, heavy, done, idle], weights, 8, 0.0)
    names = [{heavy.key: "heavy", light.key: "light"}[one.key] for one in chosen]
    assert names[0] == "heavy" and set(names) == {"heavy", "light"} and len(names) == 8
    assert names.count("heavy") < 8, "each further candidate of a workload promises less"
    assert 0.0 < saved_us < 0.3 * 1100.0
    few, _ = next_candidates([light, heavy, done, idle], weights, 8, 0.3)
    assert {one.key for one in few} == {heavy.key}, "what promises far less than the first waits for its answer"


def test_a_workload_of_a_side_far_behind_is_asked_by_what_it_would_be_worth_if_it_stood_level(
    search: Callable[..., WorkloadSearch],
) -> None:
    here, behind = (_renamed(search(), number, stride=number + 1) for number in range(2))
    level = {here.key: [Stake(100.0)], behind.key: [Stake(900.0, behind_us=0.0)]}
    assert next_candidates([here, behind], level, 1, 0.0)[0] == [behind]
    far = {here.key: [Stake(100.0)], behind.key: [Stake(900.0, behind_us=800.0, side_us=900.0)]}
    assert next_candidates([here, behind], far, 1, 0.0)[0] == [here]
    slow = {here.key: [Stake(100.0)], behind.key: [Stake(900.0, behind_us=600.0, side_us=900.0)]}
    assert next_candidates([here, behind], slow, 1, 0.0)[0] == [behind], "thrice as slow, and still worth a schedule"


def test_of_workloads_with_one_anchor_the_weightiest_is_searched_and_the_others_follow(
    search: Callable[..., WorkloadSearch],
) -> None:
    leader, follower = (_renamed(search(), number, stride=1) for number in range(2))
    weights = stakes(**{leader.key: 900.0, follower.key: 800.0})
    assert set(map(id, next_candidates([follower, leader], weights, 8, 0.0)[0])) == {id(leader)}
    spend(leader, distance, 6)
    follower.suggest({"contraction.vectors": 4, "contraction.pixels": 4})
    chosen, _ = next_candidates([leader, follower], weights, 8, 0.0)
    assert chosen[0] is follower, "a suggestion is worth as much as a second schedule, however many were tried"


def test_after_the_guesses_two_of_three_candidates_differ_from_the_best_in_one_choice(
    search: Callable[..., WorkloadSearch],
) -> None:
    one = search()
    spend(one, distance, len(one.pending))
    apart = []
    for _ in range(9):
        assert one.best is not None
        best = dict(one.best)
        schedule = one.ask()
        assert schedule is not None
        tile = ("contraction.vectors", "contraction.pixels")
        moved = {"tile" if name in tile else name for name, value in schedule.items() if best.get(name) != value}
        apart.append(len(moved))
        one.learn(schedule, distance(schedule))
    assert apart.count(1) >= 6


def _renamed(search: WorkloadSearch, number: int, stride: int) -> WorkloadSearch:
    """The same workload under another key; another `stride` makes it another anchor."""
    operators = tuple(
        replace(operator, attributes=(*operator.attributes, ("renamed", stride)))
        for operator in search.bound.workload.operators
    )
    workload = replace(search.bound.workload, operators=operators, opset=search.bound.workload.opset + number)
    object.__setattr__(search, "bound", replace(search.bound, workload=workload))
    return search


def test_a_narrow_space_has_the_guesses_that_it_can_have_after_the_first(search: Callable[..., WorkloadSearch]) -> None:
    """The rules' numbers may lie outside of a space: the nearest inside are tried early, and nothing else changes."""
    wide = search(space={"contraction": {"vectors": (1, 2, 4), "pixels": (4, 6, 7, 8)}})
    narrow = search(space={"contraction": {"vectors": (3,), "pixels": (5,)}})
    assert wide.pending == wide.guesses(), "nothing to bring in"
    asked = narrow.pending
    assert asked[:1] == narrow.guesses()[:1], "what would be compiled comes first"
    tried = {str(one["contraction.algorithm"]) for one in asked}
    assert {str(one["contraction.algorithm"]) for one in wide.guesses()} == tried
    assert all(one["contraction.vectors"] == 3 for one in asked if "contraction.vectors" in one)


def test_a_step_that_paid_elsewhere_is_taken_first_and_expected_to_pay(search: Callable[..., WorkloadSearch]) -> None:
    lessons = Lessons()
    first, second = search(), search()
    for one in (first, second):
        one.lessons, one.pending = lessons, one.pending[:1]
        start = one.ask()
        assert start is not None
        one.learn(start, 100.0)
    before = second.peek(3)
    assert second.expected_part(0.02) == pytest.approx(0.02), "nothing is known"
    last = second.peek(100)[-1]
    first.learn(last, 40.0)
    assert second.peek()[0] == last != before[0]
    assert second.expected_part(0.02) == pytest.approx((CERTAIN * 0.02 + 0.6) / (CERTAIN + 1))
