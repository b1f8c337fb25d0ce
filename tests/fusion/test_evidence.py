"""What times of groups say about an edge: which code it gets, and with which numbers."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest

from autofuse.fusion.evidence import Evidence, GroupTime, Piece, can_run, cheapest_cover, total
from autofuse.fusion.explain import EdgeReason, explain
from autofuse.fusion.legality import Legality
from autofuse.fusion.plan import FusionPlan, Group
from autofuse.fusion.planner.baselines import none_plan
from autofuse.graph.model import Graph
from autofuse.graph.transform.copies import Copy
from autofuse.values.reasons import REASON_CODES


def piece(names: str, us: float | None, spread: float = 0.1, failure: str = "", folds: tuple[str, ...] = ()) -> Piece:
    operators = tuple(names.split())
    span = None if us is None else GroupTime(us, us - spread, us + spread)
    return Piece(operators, frozenset(operators) | set(folds), folds, span, failure)


@pytest.fixture
def chain(builder: Any) -> Graph:
    """conv -> bn -> relu, and relu is read by exp and by sin."""
    b = builder("chain")
    x = b.op("Relu", "relu", (b.norm("bn", b.conv("conv", b.input("x", 1, 8, 8, 8), 8)),))
    return b.build(b.op("Exp", "exp", (x,)), b.op("Sin", "sin", (x,)))


def plan_of(*groups: str, folds: tuple[str, ...] = ()) -> FusionPlan:
    return FusionPlan(tuple(Group(tuple(group.split())) for group in groups), folds)


def row(graph: Graph, plan: FusionPlan, edge: str, *pieces: Piece) -> EdgeReason:
    rows = {f"{r.producer} {r.consumer}": r for r in explain(graph, plan, "chosen_rule", Evidence(graph, pieces))}
    return rows[edge]


SINGLES = (piece("conv", 10), piece("bn", 2), piece("relu", 1), piece("exp", 3), piece("sin", 3))


def test_a_fused_edge_carries_the_time_of_its_kernel_and_of_the_cheapest_kernels_that_cut_it(chain: Graph) -> None:
    plan = plan_of("conv bn relu", "exp", "sin")
    found = row(chain, plan, "bn relu", *SINGLES, piece("conv bn relu", 10.5), piece("conv bn", 10.2))
    assert (found.fused, found.code) == (True, "chosen_measured")
    assert found.fused_us is not None and found.apart_us is not None
    assert found.fused_us.us == pytest.approx(10.5)
    assert found.apart_us.us == pytest.approx(11.2), "conv+bn, then relu: cheaper than conv, bn, relu"
    assert found.gain_us == pytest.approx(0.7)


def test_the_interval_of_a_sum_is_that_of_independent_times() -> None:
    spans = [GroupTime(10, 9, 13), GroupTime(20, 16, 24)]
    assert total(spans) == GroupTime(30, pytest.approx(30 - 17**0.5), 35)


def test_a_folded_kernel_is_evidence_for_the_edge_it_folds(chain: Graph) -> None:
    plan = plan_of("conv relu", "exp", "sin", folds=("bn",))
    found = row(
        chain, plan, "bn relu", *SINGLES, piece("conv relu", 8, folds=("bn",)), piece("conv", 8.5, folds=("bn",))
    )
    assert (found.code, found.gain_us) == ("chosen_measured", pytest.approx(1.5))
    assert row(chain, plan, "conv bn", *SINGLES).code == "folded"


@pytest.mark.parametrize(
    ("us", "spread", "code"),
    [(3.2, 0.01, "chosen_measured"), (5.9, 0.01, "measured_slower"), (4.1, 1.0, "within_noise")],
)
def test_an_edge_that_is_apart_says_what_fusing_would_have_cost(
    chain: Graph, us: float, spread: float, code: str
) -> None:
    found = row(chain, none_plan(chain), "relu exp", *SINGLES, piece("relu exp", us, spread))
    assert (found.fused, found.code) == (False, code)
    assert found.gain_us == pytest.approx(4 - us)


def test_a_kernel_that_holds_an_operator_of_which_the_plan_has_but_copies_says_nothing_of_its_other_edges(
    builder: Any,
) -> None:
    """`abs` and `neg` stand in kernels of their own; another plan joined them with `exp`, which here is copied away."""
    b = builder("fan")
    x = b.op("Exp", "exp", (b.input("x", 4),))
    left, right = b.op("Neg", "neg", (b.op("Abs", "abs", (x,)),)), b.op("Sin", "sin", (x,))
    graph = b.build(left, right)
    plan = FusionPlan(
        (Group(("exp@abs", "abs")), Group(("neg",)), Group(("exp@sin", "sin"))),
        (), (Copy("exp", "abs"), Copy("exp", "sin")),
    )  # fmt: skip
    found = row(graph, plan, "abs neg", piece("exp abs neg", 3.0), piece("abs", 1.0), piece("neg", 1.0))
    assert (found.fused, found.fused_us) == (False, None)


def test_an_edge_below_siblings_in_one_kernel_is_apart_for_a_reason_that_rows_allow(builder: Any) -> None:
    """`sin` exchanges no tensor with `abs` nor `neg`: siblings may share a kernel, so that is no reason."""
    b = builder("siblings")
    x = b.input("x", 4)
    graph = b.build(b.op("Neg", "neg", (b.op("Abs", "abs", (x,)),)), b.op("Sin", "sin", (x,)))
    found = row(graph, plan_of("abs sin", "neg"), "abs neg", piece("abs sin", 2.0), piece("neg", 1.0))
    assert not found.fused and found.code in REASON_CODES, found.code


@pytest.mark.parametrize(
    ("failure", "code"),
    [("wrong", "wrong_result"), ("build_error", "build_failed"), ("timeout", "timeout"), ("run_error", "build_failed")],
)
def test_a_fused_kernel_that_failed_is_the_reason(chain: Graph, failure: str, code: str) -> None:
    found = row(chain, none_plan(chain), "conv bn", *SINGLES, piece("conv bn", None, failure=failure))
    assert (found.code, found.fused_us, found.gain_us) == (code, None, None)


def test_what_was_never_tried_is_named_by_what_stands_in_the_way(chain: Graph, builder: Any) -> None:
    rows = {
        f"{r.producer} {r.consumer}": r.code
        for r in explain(chain, none_plan(chain), "chosen_measured", Evidence(chain, SINGLES))
    }
    assert rows["conv bn"] == "not_tried_budget"
    assert rows["relu exp"] == rows["relu sin"] == "multi_consumer"
    assert {r.code for r in explain(chain, none_plan(chain), "chosen_rule")} == {"chosen_rule"}
    b = builder("exit")
    x = b.op("Relu", "relu", (b.input("x", 4),))
    graph = b.build(x, b.op("Exp", "exp", (x,)))
    assert row(graph, none_plan(graph), "relu exp", piece("relu", 1), piece("exp", 1)).code == "output_of_graph"


def test_the_cheapest_cover_is_that_of_trying_everything(builder: Any) -> None:
    """Random times for random legal groups of a diamond with a tail, against every partition of it."""
    b = builder("diamond")
    x = b.op("Relu", "a", (b.input("x", 8),))
    y, z = b.op("Exp", "b", (x,)), b.op("Sin", "c", (x,))
    graph = b.build(b.op("Relu", "e", (b.op("Add", "d", (y, z)),)))
    names = [operator.name for operator in graph.operators]
    legality = Legality(graph)
    legal = [group for size in range(1, 6) for group in combinations(names, size) if not legality.refusal(group)]
    chance = random.Random(3)
    for _ in range(40):
        pieces = [
            piece(" ".join(group), chance.uniform(1, 2) * len(group) ** 0.7)
            for group in legal
            if len(group) == 1 or chance.random() < 0.5
        ]
        best = min(_partitions(graph, frozenset(names), pieces))
        found = cheapest_cover(graph, frozenset(names), pieces)
        assert found is not None and found.us == pytest.approx(best)


def _partitions(graph: Graph, left: frozenset[str], pieces: list[Piece], taken: tuple[Piece, ...] = ()) -> list[float]:
    if not left:
        return [sum(p.span.us for p in taken if p.span)] if can_run(graph, [p.covers for p in taken]) else []
    first = min(left)
    found = []
    for one in pieces:
        if first in one.covers and one.covers <= left:
            found += _partitions(graph, left - one.covers, pieces, (*taken, one))
    return found


def test_groups_that_wait_for_one_another_are_no_cover(builder: Any) -> None:
    b = builder("crossing")
    x = b.input("x", 4)
    first, second = b.op("Relu", "a1", (x,)), b.op("Relu", "b1", (x,))
    a2, b2 = b.op("Exp", "a2", (second,)), b.op("Exp", "b2", (first,))
    graph = b.build(b.op("Add", "a3", (first, a2)), b.op("Add", "b3", (second, b2)))
    waiting = [piece("a1 a2 a3", 1), piece("b1 b2 b3", 1)]
    everything = frozenset(graph.by_name)
    assert cheapest_cover(graph, everything, waiting) is None
    apart = cheapest_cover(graph, everything, [*waiting, *(piece(name, 5) for name in sorted(everything))])
    assert apart is not None and apart.us == pytest.approx(1 + 15)
