"""Weights in blocks of ONNX Runtime: products that read them become weight-only products, tables are gathered from and
dequantised.

y = MatMulNBits(x, codes, scales, zeros, order, bias)   becomes   y = WeightOnlyMatMul(x, codes, scales, zeros) + bias.

y = GatherBlockQuantized(codes, at, scales, zeros)   becomes
y = (Gather(codes, at) - Gather(zeros, at)) * Gather(scales, at), each block with its own scale and zero point.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.graph.loading.simplify.writer import NotCoveredError, Writer
from autofuse.graph.model import Operator
from autofuse.graph.own.names import DOMAIN
from autofuse.graph.own.weight_only import BY_BYTES, IN_BYTES, LEVEL, OP_TYPE, unpacked

LEAST_BLOCK = 16
_REALS = ("float32", "float16")


def matmul_nbits(write: Writer) -> bool:
    """MatMulNBits(x, codes, scales, zeros, order, bias)   becomes   a weight-only product, + bias."""
    sizes = {name: int(write.number_of(name, default)) for name, default in _SIZES.items()}
    bits, block = sizes["bits"], sizes["block_size"]
    if bits not in (4, 8):
        raise NotCoveredError(f"weights of {bits} bits")
    if block < LEAST_BLOCK or block & (block - 1):
        raise NotCoveredError(f"blocks of {block}")
    constants = write.draft.constants
    if any(write.input(place) and write.input(place) not in constants for place in (1, 2, 3)):
        raise NotCoveredError("computed weights")
    depth, columns = sizes["K"], sizes["N"]
    blocks = -(-depth // block)
    inputs = [write.input(0)]
    inputs.append(_shaped(write, "codes", 1, (columns, blocks, block * bits // 8)))
    inputs.append(_shaped(write, "scales", 2, (columns, blocks)))
    if write.input(3):
        real = constants[write.input(3)].dtype.name in _REALS
        if real and bits == 8:
            raise NotCoveredError("real zero points of weights of 8 bits, which ONNX Runtime refuses")
        inputs.append(_shaped(write, "zeros", 3, (columns, blocks if real else -(-blocks * bits // 8))))
    bias = write.input(5)
    output = write.draft.fresh(f"{write.operator.name}/product") if bias else write.result(0)
    name = f"{write.operator.name}/product" if bias else write.operator.name
    allowed = {IN_BYTES: 1} if sizes[LEVEL] == BY_BYTES else {}
    write.made.append(Operator(name, OP_TYPE, tuple(inputs), (output,), sizes | allowed, DOMAIN))
    if bias:
        write.op("Add", "", output, bias, output=write.result(0))
    return True


_SIZES = {"K": 0, "N": 0, "bits": 4, "block_size": 0, LEVEL: 0}


def _shaped(write: Writer, label: str, place: int, shape: tuple[int, ...]) -> str:
    """A constant in the shape that the form has; older models have it flat."""
    name = write.input(place)
    array = write.draft.constants[name]
    if array.shape == shape:
        return name
    if array.size != np.prod(shape, dtype=np.int64):
        raise NotCoveredError(f"{label} of shape {list(array.shape)}, where {list(shape)} is due")
    return write.draft.add_constant(f"{write.operator.name}/{label}", np.ascontiguousarray(array.reshape(shape)))


def gather_block_quantized(write: Writer) -> bool:
    """GatherBlockQuantized(codes, at, scales, zeros)   becomes   gathered codes, dequantised."""
    if not write.known(1):
        return False
    codes, scales, zeros = _table(write)
    rank, at = codes.ndim, write.input(1)
    axis = int(write.number_of("gather_axis", 0)) % rank
    along = int(write.number_of("quantize_axis", 1)) % rank
    block = int(write.number_of("block_size", 128))
    if axis == along:
        raise NotCoveredError("blocks along the axis that is gathered from")
    if codes.shape[along] % block:
        raise NotCoveredError(f"an axis of {codes.shape[along]} in blocks of {block}")

    def gathered(label: str, array: NDArray[Any]) -> str:
        table = write.draft.add_constant(f"{write.operator.name}/{label}", np.ascontiguousarray(array))
        return write.op("Gather", f"{label}/gathered", table, at, axis=axis)

    place = along + (len(write.shape(1)) - 1 if along > axis else 0)
    shape = list(codes.shape)
    shape[axis : axis + 1] = write.shape(1)
    cut = write.integers("blocks", [*shape[:place], shape[place] // block, block, *shape[place + 1 :]])
    inner = write.integers("inner", [place + 1])
    scale = write.op("Unsqueeze", "scales/spread", gathered("scales", scales), inner)
    real = write.op("CastLike", "real", write.op("Reshape", "cut", gathered("codes", codes), cut), scale)
    if zeros is not None:
        zero = write.op("Unsqueeze", "zeros/spread", gathered("zeros", zeros), inner)
        real = write.op("Sub", "centred", real, write.op("CastLike", "zeros/real", zero, scale))
    scaled = write.op("Mul", "scaled", real, scale)
    write.op("Reshape", "", scaled, write.integers("whole", shape), output=write.result(0))
    return True


def _table(write: Writer) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """(codes, scales, zero points) of a table, one code a byte; None stands for zeros of 0.

    Codes of a 4-bit type were widened to int8 when they were read; bytes of an unsigned type hold one code or two.
    """
    constants, bits = write.draft.constants, int(write.number_of("bits", 4))
    names = [write.input(place) for place in (0, 2, 3)]
    if any(name and name not in constants for name in names):
        raise NotCoveredError("computed weights")
    codes, scales = constants[names[0]], constants[names[1]]
    zeros = constants[names[2]] if names[2] else None
    if codes.dtype != np.uint8:
        return codes, scales, zeros
    if int(write.number_of("quantize_axis", 1)) % codes.ndim != codes.ndim - 1 or bits not in (4, 8):
        raise NotCoveredError(f"bytes with codes of {bits} bits along axis {int(write.number_of('quantize_axis', 1))}")
    rows = int(np.prod(codes.shape[:-1], dtype=np.int64))

    def apart(packed: NDArray[Any], count: int) -> NDArray[Any]:
        return unpacked(packed.reshape(rows, -1), bits, count).reshape(*codes.shape[:-1], count)

    whole = apart(codes, codes.shape[-1] * 8 // bits)
    if zeros is None:
        return whole, scales, np.full(scales.shape, 1 << (bits - 1), np.uint8)
    return whole, scales, apart(zeros, scales.shape[-1])
