"""The table of the node cases: states beside ONNX Runtime's, and why cases are refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from experiments.node_suite.engines import STATES, Row

REASONS = (
    (r"sequence, an optional or text|is no tensor|element type string", "sequences, optionals, texts"),
    (r"training mode", "training mode"),
    (r"no kernel of it that agrees", "operators without a kernel (attention, recurrent, random, ...)"),
    (r"was not checked|TVM computes differs", "variants that TVM's importer gets wrong, or that nobody checked"),
    (r"element type|tensors of type", "element types (bfloat16, float8, 4 bits, complex)"),
    (r"no static shape|not fixed|known at run time", "shapes that depend on data"),
    (r"is empty|without elements", "empty tensors"),
    (r"unknown operator|too old|unknown to the installed|names no ONNX opset", "operators outside of the standard"),
    (r"Loop|Scan|\bIf\b|control flow", "loops and branches"),
    (r"TVM|importer", "what TVM's importer cannot lower"),
)


def category(reason: str) -> str:
    """The kind of a refusal."""
    return next((name for pattern, name in REASONS if re.search(pattern, reason)), "others")


def table(rows: Sequence[Row]) -> str:
    """States of both engines, then the refusals by kind, then every case that is neither right nor refused."""
    ours = {row.case: row for row in rows if row.engine == "autofuse"}
    theirs = {row.case: row for row in rows if row.engine == "onnxruntime"}
    counts = {name: Counter(row.state for row in found.values()) for name, found in (("a", ours), ("o", theirs))}
    lines = ["| | autofuse | ONNX Runtime |", "|---|---:|---:|"]
    lines += [f"| {state} | {counts['a'][state]} | {counts['o'][state]} |" for state in STATES]
    lines += [f"| all | {len(ours)} | {len(theirs)} |", ""]
    lines += ["| refused because of | cases | of these right in ONNX Runtime |", "|---|---:|---:|"]
    refused = Counter(category(row.reason) for row in ours.values() if row.state == "refused")
    known = {name for name, row in theirs.items() if row.state == "right"}
    both = Counter(category(row.reason) for row in ours.values() if row.state == "refused" and row.case in known)
    lines += [f"| {name} | {count} | {both[name]} |" for name, count in refused.most_common()]
    others = [row for row in ours.values() if row.state not in ("right", "refused")]
    lines += ["", *(f"- `{row.case}`: {row.state}: {row.reason}" for row in others)]
    return "\n".join(lines).rstrip() + "\n"
