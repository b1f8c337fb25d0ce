"""What a plan may do besides grouping neighbours: copy, eliminate, join siblings, fold forward, refuse."""

from __future__ import annotations

from typing import Any

import pytest

from autofuse.errors import PlanError
from autofuse.fusion.explain import describe, explain
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import FusionPlan, Group
from autofuse.fusion.planner.horizontal import sibling_sites
from autofuse.fusion.planner.planner import Planner
from autofuse.fusion.planner.regions import regions
from autofuse.fusion.skeleton import folded_into, realise
from autofuse.fusion.space import FusionSpace
from autofuse.graph.model import Graph
from autofuse.graph.transform.copies import Copy
from autofuse.graph.transform.fold import fold_sites, folds_forward


def answers(planner: Planner, kind: str, **others: str) -> dict[str, str]:
    """The last choice of every decision of one kind."""
    found = {decision.name: decision.choices[-1] for decision in planner.decisions if decision.kind == kind}
    assert found, f"no decision of kind {kind}"
    return found | others


def groups(plan: FusionPlan) -> list[set[str]]:
    return [set(group.operators) for group in plan.groups]


@pytest.fixture
def fan(builder: Any) -> Graph:
    """A cheap operator on an input, read by three reductions."""
    b = builder("fan")
    x = b.op("Neg", "neg", (b.input("x", 64, 32),))
    axes = b.constant(1, dtype="int64", value=-1)
    outs = [b.op(f"Reduce{kind}", kind, (x, axes), (64, 1), keepdims=1) for kind in ("Max", "Sum", "Min")]
    return b.build(*outs)


def test_a_cheap_operator_is_computed_again_in_each_reader(fan: Graph) -> None:
    planner = Planner(fan)
    plan = planner.plan(answers(planner, "copy"))
    assert plan.copies == (Copy("neg", "Max"), Copy("neg", "Sum"), Copy("neg", "Min"))
    assert sorted(map(sorted, groups(plan))) == [["Max", "neg@Max"], ["Min", "neg@Min"], ["Sum", "neg@Sum"]]
    check_plan(fan, plan)
    assert FusionPlan.from_json(plan.to_json()) == plan
    assert {row.consumer: row.fused for row in explain(fan, plan)} == {"Max": True, "Sum": True, "Min": True}
    assert "3 kernels" in describe(fan, plan)


def test_what_moves_data_is_eliminated(zoo: Any) -> None:
    graph = zoo["split_heads"]()
    planner = Planner(graph)
    plan = planner.plan(answers(planner, "eliminate"))
    check_plan(graph, plan)
    assert {copy.operator for copy in plan.copies} == {"split"}
    assert "split" not in realise(graph, plan).by_name
    for part in "qkv":
        assert any({f"split@{part}_split", f"{part}_split"} <= group for group in groups(plan))


def test_a_copy_stands_with_its_reader_or_not_at_all(fan: Graph) -> None:
    plan = FusionPlan(
        (Group(("neg@Max",)), Group(("Max",)), Group(("neg", "Sum")), Group(("Min",))), (), (Copy("neg", "Max"),)
    )
    with pytest.raises(PlanError, match="copies 'neg' for 'Max', which stands in another group"):
        check_plan(fan, plan)
    with pytest.raises(PlanError, match="which does not read it"):
        check_plan(fan, FusionPlan(plan.groups, (), (Copy("Max", "Sum"),)))
    limited = Planner(fan, FusionSpace(max_group_operators=1))
    assert limited.plan(answers(limited, "copy")).copies == ()


def test_copies_of_copies_come_out_whole(builder: Any) -> None:
    """neg -> transpose -> two products: both operators are copied to both."""
    b = builder("chain")
    x = b.transpose("turn", b.op("Neg", "neg", (b.input("x", 16, 8),)), 1, 0)
    axes = b.constant(1, dtype="int64", value=-1)
    outs = [b.op(f"Reduce{kind}", kind, (x, axes), (8, 1), keepdims=1) for kind in ("Max", "Sum")]
    more = b.op("Relu", "relu", ("neg.0",))
    graph = b.build(*outs, more)
    planner = Planner(graph)
    plan = planner.plan(answers(planner, "eliminate") | answers(planner, "copy"))
    check_plan(graph, plan)
    assert ["Max", "neg@turn@Max", "turn@Max"] in [sorted(group) for group in groups(plan)]
    assert FusionPlan.from_json(plan.to_json()).key == plan.key


def test_siblings_share_a_kernel_when_asked(zoo: Any) -> None:
    graph = zoo["transformer"]()
    planner = Planner(graph)
    apart, together = planner.plan({}), planner.plan(answers(planner, "horizontal"))
    check_plan(graph, together)
    for layer in range(2):
        site = {f"{part}{layer}_matmul" for part in "qkv"}
        assert not any(site <= group for group in groups(apart))
        assert any(site <= group for group in groups(together))
    assert len(together.groups) < len(apart.groups)


def test_small_equal_operators_share_a_launch_when_asked(builder: Any) -> None:
    b = builder("small")
    outs = [b.op("Softmax", f"s{i}", (b.input(f"x{i}", 4, 8),), axis=-1) for i in range(3)]
    graph = b.build(*outs, b.op("Softmax", "large", (b.input("y", 400, 800),), axis=-1))
    planner = Planner(graph)
    plan = planner.plan(answers(planner, "batch"))
    check_plan(graph, plan)
    assert sorted(map(sorted, groups(plan))) == [["large"], ["s0", "s1", "s2"]]


def test_siblings_that_need_one_another_are_no_site(builder: Any) -> None:
    b = builder("dependent")
    x = b.input("x", 8, 8)
    first = b.op("MatMul", "first", (x, b.constant(8, 8)), (8, 8))
    graph = b.build(b.op("MatMul", "second", (x, first), (8, 8)))
    assert sibling_sites(Planner(graph)._edges) == []


def test_a_norm_without_a_convolution_before_it_folds_forward(builder: Any) -> None:
    b = builder("forward")
    x = b.op("MaxPool", "pool", (b.input("x", 1, 8, 8, 8),), (1, 8, 4, 4), kernel_shape=(2, 2), strides=(2, 2))
    conv = b.conv("conv", b.norm("bn", x), 8, 1)
    graph = b.build(b.op("Relu", "relu", (b.norm("after", conv),)))
    assert (fold_sites(graph), folds_forward(graph, "bn"), folds_forward(graph, "after")) == (
        ("bn", "after"), True, False,
    )  # fmt: skip
    assert folded_into(graph, ["bn", "after"]) == {"bn": "conv", "after": "conv"}
    plan = Planner(graph).plan({})
    assert plan.folds == ("after", "bn")
    check_plan(graph, plan)
    made = realise(graph, plan)
    assert (made.by_name["conv"].inputs[0], made.by_name["conv"].outputs) == ("pool.0", ("after.0",))
    rows = {(row.producer, row.consumer): row for row in explain(graph, plan)}
    assert rows["bn", "conv"].code == rows["conv", "after"].code == "folded"
    assert rows["pool", "bn"].code == "chosen_rule"
    assert "bn is folded into conv" in rows["bn", "conv"].text


def test_a_padded_convolution_takes_no_shift(builder: Any) -> None:
    b = builder("padded")
    norm = b.norm("bn", b.input("x", 1, 8, 8, 8))
    graph = b.build(b.conv("conv", norm, 8, 3))
    assert fold_sites(graph) == ()
    for place in (2, 3):  # beta and mean
        graph.constants[graph.by_name["bn"].inputs[place]][:] = 0  # type: ignore[index]
    assert fold_sites(graph) == ("bn",), "nothing is shifted, so a pixel of padding stays 0"


def test_a_refused_group_is_not_made_again(zoo: Any) -> None:
    graph = zoo["conv_bn_relu"]()
    planner = Planner(graph)
    assert groups(planner.plan({})) == [{"conv", "relu"}]
    planner.refuse(("conv", "relu"))
    assert groups(planner.plan({})) == [{"conv"}, {"relu"}]


@pytest.mark.parametrize("rule", ["smallest", "anchors", "largest", "order"])
def test_every_seed_rule_makes_legal_plans(network: Graph, rule: str) -> None:
    plan = Planner(network).plan({"seed": rule})
    check_plan(network, plan)
    assert Planner(network).plan({"seed": rule}) == plan


def test_regions_cover_the_graph_and_equal_ones_are_known_by_their_signature(zoo: Any) -> None:
    graph = zoo["transformer"]()
    parts = regions(graph)
    assert sorted(name for part in parts for name in part.operators) == sorted(graph.by_name)
    assert len({part.signature for part in parts}) < len(parts), "two equal layers"
    for part in parts[:-1]:
        inside = set(part.operators)
        passed = {
            tensor
            for name in part.operators
            for tensor in graph.by_name[name].outputs
            if any(user.name not in inside for user in graph.consumers[tensor])
        }
        assert len(passed) == 1, "one tensor leaves a region"
