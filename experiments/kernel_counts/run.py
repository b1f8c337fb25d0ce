"""Kernels before and after fusion: ours against the paper's, TVM's, ONNX Runtime's and OpenVINO's. No time is measured.

    .venv/bin/python -m experiments kernel_counts MODEL.onnx ... --out out/kernel_counts

Counted on one graph a model: the file as loaded here (constants folded, shapes static), with what later opsets have as
one operator written out as exporters did up to opset 14 (`WRITTEN_OUT`). A kernel is a launch: a group that only
renames axes in memory (Reshape and its like alone) is none, neither in our plans nor in the others' graphs.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from autofuse.backend.compile.host_cpu import device_named
from autofuse.environment.named_plans import NAMES, named_plan
from autofuse.environment.space import load_space
from autofuse.errors import AutofuseError
from autofuse.fusion.planner.baselines import always_plan
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.graph.submodel import to_model
from autofuse.kernels.lowering.lower import Lowering
from autofuse.kernels.workload.free_reshape import RENAMING
from autofuse.rewrite.driver import rewrite
from autofuse.views.inspect import bytes_moved
from experiments import tables
from experiments.model_files import HELP, asked_for
from experiments.options import new_parser
from experiments.peers.environments import MissingEnvironmentError, interpreter
from experiments.records import Table, keep

WRITTEN_OUT = frozenset({"layer_normalization_apart", "gelu_apart", "swish_apart", "mish_apart"})
"""Fissions that make of an operator what exporters wrote for it when opsets ended at 14."""

LEVELS = {"ort_extended": "ORT_ENABLE_EXTENDED", "ort_all": "ORT_ENABLE_ALL"}
"""Names of `onnxruntime.GraphOptimizationLevel`."""
NO_KERNEL = frozenset({"Input", "Output", "Const", "Constant", "Parameter", "Result", "Reshape", "Reorder", "Memory"})
"""Layer types of OpenVINO that are not counted: data, views, and changes of layout (which would be launches, too)."""
OWN = ("dnnfusion", "default", "always")
COLUMNS = {"tvm-partition": "tvm"}
"""Of plans whose column has another name."""
RIVALS = ("tvm", "ort_extended", "ort_all", "openvino")

PAPER = {
    "efficientnet_b0": (309, 97), "vgg16": (51, 17), "mobilenetv1_ssd": (202, 71), "yolov4": (398, 135),
    "c3d": (27, 16), "s3d": (272, 98), "unet": (292, 82), "faster_rcnn": (3640, 942), "mask_rcnn": (3999, 981),
    "tinybert": (366, 74), "distilbert": (457, 109), "albert_base": (936, 225), "bert_base": (976, 216),
    "mobilebert": (2387, 510), "gpt2": (2533, 254),
}  # fmt: skip
"""DNNFusion's Table 5: layers before and after, in its own exports."""


@dataclass(frozen=True)
class Row:
    """Kernels of one model under each plan; -1 where one cannot be made. `operators`: of the graph, views included.

    `default`: with rewriting; `always`: all legal fusion within the search space's largest group. `moved_mb`,
    `moved_none_mb`: what the kernels of the default plan, and of no fusion, read and write.
    """

    model: str
    operators: int
    none: int
    tvm: int
    ort_extended: int
    ort_all: int
    openvino: int
    dnnfusion: int
    default: int
    always: int
    moved_mb: float
    moved_none_mb: float

    @property
    def ratio(self) -> float:
        """Operators before over kernels after, as the paper's table counts it."""
        return self.operators / self.default

    @property
    def paper(self) -> float | None:
        """The paper's ratio for this network."""
        before, after = PAPER.get(self.model, (0, 0))
        return before / after if after else None


def count(path: Path) -> Row:
    """The counts of one model file."""
    graph = written_out(load(path, {}))
    target = device_named("local").target()
    lowering, space = Lowering(graph, target), load_space(None, target.isa).fusion
    counts, moved = {}, {}
    for name in NAMES:
        try:
            plan = always_plan(graph, space) if name == "always" else named_plan(graph, name)
            counts[COLUMNS.get(name, name)] = len(lowering.lower(plan).kernels)
            moved[name] = bytes_moved(graph, plan) / 1e6
        except AutofuseError as error:
            print(f"{path.stem}: plan {name}: {error}", file=sys.stderr)
            counts[COLUMNS.get(name, name)] = -1
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.onnx"
        onnx.save(to_model(graph), plain)
        ort = {name: _optimised(plain, level) for name, level in LEVELS.items()}
        openvino = _openvino(plain)
    return Row(
        path.stem, len(graph.operators), openvino=openvino, moved_mb=moved["default"], moved_none_mb=moved["none"],
        **counts, **ort,
    )  # fmt: skip


def written_out(graph: Graph) -> Graph:
    """The graph with composite operators in the primitive ones of opset 14."""
    return rewrite(graph, lambda site: site.rule.name in WRITTEN_OUT).graph


def _optimised(path: Path, level: str) -> int:
    """Nodes of ONNX Runtime's optimised graph that launch something."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 3
    written = path.with_name("optimised.onnx")
    options.optimized_model_filepath = str(written)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "optimised.bin")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(written, load_external_data=False).graph.node
    return sum(node.op_type not in RENAMING for node in nodes)


def _openvino(path: Path) -> int:
    """Nodes of OpenVINO's compiled model that launch something; -1 without OpenVINO, or where it cannot compile."""
    try:
        python = interpreter("openvino")
    except MissingEnvironmentError as error:
        print(f"openvino is not counted: {error}", file=sys.stderr)
        return -1
    program = Path(__file__).with_name("openvino_nodes.py")
    done = subprocess.run([python, program, path], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"openvino: {done.stderr.strip()[-500:]}", file=sys.stderr)
        return -1
    kinds: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    print(f"openvino: {kinds}", file=sys.stderr)
    return sum(number for kind, number in kinds.items() if kind not in NO_KERNEL)


def markdown(rows: Sequence[Row]) -> str:
    """The counts as a table, with geometric means of the ratios."""
    columns = ("operators", "none", *RIVALS, *OWN)
    lines = tables.head(("model", *columns, "operators / default", "the paper's", "MB moved"))
    for row in rows:
        numbers = ("-" if getattr(row, name) < 0 else getattr(row, name) for name in columns)
        their = "-" if row.paper is None else f"{row.paper:.2f}"
        moved = f"{row.moved_none_mb:.0f} -> {row.moved_mb:.0f}"
        lines.append(tables.line([row.model, *numbers, f"{row.ratio:.2f}", their, moved]))
    pairs = [(row.ratio, row.paper) for row in rows if row.paper is not None]
    if pairs:
        ours, paper = map(_mean, zip(*pairs, strict=True))
        lines += ["", f"Geometric means over {len(pairs)} networks of the paper: ours {ours:.2f}, its own {paper:.2f}."]
    lines += ["", *(_against(rows, rival) for rival in RIVALS)]
    return "\n".join(lines) + "\n"


def _against(rows: Sequence[Row], rival: str) -> str:
    """On how many models the default plan has fewer kernels than a rival, and where it has more."""
    counted = [row for row in rows if getattr(row, rival) >= 0]
    fewer = sum(row.default < getattr(row, rival) for row in counted)
    equal = [row.model for row in counted if row.default == getattr(row, rival)]
    more = [
        f"{row.model} ({row.default} to {getattr(row, rival)})" for row in counted if row.default > getattr(row, rival)
    ]
    also = [f"as many: {', '.join(equal)}"] if equal else []
    also += [f"more: {', '.join(more)}"] if more else []
    return f"- {rival}: fewer kernels on {fewer} of {len(counted)}{'; ' if also else ''}{'; '.join(also)}"


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _place(row: Row) -> int:
    """The paper's networks in its order, then the others."""
    return list(PAPER).index(row.model) if row.model in PAPER else len(PAPER)


TABLES = (Table("kernel_counts", Row, ("model",), markdown, _place),)


def main(arguments: Sequence[str] | None = None) -> int:
    """Count the models given; rows of others in the folder are kept."""
    parser = new_parser("Kernels before and after fusion.", out="out/kernel_counts")
    parser.add_argument("models", nargs="+", metavar="MODEL", help=HELP)
    options = parser.parse_args(arguments)
    out: Path = options.out
    rows = {row.model: row for row in _read(out / "results.csv")}
    for path in asked_for(parser, options.models):
        rows[path.stem] = row = count(path)
        print(row, flush=True)
        keep(TABLES[0], [row])
        text = markdown(list(rows.values()))
        tables.write(out, list(rows.values()), text)
    print(text)
    return 0


def _read(path: Path) -> list[Row]:
    return [_row(line) for line in tables.read_csv(path)]


def _row(line: Mapping[str, str]) -> Row:
    numbers: dict[str, Any] = {k: float(v) if k.endswith("_mb") else int(v) for k, v in line.items() if k != "model"}
    return Row(line["model"], **numbers)
