"""What decisions do to plans."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from autofuse.errors import InputError
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.planner import Decision, Planner, decisions, plan_from
from autofuse.fusion.space import KINDS, FusionSpace
from autofuse.graph.model import Graph

Zoo = Mapping[str, Callable[[], Graph]]


def groups(plan: FusionPlan) -> set[str]:
    return {"+".join(group.operators) for group in plan.groups}


def decision_at(graph: Graph, site: str, kind: str | None = None) -> Decision:
    return next(d for d in decisions(graph) if site in {one.text for one in d.sites} and kind in (None, d.kind))


def answered(graph: Graph, **answers: str) -> FusionPlan:
    """Plan with answers at sites, written `producer__consumer` or `operator`."""
    named = {decision_at(graph, site.replace("__", " -> ")).name: answer for site, answer in answers.items()}
    plan = plan_from(graph, named)
    check_plan(graph, plan)
    return plan


def test_an_unfolded_batchnorm_joins_its_convolution(zoo: Zoo) -> None:
    plan = answered(zoo["conv_bn_relu"](), bn="keep")
    assert plan.folds == ()
    assert groups(plan) == {"conv+bn+relu"}


def test_equal_contexts_share_one_fold_decision(zoo: Zoo) -> None:
    plan = answered(zoo["residual"](), bn0c="keep")
    assert plan.folds == ("bn0a", "bn0b", "bn1a", "bn1b", "bn_short")
    assert {"conv0c+bn0c", "conv1c+bn1c+add1+relu1c+pool+flatten"} <= groups(plan)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("later", {"conv0c", "conv_short+add0+relu0c"}),
        ("earlier", {"conv0c+add0+relu0c", "conv_short"}),
        ("both", {"conv0c+conv_short+add0+relu0c"}),
    ],
)
@pytest.mark.parametrize("folded", [True, False])
def test_a_residual_add_joins_the_convolution_that_the_answer_names(
    zoo: Zoo, answer: str, expected: set[str], folded: bool
) -> None:
    graph = zoo["residual"]()
    names = {decision_at(graph, "add0", "join").name: answer}
    if not folded:
        names |= {d.name: "keep" for d in decisions(graph) if d.kind == "fold"}
    plan = plan_from(graph, names)
    check_plan(graph, plan)
    norms = {f"bn{suffix}" for suffix in ("0c", "_short")}
    found = {"+".join(name for name in group.split("+") if name not in norms) for group in groups(plan)}
    assert expected <= found


def test_a_residual_add_joins_the_epilogue_of_the_product_or_the_prologue_of_the_normalisation(zoo: Zoo) -> None:
    graph = zoo["transformer"]()
    assert {"out0_matmul+out0_bias+residual0a", "ln0a"} <= groups(plan_from(graph, {}))
    other = answered(graph, residual0a__ln0a="fuse")
    assert {"out0_matmul+out0_bias", "residual0a+ln0a"} <= groups(other)


def test_a_mask_joins_the_product_or_the_softmax(zoo: Zoo) -> None:
    graph = zoo["transformer"]()
    assert {"scores0+scale0+mask0", "softmax0"} <= groups(plan_from(graph, {}))
    assert {"scores0+scale0", "mask0+softmax0"} <= groups(answered(graph, mask0__softmax0="fuse"))


def test_attention_becomes_one_group_when_its_red_edges_are_merged(zoo: Zoo) -> None:
    plan = answered(zoo["transformer"](), mask0__softmax0="merge", softmax0__mix0="merge")
    assert {f"scores{i}+scale{i}+mask{i}+softmax{i}+mix{i}+unsplit{i}+join{i}" for i in (0, 1)} <= groups(plan)


def test_equal_layers_share_their_decisions(zoo: Zoo) -> None:
    graph = zoo["transformer"]()
    found = decision_at(graph, "softmax0 -> mix0")
    assert {site.text for site in found.sites} == {"softmax0 -> mix0", "softmax1 -> mix1"}
    sites = sum(len(decision.sites) for decision in decisions(graph))
    assert len(decisions(graph)) < 0.6 * sites


def test_an_expensive_chain_below_a_broadcast_stays_apart_until_asked(zoo: Zoo) -> None:
    graph = zoo["over_fusion"]()
    assert groups(plan_from(graph, {})) == {"exp0+exp1+exp2", "relu+add+tanh"}
    assert groups(answered(graph, exp2__add="fuse")) == {"exp0+exp1+exp2+relu+add+tanh"}


def test_convolutions_write_their_slices_of_a_concat_in_one_kernel_and_the_pool_behind_it_does_too(zoo: Zoo) -> None:
    graph = zoo["fire"]()
    first = "squeeze+squeeze_relu"
    assert groups(plan_from(graph, {})) == {first, "left+left_relu+right+right_relu+concat+pool"}
    later = plan_from(graph, {decision_at(graph, "concat", "join").name: "later"})
    assert groups(later) == {first, "left+left_relu", "right+right_relu+concat+pool"}
    apart = answered(graph, right_relu__concat="keep", left_relu__concat="keep", concat__pool="keep")
    assert groups(apart) == {first, "left+left_relu", "right+right_relu", "concat", "pool"}


@pytest.mark.parametrize(
    ("op_type", "shape", "group", "fused"),
    [
        ("MaxPool", (1, 8, 4, 4), 1, True),
        ("AveragePool", (1, 8, 4, 4), 1, True),
        ("MaxPool", (1, 8, 4, 4), 8, False),  # windows over windows share their knobs
        ("GlobalAveragePool", (1, 8, 1, 1), 1, True),
        ("GlobalAveragePool", (1, 8, 1, 1), 8, True),
    ],
)
def test_what_shares_no_knob_with_a_convolution_is_computed_in_its_kernel(
    builder: Any, op_type: str, shape: tuple[int, ...], group: int, fused: bool
) -> None:
    b = builder()
    y = b.op("Relu", "relu", (b.conv("conv", b.input("x", 1, 8, 8, 8), 8, group=group),))
    window = {} if op_type.startswith("Global") else {"kernel_shape": (2, 2), "strides": (2, 2)}
    graph = b.build(b.op(op_type, "pool", (y,), shape, **window))
    assert groups(plan_from(graph, {})) == ({"conv+relu+pool"} if fused else {"conv+relu", "pool"})
    assert groups(answered(graph, relu__pool="keep")) == {"conv+relu", "pool"}


def attention(builder: Any, tokens: int, axis: int = -1, kept: bool = False) -> Graph:
    """softmax(q k + mask) v of eight heads; `kept`: the weights of the mean are a result, too."""
    b = builder()
    q, k = b.input("q", 1, 8, tokens, 16), b.input("k", 1, 8, 16, tokens)
    scores = b.op("MatMul", "scores", (q, k), (1, 8, tokens, tokens))
    masked = b.op("Add", "mask", (scores, b.input("m", 1, 1, tokens, tokens)))
    weights = b.op("Softmax", "softmax", (masked,), axis=axis)
    mean = b.op("MatMul", "mean", (weights, b.input("v", 1, 8, tokens, 16)), (1, 8, tokens, 16))
    return b.build(mean, *([b.op("Relu", "relu", (weights,))] if kept else []))


def test_attention_is_one_kernel_where_its_scores_are_large(builder: Any) -> None:
    large, small = attention(builder, 384), attention(builder, 128)
    assert groups(plan_from(large, {})) == {"scores+mask+softmax+mean"}
    assert groups(plan_from(small, {})) == {"scores+mask", "softmax", "mean"}
    assert groups(answered(large, mask__softmax="keep")) == {"scores+mask", "softmax+mean"}
    assert groups(answered(small, mask__softmax="merge", softmax__mean="merge")) == {"scores+mask+softmax+mean"}


@pytest.mark.parametrize("otherwise", [{"axis": 2}, {"kept": True}])
def test_what_is_no_attention_stays_apart(builder: Any, otherwise: dict[str, Any]) -> None:
    found = groups(plan_from(attention(builder, 384, **otherwise), {}))
    assert {"scores+mask", "mean"} <= found


def test_squeeze_and_excite_is_one_kernel_with_the_scaling_of_its_map(zoo: Zoo) -> None:
    found = groups(plan_from(zoo["squeeze_excite"](), {}))
    assert {group.partition("+")[0] for group in found} == {"expand", "depthwise", "squeeze", "project"}
    assert any(
        {"squeeze", "reduce", "restore", "gate", "scale"} == set(group.split("+")) - {"reduce_sigmoid", "reduce_mul"}
        for group in found
    )


def test_a_product_keeps_its_bias_where_a_normalisation_reads_it_several_times(zoo: Zoo) -> None:
    assert "dense_matmul+dense_bias" in groups(plan_from(zoo["decomposed_layernorm"](), {}))


def test_a_prologue_is_computed_inside_the_convolution_when_asked(builder: Any) -> None:
    b = builder()
    x = b.op("Relu", "relu", (b.input("x", 1, 8, 8, 8),))
    graph = b.build(b.conv("conv", x, 8))
    assert groups(plan_from(graph, {})) == {"relu", "conv"}
    assert groups(answered(graph, relu__conv="fuse")) == {"relu+conv"}


def test_a_pad_joins_the_convolution_below_it(builder: Any) -> None:
    b = builder()
    x = b.op("Pad", "pad", (b.input("x", 1, 8, 8, 8), b.constant(8, dtype="int64")), (1, 8, 10, 10), mode="constant")
    assert groups(plan_from(b.build(b.conv("conv", x, 8)), {})) == {"pad+conv"}


@pytest.mark.parametrize(("rows", "stays"), [(8, True), (9, False)])
def test_keys_are_turned_by_the_product_of_few_rows_that_reads_them(builder: Any, rows: int, stays: bool) -> None:
    b = builder()
    new = b.op("MatMul", "new", (b.input("x", 1, 2, 5, 16), b.constant(16, 16)), (1, 2, 5, 16))
    turned = b.op("Transpose", "turn", (new,), (1, 2, 16, 5), perm=(0, 1, 3, 2))
    scores = b.op("MatMul", "scores", (b.input("q", 1, 2, rows, 16), turned), (1, 2, rows, 5))
    assert groups(plan_from(b.build(scores), {})) == ({"new", "turn+scores"} if stays else {"new+turn", "scores"})


def test_elementwise_work_without_an_anchor_above_joins_the_normalisation_and_is_written_too(builder: Any) -> None:
    b = builder()
    total = b.op("Add", "add", (b.input("x", 1, 16, 32), b.input("y", 1, 16, 32)))
    graph = b.build(b.layernorm("ln", total), total)
    assert groups(plan_from(graph, {})) == {"add+ln"}


def test_several_readers_of_one_convolution_share_its_kernel(builder: Any) -> None:
    b = builder()
    y = b.conv("conv", b.input("x", 1, 8, 8, 8), 8)
    graph = b.build(b.op("Relu", "relu", (y,)), b.op("Tanh", "tanh", (y,)))
    assert groups(plan_from(graph, {})) == {"conv+relu+tanh"}


def test_an_opaque_operator_runs_alone(builder: Any) -> None:
    b = builder()
    x = b.op("Relu", "relu", (b.input("x", 4, 8),))
    top, _ = b.many("TopK", "top", (x, b.constant(1, dtype="int64", value=3)), ((4, 3), (4, 3)))
    graph = b.build(b.op("Exp", "exp", (top,)))
    assert groups(plan_from(graph, {})) == {"relu", "top", "exp"}


def test_the_seed_rule_that_begins_with_anchors_gives_a_legal_plan_too(network: Graph) -> None:
    plan = plan_from(network, {"seed": "anchors"})
    check_plan(network, plan)
    assert len(plan.groups) <= len(network.operators)


def test_no_group_grows_beyond_the_limit(network: Graph) -> None:
    plan = plan_from(network, {}, FusionSpace(max_group_operators=2))
    check_plan(network, plan, max_group_operators=2)
    assert max(len(group.operators) for group in plan.groups) <= 2


@pytest.mark.parametrize(("costly", "expected"), [("Exp", {"mean", "row", "add"}), ("Neg", {"row", "add"})])
def test_a_costly_row_is_broadcast_in_a_kernel_that_has_the_reduction_above_it(
    builder: Any, costly: str, expected: set[str]
) -> None:
    """A group that grows from the row would be full before it came to the reduction."""
    b = builder("costly row")
    x = b.input("x", 1, 16, 8, 8)
    mean = b.op("ReduceMean", "mean", (x, b.constant(1, dtype="int64", value=2)), (1, 16, 1, 8), keepdims=1)
    result = b.op("Add", "add", (x, b.op(costly, "row", (mean,), (1, 16, 1, 8))), (1, 16, 8, 8))
    for number in range(4):
        result = b.op("Relu", f"relu{number}", (result,), (1, 16, 8, 8))
    plan = plan_from(b.build(result), {}, FusionSpace(max_group_operators=4))
    (group,) = [set(group.operators) for group in plan.groups if "add" in group.operators]
    assert expected <= group
    assert ("mean" in group) == ("mean" in expected)


def test_a_pool_joins_a_chain_by_merging_only_with_the_convolution_above_it(builder: Any) -> None:
    """Without the convolution in the group, each window would compute the chain again."""
    b = builder("pool behind a chain")
    x = b.input("x", 1, 16, 8, 8)
    first = b.op("Tanh", "tanh", (b.op("Conv", "conv", (x, b.constant(16, 16, 1, 1)), kernel_shape=(1, 1)),))
    pool = b.op("MaxPool", "pool", (b.op("Exp", "exp", (first,)),), kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    plan = plan_from(b.build(b.op("Add", "add", (first, pool))), {})
    assert groups(plan) == {"conv+tanh+exp+pool+add"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_kind_asks_nothing_and_keeps_its_default(network: Graph, kind: str) -> None:
    space = FusionSpace(decide=tuple(other for other in KINDS if other != kind))
    found = decisions(network, space)
    assert all(decision.kind != kind or "merge" in decision.choices for decision in found)
    assert plan_from(network, {}, space).key == plan_from(network, {}).key


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="'guess' is no kind of decision; allowed: fold, depend"):
        FusionSpace(decide=("guess",))


def test_an_answer_that_is_no_choice_is_refused_with_the_allowed_ones(zoo: Zoo) -> None:
    with pytest.raises(InputError, match="'seed': 'random' is no choice; allowed: smallest, anchors"):
        plan_from(zoo["fire"](), {"seed": "random"})


def test_answers_to_decisions_of_another_model_are_ignored(zoo: Zoo) -> None:
    graph = zoo["fire"]()
    assert plan_from(graph, {"prologue Relu>Conv 9x9 0000000000": "fuse"}).key == plan_from(graph, {}).key


def renamed(graph: Graph) -> Graph:
    """The same graph under other names."""
    operators = tuple(
        replace(
            op,
            name=f"other/{op.name}",
            inputs=tuple(f"t/{name}" if name else "" for name in op.inputs),
            outputs=tuple(f"t/{name}" for name in op.outputs),
        )
        for op in graph.operators
    )
    return Graph(
        "renamed",
        tuple(f"t/{name}" for name in graph.inputs),
        tuple(f"t/{name}" for name in graph.outputs),
        operators,
        {f"t/{name}": replace(tensor, name=f"t/{name}") for name, tensor in graph.tensors.items()},
        {f"t/{name}": array for name, array in graph.constants.items()},
        graph.opset,
    )


def test_decisions_are_named_after_content_not_after_names(network: Graph) -> None:
    other = renamed(network)
    assert [d.name for d in decisions(other)] == [d.name for d in decisions(network)]
    assert {group.replace("other/", "") for group in groups(plan_from(other, {}))} == groups(plan_from(network, {}))


def test_a_planner_gives_the_same_plan_however_often_it_is_asked(network: Graph) -> None:
    planner = Planner(network)
    everything = {d.name: d.choices[-1] for d in planner.decisions}
    first = planner.plan({}), planner.plan(everything)
    assert (planner.plan({}), planner.plan(everything)) == first
    assert plan_from(network, everything) == first[1]


def test_a_graph_of_five_thousand_operators_is_planned_in_seconds(builder: Any) -> None:
    b = builder("large")
    x = b.input("x", 1, 16, 8, 8)
    for block in range(555):
        y = x
        for step in "abc":
            y = b.op(
                "Relu", f"relu{block}{step}", (b.norm(f"bn{block}{step}", b.conv(f"conv{block}{step}", y, 16, 1)),)
            )
        x = b.op("Add", f"add{block}", (y, x))
    graph = b.build(x)
    assert len(graph.operators) == 5550
    start = time.process_time()
    plan = plan_from(graph, {})
    check_plan(graph, plan)
    assert time.process_time() - start < 30, "it takes a second; a slow machine is given time"
    assert len(plan.groups) == 555 * 3
