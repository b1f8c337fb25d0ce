"""bfloat16 is a form of storage and of what contractions multiply: all else computes in float32.

y = Add(x, w)   becomes, where x, w and y are bfloat16,
y = RoundToBfloat16(Add(x, float32(w))), with x and y as float32 tensors that hold nothing but bfloat16.

A result is not rounded where it holds bfloat16 anyway, and where nothing but one elementwise operator on bfloat16 reads
it: the two are most often one kernel, and the fewer roundings, the nearer the result to that of real numbers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autofuse.errors import UncoveredError
from autofuse.graph.loading.draft import Draft
from autofuse.graph.mapping import POINTWISE
from autofuse.graph.model import AttributeValue, Operator, Tensor
from autofuse.graph.nodes import CAPTURES, attribute_proto, make_model
from autofuse.graph.own.bfloat16 import keeps
from autofuse.graph.own.names import DOMAIN, ROUND
from autofuse.values.names import BFLOAT16

_TYPES = ("dtype", "output_dtype", "softmax_precision", "stash_type", "to")
"""Attributes that are element types."""
_NARROW, _WIDE = int(TensorProto.BFLOAT16), int(TensorProto.FLOAT)
_UNROUNDED = frozenset({"DequantizeLinear"})
"""Operators whose results are not rounded: levels times a scale belong to the contraction that reads them."""


def widen_bfloat16(draft: Draft) -> bool:
    """Let whatever is bfloat16 in a model be float32 that is rounded; True when the draft changed."""
    narrow = _narrow(draft)
    if not narrow:
        return False
    _Widener(draft, narrow).write()
    return True


def _narrow(draft: Draft) -> frozenset[str]:
    """Names of the tensors that are bfloat16, also of those whose shape is not known yet."""
    given = {name for name, tensor in draft.inputs.items() if tensor.dtype == BFLOAT16}
    given |= {name for name, array in draft.constants.items() if array.dtype.name == BFLOAT16}
    given |= {name for name, tensor in draft.tensors.items() if tensor.dtype == BFLOAT16}
    if not given and not any(_NARROW in map(operator.attributes.get, _TYPES) for operator in draft.operators):
        return frozenset()
    constants = [Tensor(name, array.shape, array.dtype.name) for name, array in draft.constants.items()]
    model = make_model("types", draft.operators, [*draft.inputs.values(), *constants], (), {}, draft.opset)
    values = onnx.shape_inference.infer_shapes(model).graph.value_info
    found = given | {value.name for value in values if value.type.tensor_type.elem_type == _NARROW}
    for operator in draft.operators:
        if operator.domain and operator.domain != DOMAIN and operator.inputs and operator.inputs[0] in found:
            found.update(operator.outputs[:1])  # of operators that ONNX does not know
    return frozenset(found & draft.taken - {""})


class _Widener:
    """Writes the operators anew; `held`: tensors that hold nothing but bfloat16 as float32."""

    def __init__(self, draft: Draft, narrow: frozenset[str]) -> None:
        self.draft, self.narrow = draft, narrow
        self.made: list[Operator] = []
        self.held = set(draft.halves) | {name for name in draft.inputs if name in narrow}
        self.reads = Counter(name for operator in draft.operators for name in operator.inputs)
        self.readers = {name: operator for operator in draft.operators for name in operator.inputs}

    def write(self) -> None:
        """Change the draft."""
        draft = self.draft
        for operator in draft.operators:
            self._take(operator)
        draft.operators = self.made
        interface = self.narrow.intersection((*draft.inputs, *draft.outputs))
        draft.halves |= interface
        for name in draft.inputs:
            if name in interface:
                draft.inputs[name] = replace(draft.inputs[name], dtype="float32")
        for name in self.narrow.intersection(draft.constants):
            draft.set_constant(name, np.asarray(draft.constants[name], np.float32))

    def _take(self, operator: Operator) -> None:
        touched = self.narrow.intersection((*operator.inputs, *operator.outputs))
        if touched and CAPTURES in operator.attributes:
            raise UncoveredError(
                f"{self.draft.source}: operator {operator.name!r} ({operator.op_type}) has a body on bfloat16, "
                "which is not supported; export the model with float32 there, or without the body"
            )
        if not touched:
            self.made.append(operator)
            return
        self.draft.widened |= operator.op_type not in ("Cast", "Identity")
        attributes = {name: _wide(name, value) for name, value in operator.attributes.items()}
        wide = replace(operator, attributes=attributes)
        if operator.op_type == "CastLike" and operator.outputs[0] in self.narrow:
            wide = replace(wide, op_type="Cast", inputs=wide.inputs[:1], attributes={"to": _WIDE})
        results = [name for name in operator.outputs if name in self.narrow]
        constants = {name: np.asarray(self.draft.constants[name], np.float32) for name in operator.inputs
                     if name in self.draft.constants and name in self.narrow}  # fmt: skip
        if keeps(wide, constants, self.held):
            self.held.update(results)
            results = []
        known = self.draft.tensors.get(operator.inputs[0]) if operator.inputs else None
        if wide.op_type == "Cast" and results and known is not None and known.dtype == "float32":
            self.made.append(Operator(wide.name, ROUND, wide.inputs, wide.outputs, {}, DOMAIN))
            self.held.update(results)
            return
        self._append(wide, [name for name in results if not self._is_left(wide, name)])

    def _append(self, operator: Operator, rounded: list[str]) -> None:
        """One operator, some of whose results are rounded."""
        exact = {name: self.draft.fresh(f"{name}/exact") for name in rounded}
        self.made.append(replace(operator, outputs=tuple(exact.get(name, name) for name in operator.outputs)))
        for name, source in exact.items():
            self.made.append(Operator(f"{operator.name}/round/{name}", ROUND, (source,), (name,), {}, DOMAIN))
            self.held.add(name)

    def _is_left(self, operator: Operator, name: str) -> bool:
        """Whether a result stays as float32 has it."""
        if name in self.draft.returned or operator.op_type == "Cast":
            return False
        if operator.op_type in _UNROUNDED or not self.reads[name]:
            return True
        reader = self.readers.get(name)
        chained = reader is not None and not reader.domain and reader.op_type in POINTWISE and reader.op_type != "Cast"
        return self.reads[name] == 1 and chained and reader is not None and reader.outputs[0] in self.narrow


def _wide(name: str, value: AttributeValue) -> AttributeValue:
    """The same attribute for float32."""
    if name in _TYPES and value == _NARROW:
        return _WIDE
    attribute = attribute_proto(value) if isinstance(value, bytes) else None
    if attribute is None or attribute.t.data_type != _NARROW:
        return value
    array = numpy_helper.to_array(attribute.t).astype(np.float32)
    return bytes(helper.make_attribute(name, numpy_helper.from_array(array)).SerializeToString(deterministic=True))
