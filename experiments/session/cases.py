"""Models that compute next to nothing, so that what is left is the cost of calling them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

SMALL = """net (float[1,8] x) => (float[1,4] y, float[1,4] z)
    { m = MatMul (x, w) y = Relu (m) s = Sigmoid (m) z = Mul (s, m) }"""
INPUTS = 4
LAYERS = 50


def small() -> onnx.ModelProto:
    """One input, two outputs."""
    return _model(SMALL, {"w": (8, 4)})


def wide() -> onnx.ModelProto:
    """Four inputs and four outputs."""
    takes = ", ".join(f"float[1,16] x{number}" for number in range(INPUTS))
    gives = ", ".join(f"float[1,16] y{number}" for number in range(INPUTS))
    body = " ".join(f"y{number} = Relu (x{number})" for number in range(INPUTS))
    return _model(f"net ({takes}) => ({gives}) {{ {body} }}", {})


def deep() -> onnx.ModelProto:
    """Fifty layers, each with weights: arguments that a call hands over, too."""
    body = " ".join(f"m{n} = MatMul (h{n}, w{n}) h{n + 1} = Relu (m{n})" for n in range(LAYERS))
    text = f"net (float[1,8] h0) => (float[1,8] h{LAYERS}) {{ {body} }}"
    return _model(text, {f"w{number}": (8, 8) for number in range(LAYERS)})


CASES: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "1 input, 2 outputs": small,
    "4 inputs, 4 outputs": wide,
    "50 layers with weights": deep,
}


def _model(text: str, weights: Mapping[str, tuple[int, ...]]) -> onnx.ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> {text}')
    random = np.random.default_rng(0)
    for name, shape in weights.items():
        values: NDArray[np.float32] = random.standard_normal(shape).astype("float32")
        made.graph.initializer.append(numpy_helper.from_array(values / 4, name))
    return made
