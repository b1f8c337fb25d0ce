"""Names of plans and rivals: one for one thing, and what earlier versions called them.

"tvm" was the name of two things: TVM's partition with our kernels (a plan), and TVM as it comes (a rival). Databases
and command lines that say so still work: what they mean is read here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping

NO_FUSION = "none"
ONNX_RUNTIME = "onnxruntime"
TVM_PARTITION = "tvm-partition"
TVM_UNTUNED = "tvm-untuned"

FORMER_PLANS = {"tvm": TVM_PARTITION}
FORMER_RIVALS = {"tvm": TVM_UNTUNED}

TITLES = {
    NO_FUSION: "no fusion",
    TVM_PARTITION: "TVM's partition, our kernels",
    TVM_UNTUNED: "TVM, untuned",
    ONNX_RUNTIME: "ONNX Runtime",
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
