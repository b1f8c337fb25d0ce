"""Kernels with and without rewriting: transformers as exporters wrote them up to opset 14. Nothing is measured in time.

`python experiments/rewriting/run.py [NETWORK ...]` builds each network with random weights and prints the table.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.rewriting import ALL, RewritingPlanner
from autofuse.fusion.skeleton import realise
from autofuse.fusion.space import FusionSpace
from autofuse.graph.cost import group_cost
from autofuse.graph.load import from_model
from autofuse.graph.model import Graph
from experiments.architectures import decomposed

NETWORKS = {"gpt2": decomposed.gpt2, "mobilebert": decomposed.mobilebert, "tinybert": decomposed.tinybert}
HEAD = "| network | operators | kernels without | kernels with | fewer | exact rules only | MB moved | MFLOPs saved |"


def row(name: str) -> str:
    """One line of the table, and the rules that were applied behind it."""
    graph = from_model(NETWORKS[name](), name)
    planner = RewritingPlanner(graph)
    plans = planner.plan({ALL: "keep"}), planner.plan({})
    before, after = (len(plan.groups) for plan in plans)
    exact = len(RewritingPlanner(graph, FusionSpace(exact=True)).plan({}).groups)
    moved = " -> ".join(f"{_moved(graph, plan) / 1e6:.0f}" for plan in plans)
    applied = [site for site in planner.sites if site.step in plans[1].rewrites]
    saved = sum(site.flops_saved for site in applied) / 1e6
    rules = ", ".join(f"{count} {rule}" for rule, count in Counter(s.rule.name for s in applied).most_common())
    share = f"{100 * (1 - after / before):.1f} %"
    cells = (name, len(graph.operators), before, after, share, exact, moved, f"{saved:.0f}")
    return f"| {' | '.join(map(str, cells))} |\n<!-- {rules} -->"


def _moved(graph: Graph, plan: FusionPlan) -> int:
    """Bytes that the kernels of a plan read and write."""
    made = realise(graph, plan)
    costs = [group_cost(made, group.operators) for group in plan.groups]
    return sum(cost.bytes_read + cost.bytes_written for cost in costs)


def main(names: Iterable[str]) -> None:
    """Print the table."""
    print(HEAD, "|" + " --- |" * HEAD.count(" | ") + " --- |", sep="\n")
    for name in tuple(names) or tuple(NETWORKS):
        print(row(name), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
