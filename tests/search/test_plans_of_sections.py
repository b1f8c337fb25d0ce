"""Plans for parts of a range: found by the times of tiles in each, raced whole at a size of each, kept, taken again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import pytest

from autofuse import api
from autofuse.compiler.open_sizes.plans import RangedPlan
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.measure.networks.bench import ContenderResult
from autofuse.opened.row_tiles import RowModel
from autofuse.opened.search.sections import joined, sections
from tests.compiler.open_sizes.models import PERCEPTRON, PERCEPTRON_WEIGHTS, write
from tests.search.conftest import SyntheticDevice, put_in_place

SIZES = {"batch": (1, 40)}
TRIALS = 150


class SizedDevice(SyntheticDevice):
    """A device whose "libraries" have a time for each size. `at`: changes it, by the contender's name and the size."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0
        self.at: Callable[[str, int, float], float] = lambda _name, _rows, us: us
        self.whole = lambda name, table: self.at(name, self.rows, table[str(self.rows)])  # type: ignore[index]

    def race(
        self, contenders: Sequence[Any], inputs: Mapping[str, Any] | None = None, *more: object, **named: object
    ) -> dict[str, ContenderResult]:
        assert inputs is not None
        self.rows = next(iter(inputs.values())).shape[0]
        return super().race(contenders, inputs, *more, **named)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> SizedDevice:
    made = put_in_place(SizedDevice(), monkeypatch)
    monkeypatch.setattr("autofuse.opened.search.opening.open_runner", made)
    made.noise = 0.001
    made.cost = by_rows
    return made


def by_rows(workload: Any, _schedule: Any) -> float:
    """Of few rows a kernel costs the same, whatever it holds, so that fusion pays; of many rows what is fused costs
    more than it does apart."""
    rows = max(workload.values[index].shape[0] for index in workload.of_kind("output"))
    return 1000.0 * len(workload.operators) ** 2 if rows >= 16 else 10.0


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "rows.onnx", PERCEPTRON, PERCEPTRON_WEIGHTS)


@pytest.fixture
def tune(device: SizedDevice, space: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`tune(**changes)`: tunes the model on the synthetic device; a library is a file with the time at each size."""

    def written(self: RowModel, chosen: Sequence[RangedPlan], output: Path) -> None:
        table: dict[str, float] = {}
        for place, point in enumerate(self.happening):
            product = prod(point)
            one = next(one for one in chosen if one.most is None or product <= one.most)
            tiled = self.tiled(one.found)
            us = [tile.counts[place] * float(device.cost(tile.bound.workload, {})) for tile in tiled.tiles]  # type: ignore[arg-type]
            table[str(product)] = sum(us) + LAUNCH_US * tiled.kernels
        output.write_text(json.dumps(table))

    monkeypatch.setattr(RowModel, "write", written)

    def call(**changes: Any) -> Any:
        arguments = {"sizes": SIZES, "trials": TRIALS, "threads": 1, "space": str(space), **changes}
        return api.tune(model, database=str(model.with_suffix(".db")), **arguments)

    return call


def compiled(model: Path, **more: Any) -> Any:
    return api.compile(
        model, database=str(model.with_suffix(".db")), threads=1, dry_run=True, **{"sizes": SIZES, **more}
    )


def test_a_plan_that_wins_in_one_part_only_is_taken_there(tune: Any, device: SizedDevice, model: Path) -> None:
    found = tune()
    assert found.chosen == "search"
    assert len(found.ranges) == 2
    small, large = found.ranges
    assert small.part.startswith("batch up to ") and large.part.startswith("batch above ")
    assert small.plan_key != large.plan_key == found.plan_key
    assert small.kernels < large.kernels
    assert all(one.lo > 1 for one in small.raced)
    assert [one.ratio > 1.5 for one in found.raced] == [True, True, False], "the last part keeps its plan"
    assert found.raced[-1].ratio == 1.0
    assert found.decision.ratio == pytest.approx(1 / sum(one.share / one.ratio for one in found.raced))
    taken = compiled(model)
    assert [one.plan_key for one in taken.plans] == [small.plan_key, large.plan_key]
    assert {one.tier for one in taken.plans} == {"hit"}
    assert [one.part for one in taken.plans] == [small.part, large.part]
    strict = compiled(model, strict=True)
    assert [one.plan_key for one in strict.plans] == [small.plan_key, large.plan_key]


@pytest.mark.long
def test_another_range_takes_the_plans_of_its_sizes(tune: Any, model: Path) -> None:
    small, large = tune().ranges
    most = int(small.part.split()[-1])
    few, many = compiled(model, sizes={"batch": (1, most)}), compiled(model, sizes={"batch": (most + 1, 60)})
    assert [one.plan_key for one in few.plans] == [small.plan_key]
    assert [one.plan_key for one in many.plans] == [large.plan_key]
    assert few.plan_tier == many.plan_tier == "nearest shape"


@pytest.mark.long
def test_a_second_search_begins_with_the_plans_of_the_first(tune: Any, model: Path) -> None:
    first = tune()
    again = tune(trials=1)
    assert (again.chosen, again.decision) == ("previous", None)
    assert [one.plan_key for one in again.ranges] == [one.plan_key for one in first.ranges]
    assert len(compiled(model).plans) == 2


@pytest.mark.parametrize("factor", [1.0, 1.5])
@pytest.mark.long
def test_a_plan_that_the_race_does_not_find_faster_in_its_part_is_not_taken(
    tune: Any, device: SizedDevice, model: Path, factor: float
) -> None:
    """A tie leaves one plan, and so does a part that loses as a whole."""
    times: dict[int, float] = {}

    def at(name: str, rows: int, us: float) -> float:
        if name == "parts":
            return factor * times[rows]
        times[rows] = us
        return us

    device.at = at
    found = tune()
    assert "parts" in device.raced
    assert not found.ranges
    assert len(compiled(model).plans) == 1


def test_parts_that_are_wrong_are_not_taken(tune: Any, device: SizedDevice, model: Path) -> None:
    device.at = lambda name, rows, us: "off by 0.1" if name == "parts" else us  # type: ignore[return-value]
    found = tune()
    assert not found.ranges
    assert "parts" in device.raced


def test_what_pays_everywhere_stays_one_plan(tune: Any, device: SizedDevice, model: Path) -> None:
    device.cost = lambda _workload, _schedule: 10.0
    found = tune()
    assert (found.chosen, found.ranges) == ("search", ())
    assert device.raced == ["stays", "best"] * 3


def test_plans_that_a_database_lacks_leave_the_one_of_the_largest_sizes(
    tune: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, large = tune().ranges
    monkeypatch.setattr("autofuse.database.database.ProfilingDatabase.plan", lambda _self, _key: None)
    assert [one.plan_key for one in compiled(model).plans] == [large.plan_key]


def test_sections_hold_sizes_of_like_products() -> None:
    """Sizes of one product are in one section, as one threshold decides between plans."""
    one = sections({(size,): 1 / 9 for size in (1, 2, 4, 8, 16, 32, 64, 128, 256)})
    assert [part.middle for part in one] == [(2,), (16,), (128,)]
    assert [part.most for part in one] == [5, 45, None]
    both = sections({(batch, tokens): 1 / 9 for batch in (1, 2, 4) for tokens in (1, 2, 4)})
    assert [part.most for part in both] == [2, 5, None]
    assert sorted(place for part in both for place in part.places) == list(range(9))
    assert [part.most for part in sections({(7,): 1.0})] == [None]


def test_equal_plans_side_by_side_are_one() -> None:
    parts = sections({(size,): 1 / 3 for size in (1, 16, 256)})
    a, b = object(), object()
    assert joined(parts, [a, a, b]) == [(64, a), (None, b)]
    assert joined(parts, [a, b, a]) == [(4, a), (64, b), (None, a)]
    assert joined(parts, [a, a, a]) == [(None, a)]
