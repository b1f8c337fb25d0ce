"""Random graphs of operators that loading simplifies compute the same afterwards."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from autofuse.graph.loading.load import from_model
from autofuse.graph.submodel import to_model

WEIGHTS = {
    "square": np.array([3, 4], np.int64),
    "cube": np.array([2, 3, 4], np.int64),
    "row": np.arange(4, dtype=np.float32) - 1,
    "column": np.arange(3, dtype=np.float32).reshape(3, 1),
    "one": np.ones((), np.float32),
    "first": np.array([0], np.int64),
    "true": np.ones((3, 4), bool),
}
UNARY = [
    "Relu({a})",
    "Neg({a})",
    "Identity({a})",
    "Dropout({a})",
    "Cast<to=1>({a})",
    "Expand({a}, square)",
    "Expand({a}, cube)",
    "Unsqueeze({a}, first)",
    "Add({a}, row)",
    "Mul(column, {a})",
    "Max({a}, one)",
    "Sum({a}, {a}, row)",
]
BINARY = ["Add({a}, {b})", "Mul({a}, {b})", "Sub({a}, {b})", "Max({a}, {b}, one)"]


@st.composite
def programs(draw):
    """Lines of a program over values of up to three dimensions that broadcast with one another."""
    values = ["x", "z"]
    lines = []
    for number in range(draw(st.integers(1, 10))):
        a, b = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        template = draw(st.sampled_from([*UNARY, *BINARY, "mask", "shape"]))
        name = f"v{number}"
        if template == "mask":
            lines.append(f"{name}t = Greater({a}, one) {name}a = And({name}t, true) {name} = Where({name}a, {a}, {b})")
        elif template == "shape":
            lines.append(f"{name}s = Shape({a}) {name} = Expand({b}, {name}s)")
        else:
            lines.append(f"{name} = {template.format(a=a, b=b)}")
        values.append(name)
    outputs = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=3, unique=True))
    return lines, outputs


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs())
def test_a_random_program_computes_the_same_after_loading(run, program):
    lines, outputs = program
    declared = ", ".join(f"float[d{index}] {name}" for index, name in enumerate(outputs))
    text = f"f (float[1,4] x, float[3,1] z) => ({declared}) {{ {' '.join(lines)} }}"
    proto = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 18]>\n' + text)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in WEIGHTS.items())
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    graph = from_model(proto, "random")
    generator = np.random.default_rng(0)
    feeds = {"x": generator.standard_normal((1, 4)), "z": generator.standard_normal((3, 1))}
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    assert graph.outputs == tuple(outputs)
    for old, new in zip(run(proto, feeds), run(to_model(graph), feeds), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5)
    again = from_model(to_model(graph), "random")
    assert again.operators == graph.operators
