"""Kernels before and after fusion: ours against TVM's default and ONNX Runtime's optimised graph.

    .venv/bin/python -m experiments.kernel_counts.run model.onnx ... --out out/kernel_counts

Counted on one graph a model: the file as loaded here (constants folded, shapes static). A kernel is a launch: a group
that only renames axes in memory (Reshape and its like alone) is none, neither in our plans nor in the others' graphs.
Nothing is measured: the plans are those that a search begins with.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import onnx
import onnxruntime

from autofuse.backend.host_cpu import device_named
from autofuse.errors import AutofuseError
from autofuse.graph.load import load
from autofuse.graph.submodel import to_model
from autofuse.kernels.lower import Lowering
from autofuse.kernels.view import RENAMING
from autofuse.named_plans import NAMES, named_plan

LEVELS = {
    "ort_extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "ort_all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


@dataclass(frozen=True)
class Row:
    """Kernels of one model under each plan; -1 where one cannot be made. `operators`: of the graph, views included."""

    model: str
    operators: int
    none: int
    tvm: int
    ort_extended: int
    ort_all: int
    dnnfusion: int
    default: int
    always: int

    @property
    def ratio(self) -> float:
        """Operators before over kernels after, as the paper's table counts it."""
        return self.operators / self.default


def count(path: Path) -> Row:
    """The counts of one model file."""
    graph = load(path, {})
    lowering = Lowering(graph, device_named("local").target())
    counts = {}
    for name in NAMES:
        try:
            counts[name] = len(lowering.lower(named_plan(graph, name)).kernels)
        except AutofuseError as error:
            print(f"{path.stem}: plan {name}: {error}", file=sys.stderr)
            counts[name] = -1
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.onnx"
        onnx.save(to_model(graph), plain)
        ort = {name: _optimised(plain, level) for name, level in LEVELS.items()}
    return Row(path.stem, len(graph.operators), **counts, **ort)


def _optimised(path: Path, level: onnxruntime.GraphOptimizationLevel) -> int:
    """Nodes of ONNX Runtime's optimised graph that launch something."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 3
    written = path.with_name("optimised.onnx")
    options.optimized_model_filepath = str(written)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimised.bin")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(written, load_external_data=False).graph.node
    return sum(node.op_type not in RENAMING for node in nodes)


def markdown(rows: Sequence[Row]) -> str:
    """The counts as a table, with geometric means of the ratios."""
    columns = ("operators", "none", "tvm", "ort_extended", "ort_all", "dnnfusion", "default", "always")
    lines = [f"| model | {' | '.join(columns)} | operators / default |", "| --- |" + " --- |" * (len(columns) + 1)]
    for row in rows:
        numbers = " | ".join("-" if getattr(row, name) < 0 else str(getattr(row, name)) for name in columns)
        lines.append(f"| {row.model} | {numbers} | {row.ratio:.2f} |")
    if rows:
        mean = math.exp(sum(math.log(row.ratio) for row in rows) / len(rows))
        fewer = {
            name: sum(row.default < getattr(row, name) for row in rows) for name in ("tvm", "ort_extended", "ort_all")
        }
        texts = ", ".join(f"{name} on {number}" for name, number in fewer.items())
        lines += ["", f"Geometric mean {mean:.2f} over {len(rows)} models; fewer kernels than {texts} of {len(rows)}."]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Count the models given; rows of others in the folder are kept."""
    parser = argparse.ArgumentParser(description="Kernels before and after fusion.")
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--out", type=Path, default=Path("out/kernel_counts"))
    options = parser.parse_args(arguments)
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    rows = {row.model: row for row in _read(out / "results.csv")}
    for path in options.models:
        rows[path.stem] = row = count(path)
        print(row, flush=True)
        with (out / "results.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(Row)])
            writer.writeheader()
            writer.writerows(asdict(one) for one in rows.values())
        (out / "results.md").write_text(markdown(list(rows.values())), encoding="utf-8")
    print(markdown(list(rows.values())))
    return 0


def _read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(line["model"], **{k: int(v) for k, v in line.items() if k != "model"}) for line in csv.DictReader(file)
        ]


if __name__ == "__main__":
    sys.exit(main())
