"""Peak resident memory of a compiled model against ONNX Runtime's, each in a process of its own.

    .venv/bin/python -m experiments memory model.onnx other.onnx=other.db --out out/memory

A model without a database is compiled by the fixed rules. The bar: at most 1.3 times ONNX Runtime's peak.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autofuse import api
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import load
from experiments import tables
from experiments.index import ROOT
from experiments.options import new_parser
from experiments.records import Table, keep

BAR = 1.3
CHILD = Path(__file__).with_name("child.py")
KINDS = ("autofuse", "onnxruntime")


@dataclass(frozen=True)
class Row:
    """Mebibytes. `..._imported`: the runtime alone; `..._running`: the highest point of running; `..._peak`: of all.

    `ratio`: peak over ONNX Runtime's; `ratio_running`: the same while running.
    """

    model: str
    weights: float
    library: float
    autofuse_imported: float
    autofuse_running: float
    autofuse_peak: float
    onnxruntime_imported: float
    onnxruntime_running: float
    onnxruntime_peak: float
    ratio: float
    ratio_running: float


def row_of(model: Path, database: str | None, threads: int, out: Path) -> Row:
    """Compile, then measure both."""
    graph = load(model, {})
    weights = sum(np.asarray(array).nbytes for array in graph.constants.values())
    inputs = out / f"{model.stem}.npz"
    np.savez(inputs, **generate_inputs(graph, 0))  # type: ignore[arg-type]
    library = out / f"{model.stem}.so"
    api.compile(model, library, database=database or str(out / "nothing-measured.db"), threads=threads)
    found = {kind: _measured(kind, library if kind == "autofuse" else model, inputs, threads) for kind in KINDS}
    ours, theirs = (found[kind] for kind in KINDS)
    return Row(
        model.stem, weights / 2**20, library.stat().st_size / 2**20,
        ours["imported"], ours["running"], ours["peak"], theirs["imported"], theirs["running"], theirs["peak"],
        ours["peak"] / theirs["peak"], ours["running"] / theirs["running"],
    )  # fmt: skip


def _measured(kind: str, path: Path, inputs: Path, threads: int) -> dict[str, float]:
    command = [sys.executable, str(CHILD), kind, str(path), str(inputs), str(threads), "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{kind} {path}: {done.stderr.strip()[-500:]}")
    return {name: int(size) / 2**20 for name, size in json.loads(done.stdout).items()}


def markdown(rows: Sequence[Row]) -> str:
    """The rows as a table."""
    lines = tables.head(
        (
            "model", "weights, MB", "library, MB", "autofuse: import, running, peak",
            "ONNX Runtime: import, running, peak", "peak ratio", "running ratio",
        )
    )  # fmt: skip
    for row in rows:
        doubt = "" if row.ratio <= BAR else " (misses)"
        ours = f"{row.autofuse_imported:.0f}, {row.autofuse_running:.0f}, {row.autofuse_peak:.0f}"
        theirs = f"{row.onnxruntime_imported:.0f}, {row.onnxruntime_running:.0f}, {row.onnxruntime_peak:.0f}"
        ratios = f"{row.ratio:.2f}{doubt}", f"{row.ratio_running:.2f}"
        lines.append(tables.line([row.model, f"{row.weights:.0f}", f"{row.library:.0f}", ours, theirs, *ratios]))
    return "\n".join(lines) + "\n"


TABLES = (Table("memory", Row, ("model",), markdown),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table; 0 when every model keeps the bar."""
    parser = new_parser("Peak resident memory against ONNX Runtime.", out="out/memory", threads=1)
    parser.add_argument("models", nargs="+", metavar="MODEL[=DATABASE]")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for given in options.models:
        model, _, database = given.partition("=")
        rows.append(row_of(Path(model), database or None, options.threads, options.out))
        print(markdown(rows).splitlines()[-1], flush=True)
    tables.write(options.out, rows, markdown(rows))
    keep(TABLES[0], rows)
    return 0 if all(row.ratio <= BAR for row in rows) else 1
