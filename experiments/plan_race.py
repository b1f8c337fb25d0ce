"""Plans of one model against each other: their kernels tuned alike, all built whole and measured interleaved."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from autofuse.backend.compile.realise import build_library
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.environment.environment import Environment, environment_of
from autofuse.environment.named_plans import named_plan
from autofuse.environment.place import Place
from autofuse.environment.space import load_space
from autofuse.errors import AutofuseError
from autofuse.fusion.plan import FusionPlan
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.kernels.lowering.lower import Lowered, Lowering
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import open_knobs
from autofuse.measure.networks.bench import Contender, ContenderResult
from autofuse.search.budget.budget import Budget
from autofuse.search.budget.time_budget import finals_seconds
from autofuse.search.phases.phases import add_baseline, measure_baseline, measure_baselines
from autofuse.search.progress import SearchRequest, TuneResult
from autofuse.search.tune import open_session
from experiments.options import new_parser
from experiments.races import race
from experiments.records import Table, keep
from experiments.tables import head, line, read_rows, write_rows

FIXED = ("none", "always", "tvm", "default")
Cases = Mapping[str, Callable[[], onnx.ModelProto]]
PlansOf = Callable[[str, Graph], Mapping[str, FusionPlan]]
"""Further plans to race, by name, of the case of that name."""


@dataclass(frozen=True)
class PlanRow:
    """One plan of one model. Times in microseconds; `speedup` over no fusion with its interval [`lo`, `hi`].

    `found`: whether the search chose this plan. `error`: largest error against ONNX Runtime, as a part of the range.
    """

    model: str
    plan: str
    found: bool
    kernels: int
    us: float | None = None
    speedup: float | None = None
    lo: float | None = None
    hi: float | None = None
    trusted: bool = False
    error: float | None = None
    problem: str = ""


def run_cases(
    arguments: Sequence[str] | None,
    cases: Cases,
    table: Table[PlanRow],
    description: str,
    further: PlansOf | None = None,
) -> int:
    """The command line of an experiment: tune each case and race its plans; rows of other cases in the folder stay."""
    options = case_options(arguments, cases, Path("out") / table.name, description)
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    for name in options.cases:
        model = folder / f"{name}.onnx"
        onnx.save(cases[name](), model)
        plans = further(name, load(model, {})) if further is not None else {}
        raced = compare_plans(model, folder / f"{name}.db", options.budget, plans, options.threads)
        keep(table, raced)
        rows = [row for row in read(folder) if row.model != name] + raced
        print(write(rows, folder), flush=True)
    return 0


def case_options(
    arguments: Sequence[str] | None, cases: Iterable[str], out: Path, description: str
) -> argparse.Namespace:
    """`cases` (all where none is named), `budget` (seconds), `threads` and `out`, as the command line gives them."""
    allowed = list(cases)
    parser = new_parser(description, out=out, threads=1, budget="60s")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(allowed)} (default: all)")
    options = parser.parse_args(arguments)
    for name in options.cases:
        if name not in allowed:
            parser.error(f"unknown case {name!r}; allowed: {', '.join(allowed)}")
    options.cases = options.cases or allowed
    return options


def compare_plans(
    model: Path, database: Path, seconds: float, further: Mapping[str, FusionPlan] | None = None, threads: int = 1
) -> list[PlanRow]:
    """Time every plan's kernels, tune the model for `seconds`, then race every plan; the fastest first.

    The plans: those of `FIXED`, `further` ones by name, and what the search chose ("search" if it is none of them).
    """
    graph = load(model, {})
    plans: dict[str, FusionPlan] = {}
    for name in FIXED:
        try:
            plans[name] = named_plan(graph, name)
        except AutofuseError:
            continue  # TVM may be unable to say how it would fuse
    plans |= further or {}
    with open_database(database) as base:
        result = tuned(model, base, seconds, plans, threads)
        found = FusionPlan.from_json(base.plan(result.plan_key) or "")
        if found.key not in {plan.key for plan in plans.values()}:
            plans["search"] = found
        environment = environment_of(base, "local", threads, measuring=True)
        return _raced(graph, base, environment, plans, found, max(10.0, seconds / 3))


def tuned(
    model: Path, base: ProfilingDatabase, seconds: float, plans: Mapping[str, FusionPlan], threads: int
) -> TuneResult:
    """Time every plan's kernels, then search for `seconds` more and measure the finalists."""
    with open_session(model, base, Place(threads=threads), SearchRequest()) as opened:
        endless = Budget()
        measure_baselines(opened.search, endless, endless)
        for name, plan in plans.items():
            add_baseline(opened.search, name, plan)
            measure_baseline(opened.search, name, endless)
        opened.advance(Budget.lasting(seconds))
        result = opened.conclude(endless, finals_seconds(seconds))
        assert result is not None, "nobody asks for a stop"
        return result


def _raced(
    graph: Graph, base: ProfilingDatabase, environment: Environment, plans: Mapping[str, FusionPlan], found: FusionPlan,
    seconds: float,
) -> list[PlanRow]:  # fmt: skip
    """Every plan with the best schedules that the database has, built and timed in turn; ratios are to no fusion."""
    lowering = Lowering(graph, environment.target)
    threads = environment.setting.threads
    with tempfile.TemporaryDirectory() as folder:
        contenders: list[Contender] = []
        problems: dict[str, str] = {}
        for name, plan in plans.items():
            path = Path(folder) / f"{len(contenders)}.so"
            lowered = lowering.lower(plan)
            try:
                build_library(lowered, _schedules(lowered, base, environment), environment.target, threads, path)
                contenders.append(Contender(name, "autofuse", path))
            except AutofuseError as error:
                problems[name] = str(error)
        results = race(graph, contenders, threads, seconds, environment.target)
    rows = [
        _row(graph.name, name, plan.key == found.key, len(lowering.lower(plan).kernels), results.get(name),
             problems.get(name, ""))
        for name, plan in plans.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: row.us or float("inf"))


def _schedules(lowered: Lowered, base: ProfilingDatabase, environment: Environment) -> dict[str, dict[str, int | str]]:
    """The best schedule of each kernel; for one that was never measured, the first guess of its search."""
    known = base.lookup(environment.setting, [bound.workload.key for bound in lowered.kernels])
    space = load_space(None, environment.target.isa).schedule
    found: dict[str, dict[str, int | str]] = {}
    for bound in lowered.kernels:
        best = known.get(bound.workload.key)
        if best is not None:
            found[bound.workload.key] = json.loads(best.schedule)
            continue
        knobs = open_knobs(bound.workload, environment.target, space)
        found[bound.workload.key] = dict(
            first_schedules(bound.workload, knobs, environment.target, environment.setting.threads)[0]
        )
    return found


def _row(model: str, name: str, found: bool, kernels: int, result: ContenderResult | None, problem: str) -> PlanRow:
    if result is None or result.median_us is None or result.wrong:
        reason = problem or (result.wrong or result.error if result is not None else "") or "not measured"
        return PlanRow(model, name, found, kernels, problem=reason)
    speedup, low, high = (1 / part if part else None for part in (result.ratio, result.ci_hi, result.ci_lo))
    return PlanRow(
        model, name, found, kernels, result.median_us, speedup, low, high, result.trusted, result.max_rel_error
    )


def markdown(rows: Iterable[PlanRow]) -> str:
    """The rows as a table; the search's choice in bold, what noise spoiled with a question mark."""
    lines = head(("model", "plan", "kernels", "time, us", "against no fusion"))
    for row in rows:
        name = f"**{row.plan}**" if row.found else row.plan
        if row.us is None:
            lines.append(line([row.model, name, row.kernels, row.problem, ""]))
            continue
        ratio = f"{row.speedup:.2f} ({row.lo:.2f}-{row.hi:.2f})" if row.speedup and row.lo and row.hi else "1"
        doubt = "" if row.trusted else " ?"
        lines.append(line([row.model, name, row.kernels, f"{row.us:.1f}", f"{ratio}{doubt}"]))
    return "\n".join(lines) + "\n"


def plan_table(name: str) -> Table[PlanRow]:
    """The table of an experiment that races plans."""
    return Table(name, PlanRow, ("model", "plan"), markdown)


def write(rows: Sequence[PlanRow], out: Path) -> str:
    """Write `results.json` and `results.md`; the text of the latter."""
    return write_rows(out, rows, markdown(rows))


def read(out: Path) -> list[PlanRow]:
    """The rows of an earlier run."""
    return read_rows(out, PlanRow)
