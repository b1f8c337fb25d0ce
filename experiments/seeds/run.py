"""The seeds' operators: no fusion, all fusion, TVM's, every combination of fuse and fold, and what the search finds.

.venv/bin/python -m experiments seeds --budget 30s
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise

from autofuse.errors import PlanError
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import FusionPlan, Group
from autofuse.graph.model import Graph
from autofuse.graph.transform.fold import fold_sites
from experiments.plan_race import plan_table, run_cases
from experiments.seeds.models import MODELS

TABLES = (plan_table("seeds"),)
CHAINS = ("conv_bn_relu", "depthwise_bn_relu", "weenet")
"""Models of three operators in a row, of which every combination is measured."""


def every_plan(graph: Graph) -> Iterator[tuple[str, FusionPlan]]:
    """Every way to fold and to cut a chain of operators, by a name such as "Conv+Relu, 1 folded"."""
    for folds in ((), tuple(sorted(fold_sites(graph)))) if fold_sites(graph) else ((),):
        names = [operator.name for operator in graph.operators if operator.name not in folds]
        for count in range(len(names)):
            for cuts in combinations(range(1, len(names)), count):
                ends = (0, *cuts, len(names))
                groups = [tuple(names[start:end]) for start, end in pairwise(ends)]
                title = " | ".join("+".join(graph.by_name[name].op_type for name in group) for group in groups)
                plan = FusionPlan(tuple(map(Group, groups)), folds)
                try:
                    check_plan(graph, plan)
                except PlanError:
                    continue
                yield title + (", folded" if folds else ""), plan


def combinations_of(name: str, graph: Graph) -> Mapping[str, FusionPlan]:
    """Every plan of a short chain; none of another model, which has too many."""
    return dict(every_plan(graph)) if name in CHAINS else {}


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune each model and race its plans."""
    description = "The operators that the project began with."
    return run_cases(arguments, MODELS, TABLES[0], description, combinations_of)
