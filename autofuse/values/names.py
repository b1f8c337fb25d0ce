"""Names of plans, rivals, knobs, options and element types: one for one thing, and what earlier versions called them.

"tvm" was the name of two things: TVM's partition with our kernels (a plan), and TVM as it comes (a rival). Databases
and command lines that say so still work: what they mean is read here, and nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

BFLOAT16 = "bfloat16"
"""Element type of tensors of models and of libraries; a graph has it as float32."""

NO_FUSION = "none"
UNTUNED = "untuned"
ONNX_RUNTIME = "onnxruntime"
TVM_PARTITION = "tvm-partition"
TVM_UNTUNED = "tvm-untuned"

FORMER_PLANS = {"tvm": TVM_PARTITION}
FORMER_RIVALS = {"tvm": TVM_UNTUNED}
FORMER_KNOBS = {
    "block.rows": "chain.rows",
    "contraction.panels_per_job": "contraction.panels_per_task",
    "contraction.parts": "contraction.split_k",
    "contraction.passes": "contraction.k_blocking",
    "contraction.rows_per_job": "contraction.rows_per_task",
    "contraction.split": "contraction.pixel_rows",
    "elementwise.jobs": "elementwise.tasks",
    "row.rows": "last_axis.rows",
    "windowed.rows_per_job": "windowed.rows_per_task",
}
"""Knobs of kernels: stored schedules and search spaces of earlier versions call them so."""
FORMER_OPTIONS = {"boards": "workers"}
"""Options of the command line, without their dashes."""
_FORMER_KNOB = re.compile("|".join(f'"{re.escape(name)}"' for name in FORMER_KNOBS))

TITLES = {
    NO_FUSION: "no fusion",
    TVM_PARTITION: "TVM's partition, our kernels",
    TVM_UNTUNED: "TVM, untuned",
    ONNX_RUNTIME: "ONNX Runtime",
    UNTUNED: "the default rule, nothing tuned",
    "default": "the default rule",
    "dnnfusion": "the paper's algorithm",
    "always": "all legal fusion",
    "previous": "what an earlier run chose",
    "search": "best plan of the search",
    "composed": "best plan of all measured groups",
    "model": "plan of the trained model",
    "autofuse": "the compiled library",
}
"""What a name means, for people."""


LEAST_DIGITS = 4


def told_apart(labels: Mapping[str, str]) -> dict[str, str]:
    """Labels of kernels by the key of their workload, each unique: equal ones get the first digits of their keys."""
    alike: dict[str, list[str]] = {}
    for key, label in labels.items():
        alike.setdefault(label, []).append(key)
    found = {}
    for label, keys in alike.items():
        digits = LEAST_DIGITS
        while len({key[:digits] for key in keys}) < len(keys):
            digits += 1
        found.update({key: label if len(keys) == 1 else f"{label} #{key[:digits]}" for key in keys})
    return found


def plan_name(name: str) -> str:
    """The present name of a plan."""
    return FORMER_PLANS.get(name, name)


def rival_name(name: str) -> str:
    """The present name of a rival."""
    return FORMER_RIVALS.get(name, name)


def current_schedule(text: str) -> str:
    """The canonical JSON of a schedule with today's names of its knobs; a text without former names as it is."""
    if not _FORMER_KNOB.search(text):
        return text
    try:
        stored = json.loads(text)
    except ValueError:  # a damaged text is judged by those who read it
        return text
    if not isinstance(stored, dict):
        return text
    renamed = {FORMER_KNOBS.get(name, name): value for name, value in stored.items()}
    return json.dumps(renamed, sort_keys=True, separators=(",", ":"))


def numpy_dtype(name: str) -> np.dtype[Any]:
    """numpy's element type of a name; that of ml_dtypes for bfloat16, which numpy lacks."""
    import numpy as np

    if name != BFLOAT16:
        return np.dtype(name)
    import ml_dtypes  # only where a model has such tensors: a board that runs others may go without

    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return found


def counted(count: int, name: str) -> str:
    """A number of things with their name: "1 kernel", "51 kernels"."""
    return f"{count} {name}{'' if count == 1 else 's'}"
