"""Plans, decisions and reasons of small networks as text, compared with reviewed files."""

from __future__ import annotations

from collections.abc import Callable

from autofuse.fusion.explain import describe, explain
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.planner.baselines import dnnfusion_plan, none_plan
from autofuse.fusion.planner.planner import decisions, plan_from
from autofuse.graph.model import Graph

Golden = Callable[[str, str], None]


def unanswered(graph: Graph) -> FusionPlan:
    """The plan of the default answers, nothing rewritten."""
    return plan_from(graph, {})


def test_the_plans_of_a_network_are_the_reviewed_ones(network: Graph, golden: Golden) -> None:
    text = ""
    for title, make in (("default", unanswered), ("dnnfusion", dnnfusion_plan), ("none", none_plan)):
        plan = make(network)
        check_plan(network, plan)
        if title == "none":
            text += f"# none\n{len(plan.groups)} kernels\n"
            continue
        members = "\n".join("+".join(group.operators) for group in plan.groups)
        text += f"# {title}\n{describe(network, plan)}{members}\n\n"
    golden(f"plan_{network.name}.txt", text)


def test_the_decisions_of_a_network_are_the_reviewed_ones(network: Graph, golden: Golden) -> None:
    lines = []
    for decision in decisions(network):
        lines.append(f"{decision.name}: {', '.join(decision.choices)}")
        lines += [f"    {site.text}" for site in decision.sites if site.text]
    golden(f"decisions_{network.name}.txt", "\n".join(lines) + "\n")


def test_each_edge_of_the_default_plan_is_explained_as_reviewed(network: Graph, golden: Golden) -> None:
    rows = [
        f"{row.producer} -> {row.consumer} [{row.tensor}] {'fused' if row.fused else 'apart'} {row.relation} "
        f"{row.code}: {row.text}"
        for row in explain(network, plan_from(network, {}))
    ]
    golden(f"explain_{network.name}.txt", "\n".join(rows) + "\n")
