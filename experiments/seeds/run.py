"""The seeds' operators: no fusion, all fusion, TVM's, every combination of fuse and fold, and what the search finds.

.venv/bin/python -m experiments.seeds.run --seconds 30 --out out/seeds
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from pathlib import Path

import onnx

from autofuse.errors import PlanError
from autofuse.fusion.legality import check_plan
from autofuse.fusion.plan import FusionPlan, Group
from autofuse.graph.fold import fold_sites
from autofuse.graph.load import load
from autofuse.graph.model import Graph
from experiments.rivals import compare_plans, read, write
from experiments.seeds.models import MODELS

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune each model and race its plans; rows of other models in the folder are kept."""
    parser = argparse.ArgumentParser(description="The operators that the project began with.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)} (default: all)")
    parser.add_argument("--seconds", type=float, default=60.0, help="tuning time of each model (default: 60)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/seeds"))
    options = parser.parse_args(arguments)
    for name in options.models:
        if name not in MODELS:
            parser.error(f"unknown model {name!r}; allowed: {', '.join(MODELS)}")
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    for name in options.models or MODELS:
        path = out / f"{name}.onnx"
        onnx.save(MODELS[name](), path)
        further = dict(every_plan(load(path, {}))) if name in CHAINS else {}
        found = compare_plans(path, out / f"{name}.db", options.seconds, further, options.threads)
        rows = [row for row in read(out) if row.model != name] + found
        print(write(rows, out), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
