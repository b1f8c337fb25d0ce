"""Whatever the graph and the answers: the plan covers each operator once, is convex, can run, and survives JSON."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autofuse.fusion.explain import explain
from autofuse.fusion.legality import check_plan, refusal
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.baselines import always_plan, dnnfusion_plan, none_plan
from autofuse.fusion.planner.planner import Planner
from autofuse.fusion.skeleton import realise
from autofuse.fusion.space import FusionSpace
from autofuse.graph.model import Graph
from autofuse.graph.transform.copies import with_copies
from autofuse.graph.transform.fold import fold, fold_sites

FULL, SMALL = (1, 8, 4, 4), (1, 8, 1, 1)
KINDS = (
    "relu",
    "exp",
    "add",
    "mul",
    "scale",
    "conv",
    "norm",
    "prenorm",
    "softmax",
    "pool",
    "reshape",
    "transpose",
    "split",
    "top",
)
CASES = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def unary(b: Any, kind: str, name: str, x: str) -> str:
    """One to three operators that turn a full tensor into another."""
    match kind:
        case "conv":
            return b.conv(name, x, 8, 1)
        case "norm":
            return b.norm(name, b.conv(f"conv_{name}", x, 8, 1))
        case "prenorm":
            return b.conv(f"conv_{name}", b.norm(name, x), 8, 1)
        case "softmax":
            return b.op("Softmax", name, (x,), axis=-1)
        case "reshape":
            return b.reshape(name, b.reshape(f"flat_{name}", x, 8, 16), *FULL)
        case "transpose":
            return b.transpose(name, x, 0, 1, 3, 2)
        case "split":
            parts = b.many("Split", name, (x,), ((1, 4, 4, 4),) * 2, attributes={"axis": 1})
            return b.op("Concat", f"concat_{name}", parts[::-1], FULL, axis=1)
        case "top":
            return b.many("TopK", name, (x, b.constant(1, dtype="int64", value=4)), (FULL, FULL))[0]
    return b.op(kind.title(), name, (x,))


@st.composite
def graphs(draw: st.DrawFn, builder: Any) -> Graph:
    """Up to 24 operators with fan-out, several results, broadcasts, shape operators, BatchNorms and opaque ones."""
    b = builder("random")
    full = [b.input("x", *FULL), b.input("y", *FULL)]
    small = [b.input("s", *SMALL)]
    for index in range(draw(st.integers(2, 24))):
        kind = draw(st.sampled_from(KINDS))
        # Late tensors are likelier, so that chains grow and joins close over several steps.
        x = full[-1 - draw(st.integers(0, min(3, len(full) - 1)))]
        if kind == "pool":
            small.append(b.op("GlobalAveragePool", f"pool{index}", (x,), SMALL))
        elif kind in ("add", "mul", "scale"):
            other = draw(st.sampled_from(small if kind == "scale" else full))
            full.append(b.op("Add" if kind == "add" else "Mul", f"{kind}{index}", (x, other)))
        else:
            full.append(unary(b, kind, f"{kind}{index}", x))
    used = {name for operator in b.operators for name in operator.inputs}
    ends = [out for operator in b.operators for out in operator.outputs if out not in used]
    extra = draw(st.sampled_from([out for operator in b.operators for out in operator.outputs]))
    return b.build(*dict.fromkeys([*ends, extra]))


def reaches(graph: Graph, start: str, banned: set[str]) -> set[str]:
    """Operators below `start` by paths whose inner operators are not banned."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for user in graph.successors(graph.by_name[waiting.pop()]):
            if user.name not in found:
                found.add(user.name)
                if user.name not in banned:
                    waiting.append(user.name)
    return found


def assert_sound(graph: Graph, plan: FusionPlan) -> None:
    """The rules again, by means that share nothing with the planner."""
    realised = realise(graph, plan)
    names = [name for group in plan.groups for name in group.operators]
    assert sorted(names) == sorted(operator.name for operator in realised.operators)
    made = set(realised.inputs) | set(realised.constants)
    for group in plan.groups:
        inside = set(group.operators)
        reads, _ = realised.boundary(group.operators)
        assert set(reads) <= made, "a group reads what nothing before it has written"
        for name in group.operators:
            outside = {user.name for user in realised.successors(realised.by_name[name])} - inside
            assert not any(reaches(realised, other, inside) & inside for other in outside), "not convex"
            made |= set(realised.by_name[name].outputs)
    assert FusionPlan.from_json(plan.to_json()) == plan
    assert FusionPlan(tuple(reversed(plan.groups)), plan.folds, plan.copies).key == plan.key


@CASES
@given(data=st.data())
def test_any_answers_to_any_graph_make_a_sound_plan(builder: Any, data: st.DataObject) -> None:
    graph = data.draw(graphs(builder))
    limit = data.draw(st.sampled_from([1, 3, 24]))
    planner = Planner(graph, FusionSpace(max_group_operators=limit))
    answers = {
        decision.name: data.draw(st.sampled_from(decision.choices), label=decision.name)
        for decision in planner.decisions
        if data.draw(st.booleans())
    }
    plan = planner.plan(answers)
    assert_sound(graph, plan)
    check_plan(graph, plan, max_group_operators=limit)
    assert planner.plan(answers) == plan
    computed = with_copies(fold(graph, plan.folds), plan.copies)
    assert {operator.name for operator in computed.operators} == {
        name for group in plan.groups for name in group.operators
    }


@CASES
@given(data=st.data())
def test_the_fixed_plans_of_any_graph_are_sound_and_explained_edge_by_edge(builder: Any, data: st.DataObject) -> None:
    graph = data.draw(graphs(builder))
    edges = sum(tensor in graph.producers for operator in graph.operators for tensor in dict.fromkeys(operator.inputs))
    for plan in (none_plan(graph), always_plan(graph), dnnfusion_plan(graph), Planner(graph).plan({})):
        assert_sound(graph, plan)
        check_plan(graph, plan)
        owner = {name: index for index, group in enumerate(plan.groups) for name in group.operators}
        rows = explain(graph, plan)
        assert len(rows) == edges
        for row in rows:
            if row.consumer not in plan.folds and row.producer not in plan.folds:
                assert row.fused == (owner[row.producer] == owner[row.consumer])


@CASES
@given(data=st.data())
def test_a_refused_pair_is_exactly_one_that_leaves_the_group_and_comes_back(builder: Any, data: st.DataObject) -> None:
    graph = data.draw(graphs(builder))
    names = [operator.name for operator in graph.operators if operator.op_type != "TopK"]
    pairs = [(p.name, name) for name in names for p in graph.predecessors(graph.by_name[name]) if p.op_type != "TopK"]
    for pair in pairs:
        inside = set(pair)
        others = {user.name for user in graph.successors(graph.by_name[pair[0]])} - inside
        again = any(pair[1] in reaches(graph, other, inside) for other in others)
        refused = refusal(graph, pair)
        assert (refused is not None) == again, pair


@CASES
@given(data=st.data())
def test_decisions_have_a_default_distinct_names_and_govern_something(builder: Any, data: st.DataObject) -> None:
    graph = data.draw(graphs(builder))
    found = Planner(graph).decisions
    assert len({decision.name for decision in found}) == len(found)
    for decision in found:
        assert len(set(decision.choices)) == len(decision.choices) > 1
        assert decision.kind == "seed" or decision.sites
    assert {site.text for d in found if d.kind == "fold" for site in d.sites} == set(fold_sites(graph))
