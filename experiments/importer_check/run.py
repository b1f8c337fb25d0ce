"""Checks what TVM's importer computes against ONNX, and writes the list of what it was checked for.

.venv/bin/python -m experiments importer_check       # `make importer-check`; goes on where it was interrupted
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib import metadata

import numpy as np
from onnx.defs import onnx_opset_version

from autofuse.graph.loading.upgrade import FORM
from autofuse.graph.nodes import schema_of
from autofuse.kernels.families.registry import is_own
from autofuse.kernels.importer.checked import merged
from autofuse.kernels.importer.variant import Variant, variant_of
from autofuse.kernels.workload.workload import Workload
from experiments.children import TIME_OUT, each_result
from experiments.importer_check.check import Finding, check
from experiments.importer_check.draws import of_node_cases, random_workload
from experiments.importer_check.ways import of_ways
from experiments.index import ROOT
from experiments.options import new_parser

LIST = ROOT / "autofuse" / "kernels" / "importer" / "checked.json"
APPLICATION_SECONDS = 60.0
APPLICATIONS = 2
"""Different applications of a variant that are checked, each on four sets of values."""


def applications(draws: int, seed: int) -> Iterator[Workload]:
    """At most `APPLICATIONS` different ones of each variant: ONNX's own, then random ones."""
    seen: Counter[Variant] = Counter()
    keys: set[str] = set()
    for workload in _all(draws, seed):
        variant = variant_of(workload, workload.operators[0])
        if workload.key in keys or seen[variant] >= APPLICATIONS or not _checkable(workload):
            continue
        keys.add(workload.key)
        seen[variant] += 1
        yield workload


def _all(draws: int, seed: int) -> Iterator[Workload]:
    """ONNX's node cases, random applications that only TVM covers, then those of ours, which it meets beside them.

    What is drawn is checked with every version of its schema that a loaded graph may have.
    """
    yield from of_node_cases()
    chance = np.random.default_rng(seed)
    drawn = [
        *of_ways(),
        *(workload for _ in range(draws) for workload in random_workload(chance)),
    ]
    for workload in sorted(drawn, key=is_own):
        for opset in opsets_of(workload.operators[0].op_type):
            yield replace(workload, opset=opset)


@cache
def opsets_of(kind: str) -> tuple[int, ...]:
    """An opset for each version of an operator's schema that a loaded graph may have."""
    found: dict[int, int] = {}
    for opset in range(FORM, onnx_opset_version() + 1):
        schema = schema_of(kind, opset)
        if schema is not None:
            found.setdefault(schema.since_version, opset)
    return tuple(found.values())


def _checkable(workload: Workload) -> bool:
    """Whether the text says all of it: no tensor or graph among the attributes, no empty tensor."""
    values = [value for operator in workload.operators for _, value in operator.attributes]
    return not any(isinstance(value, bytes) for value in values) and all(0 not in v.shape for v in workload.values)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check what no row exists for yet, and write the list."""
    options = _parser().parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "rows.jsonl"
    old = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    done = {json.loads(line)["text"] for line in old}
    waiting = (
        []
        if options.write
        else [work.text for work in applications(options.draws, options.seed) if work.text not in done]
    )
    print(f"{len(waiting)} applications to check, {len(done)} done", flush=True)
    with path.open("a", encoding="utf-8", buffering=1) as file:

        def take(row: Finding) -> None:
            if not row.reason.startswith(TIME_OUT):  # on a busy machine; the next start tries again
                file.write(json.dumps(row.record()) + "\n")

        each_result(check, waiting, APPLICATION_SECONDS, _lost, take, options.processes)
    rows = [Finding(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    print(written(rows, options))
    return 0


def _lost(text: str, reason: str) -> Finding:
    workload = Workload.from_text(text)
    variant = variant_of(workload, workload.operators[0])
    return Finding(variant.operator, str(variant), "wrong", reason, text)


def written(rows: Sequence[Finding], options: argparse.Namespace) -> str:
    """Writes the list of what the rows allow; one line on it."""
    found: dict[Variant, list[Finding]] = defaultdict(list)
    for row in rows:
        workload = Workload.from_text(row.text)
        if row.state != "none":
            found[variant_of(workload, workload.operators[0])].append(row)
    right: dict[str, dict[Variant, str]] = defaultdict(dict)
    wrong: dict[str, dict[Variant, str]] = defaultdict(dict)
    for variant, own in found.items():
        bad = next((row.reason for row in own if row.state == "wrong"), None)
        (right if bad is None else wrong)[variant.operator][variant] = bad or ""
    body = {
        "about": "Written by `make importer-check`: the variants of operators whose results by TVM's ONNX importer "
        "agree with ONNX's reference or ONNX Runtime (right), and those that do not (wrong).",
        "versions": {name: metadata.version(name) for name in ("apache-tvm", "onnx", "onnxruntime")},
        "seed": options.seed,
        "draws": options.draws,
        "applications": len(rows),
        "right": {name: merged(variants) for name, variants in sorted(right.items())},
        "wrong": {name: merged(variants) for name, variants in sorted(wrong.items())},
    }
    LIST.write_text(_readable(body) + "\n", encoding="utf-8")
    counts = f"{sum(map(len, right.values()))} variants right, {sum(map(len, wrong.values()))} wrong"
    return f"{len(rows)} applications of {len(right) + len(wrong)} operators: {counts}; {LIST.name} is written"


def _readable(body: dict[str, object]) -> str:
    """JSON with one entry a line."""
    parts = []
    for name, value in body.items():
        if not isinstance(value, dict) or name == "versions":
            parts.append(f"{json.dumps(name)}: {json.dumps(value)}")
            continue
        operators = []
        for operator, entries in value.items():
            lines = ",\n   ".join(json.dumps(entry) for entry in entries)
            operators.append(f"  {json.dumps(operator)}: [\n   {lines}]")
        inner = ",\n".join(operators)
        parts.append(f"{json.dumps(name)}: {{\n{inner}\n }}")
    return "{\n " + ",\n ".join(parts) + "\n}"


def _parser() -> argparse.ArgumentParser:
    description = "TVM's importer against ONNX: writes the list of what it may be asked for."
    parser = new_parser(description, out="out/importer_check", seed=0, processes=1)
    parser.add_argument("--draws", type=int, default=8000, help="random applications to draw (default: 8000)")
    parser.add_argument("--write", action="store_true", help="check nothing more: write the list of what was checked")
    return parser
