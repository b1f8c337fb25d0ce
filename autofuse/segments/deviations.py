"""Where ONNX Runtime is known to compute something else than ONNX defines: refused, for nobody would notice.

Each stands for cases of ONNX's own node suite that ONNX Runtime gets wrong (`experiments/node_suite`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autofuse.graph.parts.source import Node, Source

_RESULT = 3
"""Place of Attention's fourth result, the product of queries and keys."""
_PAST = 4


def deviation(source: Source, node: Node) -> str:
    """How ONNX Runtime's results of an operator differ from ONNX's definition; "" where nothing is known."""
    if any("float8" in source.type_of(name).text for name in node.writes if name in source.outputs):
        return "ONNX Runtime hands numbers of 8 bits out as integers"
    if node.domain or node.op_type not in ("Attention", "MaxUnpool", "Resize"):
        return ""
    operator = source.operator(node)
    given = [*operator.inputs, *("" for _ in range(6))]
    if node.op_type == "MaxUnpool" and given[2]:
        return "ONNX Runtime takes indices as places of the output's given shape, ONNX as those of the inferred one"
    if node.op_type == "Resize" and _cuts_corners(source, operator.attributes, [*given, operator.outputs[0]]):
        return "ONNX Runtime aligns corners with the whole size, ONNX with the fractional one"
    masked = bool(given[3]) and bool(operator.attributes.get("is_causal", 0)) and bool(given[_PAST])
    if node.op_type == "Attention" and masked and len(operator.outputs) > _RESULT and operator.outputs[_RESULT]:
        return "ONNX Runtime masks the product of queries and keys with the lowest number, ONNX with minus infinity"
    return ""


def _cuts_corners(source: Source, attributes: Mapping[str, object], given: list[str]) -> bool:
    """Whether a Resize aligns corners by scales that make no whole number of elements.

    Scales that are no constants are taken for whole numbers where the sizes are multiples.
    """
    mode = str(attributes.get("coordinate_transformation_mode", "half_pixel"))
    if "align_corners" not in mode or not given[2]:
        return False
    before, scales = source.tensor_of(given[0]), source.numbers(given[2])
    if before is None:
        return True
    if scales is None:
        after = source.declared_sizes(given[-1]) if given[-1] in source.outputs else None
        return after is None or any(new % old for new, old in zip(after, before.shape, strict=True))
    if len(scales) == 0:
        return False
    axes = attributes.get("axes") or range(len(before.shape))
    sizes = np.array([before.shape[axis] for axis in axes])  # type: ignore[attr-defined]
    made = sizes * np.asarray(scales, dtype="float64")
    return bool((np.abs(made - np.round(made)) > 1e-5).any())
