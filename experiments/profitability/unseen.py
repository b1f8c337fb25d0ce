"""Networks that nobody tuned, compiled with a model that never saw them, against what a whole tuning reached.

    python -m experiments profitability.unseen out/networks/models/resnet50.onnx=out/networks/resnet50.db ...
        --train out/profitability/times.db

Each network is compiled three times without measuring: from its tuning database (tuned), and from an empty one with the
trained model (`--on-miss model`) and with the fixed rule. The three run interleaved, checked against ONNX Runtime. The
bar: the model's library at 90 % of the tuned speed in the geometric mean, compiled in less than a minute.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from autofuse import api
from autofuse.backend.compile.host_cpu import local_device
from autofuse.graph.loading.load import load
from autofuse.measure.networks.bench import Contender, ContenderResult
from experiments import tables
from experiments.options import new_parser
from experiments.profitability.held_out import models_without
from experiments.races import NO_RATIO, race
from experiments.records import Table, keep

SPEED, COMPILE_S = 0.9, 60.0
"""The bars: share of the tuned speed, and seconds of compiling."""
TUNED, MODEL, RULE = "tuned", "model", "rule"


@dataclass(frozen=True)
class Row:
    """`model`, `rule`: the tuned time over theirs, so their share of its speed, each with its interval.

    None where there is none, for the reasons in `problem`. `plan`: the rung that the model's plan came from ("rule"
    where it abstained); `compile_s`: of the model's library.
    """

    network: str
    threads: int
    model: float | None
    model_lo: float | None
    model_hi: float | None
    rule: float | None
    rule_lo: float | None
    rule_hi: float | None
    trusted: bool
    plan: str
    compile_s: float
    problem: str = ""


def row_of(path: Path, database: Path, trained: Path, threads: int, seconds: float) -> Row:
    """One network, never seen by the model in `trained`."""
    graph = load(path, {})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        empty = str(folder / "empty.db")
        api.compile(path, folder / f"{TUNED}.so", database=str(database), threads=threads)
        started = time.monotonic()
        report = api.compile(
            path, folder / f"{MODEL}.so", database=empty, threads=threads, on_miss="model", trained=str(trained)
        )
        compile_s = time.monotonic() - started
        api.compile(path, folder / f"{RULE}.so", database=empty, threads=threads)
        contenders = [Contender(kind, "autofuse", folder / f"{kind}.so") for kind in (TUNED, MODEL, RULE)]
        found = race(graph, contenders, threads, seconds, local_device().target())
    row = Row(
        path.stem, threads, model=None, model_lo=None, model_hi=None, rule=None, rule_lo=None, rule_hi=None,
        trusted=False, plan=report.plan_tier, compile_s=compile_s,
    )  # fmt: skip
    return judged(row, found)


def judged(row: Row, found: Mapping[str, ContenderResult]) -> Row:
    """The row with what the race said of the libraries."""
    model, rule = (_speed(found[kind]) for kind in (MODEL, RULE))
    problems = (f"{kind}: {problem}" for kind, one in found.items() if (problem := _problem(one)))
    trusted = found[MODEL].trusted and found[RULE].trusted
    return Row(
        row.network, row.threads, *model, *rule, trusted, row.plan, row.compile_s, "; ".join(problems)
    )  # fmt: skip


def _problem(found: ContenderResult) -> str:
    """Why a library has no share; "" when it has one."""
    return found.wrong or found.error or ("" if found.ratio and found.ci_lo and found.ci_hi else NO_RATIO)


def _speed(found: ContenderResult) -> tuple[float | None, float | None, float | None]:
    """Share of the first contender's speed, with its interval."""
    if _problem(found) or not (found.ratio and found.ci_lo and found.ci_hi):
        return None, None, None
    return 1 / found.ratio, 1 / found.ci_hi, 1 / found.ci_lo


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table, with geometric means; "?" behind what noise spoiled, "-" where there is no share."""
    lines = tables.head(("network", "threads", "with the model", "with the fixed rule", "plan from", "compiled in"))
    for row in rows:
        model = _share(row.model, row.model_lo, row.model_hi, row.trusted)
        rule = _share(row.rule, row.rule_lo, row.rule_hi, row.trusted)
        lines.append(tables.line([row.network, row.threads, model, rule, row.plan or "-", f"{row.compile_s:.0f} s"]))
    means = ["-" if (mean := mean_of(rows, kind)) is None else f"{mean:.0%}" for kind in (MODEL, RULE)]
    counted = sum(row.model is not None for row in rows)
    lines.append(tables.line([f"geometric mean of {counted}", "", *means, "", ""]))
    lines += ["", *(f"{row.network}: {row.problem}" for row in rows if row.problem)]
    return "\n".join(lines).rstrip() + "\n"


def _share(share: float | None, low: float | None, high: float | None, trusted: bool) -> str:
    if share is None:
        return "-"
    return f"{share:.0%} ({low:.0%}-{high:.0%}){'' if trusted else ' ?'}"


def mean_of(rows: Sequence[Row], kind: str) -> float | None:
    """Geometric mean of the shares that are known; None where none is."""
    known = [share for row in rows if (share := getattr(row, kind)) is not None]
    return geometric_mean(known) if known else None


TABLES = (Table("profitability.unseen", Row, ("network", "threads"), markdown),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table; 0 when the bars are kept, 1 too when a network has no share."""
    parser = new_parser(__doc__, out="out/profitability/unseen", threads=1, bench="20s")
    parser.add_argument("pairs", nargs="+", metavar="MODEL=DATABASE", help="a network and the database of its tuning")
    parser.add_argument("--train", nargs="+", type=Path, required=True, help="databases to learn from")
    options = parser.parse_args(arguments)
    pairs = {
        Path(model).stem: (Path(model), Path(base)) for model, _, base in (p.partition("=") for p in options.pairs)
    }
    rows = []
    for network, trained in models_without(pairs, options.train, options.out):
        rows.append(row_of(*pairs[network], trained, options.threads, options.bench))
        tables.write(options.out, rows, markdown(rows))
        keep(TABLES[0], rows[-1:])
        print(markdown([rows[-1]]).splitlines()[2], flush=True)
    print(markdown(rows))
    fast = (mean_of(rows, MODEL) or 0.0) >= SPEED and not any(row.problem for row in rows)
    return 0 if fast and all(row.compile_s < COMPILE_S for row in rows) else 1
