"""Models of open sizes in bytes, in four bits and in halves, as ONNX Runtime's own tools write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.calibrate import CalibrationDataReader

from autofuse.backend.library.compiled import Library
from experiments.precisions.files import BLOCK, packed
from tests.compiler.open_sizes.models import Array, inputs_of

LEVEL, USUAL = 0.04, 0.004
"""Of the range: what a few levels that fall to the other side may move at one size, and at half of the sizes."""


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, feeds: list[dict[str, Array]]) -> None:
        self.left: Iterator[dict[str, Array]] = iter(feeds)

    def get_next(self) -> dict[str, Array] | None:
        """The next sample; None behind the last."""
        return next(self.left, None)


def dynamic(model: Path, **more: Any) -> Path:
    """Weights in bytes, activations in levels of the range that they have in a call."""
    made = model.with_name(f"{model.stem}-dynamic.onnx")
    quantize_dynamic(model, made, per_channel=True, weight_type=QuantType.QInt8, **more)
    return made


def static(model: Path, sizes: Mapping[str, int], form: QuantFormat = QuantFormat.QDQ) -> Path:
    """Weights and activations in bytes, of ranges that samples have."""
    made = model.with_name(f"{model.stem}-{form.name}.onnx")
    samples = _Samples([inputs_of(model, {**sizes, "seed": seed}) for seed in range(4)])
    quantize_static(
        model, made, samples, quant_format=form, per_channel=True, activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )  # fmt: skip
    return made


def nibbles(model: Path) -> Path:
    """Weights of products in four bits (MatMulNBits)."""
    graph = (made := onnx.load(model)).graph
    weights = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in weights:
            depth, columns = weights[node.input[1]].shape
            for label, array in zip(("codes", "scales"), packed(weights[node.input[1]]), strict=True):
                graph.initializer.append(numpy_helper.from_array(array, f"{node.output[0]}.{label}"))
            node.op_type, node.domain = "MatMulNBits", "com.microsoft"
            node.input[1:] = [f"{node.output[0]}.codes", f"{node.output[0]}.scales"]
            sizes = {"K": depth, "N": columns, "bits": 4, "block_size": BLOCK}
            node.attribute.extend(helper.make_attribute(*one) for one in sizes.items())
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return _saved(made, model, "nibbles")


def halves(model: Path) -> Path:
    """Operands of products by constants in bfloat16."""
    graph = (made := onnx.load(model)).graph
    weights, nodes = {one.name for one in graph.initializer}, []
    for node in graph.node:
        for place in (0, 1) if node.op_type == "MatMul" and node.input[1] in weights else ():
            name, half = node.input[place], f"{node.output[0]}.half{place}"
            nodes.append(helper.make_node("Cast", [name], [half], to=TensorProto.BFLOAT16))
            nodes.append(helper.make_node("Cast", [half], [f"{half}.wide"], to=TensorProto.FLOAT))
            node.input[place] = f"{half}.wide"
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return _saved(made, model, "halves")


def _saved(made: onnx.ModelProto, model: Path, form: str) -> Path:
    path = model.with_name(f"{model.stem}-{form}.onnx")
    onnx.save(made, path)
    return path


def check_levels(model: Path, library: Library, points: list[Mapping[str, int]]) -> None:
    """The library computes what ONNX Runtime does at each of these sizes, but for a few levels: with what it joins, or
    operator by operator, which differ by a level themselves."""
    sessions = [_session(model, level) for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL")]
    found_off = []
    for point in points:
        feeds = inputs_of(model, point)
        made, wanted = library(feeds), [session.run(None, feeds) for session in sessions]
        off = min(max(map(_off, made, one)) for one in wanted)
        assert off < LEVEL, f"at {point}"
        found_off.append(off)
    assert np.median(found_off) < USUAL


def _session(model: Path, level: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def _off(found: Array, wanted: Array) -> float:
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())
