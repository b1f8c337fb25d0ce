"""Kernels with and without rewriting: transformers as exporters wrote them up to opset 14. Nothing is measured in time.

`python -m experiments rewriting [NETWORK ...]` builds each network with random weights and prints the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from autofuse.fusion.planner.rewriting import ALL, RewritingPlanner
from autofuse.fusion.space import FusionSpace
from autofuse.graph.loading.load import from_model
from autofuse.views.inspect import bytes_moved
from experiments.catalogue import DECOMPOSED, build, with_form
from experiments.options import new_parser
from experiments.records import Table, keep
from experiments.tables import head, line

NETWORKS = sorted(with_form(DECOMPOSED))
HEAD = (
    *("network", "operators", "kernels without", "kernels with", "fewer", "exact rules only", "MB moved"),
    *("MFLOPs saved", "open places", "decisions", "shared"),
)


@dataclass(frozen=True)
class Row:
    """One network. `without`, `kernels`, `exact`: kernels without rewriting, with it, with the rules that are exact.

    `moved_none_mb`, `moved_mb`: what the kernels read and write without rewriting and with it. `places`: open places
    of rewriting, of which equal contexts share one of the `decisions`.
    """

    network: str
    operators: int
    without: int
    kernels: int
    exact: int
    moved_none_mb: float
    moved_mb: float
    mflops_saved: float
    places: int
    decisions: int


def measure(name: str) -> tuple[Row, str]:
    """A network's row, and the rules that were applied."""
    graph = from_model(build(name, DECOMPOSED), name)
    planner = RewritingPlanner(graph)
    plans = planner.plan({ALL: "keep"}), planner.plan({})
    before, after = (len(plan.groups) for plan in plans)
    exact = len(RewritingPlanner(graph, FusionSpace(exact=True)).plan({}).groups)
    moved_none_mb, moved_mb = (bytes_moved(graph, plan) / 1e6 for plan in plans)
    applied = [site for site in planner.matches if site.step in plans[1].rewrites]
    saved = sum(site.flops_saved for site in applied) / 1e6
    rules = ", ".join(f"{count} {rule}" for rule, count in Counter(s.rule.name for s in applied).most_common())
    places = sum(max(1, len(one.sites)) for one in planner.decisions)
    row = Row(
        network=name, operators=len(graph.operators), without=before, kernels=after, exact=exact,
        moved_none_mb=moved_none_mb, moved_mb=moved_mb, mflops_saved=saved, places=places,
        decisions=len(planner.decisions),
    )  # fmt: skip
    return row, rules


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table."""
    lines = head(HEAD)
    for row in rows:
        fewer = f"{100 * (1 - row.kernels / row.without):.1f} %"
        moved = f"{row.moved_none_mb:.0f} -> {row.moved_mb:.0f}"
        space = row.places, row.decisions, f"{row.places / row.decisions:.1f}x"
        counts = row.operators, row.without, row.kernels, fewer, row.exact
        lines.append(line([row.network, *counts, moved, f"{row.mflops_saved:.0f}", *space]))
    return "\n".join(lines) + "\n"


TABLES = (Table("rewriting", Row, ("network",), markdown, lambda row: NETWORKS.index(row.network)),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = new_parser(__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(NETWORKS)} (default: all)")
    names = parser.parse_args(arguments).networks
    for name in names:
        if name not in NETWORKS:
            parser.error(f"unknown network {name!r}; allowed: {', '.join(NETWORKS)}")
    rows = []
    for name in names or NETWORKS:
        row, rules = measure(name)
        rows.append(row)
        print(f"{name}: {rules}", flush=True)
    keep(TABLES[0], rows)
    print(markdown(rows))
    return 0
