"""Small ONNX models written as text, and the reference that runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, numpy_helper

from autofuse.graph.loading.load import from_model
from autofuse.graph.model import Graph

Arrays = Mapping[str, NDArray[np.generic]]


@pytest.fixture
def model() -> Callable[..., ModelProto]:
    """`model("f (float[2] x) => (float[2] y) {...}", opset, weights)`: a model from ONNX's text form."""

    def build(text: str, opset: int = 18, weights: Arrays | None = None) -> ModelProto:
        header = f'<ir_version: 8, opset_import: ["" : {opset}]>'
        parsed = onnx.parser.parse_model(header + "\n" + text)
        parsed.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in (weights or {}).items())
        return parsed

    return build


@pytest.fixture
def graph_of(model: Callable[..., ModelProto]) -> Callable[..., Graph]:
    """The loaded graph of such a text."""

    def build(text: str, opset: int = 18, weights: Arrays | None = None) -> Graph:
        return from_model(model(text, opset, weights), "test")

    return build


@pytest.fixture
def run() -> Callable[[ModelProto, Arrays], list[NDArray[np.generic]]]:
    """Outputs of a model by ONNX Runtime without any optimisation."""

    def outputs(proto: ModelProto, feeds: Arrays) -> list[NDArray[np.generic]]:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        wanted = {item.name for item in session.get_inputs()}
        return [np.asarray(item) for item in session.run(None, {k: v for k, v in feeds.items() if k in wanted})]

    return outputs
