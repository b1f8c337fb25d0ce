"""Windows over windows: kernels apart, one kernel in turn, one kernel by bands of rows. See README.md.

.venv/bin/python -m experiments bands --budget 40s --out out/bands
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import onnx

from autofuse.backend.compile.probes import ReadProbe
from autofuse.backend.compile.realise import build_library
from autofuse.database.database import ProfilingDatabase, open_database
from autofuse.environment.environment import Environment, environment_of
from autofuse.environment.space import load_space
from autofuse.fusion.planner.baselines import always_plan
from autofuse.fusion.planner.planner import plan_from
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.kernels.families.contraction.form import contraction_form
from autofuse.kernels.families.fused.band import Band, banded
from autofuse.kernels.families.registry import nests_of
from autofuse.kernels.families.windows import convolution_windows
from autofuse.kernels.lowering.lower import Lowered, Lowering
from autofuse.kernels.schedule.guesses import first_schedules
from autofuse.kernels.schedule.knobs import canonical, open_knobs
from autofuse.kernels.workload.workload import Workload
from autofuse.measure.networks.bench import Contender
from experiments import tables
from experiments.bands.cases import CASES
from experiments.plan_race import case_options, tuned
from experiments.races import race
from experiments.records import Table, keep

Schedule = dict[str, int | str]
APART = "apart"


@dataclass(frozen=True)
class Row:
    """One form of one case: `form` "apart", or the rows of a band (0: one kernel, its parts in turn).

    `ratio`: time apart over this one's, with its interval [`lo`, `hi`]: above 1, one kernel is faster. `recomputed`:
    multiplications done twice, as a part of those needed. `map_kb`: of the tensors that need not be in memory;
    `floor_us`: what writing and reading them once would take at this machine's bandwidth for their size, so the most
    that bands can save.
    """

    case: str
    form: str
    us: float
    ratio: float
    lo: float
    hi: float
    trusted: bool
    recomputed: float
    map_kb: float
    floor_us: float
    error: float


def measure(name: str, out: Path, seconds: float, threads: int) -> list[Row]:
    """Tune one case's kernels, apart and together, then race every form."""
    path = out / f"{name}.onnx"
    onnx.save(CASES[name](), path)
    graph = load(path, {})
    whole = always_plan(graph)
    with open_database(out / f"{name}.db") as base:
        tuned(path, base, seconds, {"whole": whole}, threads)
        environment = environment_of(base, "local", threads, measuring=True)
        lowering = Lowering(graph, environment.target)
        forms = _forms(base, environment, lowering, graph)
        return _raced(name, graph, forms, environment, seconds)


def _forms(
    base: ProfilingDatabase, environment: Environment, lowering: Lowering, graph: Graph
) -> dict[str, tuple[Lowered, dict[str, Schedule]]]:
    """Every form with the best schedules known of it."""
    apart, whole = lowering.lower(plan_from(graph, {})), lowering.lower(always_plan(graph))
    space = load_space(None, environment.target.isa).schedule
    found: dict[str, tuple[Lowered, dict[str, Schedule]]] = {
        APART: (apart, {b.workload.key: _best(base, environment, b.workload, None) for b in apart.kernels})
    }
    (only,) = whole.kernels
    for rows in open_knobs(only.workload, environment.target, space).get("band.rows", (0,)):
        found[str(rows)] = whole, {only.workload.key: _best(base, environment, only.workload, int(rows))}
    return found


def _best(base: ProfilingDatabase, environment: Environment, workload: Workload, rows: int | None) -> Schedule:
    """The fastest measured schedule (with bands of so many rows), or the rule's guess."""
    measured = [
        (row.median_us, json.loads(row.schedule))
        for row in base.measured_schedules(environment.setting, workload.key)
        if row.median_us is not None
    ]
    fitting = [pair for pair in measured if rows is None or pair[1].get("band.rows", 0) == rows]
    if fitting:
        best: Schedule = min(fitting, key=lambda pair: pair[0])[1]
        return best
    knobs = open_knobs(workload, environment.target, load_space(None, environment.target.isa).schedule)
    guess = first_schedules(workload, knobs, environment.target)[0]
    return canonical(guess if rows is None else {**guess, "band.rows": rows}, knobs)


def _raced(
    name: str, graph: Graph, forms: Mapping[str, tuple[Lowered, dict[str, Schedule]]], environment: Environment,
    seconds: float,
) -> list[Row]:  # fmt: skip
    threads = environment.setting.threads
    with tempfile.TemporaryDirectory() as folder:
        contenders = []
        for form, (lowered, schedules) in forms.items():
            library = Path(folder) / f"{form}.so"
            build_library(lowered, schedules, environment.target, threads, library)
            contenders.append(Contender(form, "autofuse", library))
        results = race(graph, contenders, threads, max(10.0, seconds / 2), environment.target)
    workload = next(lowered.kernels[0].workload for form, (lowered, _) in forms.items() if form != APART)
    size = 4 * sum(prod(shape) for shape in inner_maps(workload))
    probe = ReadProbe(environment.target, 1, size, max(1, (1 << 26) // size))
    floor_us = 2 * size / (probe.bytes / min(probe.seconds() for _ in range(5))) * 1e6
    rows = []
    for form, result in results.items():
        if result.median_us is None or result.ratio is None or result.ci_lo is None or result.ci_hi is None:
            print(f"{name}, {form}: {result.error or result.wrong}", file=sys.stderr)
            continue
        ratios = 1 / result.ratio, 1 / result.ci_hi, 1 / result.ci_lo
        again = 0.0 if form == APART else recomputed(workload, int(form))
        error = result.max_rel_error or 0.0
        rows.append(Row(name, form, result.median_us, *ratios, result.trusted, again, size / 1024, floor_us, error))
    return rows


def inner_maps(workload: Workload) -> list[tuple[int, ...]]:
    """Shapes of the tensors that stand between the nests of a kernel."""
    return [workload.values[nest.stores[0]].shape for nest in nests_of(workload)[:-1]]


def recomputed(workload: Workload, rows: int) -> float:
    """Multiplications done more than once in bands of `rows` rows, as a part of those needed."""
    bands = [unit for unit in banded(workload, nests_of(workload)) if isinstance(unit, Band)]
    if not bands or not rows:
        return 0.0
    anchors = [nest.anchor for nest in bands[0].nests if nest.anchor is not None]
    windows = [convolution_windows(workload, anchor)[0] for anchor in anchors]
    flops = [contraction_form(workload, anchor).flops if anchor.op_type == "Conv" else 0 for anchor in anchors]
    total, needed = 0.0, float(sum(flops))
    for start in range(0, windows[-1].outputs, rows):
        low, high = start, min(start + rows, windows[-1].outputs)
        for place in range(len(windows) - 1, -1, -1):
            window = windows[place]
            total += flops[place] * (high - low) / window.outputs
            begin, count = window.seen(low, high - low)
            low, high = max(0, begin), min(window.size, begin + count)
    return total / needed - 1


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table; what noise spoiled has a question mark."""
    lines = tables.head(
        ("case", "form", "time, us", "apart / this", "recomputed", "maps inside, KB", "at most to save, us")
    )
    for row in rows:
        form = {APART: APART, "0": "one kernel, in turn"}.get(row.form, f"bands of {row.form} rows")
        ratio = "1" if row.form == APART else tables.ratio(row.ratio, row.lo, row.hi, row.trusted)
        again, inside, floor = f"{100 * row.recomputed:.0f} %", f"{row.map_kb:.0f}", f"{row.floor_us:.0f}"
        lines.append(tables.line([row.case, form, f"{row.us:.1f}", ratio, again, inside, floor]))
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Case:
    """One case as it is published: the time of a kernel each over that of one kernel, in turn and by the best bands.

    `most`: the ratio if the maps inside cost nothing any more. `trusted`: both ratios are; None where nobody said.
    """

    case: str
    turn: float
    turn_lo: float
    turn_hi: float
    best: float
    best_lo: float
    best_hi: float
    rows: int
    recomputed: float
    map_kb: float
    most: float
    trusted: bool | None = None


def case_of(forms: Sequence[Row]) -> Case | None:
    """The summary of all forms of one case; None where one of the three has no time."""
    by_form = {row.form: row for row in forms}
    bands = [row for row in forms if row.form not in (APART, "0")]
    if not bands or not {APART, "0"} <= by_form.keys():
        return None
    apart, turn, best = by_form[APART], by_form["0"], max(bands, key=lambda row: row.ratio)
    return Case(
        apart.case, turn.ratio, turn.lo, turn.hi, best.ratio, best.lo, best.hi, int(best.form), best.recomputed,
        best.map_kb, apart.us / max(apart.us - best.floor_us, 1e-9), turn.trusted and best.trusted,
    )  # fmt: skip


def published(cases: Sequence[Case]) -> str:
    """The table of the page."""
    titles = ("case", "one kernel, in turn", "best bands", "recomputed there", "maps inside, KB", "at most to save")
    lines = tables.head(titles)
    for case in cases:
        turn = tables.ratio(case.turn, case.turn_lo, case.turn_hi, case.trusted)
        best = f"{tables.ratio(case.best, case.best_lo, case.best_hi, case.trusted)}, {case.rows} rows"
        again = f"{100 * case.recomputed:.0f} %"
        lines.append(tables.line([case.case, turn, best, again, f"{case.map_kb:.0f}", f"{case.most:.2f}"]))
    return "\n".join(lines) + "\n"


TABLES = (Table("bands", Case, ("case",), published, lambda case: list(CASES).index(case.case)),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the cases named; rows of others in the folder are kept."""
    options = case_options(arguments, CASES, Path("out/bands"), "Convolutions over convolutions, by bands of rows.")
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    kept = [row for row in _read(out / "results.csv") if row.case not in options.cases]
    for name in options.cases:
        forms = measure(name, out, options.budget, options.threads)
        kept += forms
        keep(TABLES[0], [case for case in (case_of(forms),) if case is not None])
        tables.write(out, kept, markdown(kept))
        print(markdown(kept), flush=True)
    return 0


def _read(path: Path) -> list[Row]:
    return [
        Row(line["case"], line["form"], trusted=line["trusted"] == "True",
            **{key: float(value) for key, value in line.items() if key not in ("case", "form", "trusted")})
        for line in tables.read_csv(path)
    ]  # fmt: skip
