"""Exact composition against sampling, region by region, from databases of finished tunings.

    .venv/bin/python -m experiments composition out/networks/models/bert_base.onnx out/networks/bert_base.db ...

Takes pairs of a model and its database. A region is a set of operators that no measured group leaves. In each, the
best choice of groups that any sampled plan made is compared with the best choice there is (set partitioning by integer
programming over the same groups with the same times). Databases are copied first, and nothing is measured.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autofuse.database.database import open_database
from autofuse.environment.environment import environment_of
from autofuse.environment.plan_evidence import (
    PlansLowered,
    groups_of,
    known_limits,
    known_pieces,
    lowered_plans,
    stored_plans,
)
from autofuse.fusion.evidence import Identity, Piece
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.skeleton import settled
from autofuse.graph.key import graph_key
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import Lowering
from autofuse.search.composition.composition import Composition, Region, compose, gap_of
from experiments import tables
from experiments.options import new_parser
from experiments.records import Table, keep


@dataclass(frozen=True)
class Row:
    """A distinct region (or, `region` = -1, the whole model). Times in microseconds, sums of measured groups.

    `sampled_us`: of the best sampled plan of the whole model, here; `region_us`: of the sampled plan that is best
    here; `exact_us`: of the best groups. `gap`: sampled over exact, minus 1. `copies`: equal regions of the model.
    """

    model: str
    region: int
    operators: int
    columns: int
    copies: int
    plans: int
    sampled_us: float
    region_us: float
    exact_us: float
    gap: float


def rows_of(model: Path, database: Path, device: str = "local", threads: int = 1) -> list[Row]:
    """The whole model first, then each distinct region in which there is a choice."""
    graph = load(model, {})
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(database, folder))
        with open_database(copy) as base:  # for writing: an older schema is migrated, in the copy
            environment = environment_of(base, device, threads, measuring=False)
            lowered = lowered_plans(Lowering(graph, environment.target), stored_plans(graph, base))
            limits = known_limits(base, environment.setting, graph_key(graph))
            found = []
            for rewrites in dict.fromkeys(plan.rewrites for plan, _ in lowered):
                alike = [(plan, kernels) for plan, kernels in lowered if plan.rewrites == rewrites]
                pieces = known_pieces(graph, alike, base, environment.setting, limits)
                found.append(_variant(model.stem, graph, rewrites, alike, pieces))
    return min(filter(None, found), key=lambda rows: rows[0].exact_us, default=[])


def _variant(
    name: str, graph: Graph, rewrites: tuple[str, ...], lowered: PlansLowered, pieces: Sequence[Piece]
) -> list[Row]:
    """The rows of the plans that rewrite the graph alike: groups of others do not fit together."""
    variant, _ = settled(graph, FusionPlan((), rewrites=rewrites))
    found = compose(variant, pieces)
    if found is None:
        return []
    times = {piece.identity: piece.span.us for piece in pieces if piece.span is not None}
    own = replace(found.plan, rewrites=rewrites).key
    timed = {plan.key: groups_of(graph, plan) for plan, _ in lowered}
    timed = {key: groups for key, groups in timed.items() if all(piece.identity in times for piece in groups)}
    sampled = [groups for key, groups in timed.items() if key != own or len(timed) == 1]
    return _rows(name, len(variant.operators), found, times, sampled) if sampled else []


def _rows(
    name: str, operators: int, found: Composition, times: dict[Identity, float], plans: Sequence[Sequence[Piece]]
) -> list[Row]:
    costs = [_by_region(found.regions, groups, times) for groups in plans]
    totals = [sum(cost) for cost in costs]
    best = totals.index(min(totals))
    rows = [
        Row(name, -1, operators, len(times), 1, len(plans), totals[best], totals[best], found.us,
            gap_of(totals[best], found.us))
    ]  # fmt: skip
    for number, region in enumerate(found.regions):
        if region.same_as >= 0 or region.columns <= len(region.operators):
            continue  # one group for each operator is no choice
        sampled, least = costs[best][number], min(cost[number] for cost in costs)
        copies = 1 + sum(other.same_as == number for other in found.regions)
        rows.append(
            Row(name, number, len(region.operators), region.columns, copies, len(plans), sampled, least, region.us,
                gap_of(sampled, region.us))
        )  # fmt: skip
    return rows


def _by_region(regions: Sequence[Region], pieces: Iterable[Piece], times: dict[Identity, float]) -> list[float]:
    """What a plan takes in each region."""
    home = {name: number for number, region in enumerate(regions) for name in region.operators}
    costs = [0.0] * len(regions)
    for piece in pieces:
        costs[home[min(piece.covers)]] += times[piece.identity]
    return costs


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table, whole models in bold."""
    lines = tables.head(
        ("model", "region", "operators", "groups measured", "sampled, us", "best sampled here, us", "exact, us", "gap")
    )
    for row in rows:
        where = "**whole**" if row.region < 0 else f"{row.region}{f' (x{row.copies})' if row.copies > 1 else ''}"
        times = (f"{us:.1f}" for us in (row.sampled_us, row.region_us, row.exact_us))
        lines.append(tables.line([row.model, where, row.operators, row.columns, *times, f"{100 * row.gap:.2f} %"]))
    regions = [row for row in rows if row.region >= 0]
    worse = [row for row in regions if row.gap > 1e-6]
    lines += [
        "",
        f"{len(regions)} distinct regions with a choice; in {len(worse)} of them the sampled plan is not the best.",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Whole:
    """A whole model as it is published. `regions`: distinct ones with a choice. Times are sums, in microseconds."""

    network: str
    threads: int
    regions: int
    groups: int
    plans: int
    sampled_us: float
    exact_us: float
    gap: float


def whole_of(rows: Sequence[Row], threads: int) -> list[Whole]:
    """The summary of one model's rows; nothing where there are none."""
    return [
        Whole(row.model, threads, len(rows) - 1, row.columns, row.plans, row.sampled_us, row.exact_us, row.gap)
        for row in rows
        if row.region < 0
    ]


def published(rows: Sequence[Whole]) -> str:
    """The table of the page."""
    titles = ("network", "threads", "regions with a choice", "groups measured", "plans", "sampled, us", "exact, us")
    lines = tables.head((*titles, "gap"))
    for row in rows:
        cells = [row.network, row.threads, row.regions, row.groups, row.plans]
        lines.append(tables.line([*cells, f"{row.sampled_us:.0f}", f"{row.exact_us:.0f}", f"{100 * row.gap:.2f} %"]))
    return "\n".join(lines) + "\n"


TABLES = (Table("composition", Whole, ("network", "threads"), published),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table of all pairs; 0 when there was something to compare."""
    parser = new_parser("Exact composition against sampling, from databases.", out="out/composition", threads=1)
    parser.add_argument("pairs", nargs="+", type=Path, metavar="MODEL DATABASE", help="a model and its database, ...")
    options = parser.parse_args(arguments)
    if len(options.pairs) % 2:
        parser.error("give a database after each model")
    rows: list[Row] = []
    for model, database in zip(options.pairs[::2], options.pairs[1::2], strict=True):
        found = rows_of(model, database, threads=options.threads)
        rows += found
        keep(TABLES[0], whole_of(found, options.threads))
    text = markdown(rows)
    tables.write(options.out, rows, text)
    print(text)
    return 0 if rows else 1
