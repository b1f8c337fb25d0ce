"""Decoder steps whose attention is one operator that takes its past: of ONNX (opset 23 and 24), of ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.compiler.open_sizes.models import Array, weight

FLOAT, BOOL, INT32, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT32, TensorProto.INT64
DTYPES: dict[int, type] = {FLOAT: np.float32, BOOL: np.bool_, INT32: np.int32, INT64: np.int64}
WIDTH = 16
"""Of a head."""


@dataclass(frozen=True)
class Step:
    """`kind`: the operator. `mask`: "" none, "float" or "bool" for each query, "padding" of the tokens (int64).

    `heads` of queries share `keys` heads of keys. `new`: tokens of a step. `flat`: heads are no axis of their own.
    `options`: attributes of the operator. `total`: what the model calls the length of past and new.
    """

    kind: str = "Attention"
    mask: str = ""
    heads: int = 4
    keys: int = 2
    new: int = 1
    flat: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    total: str = ""
    opset: int = 23

    @property
    def length(self) -> str:
        return self.total or f"past + {self.new}"


class _Writer:
    def __init__(self, step: Step) -> None:
        self.step, self.nodes, self.weights = step, list[onnx.NodeProto](), dict[str, Array]()
        self.inputs = [helper.make_tensor_value_info("x", FLOAT, [1, step.new, step.heads * WIDTH])]

    def op(self, kind: str, inputs: list[str], output: str, **options: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], **options))
        return output

    def constant(self, name: str, value: Any) -> str:
        self.weights[name] = np.asarray(value)
        return name

    def given(self, name: str, dtype: int, shape: list[Any]) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def model(self) -> onnx.ModelProto:
        step = self.step
        sizes = {"q": step.heads, "k": step.keys, "v": step.keys}
        for name, count in sizes.items():
            matrix = self.constant(f"w{name}", weight(step.heads * WIDTH, count * WIDTH, seed=ord(name)))
            self.op("MatMul", ["x", matrix], name)
        found = {"Attention": self._standard, "MultiHeadAttention": self._several, "GroupQueryAttention": self._grouped}
        y = found[step.kind](sizes)
        self.op("MatMul", [y, self.constant("wo", weight(step.heads * WIDTH, step.heads * WIDTH))], "o")
        outputs = [helper.make_tensor_value_info("o", FLOAT, [1, step.new, step.heads * WIDTH])]
        cache = [1, step.keys, step.length, WIDTH]
        outputs += [helper.make_tensor_value_info(f"present_{name}", FLOAT, cache) for name in "kv"]
        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "step", self.inputs, outputs, weights)
        own = step.kind != "Attention"
        imports = [helper.make_opsetid("", 17 if own else step.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports if own else imports[:1], ir_version=10)

    def _pasts(self) -> list[str]:
        return [self.given(f"past_{name}", FLOAT, [1, self.step.keys, "past", WIDTH]) for name in "kv"]

    def _standard(self, sizes: dict[str, int]) -> str:
        step, mask, heads = self.step, self._mask(), {}
        if not step.flat:
            for name, count in sizes.items():
                apart = self.op("Reshape", [name, self.constant(f"s{name}", [0, 0, count, WIDTH])], f"{name}r")
                self.op("Transpose", [apart], f"{name}t", perm=[0, 2, 1, 3])
        else:
            heads = {"q_num_heads": step.heads, "kv_num_heads": step.keys}
        read = [f"{name}{'' if step.flat else 't'}" for name in sizes]
        results = ["y", "present_k", "present_v"]
        self.nodes.append(
            helper.make_node("Attention", [*read, mask, *self._pasts()], results, **heads, **step.options)
        )
        if step.flat:
            return "y"
        turned = self.op("Transpose", ["y"], "yt", perm=[0, 2, 1, 3])
        return self.op("Reshape", [turned, self.constant("joined", [0, 0, -1])], "yr")

    def _mask(self) -> str:
        step = self.step
        if step.mask == "padding":
            kept = self.op("Cast", [self.given("mask", INT64, [1, step.length])], "kept", to=BOOL)
            return self.op("Unsqueeze", [kept, self.constant("axes", [1, 2])], "spread")
        kinds = {"float": FLOAT, "bool": BOOL}
        return self.given("mask", kinds[step.mask], [1, 1, step.new, step.length]) if step.mask else ""

    def _several(self, _sizes: dict[str, int]) -> str:
        step, padding, bias = self.step, "", ""
        if step.mask == "padding":
            padding = self.given("mask", INT32, [1, step.length])
        elif step.mask:
            bias = self.given("mask", FLOAT, [1, 1, step.new, step.length])
        read = ["q", "k", "v", self.constant("b", weight(3 * step.heads * WIDTH)), padding, bias, *self._pasts()]
        self._own(read, num_heads=step.heads)
        return "y"

    def _grouped(self, _sizes: dict[str, int]) -> str:
        """As the model builder of onnxruntime-genai writes it: lengths are counted from a mask."""
        step = self.step
        self.given("mask", INT64, [1, step.length])
        self.op("ReduceSum", ["mask", self.constant("one", [1])], "sum")
        lengths = self.op("Cast", [self.op("Sub", ["sum", "one"], "last")], "lengths", to=INT32)
        shape = self.op("Shape", ["mask"], "shape")
        total = self.op("Cast", [self.op("Gather", [shape, self.constant("second", 1)], "size")], "total", to=INT32)
        read = ["q", "k", "v", *self._pasts(), lengths, total]
        if step.options.get("do_rotary"):
            angles = np.arange(64)[:, None] / 100 ** (np.arange(WIDTH // 2) / (WIDTH // 2))
            read += [self.constant("cos", np.cos(angles).astype(np.float32))]
            read += [self.constant("sin", np.sin(angles).astype(np.float32))]
        self._own(read, num_heads=step.heads, kv_num_heads=step.keys)
        return "y"

    def _own(self, read: list[str], **options: Any) -> None:
        results = ["y", "present_k", "present_v"]
        named = {**options, **self.step.options}
        self.nodes.append(helper.make_node(self.step.kind, read, results, domain="com.microsoft", **named))


def model_of(step: Step) -> onnx.ModelProto:
    """The model of a step."""
    return _Writer(step).model()


def feeds_of(step: Step, past: int) -> dict[str, Array]:
    """Its inputs; a mask forbids the first third of the past."""
    generator, total = np.random.default_rng(past), past + step.new
    feeds: dict[str, Array] = {}
    for value in model_of(step).graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [dim.dim_value or {"past": past, step.length: total}[dim.dim_param] for dim in dims]
        dtype = DTYPES[value.type.tensor_type.elem_type]
        if value.name != "mask":
            feeds[value.name] = generator.standard_normal(shape).astype(np.float32)
        elif dtype is np.float32:
            feeds[value.name] = generator.standard_normal(shape).astype(np.float32)
            feeds[value.name][..., : past // 3] = -np.inf
        else:
            feeds[value.name] = np.ones(shape, dtype)
            if step.kind != "GroupQueryAttention":
                feeds[value.name][..., : past // 3] = 0
    return feeds
