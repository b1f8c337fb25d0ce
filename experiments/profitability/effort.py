"""How many measurements a search needs to come close to its result, with a trained model and without one.

    python -m experiments profitability.effort MODEL.onnx ... --train out/profitability/times.db

Each network is tuned twice from an empty database: with `--model none`, and with a model that saw nothing of it (and as
many seconds more as asking it may take: measurements are counted, not seconds). After every candidate the best plan
whose groups are all timed is summed up from the database; counted are the candidates until it is within 2 % of what the
search without a model ended with. The bar: a third as many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autofuse import api
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.environment.environment import environment_of
from autofuse.environment.plan_evidence import lowered_plans, stored_plans
from autofuse.fusion.evidence import LAUNCH_US
from autofuse.graph.key import graph_key
from autofuse.graph.loading.load import load
from autofuse.kernels.lowering.lower import Lowering
from autofuse.search.plans.guide import ADVICE_S, ASKING_S
from experiments import tables
from experiments.catalogue import WRITTEN
from experiments.model_files import HELP, asked_for
from experiments.options import new_parser
from experiments.profitability.held_out import models_without
from experiments.records import Table, keep

CLOSE = 0.98
THIRD = 1 / 3


@dataclass(frozen=True)
class Row:
    """Candidates measured in all, and those until the sum is within 2 % of `alone_us`; 0: it never was.

    `alone_us`, `guided_us`: sums of the groups of the best plan at the end, without and with the model.
    """

    network: str
    threads: int
    alone: int
    guided: int
    alone_needed: int
    guided_needed: int
    alone_us: float
    guided_us: float

    @property
    def share(self) -> float:
        """Measurements needed with the model, as a part of those needed without; infinite where it never got there."""
        return self.guided_needed / self.alone_needed if self.guided_needed else float("inf")


def trajectory(model: Path, database: Path, threads: int) -> list[float]:
    """After each measured candidate, the sum (microseconds) of the best plan known by then; infinite before the first.

    A plan is known from when it was recorded; a group's time is the best of its own schedules so far.
    """
    graph = load(model, {})
    with open_database(database, read_only=True) as base:
        target = environment_of(base, "local", threads, measuring=False).target
        known = {
            plan.key: lowered for plan, lowered in lowered_plans(Lowering(graph, target), stored_plans(graph, base))
        }
        needs = {key: Counter(bound.workload.key for bound in lowered.kernels) for key, lowered in known.items()}
        events = sorted(_events(base, graph_key(graph)), key=lambda event: event[0])
    best: dict[str, float] = {}
    plans: list[Counter[str]] = []
    found: list[float] = []
    for _, plan, workload, us in events:
        if plan:
            plans += [needs[plan]] if plan in needs else []
            continue
        if us is not None:
            best[workload] = min(us, best.get(workload, us))
        sums = (
            sum((best[key] + LAUNCH_US) * count for key, count in plan.items())
            for plan in plans
            if plan.keys() <= best.keys()
        )
        found.append(min(sums, default=float("inf")))
    return found


Event = tuple[Any, str, str, float | None]
"""When; the plan that was recorded then, or the workload of the candidate that was measured and its time."""


def _events(base: ProfilingDatabase, key: str) -> Iterator[Event]:
    plans, candidates, measured = (base.table(view).records() for view in ("plans", "candidates", "measurements"))
    for row in plans:
        if row["graph_key"] == key:
            yield row["created_at"], str(row["plan_key"]), "", None
    workloads = {row["candidate_id"]: str(row["workload_key"]) for row in candidates}
    for row in measured:
        us = row["median_us"]
        yield row["created_at"], "", workloads[row["candidate_id"]], us if isinstance(us, float) else None


def needed(sums: Sequence[float], aim_us: float) -> int:
    """How many measurements it took to come to `aim_us`; 0 when it was never reached."""
    return next((count for count, us in enumerate(sums, 1) if us <= aim_us), 0)


def row_of(model: Path, trained: Path, threads: int, budget_s: float, out: Path) -> Row:
    """Tune one network both ways; what was tuned before is only counted again."""
    sums = {}
    for kind, guide, more in (("alone", "none", 0.0), ("guided", str(trained), ASKING_S + ADVICE_S)):
        database = out / f"{model.stem}-{threads}t-{kind}.db"
        if not database.exists():
            api.tune(model, database=str(database), budget=budget_s + more, threads=threads, trained=guide)
        sums[kind] = trajectory(model, database, threads)
    alone, guided = sums["alone"], sums["guided"]
    aim_us = alone[-1] / CLOSE
    return Row(
        model.stem,
        threads,
        len(alone),
        len(guided),
        needed(alone, aim_us),
        needed(guided, aim_us),
        alone[-1],
        guided[-1],
    )


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table."""
    lines = tables.head(
        (
            "network",
            "threads",
            "candidates: without, with",
            "until 98 %: without, with",
            "share",
            "at the end: without / with",
        )
    )
    for row in rows:
        until = f"{row.alone_needed}, {row.guided_needed or 'never'}"
        share = f"{row.share:.2f}" if row.guided_needed else "-"
        end = f"{row.alone_us / row.guided_us:.3f}"
        lines.append(tables.line([row.network, row.threads, f"{row.alone}, {row.guided}", until, share, end]))
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Published:
    """A row of the page: seconds of each search, candidates as in `Row`; `end`: guided_us / alone_us; `variant`: ""
    for the product as it is."""

    network: str
    threads: int
    variant: str
    alone_s: float
    guided_s: float
    alone: int
    guided: int
    alone_needed: int
    guided_needed: int
    end: float


def published(row: Row, budget_s: float) -> Published:
    """What is kept of a row."""
    return Published(
        row.network, row.threads, "", budget_s, budget_s + ASKING_S + ADVICE_S, row.alone, row.guided,
        row.alone_needed, row.guided_needed, row.guided_us / row.alone_us,
    )  # fmt: skip


def table(rows: Sequence[Published]) -> str:
    """The table of the page."""
    titles = ("network", "threads", "seconds: without, with", "candidates: without, with")
    lines = tables.head((*titles, "until 98 %: without, with", "end with / without"))
    for row in rows:
        name = f"{row.network}, {row.variant}" if row.variant else row.network
        counts = f"{row.alone}, {row.guided}", f"{row.alone_needed}, {row.guided_needed or 'never'}"
        seconds = f"{row.alone_s:.0f}, {row.guided_s:.0f}"
        lines.append(tables.line([name, row.threads, seconds, *counts, f"{row.end:.2f}"]))
    return "\n".join(lines) + "\n"


TABLES = (Table("profitability.effort", Published, ("network", "threads", "variant"), table),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table; 0 when every search needed at most a third with the model."""
    parser = new_parser(__doc__, out="out/profitability/effort", threads=1, budget="2m")
    parser.add_argument("models", nargs="+", metavar="MODEL", help=HELP)
    parser.add_argument("--train", nargs="+", type=Path, required=True, help="databases to learn from")
    options = parser.parse_args(arguments)
    models = {model.stem: model for model in asked_for(parser, options.models, WRITTEN)}
    rows = []
    for network, trained in models_without(models, options.train, options.out):
        rows.append(row_of(models[network], trained, options.threads, options.budget, options.out))
        tables.write(options.out, rows, markdown(rows))
        keep(TABLES[0], [published(rows[-1], options.budget)])
        print(markdown(rows).splitlines()[-1], flush=True)
    return 0 if all(row.share <= THIRD for row in rows) else 1
