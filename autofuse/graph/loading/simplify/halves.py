"""float16 is a form of storage: an operator on it computes in float32, between a Cast from it and a Cast to it.

y = Conv(x, w)   becomes, where x, w and y are float16,
wide = Conv(Cast(x), float32(w)), y = Cast(wide); who reads y reads `wide` instead.

So only inputs, results, tables and what the model itself casts to float16 are rounded, as in ONNX Runtime, which has
few float16 kernels on a CPU. A table that is only gathered from stays narrow, and what is gathered is widened.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx

from autofuse.graph.loading.draft import Draft
from autofuse.graph.model import Operator, Tensor
from autofuse.graph.nodes import CAPTURES, schema_of
from autofuse.graph.own.names import DOMAIN

_NARROW, _WIDE = "float16", "float32"
_TO_NARROW, _TO_WIDE = int(onnx.TensorProto.FLOAT16), int(onnx.TensorProto.FLOAT)
_LOOKUPS = frozenset(("Gather", "GatherElements", "GatherND"))


def widen_halves(draft: Draft) -> bool:
    """Let every operator that computes in float16 compute in float32; True when the draft changed."""
    if all(tensor.dtype != _NARROW for tensor in draft.tensors.values()):
        return False
    widener = _Widener(draft)
    for operator in draft.operators:
        widener.take(operator)
    draft.operators = widener.made
    return widener.changed


def _is_half(draft: Draft, name: str) -> bool:
    tensor = draft.tensors.get(name)
    return tensor is not None and tensor.dtype == _NARROW


class _Widener:
    """Writes the operators anew; `twins` has the float32 form of each float16 tensor that has one."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.twins: dict[str, str] = {}
        self.made: list[Operator] = []
        self.changed = False
        self.readers = draft.readers()

    def take(self, operator: Operator) -> None:
        """Write one operator, in float32 where it computes in float16."""
        if operator.op_type == "Cast" and operator.inputs[0] in self.twins:
            self.made.append(replace(operator, inputs=(self.twins[operator.inputs[0]],)))
            self.changed = True
        elif not self._computes(operator):
            self.made.append(operator)
        else:
            self._write(operator)
            self.changed = True

    def _write(self, operator: Operator) -> None:
        halves = [name for name in operator.outputs if _is_half(self.draft, name)]
        inputs = tuple(self._twin(name) if _is_half(self.draft, name) else name for name in operator.inputs)
        wide = {name: self._named(name) for name in halves}
        self.made.append(
            replace(operator, inputs=inputs, outputs=tuple(wide.get(name, name) for name in operator.outputs))
        )
        self.twins.update(wide)
        self.draft.float16 |= frozenset(wide.values())
        for name, twin in wide.items():
            self.made.append(Operator(f"{operator.name}/narrow/{name}", "Cast", (twin,), (name,), {"to": _TO_NARROW}))

    def _named(self, name: str) -> str:
        """A new tensor that is `name` in float32."""
        twin = self.draft.fresh(f"{name}/wide")
        self.draft.tensors[twin] = Tensor(twin, self.draft.tensors[name].shape, _WIDE)
        return twin

    def _twin(self, name: str) -> str:
        """`name` in float32: what computes it, its value, or a Cast."""
        if name not in self.twins:
            values = self.draft.constants.get(name)
            if values is not None:
                self.twins[name] = self.draft.add_constant(f"{name}/wide", values.astype(np.float32))
            else:
                self.twins[name] = self._named(name)
                self.made.append(Operator(f"{name}/widen", "Cast", (name,), (self.twins[name],), {"to": _TO_WIDE}))
        return self.twins[name]

    def _computes(self, operator: Operator) -> bool:
        """Whether it has float16 operands, and its float16 results have the type of one of them."""
        if operator.op_type in ("Cast", "CastLike") or CAPTURES in operator.attributes or self._looks_up(operator):
            return False
        if operator.op_type == "Expand" and not any(map(self._computes, self.readers.get(operator.outputs[0], ()))):
            return False  # a copy that nobody computes with: the Cast to float16 stands before it, where there is less
        reads = {place for place, name in enumerate(operator.inputs) if _is_half(self.draft, name)}
        writes = {place for place, name in enumerate(operator.outputs) if _is_half(self.draft, name)}
        return bool(reads) and (operator.domain == DOMAIN or self._follows(operator, reads, writes))

    def _follows(self, operator: Operator, reads: set[int], writes: set[int]) -> bool:
        schema = schema_of(operator.op_type, self.draft.opset, operator.domain)
        if schema is None or _has_body(schema):
            return False
        given = {schema.inputs[min(place, len(schema.inputs) - 1)].type_str for place in reads}
        results = {schema.outputs[min(place, len(schema.outputs) - 1)].type_str for place in writes}
        return results <= given

    def _looks_up(self, operator: Operator) -> bool:
        return operator.op_type in _LOOKUPS and operator.inputs[0] in self.draft.constants


def _has_body(schema: onnx.defs.OpSchema) -> bool:
    kinds = (onnx.defs.OpSchema.AttrType.GRAPH, onnx.defs.OpSchema.AttrType.GRAPHS)
    return any(attribute.type in kinds for attribute in schema.attributes.values())
