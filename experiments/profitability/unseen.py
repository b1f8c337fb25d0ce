"""Networks that nobody tuned, compiled with a model that never saw them, against what a whole tuning reached.

    python -m experiments profitability.unseen out/networks/models/resnet50.onnx=out/networks/resnet50.db ...
        --train out/profitability/times.db

Each network is compiled three times without measuring: from its tuning database (tuned), and from an empty one with the
trained model (`--on-miss model`) and with the fixed rule. The three run interleaved, checked against ONNX Runtime. The
bar: the model's library at 90 % of the tuned speed in the geometric mean, compiled in less than a minute.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from autofuse import api
from autofuse.backend.compile.host_cpu import local_device
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import load
from autofuse.measure.checking.reference import run_reference
from autofuse.measure.networks.bench import Contender, ContenderResult, bench_contenders
from experiments import tables
from experiments.profitability.held_out import models_without

SPEED, COMPILE_S = 0.9, 60.0
"""The bars: share of the tuned speed, and seconds of compiling."""
TUNED, MODEL, RULE = "tuned", "model", "rule"


@dataclass(frozen=True)
class Row:
    """`model`, `rule`: the tuned time over theirs, so their share of its speed, each with its interval.

    `plan`: the rung that the model's plan came from ("rule" where it abstained); `compile_s`: of the model's library.
    """

    network: str
    threads: int
    model: float
    model_lo: float
    model_hi: float
    rule: float
    rule_lo: float
    rule_hi: float
    trusted: bool
    plan: str
    compile_s: float


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
        inputs = generate_inputs(graph, 0)
        reference = run_reference(graph, inputs)
        found = bench_contenders(
            [Contender(kind, "autofuse", folder / f"{kind}.so") for kind in (TUNED, MODEL, RULE)],
            inputs,
            threads,
            seconds,
            target=local_device().target(),
            expected=[reference[output] for output in graph.outputs],
        )
    speeds = [*_speed(found[MODEL]), *_speed(found[RULE])]
    trusted = found[MODEL].trusted and found[RULE].trusted
    return Row(path.stem, threads, *speeds, trusted, report.plan_tier, compile_s)


def _speed(found: ContenderResult) -> tuple[float, float, float]:
    """Share of the first contender's speed, with its interval; nothing where the library failed or is wrong."""
    if found.wrong or found.error or not (found.ratio and found.ci_lo and found.ci_hi):
        raise RuntimeError(found.wrong or found.error or "not measured")
    return 1 / found.ratio, 1 / found.ci_hi, 1 / found.ci_lo


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table, with geometric means; "?" behind what noise spoiled."""
    lines = tables.head(("network", "threads", "with the model", "with the fixed rule", "plan from", "compiled in"))
    for row in rows:
        doubt = "" if row.trusted else " ?"
        model = f"{row.model:.0%} ({row.model_lo:.0%}-{row.model_hi:.0%}){doubt}"
        rule = f"{row.rule:.0%} ({row.rule_lo:.0%}-{row.rule_hi:.0%}){doubt}"
        lines.append(tables.line([row.network, row.threads, model, rule, row.plan, f"{row.compile_s:.0f} s"]))
    means = [f"{geometric_mean([getattr(row, kind) for row in rows]):.0%}" for kind in (MODEL, RULE)]
    lines.append(tables.line([f"geometric mean of {len(rows)}", "", *means, "", ""]))
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table; 0 when the bars are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", metavar="MODEL=DATABASE", help="a network and the database of its tuning")
    parser.add_argument("--train", nargs="+", type=Path, required=True, help="databases to learn from")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bench", type=float, default=20.0, help="seconds of each comparison (default: 20)")
    parser.add_argument("--out", type=Path, default=Path("out/profitability/unseen"))
    options = parser.parse_args(arguments)
    pairs = {
        Path(model).stem: (Path(model), Path(base)) for model, _, base in (p.partition("=") for p in options.pairs)
    }
    rows = []
    for network, trained in models_without(pairs, options.train, options.out):
        rows.append(row_of(*pairs[network], trained, options.threads, options.bench))
        tables.write(options.out, rows, markdown(rows))
        print(markdown(rows).splitlines()[-2], flush=True)
    print(markdown(rows))
    fast = geometric_mean([row.model for row in rows]) >= SPEED
    return 0 if fast and all(row.compile_s < COMPILE_S for row in rows) else 1
