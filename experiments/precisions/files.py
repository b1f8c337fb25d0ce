"""One network as files of several precisions: what every engine of the comparison is given."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from autofuse import api
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import load
from autofuse.graph.own.weight_only import BY_BYTES, LEVEL

FLOAT32, QDQ, DYNAMIC, BFLOAT16, FLOAT16 = "float32", "qdq", "dynamic", "bf16", "float16"
NIBBLES, ROUGH_NIBBLES = "int4", "int4-rough"
BLOCK, LEVELS, LEAST = 32, 7, 1e-12
"""Weights of a scale, the largest of their levels, and the least number that a scale is made of."""
CALIBRATED = 16
"""Samples by which ranges are taken. The networks have made-up weights, so more of them would say no more."""
MOST_LOST = "5%"
"""Of the outputs' cosine: what contractions in bfloat16 may cost here. What they do cost stands in the table."""

Sample = dict[str, NDArray[np.generic]]


def samples(model: Path) -> list[Sample]:
    """Made-up inputs of a model to calibrate by; none of them is the one that is timed."""
    graph = load(model)
    return [generate_inputs(graph, seed) for seed in range(1, CALIBRATED + 1)]


def write(form: str, model: Path, folder: Path, threads: int, database: Path) -> Path:
    """The file of a form, made unless it is there. InputError where our own `quantize` refuses to make it."""
    if form == FLOAT32:
        return model
    path = folder / f"{model.stem}-{form}.onnx"
    if not path.exists():
        _WRITERS[form](model, path, threads, database)
    return path


def has_convolutions(model: Path) -> bool:
    """Whether dynamic int8 is no use: ONNX Runtime's integer convolutions are slower than its float ones."""
    nodes = onnx.load(model, load_external_data=False).graph.node
    return any(node.op_type == "Conv" for node in nodes)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without ONNX Runtime's word on each tensor that it has no type for."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


class _Reader:
    """Samples as ONNX Runtime's calibration asks for them (its `CalibrationDataReader`)."""

    def __init__(self, found: Sequence[Sample]) -> None:
        self._left: Iterator[Sample] = iter(found)

    def get_next(self) -> Sample | None:
        """The next sample; None behind the last."""
        return next(self._left, None)


def _static(model: Path, path: Path, threads: int, database: Path) -> None:
    """ONNX Runtime's own static quantisation: QDQ, uint8 activations, int8 weights of a scale for each channel."""
    del threads, database
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    folded = path.with_name(f"{path.stem}-folded.onnx")
    with _quiet():
        quant_pre_process(model, folded, skip_symbolic_shape=True)
        quantize_static(
            folded, path, _Reader(samples(model)), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
    folded.unlink()


def _dynamic(model: Path, path: Path, threads: int, database: Path) -> None:
    """ONNX Runtime's own dynamic quantisation: int8 weights of a scale for each channel, activations as they come."""
    del threads, database
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with _quiet():
        quantize_dynamic(model, path, per_channel=True, weight_type=QuantType.QInt8)


def _nibbles(model: Path, path: Path, threads: int, database: Path) -> None:
    """Weights of products in 4 bits as MatMulNBits has them, rounded one by one; sums as exact as each engine makes."""
    del threads, database
    made = onnx.load(model)
    weights = {one.name: one for one in made.graph.initializer}
    for node in made.graph.node:
        constant = weights.get(node.input[1]) if node.op_type == "MatMul" else None
        if constant is None or len(constant.dims) != 2:
            continue
        codes, scales = packed(numpy_helper.to_array(constant))
        for label, array in (("codes", codes), ("scales", scales)):
            made.graph.initializer.append(numpy_helper.from_array(array, f"{node.output[0]}/{label}"))
        node.op_type, node.domain = "MatMulNBits", "com.microsoft"
        node.input[1:] = [f"{node.output[0]}/codes", f"{node.output[0]}/scales"]
        sizes = {"K": constant.dims[0], "N": constant.dims[1], "bits": 4, "block_size": BLOCK}
        node.attribute.extend(helper.make_attribute(name, value) for name, value in sizes.items())
    read = {name for node in made.graph.node for name in node.input}
    kept = [one for one in made.graph.initializer if one.name in read]
    del made.graph.initializer[:]
    made.graph.initializer.extend(kept)
    if all(one.domain != "com.microsoft" for one in made.opset_import):
        made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(made, path)


def _rough_nibbles(model: Path, path: Path, threads: int, database: Path) -> None:
    """The same, where each engine may round the rows of products to bytes."""
    _nibbles(model, path, threads, database)
    made = onnx.load(path)
    for node in made.graph.node:
        if node.op_type == "MatMulNBits":
            node.attribute.append(helper.make_attribute(LEVEL, BY_BYTES))
    onnx.save(made, path)


def packed(weights: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Weights [depth, column] as codes [column, block, two a byte], 8 for zero, and scales [column, block].

    The last block is filled up with zeros.
    """
    filled = np.pad(weights, ((0, -weights.shape[0] % BLOCK), (0, 0)))
    blocks = np.ascontiguousarray(filled.T).reshape(weights.shape[1], -1, BLOCK)
    scales = np.maximum(np.abs(blocks).max(axis=2) / LEVELS, LEAST).astype(np.float32)
    codes = (np.rint(blocks / scales[:, :, None]) + LEVELS + 1).astype(np.uint8)
    return codes[:, :, ::2] | codes[:, :, 1::2] << 4, scales


def _float16(model: Path, path: Path, threads: int, database: Path) -> None:
    """ONNX Runtime's own conversion of all tensors, inputs and outputs among them."""
    del threads, database
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(model)), path)


def _bfloat16(model: Path, path: Path, threads: int, database: Path) -> None:
    """Our own: those contractions in bfloat16 that are faster so."""
    found = samples(model)
    api.quantize(
        model, path, calibration=found, precision="bf16", max_drop=MOST_LOST, database=str(database), threads=threads
    )


_WRITERS = {QDQ: _static, DYNAMIC: _dynamic, BFLOAT16: _bfloat16, FLOAT16: _float16, NIBBLES: _nibbles,
            ROUGH_NIBBLES: _rough_nibbles}  # fmt: skip
