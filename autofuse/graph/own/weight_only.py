"""Weight-only products: real numbers times weights that are held in 4 or 8 bits, in blocks with a scale each.

`WeightOnlyMatMul` of the domain `autofuse` reads x [..., K] and constants: codes [N, blocks, bytes of a block] (uint8;
two of 4 bits are a byte, the lower bits the first), scales [N, blocks] (float32), and zero points, which may be absent
(then they are half the range): [N, bytes of a row] (uint8, packed as the codes) or [N, blocks] (float32). Its result
[..., N] is x times (code - zero point) * scale. K may end inside its last block. Attributes: `K`, `N`, `bits`,
`block_size`, `accuracy_level`: how roughly another runtime may compute it, and `rows_in_bytes`: whether kernels of ours
may (1), as ONNX Runtime does at level 4, or compute in float32 (absent).

It has the inputs of ONNX Runtime's MatMulNBits, which is what it becomes in a model for others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, helper

from autofuse.graph.model import Operator, Tensor
from autofuse.graph.own.names import DOMAIN

OP_TYPE = "WeightOnlyMatMul"
LEVEL = "accuracy_level"
IN_FULL = 1
"""The accuracy level at which ONNX Runtime computes in float32."""
BY_BYTES = 4
"""The one at which it rounds each block of a row to bytes."""
IN_BYTES = "rows_in_bytes"


def is_weight_only(operator: Operator) -> bool:
    """Whether an operator is a weight-only product."""
    return operator.domain == DOMAIN and operator.op_type == OP_TYPE


def in_bytes(operator: Operator) -> bool:
    """Whether an operator is a weight-only product whose rows may be rounded to bytes."""
    return is_weight_only(operator) and bool(operator.attributes.get(IN_BYTES))


def weight_only_nodes(operator: Operator) -> list[NodeProto]:
    """The node of ONNX Runtime that computes a weight-only product."""
    attributes: Any = {name: value for name, value in operator.attributes.items() if name != IN_BYTES}
    node = helper.make_node("MatMulNBits", operator.inputs, operator.outputs, operator.name, domain="com.microsoft",
                            **attributes)  # fmt: skip
    return [node]


def in_full(operator: Operator) -> Operator:
    """The operator as a reference computes it: in float32, whatever a runtime may do."""
    if not is_weight_only(operator):
        return operator
    return replace(operator, attributes={**operator.attributes, LEVEL: IN_FULL})


def as_dense(operator: Operator) -> tuple[list[Operator], list[Tensor]]:
    """(operators, tensors that they read): what has the operator's types and shapes, for ONNX's shape inference."""
    rows, columns = (operator.attributes[name] for name in ("K", "N"))
    assert isinstance(rows, int) and isinstance(columns, int)
    plain, like = f"{operator.name}/dense", f"{operator.name}/dense/like"
    x = operator.inputs[0]
    cast = Operator(f"{operator.name}/like", "CastLike", (plain, x), (like,))
    return [cast, replace(operator, op_type="MatMul", inputs=(x, like), attributes={}, domain="")], [
        Tensor(plain, (rows, columns), "float32")
    ]


@dataclass(frozen=True)
class BlockWeights:
    """Weights of a product, one row a column of it: `codes` [N, K] of `bits` bits (uint8), `scales` and `zeros`
    [N, blocks] (`zeros`: codes, uint8; None: half the range)."""

    codes: NDArray[np.uint8]
    scales: NDArray[np.float32]
    zeros: NDArray[np.uint8] | None
    bits: int
    block: int

    @property
    def attributes(self) -> dict[str, int]:
        """Those of the operator, but for the accuracy level."""
        columns, depth = self.codes.shape
        return {"K": depth, "N": columns, "bits": self.bits, "block_size": self.block}

    def packed(self) -> list[NDArray[Any]]:
        """The operator's constants: codes, scales, and zero points where there are such."""
        columns, depth = self.codes.shape
        blocks = self.scales.shape[1]
        padded = np.zeros((columns, blocks * self.block), np.uint8)
        padded[:, :depth] = self.codes
        codes = _packed(padded, self.bits).reshape(columns, blocks, -1)
        zeros = [] if self.zeros is None else [_packed(self.zeros, self.bits)]
        return [codes, np.ascontiguousarray(self.scales, np.float32), *zeros]


def _packed(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """The last axis of `codes` in bytes."""
    if bits == 8:
        return np.ascontiguousarray(codes)
    even = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2)))
    return np.ascontiguousarray(even[:, ::2] | (even[:, 1::2] << 4))


def unpacked(packed: NDArray[np.uint8], bits: int, count: int) -> NDArray[np.uint8]:
    """The first `count` codes of each row of bytes."""
    if bits == 8:
        return packed[:, :count]
    both = np.stack([packed & 15, packed >> 4], axis=-1)
    return np.ascontiguousarray(both.reshape(packed.shape[0], -1)[:, :count])
