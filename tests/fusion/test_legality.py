"""Refusals and their texts, plan checks, and the order of groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autofuse.errors import PlanError
from autofuse.fusion.legality import Legality, check_plan, ordered_groups, refusal
from autofuse.fusion.plan import FusionPlan, Group
from autofuse.fusion.planner.baselines import none_plan
from autofuse.graph.model import Graph, Tensor


@pytest.fixture
def graph(builder: Any) -> Graph:
    """conv1 feeds norm and add, norm feeds add: the group conv1+add+relu would be entered again through norm."""
    b = builder("refusals")
    x = b.input("x", 1, 8, 4, 4)
    y = b.conv("conv1", x, 8)
    added = b.op("Add", "add", (y, b.norm("norm", y)))
    top = b.many("TopK", "top", (added, b.constant(1, dtype="int64", value=2)), ((1, 8, 4, 2), (1, 8, 4, 2)))
    text = b.op("Cast", "text", (added,), dtype="str", to=8)
    loop = b.op("If", "branch", (b.input("condition", dtype="bool"),), (1, 8, 4, 4))
    side = b.op("Tanh", "side", (x,))
    last = b.op("Mul", "mul", (top[0], top[0]))
    return b.build(b.op("Relu", "relu", (added,)), last, text, b.op("Exp", "exp", (loop,)), side)


REFUSED = [
    ("conv1 add relu", "illegal_cycle"),
    ("top mul", "unsupported_operator"),
    ("add text", "unsupported_operator"),
    ("branch exp", "unsupported_operator"),
    ("conv1 side", "not_connected"),
    ("conv1 nothing", "unknown_operator"),
    ("conv1 norm add relu", "group_too_large"),
]


def test_each_refusal_has_its_code_and_names_the_operators(graph: Graph, golden: Callable[[str, str], None]) -> None:
    rows = []
    for names, code in REFUSED:
        refused = refusal(graph, names.split(), max_group_operators=3)
        assert refused is not None and refused.code == code, names
        rows.append(f"{refused.code}: {refused.message}")
    unknown = replace(graph, tensors={**graph.tensors, "norm.0": Tensor("norm.0", (1, -1, 4, 4), "float32")})
    refused = refusal(unknown, ["conv1", "norm"])
    assert refused is not None and refused.code == "dynamic_shape"
    golden("refusals.txt", "\n".join([*rows, f"{refused.code}: {refused.message}"]) + "\n")


def test_the_cycle_is_explained_in_the_words_of_the_documentation(graph: Graph) -> None:
    refused = refusal(graph, ["relu", "add", "conv1"])
    assert refused is not None
    assert refused.message == "cannot fuse conv1+add+relu: norm is outside the group, depends on it and feeds add"


@pytest.mark.parametrize("names", ["conv1 norm add relu", "norm add", "add relu", "top", "branch", "conv1 norm"])
def test_a_convex_connected_group_or_a_single_operator_is_legal(graph: Graph, names: str) -> None:
    assert refusal(graph, names.split()) is None


def test_siblings_may_share_a_kernel_when_connection_is_not_asked_for(graph: Graph) -> None:
    legality = Legality(graph)
    assert legality.refusal(["conv1", "side"]) is not None
    assert legality.refusal(["conv1", "side"], connected=False) is None


def plan_of(*groups: str, folds: tuple[str, ...] = ()) -> FusionPlan:
    return FusionPlan(tuple(Group(tuple(group.split())) for group in groups), folds)


REST = ("top", "mul", "text", "branch", "exp", "side")


def test_a_whole_legal_plan_passes(graph: Graph) -> None:
    check_plan(graph, none_plan(graph))
    check_plan(graph, plan_of("conv1 norm add relu", *REST))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (plan_of("conv1 norm add", *REST), "leaves out relu"),
        (plan_of("conv1 norm add relu", "relu", *REST), "covers 'relu' twice"),
        (plan_of("conv1 norm add relu", "", *REST), "empty group"),
        (plan_of("conv1 norm add relu", "ghost", *REST), "groups an unknown operator, 'ghost'"),
        (plan_of("conv1 add relu", "norm", *REST), "norm is outside the group"),
        (plan_of("conv1 norm add relu", *REST, folds=("norm",)), "conv1.0 is also read by add"),
        (plan_of("conv1 norm add relu", *REST, folds=("relu",)), "folds 'relu': it is Relu"),
        (plan_of("conv1 norm add relu", *REST, folds=("ghost",)), "folds 'ghost': the graph has no such operator"),
    ],
)
def test_a_broken_plan_is_refused_with_the_reason(graph: Graph, plan: FusionPlan, message: str) -> None:
    with pytest.raises(PlanError, match=message.replace("'", "['\"]")):
        check_plan(graph, plan)


def test_a_folded_operator_may_stand_in_no_group(zoo: Any) -> None:
    with pytest.raises(PlanError, match="folds and groups 'bn'"):
        check_plan(zoo["conv_bn_relu"](), plan_of("conv relu", "bn", folds=("bn",)))


@pytest.fixture
def crossing(builder: Any) -> Graph:
    """a1 -> b2 and b1 -> a2; a1, a2 feed a3 and b1, b2 feed b3: {a*} and {b*} are convex, yet wait for each other."""
    b = builder("crossing")
    x = b.input("x", 4)
    first, second = b.op("Relu", "a1", (x,)), b.op("Relu", "b1", (x,))
    a2, b2 = b.op("Exp", "a2", (second,)), b.op("Exp", "b2", (first,))
    return b.build(b.op("Add", "a3", (first, a2)), b.op("Add", "b3", (second, b2)))


def test_two_convex_groups_that_wait_for_one_another_are_refused(crossing: Graph) -> None:
    a, b = ["a1", "a2", "a3"], ["b1", "b2", "b3"]
    legality = Legality(crossing)
    assert legality.refusal(a) is None
    assert legality.refusal(b) is None
    with pytest.raises(PlanError, match="groups wait for one another"):
        ordered_groups(crossing, [a, b])


def test_a_settled_group_stops_a_later_one_from_closing_a_cycle_through_it(crossing: Graph) -> None:
    legality = Legality(crossing)
    mask = legality.reach.mask(["b1"])
    assert legality.may_join(mask | legality.reach.mask(["b2"]), crossing.position["b3"])
    legality.settle(legality.reach.mask(["a1", "a2", "a3"]))
    assert not legality.may_join(mask | legality.reach.mask(["b2"]), crossing.position["b3"])


def test_groups_come_out_in_an_order_in_which_they_can_run(graph: Graph) -> None:
    ordered = ordered_groups(graph, [["relu", "add"], ["norm"], ["conv1"], *([name] for name in REST)])
    seen: set[str] = set()
    for group in ordered:
        for name in group.operators:
            assert {producer.name for producer in graph.predecessors(graph.by_name[name])} <= seen | set(
                group.operators
            )
        seen |= set(group.operators)
    assert seen == set(graph.by_name)
