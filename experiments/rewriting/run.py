"""Kernels with and without rewriting: transformers as exporters wrote them up to opset 14. Nothing is measured in time.

`python -m experiments rewriting [NETWORK ...]` builds each network with random weights and prints the table.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

from autofuse.fusion.planner.rewriting import ALL, RewritingPlanner
from autofuse.fusion.space import FusionSpace
from autofuse.graph.loading.load import from_model
from autofuse.views.inspect import bytes_moved
from experiments.architectures import decomposed

NETWORKS = {"gpt2": decomposed.gpt2, "mobilebert": decomposed.mobilebert, "tinybert": decomposed.tinybert}
HEAD = (
    "| network | operators | kernels without | kernels with | fewer | exact rules only | MB moved | MFLOPs saved "
    "| open places | decisions | shared |"
)


def row(name: str) -> str:
    """One line of the table, and the rules that were applied behind it."""
    graph = from_model(NETWORKS[name](), name)
    planner = RewritingPlanner(graph)
    plans = planner.plan({ALL: "keep"}), planner.plan({})
    before, after = (len(plan.groups) for plan in plans)
    exact = len(RewritingPlanner(graph, FusionSpace(exact=True)).plan({}).groups)
    moved = " -> ".join(f"{bytes_moved(graph, plan) / 1e6:.0f}" for plan in plans)
    applied = [site for site in planner.sites if site.step in plans[1].rewrites]
    saved = sum(site.flops_saved for site in applied) / 1e6
    rules = ", ".join(f"{count} {rule}" for rule, count in Counter(s.rule.name for s in applied).most_common())
    share = f"{100 * (1 - after / before):.1f} %"
    places, asked = sum(max(1, len(one.sites)) for one in planner.decisions), len(planner.decisions)
    space = (places, asked, f"{places / asked:.1f}x")
    cells = (name, len(graph.operators), before, after, share, exact, moved, f"{saved:.0f}", *space)
    return f"| {' | '.join(map(str, cells))} |\n<!-- {rules} -->"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(NETWORKS)} (default: all)")
    names = parser.parse_args(arguments).networks
    for name in names:
        if name not in NETWORKS:
            parser.error(f"unknown network {name!r}; allowed: {', '.join(NETWORKS)}")
    print(HEAD, "|" + " --- |" * HEAD.count(" | ") + " --- |", sep="\n")
    for name in tuple(names) or tuple(NETWORKS):
        print(row(name), flush=True)
    return 0
