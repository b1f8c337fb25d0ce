"""Searches with a trained model beside them: fewer candidates, the same answer, a record of where it was wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autofuse.database.database import open_database
from autofuse.fusion.plan import FusionPlan
from autofuse.kernels.lowering.lower import Lowering
from autofuse.kernels.workload.workload import Workload
from autofuse.learning.advice import Change
from autofuse.search.plans.guide import Guide
from autofuse.search.progress import TuneResult

Tune = Callable[..., TuneResult]


class Oracle:
    """What a model would be that knows every time (`sign` -1: the opposite of what it knows)."""

    def __init__(self, device: Any, lowering: Lowering, sign: int = 1) -> None:
        self.device, self.lowering, self.sign = device, lowering, sign
        self.adviser = SimpleNamespace(refusal="")

    def us(self, plan: FusionPlan) -> float:
        return sum(self.device.cost(bound.workload, {}) + 0.3 for bound in self.lowering.lower(plan).kernels)

    def unsure_share(self, _plan: FusionPlan) -> float:
        return 0.0

    def change(self, old: FusionPlan, new: FusionPlan) -> Change:
        return Change(self.sign * (self.us(old) - self.us(new)), 0.0)


@pytest.fixture
def clashing(device: Any) -> Any:
    """A device on which a product with a softmax in one kernel takes next to nothing; the default keeps them apart."""

    def cost(workload: Workload, _schedule: object) -> float:
        kinds = {operator.op_type for operator in workload.operators}
        return 5.0 if {"MatMul", "Softmax"} <= kinds else 10.0 + 3.0 * len(workload.operators)

    device.cost = cost
    return device


@pytest.fixture
def guided(clashing: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """`guided(sign)`: from now on an oracle sits beside every search."""

    def install(sign: int) -> None:
        def guide_for(_asked: object, _around: object, lowering: Lowering, seed: int) -> Guide:
            return Guide(Oracle(clashing, lowering, sign), "oracle", seed)  # type: ignore[arg-type]

        monkeypatch.setattr("autofuse.search.tune.guide_for", guide_for)

    return install


def told(database: Path) -> dict[str, Any]:
    """What the newest run says of its model."""
    with open_database(database, read_only=True) as base:
        info = base.run()
    assert info is not None and info.summary is not None
    found: Any = info.summary["model"]
    return dict(found)


def best_us(result: TuneResult) -> float:
    return min(plan.composed_us for plan in result.plans.values() if plan.composed_us is not None)


@pytest.mark.long
def test_a_good_model_finds_the_same_answer_sooner(
    run: Tune, clashing: Any, guided: Callable[[int], None], two_layers: Path, tmp_path: Path
) -> None:
    alone = run(two_layers, database=str(tmp_path / "alone.db"))
    guided(1)
    quick = run(two_layers, database=str(tmp_path / "guided.db"), trials=alone.measured // 3)
    assert quick.measured <= alone.measured // 3 + 8, "the batch under way is finished"
    assert best_us(quick) <= best_us(alone) * 1.02
    note = told(tmp_path / "guided.db")
    assert note["file"] == "oracle" and note["first_plan"].endswith("changes")


def test_a_full_search_with_a_model_records_what_it_expected(
    run: Tune, guided: Callable[[int], None], two_layers: Path, tmp_path: Path
) -> None:
    guided(1)
    run(two_layers)
    note = told(tmp_path / "profile.db")
    assert note["right"] == 1.0 and note["error"] == pytest.approx(0.0, abs=1e-6)
    assert note["explored_paid"] == 0 and note["changes"]
    assert {change["likely"] for change in note["changes"]} <= {"pays", "open", "loses"}


@pytest.mark.long
def test_a_wrong_model_is_found_out_and_spoils_nothing_for_good(
    run: Tune, clashing: Any, guided: Callable[[int], None], two_layers: Path, tmp_path: Path
) -> None:
    """What loses is tried all the same now and then; the finalists are measured whole, whoever proposed them."""
    alone = run(two_layers, database=str(tmp_path / "alone.db"))
    guided(-1)
    misled = run(two_layers, database=str(tmp_path / "misled.db"))
    note = told(tmp_path / "misled.db")
    assert note["explored"] > 0 and note["explored_paid"] > 0
    assert note["right"] is not None and note["right"] < 0.5
    assert best_us(misled) <= best_us(alone) * 1.05


def test_one_in_ten_bad_changes_is_tried(clashing: Any) -> None:
    class Planner:
        decisions = ()

        def plan(self, answers: dict[str, str]) -> Any:
            return SimpleNamespace(key=repr(answers))

    class Losing:
        def change(self, _old: object, _new: object) -> Change:
            return Change(-5.0, 0.0)

    queue: list[dict[str, str]] = [{}, *({"a": str(number)} for number in range(50))]
    for seed in range(12):
        guide = Guide(Losing(), "x", seed)  # type: ignore[arg-type]
        kept = guide.arrange(queue, Planner())  # type: ignore[arg-type]
        assert kept[0] == {} and len(kept) == 6
        assert (guide.skipped, guide.explored) == (45, 5)


def test_promising_changes_come_first_and_unknown_ones_before_bad_ones(clashing: Any) -> None:
    class Planner:
        def plan(self, answers: dict[str, str]) -> Any:
            return SimpleNamespace(key=repr(answers))

    kinds = {"bad": Change(-9, 0), "unknown": Change(50, 1, "strange"), "good": Change(5, 0), "better": Change(7, 1),
             "even": Change(0.1, 5)}  # fmt: skip

    class Knowing:
        def change(self, _old: object, new: Any) -> Change:
            return next(change for name, change in kinds.items() if repr({"a": name}) == new.key)

    queue: list[dict[str, str]] = [{}, *({"a": name} for name in kinds)]
    kept = Guide(Knowing(), "x", 0).arrange(queue, Planner())  # type: ignore[arg-type]
    assert [answers.get("a") for answers in kept] == [None, "better", "good", "unknown", "even", "bad"]
