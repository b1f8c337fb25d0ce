"""The sliding windows of convolutions and poolings: from their shapes and attributes, and which have no definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autofuse.graph.own.names import BFLOAT16_CONTRACTIONS as ROUNDED
from autofuse.kernels.nest.tiles import Window
from autofuse.kernels.nest.transposed_window import TransposedWindow
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
MOST_PHASES = 4096
"""Strides of a transposed convolution: as many plain convolutions are looked at."""


def convolution_windows(workload: Workload, operator: WorkloadOperator) -> tuple[Window, ...]:
    """The sliding windows of a convolution (also a transposed one) or pooling, from its shapes and attributes."""
    x, out = workload.values[operator.inputs[0]].shape, workload.values[operator.outputs[0]].shape
    rank = len(x) - 2
    taps = integers(operator, "kernel_shape") or workload.values[operator.inputs[1]].shape[2:]
    strides = integers(operator, "strides") or (1,) * rank
    dilations = integers(operator, "dilations") or (1,) * rank
    sizes = zip(x[2:], taps, strides, dilations, out[2:], strict=True)
    if operator.op_type == "ConvTranspose":
        transposed = [
            TransposedWindow(size, tap, stride, dilation, outputs=outputs)
            for size, tap, stride, dilation, outputs in sizes
        ]
        begins = _transposed_begins(operator, transposed)
        transposed = [replace(window, pad_begin=begin) for window, begin in zip(transposed, begins, strict=True)]
        return tuple(_turned(window) if window.stride == 1 else window for window in transposed)
    windows = [Window(size, tap, stride, dilation, outputs=outputs) for size, tap, stride, dilation, outputs in sizes]
    return tuple(
        replace(window, pad_begin=begin, pad_end=end)
        for window, (begin, end) in zip(windows, _pads(operator, windows), strict=True)
    )


def _turned(window: TransposedWindow) -> Window:
    """A transposed window of stride 1 as the window of a convolution whose taps run backwards."""
    pad = (window.taps - 1) * window.dilation - window.pad_begin
    return Window(window.size, window.taps, 1, window.dilation, pad, 0, window.outputs)


def _transposed_begins(operator: WorkloadOperator, windows: Sequence[TransposedWindow]) -> Sequence[int]:
    """Padding cut off at the begin of a transposed convolution; beyond its reach a wider result is bias alone."""
    mode, rank = str(operator.attribute("auto_pad", "NOTSET")), len(windows)
    if mode in ("NOTSET", "VALID") and operator.attribute("output_shape") is None:
        return (integers(operator, "pads") or (0,) * (2 * rank))[:rank]
    extra = integers(operator, "output_padding") or (0,) * rank
    total = [
        max(0, w.stride * (w.size - 1) + (w.taps - 1) * w.dilation + 1 + more - w.outputs)
        for w, more in zip(windows, extra, strict=True)
    ]
    return [(t + ("UPPER" not in mode)) // 2 for t in total]


def _pads(operator: WorkloadOperator, windows: Sequence[Window]) -> Sequence[tuple[int, int]]:
    """Padding at the begin and the end of each dimension."""
    mode, rank = str(operator.attribute("auto_pad", "NOTSET")), len(windows)
    if "SAME" in mode:
        total = [max(0, (w.outputs - 1) * w.stride + (w.taps - 1) * w.dilation + 1 - w.size) for w in windows]
        begins = [(t + ("LOWER" in mode)) // 2 for t in total]
        return [(begin, t - begin) for t, begin in zip(total, begins, strict=True)]
    pads = integers(operator, "pads") or (0,) * (2 * rank)
    return list(zip(pads[:rank], pads[rank:], strict=True))


def integers(operator: WorkloadOperator, name: str) -> tuple[int, ...]:
    """A list attribute; empty when absent."""
    value = operator.attribute(name) or ()
    assert isinstance(value, tuple)
    return tuple(int(item) for item in value)


def window_refusal(workload: Workload, operator: WorkloadOperator) -> str | None:
    """Why a convolution or a pooling has no definition here (None: it has)."""
    rank = len(workload.values[operator.inputs[0]].shape)
    if rank < 3:
        return f"{operator.op_type} of rank {rank} has no definition here"
    if operator.op_type == "MaxPool" and operator.attribute("storage_order", 0):
        return "MaxPool with storage_order has no definition here"
    windows = convolution_windows(workload, operator)
    if operator.op_type in CONVOLUTIONS | {ROUNDED["Conv"]}:
        if operator.op_type == "ConvTranspose" and any(window.stride > MOST_PHASES for window in windows):
            return f"{operator.op_type} with strides above {MOST_PHASES} has no definition here"
        blind = any(window.all_blind for window in windows)
        return f"{operator.op_type} of nothing but padding has no definition here" if blind else None
    if any(window.some_blind for window in windows):
        return f"{operator.op_type} with windows that lie in the padding has no definition here"
    return None


def is_depthwise(workload: Workload, operator: WorkloadOperator) -> bool:
    """Whether a convolution has one input channel a group, and its weights are data."""
    channels, groups = workload.values[operator.inputs[0]].shape[1], operator.attribute("group", 1)
    return groups == channels and channels > 1 and workload.values[operator.inputs[1]].kind == "constant"
