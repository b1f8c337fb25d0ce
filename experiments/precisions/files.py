"""One network as files of several precisions: what every engine of the comparison is given."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from autofuse import api
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.load import load

FLOAT32, QDQ, DYNAMIC, BFLOAT16, FLOAT16 = "float32", "qdq", "dynamic", "bf16", "float16"
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
        {QDQ: _static, DYNAMIC: _dynamic, BFLOAT16: _bfloat16, FLOAT16: _float16}[form](model, path, threads, database)
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
