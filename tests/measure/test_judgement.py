"""A network is held to ONNX Runtime as closely as ONNX Runtime is to itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autofuse.graph.model import Graph
from autofuse.measure.checking.tolerance import LIMITS
from autofuse.measure.networks import judgement
from autofuse.measure.networks.bench import ContenderResult
from autofuse.measure.networks.judgement import (
    CHAOTIC,
    QUANTISED_CHAOTIC,
    WHOLE_LIMIT,
    difference,
    judged,
    nudged,
    whole_limit,
)

GRAPH: Any = SimpleNamespace(outputs=("y",), widened=False, float16=frozenset(), operators=())
QUANTISED: Any = SimpleNamespace(**{**vars(GRAPH), "operators": (SimpleNamespace(op_type="QuantizeLinear"),)})
RIGHT = np.array([0.0, 0.5, 1.0], np.float32)


def of_each(run: Callable[..., dict[str, Any]]) -> Callable[..., Iterator[dict[str, Any]]]:
    """Answers to several inputs."""
    return lambda graph, cases, optimise=False: (run(graph, inputs, optimise) for inputs in cases)


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How far ONNX Runtime's two answers lie apart; tests set it."""
    distance = [0.0]

    def run(graph: Any, inputs: Any, optimise: bool = False) -> dict[str, Any]:
        return {"y": RIGHT + np.float32(distance[0] if optimise else 0.0)}

    monkeypatch.setattr(judgement, "run_references", of_each(run))
    return distance


def result(error: float | None, wrong: str = "off") -> ContenderResult:
    return ContenderResult(1.0, 1.0, 1.0, 1.0, True, max_rel_error=error, wrong=wrong)


def test_the_limit_is_fixed_where_the_reference_agrees_with_itself(apart: list[float]) -> None:
    assert whole_limit(GRAPH, {}) == WHOLE_LIMIT


def test_the_limit_of_a_model_in_float16_is_that_of_results_in_it(apart: list[float]) -> None:
    assert whole_limit(SimpleNamespace(**{**vars(GRAPH), "float16": {"y/wide"}}), {}) == LIMITS["float16"]


def test_the_limit_grows_with_the_distance_of_the_two_references_up_to_a_bound(apart: list[float]) -> None:
    apart[0] = 1e-3
    assert whole_limit(GRAPH, {}) == pytest.approx(5e-3, rel=1e-3)
    for apart[0] in (1.0, float("nan")):
        assert whole_limit(GRAPH, {}) in (WHOLE_LIMIT, CHAOTIC)


def test_the_limit_grows_with_what_the_last_bit_of_the_inputs_does(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = {"x": np.array([1.0, 2.0, -3.0], np.float32), "ids": np.array([1, 2])}

    def magnifying(_graph: Any, given: Any, optimise: bool = False) -> dict[str, Any]:
        moved = np.abs(given["x"] - inputs["x"]).max()
        assert moved <= np.spacing(np.float32(3)) and (given["ids"] == inputs["ids"]).all()
        return {"y": RIGHT + np.float32(1e-3 if moved else 0.0) * RIGHT}

    monkeypatch.setattr(judgement, "run_references", of_each(magnifying))
    assert whole_limit(GRAPH, inputs) == pytest.approx(5e-3, rel=1e-3)


def test_a_quantised_network_may_be_off_by_levels_as_far_as_the_reference_is_from_itself(
    apart: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judgement, "with_nudged_constants", lambda graph: graph)
    assert whole_limit(QUANTISED, {}) == WHOLE_LIMIT
    for apart[0], limit in ((1e-3, 5e-3), (0.08, 0.16), (0.5, QUANTISED_CHAOTIC)):
        assert whole_limit(QUANTISED, {}) == pytest.approx(limit, rel=1e-3)
    apart[0] = 0.08
    found = judged({"near": result(0.12), "far": result(0.17)}, QUANTISED, {})
    assert [one.wrong for one in found.values()] == ["", "off"]
    assert judged({"near": result(0.12)}, GRAPH, {})["near"].wrong == "off"


def test_small_constants_are_moved_where_a_quantised_network_reads_no_floats() -> None:
    scales, table = np.ones(3, np.float32), np.ones(judgement.SMALL + 1, np.float32)
    graph: Any = Graph("g", (), (), (), {}, {"scales": scales, "table": table}, 17)
    moved = judgement.with_nudged_constants(graph).constants
    assert (moved["scales"] != scales).all() and (moved["table"] == table).all()


def test_every_float_moves_to_a_neighbour() -> None:
    given = {"x": np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32), "ids": np.arange(3)}
    moved = nudged(given, 1)
    assert (moved["ids"] == given["ids"]).all() and (moved["x"] != given["x"]).all()
    assert (np.abs(moved["x"] - given["x"]) <= np.spacing(np.abs(given["x"]))).all()
    assert not (nudged(given, 2)["x"] == moved["x"]).all()


def test_a_contender_within_that_limit_is_right_and_keeps_its_error(apart: list[float]) -> None:
    apart[0] = 1e-3
    found = judged({"near": result(2e-3), "far": result(6e-3), "shape": result(None)}, GRAPH, {})
    assert [found[name].wrong for name in found] == ["", "off", "off"]
    assert found["near"].max_rel_error == 2e-3


def test_the_largest_numbers_of_a_mask_stay_finite_and_infinite_ones_infinite() -> None:
    ends = np.array([np.finfo("float32").min, np.finfo("float32").max, -np.inf, np.inf, 1], "float32")
    moved = [nudged({"x": ends}, seed)["x"] for seed in range(8)]
    assert all((np.isinf(one) == np.isinf(ends)).all() and one[4] != 1 for one in moved)


def test_the_reference_does_not_run_again_for_results_that_nothing_excuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **_more: Any) -> None:
        raise AssertionError("not needed")

    monkeypatch.setattr(judgement, "run_references", never)
    results = {"right": result(1e-6, ""), "hopeless": result(0.5), "infinite": result(float("inf"))}
    assert judged(results, GRAPH, {}) == results


def test_outputs_are_compared_alike(apart: list[float]) -> None:
    assert difference(GRAPH, {}, [RIGHT + np.float32(5e-4)]) == "off by 5.0e-04 of the range"
    apart[0] = 1e-3
    assert difference(GRAPH, {}, [RIGHT + np.float32(5e-4)]) == ""
    assert difference(GRAPH, {}, [RIGHT + np.float32(8e-3)]) == "off by 8.0e-03 of the range"
