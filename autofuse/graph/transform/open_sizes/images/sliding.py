"""Windows that slide over images: their taps along each axis, and what one kernel computes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autofuse.graph.model import Operator
from autofuse.graph.transform.open_sizes.attention import ELEMENTWISE
from autofuse.graph.transform.open_sizes.images.grid_graph import GridGraph

SLIDING = frozenset(("Conv", "MaxPool", "AveragePool"))
"""Operators whose windows slide over images, by strides."""


@dataclass(frozen=True)
class SlidingWindow:
    """One axis of a sliding window; `begin`, `end`: places that it sees beyond the borders."""

    taps: int
    stride: int
    dilation: int
    begin: int
    end: int

    @property
    def reach(self) -> int:
        """Places that it sees, from the first one to the last."""
        return (self.taps - 1) * self.dilation + 1


def windows_of(opened: GridGraph, operator: Operator) -> dict[int, SlidingWindow] | str:
    """The windows of a convolution or pooling, by axis."""
    shape = opened.graph.tensors[operator.inputs[0]].shape
    rank = len(shape) - 2
    weights = opened.graph.tensors[operator.inputs[1]].shape[2:] if len(operator.inputs) > 1 else ()
    taps, strides, dilations, pads = (
        integers_of(operator, name, default)
        for name, default in (
            ("kernel_shape", weights), ("strides", (1,) * rank), ("dilations", (1,) * rank), ("pads", (0,) * 2 * rank)
        )
    )  # fmt: skip
    mode = str(operator.attributes.get("auto_pad", "NOTSET"))
    if mode not in ("NOTSET", "VALID"):
        return f"auto_pad = {mode} depends on the size"
    pads = (0,) * 2 * rank if mode == "VALID" else pads
    axes = zip(taps, strides, dilations, pads[:rank], pads[rank:], strict=True)
    return {axis: SlidingWindow(*one) for axis, one in enumerate(axes, 2)}


def beyond_windows(opened: GridGraph, operators: Sequence[Operator]) -> bool:
    """Whether operators are a convolution or a pooling of images of which one side alone is open, and more than what is
    done to each element.

    By itself it goes over the whole image; with a window along the other side, or a view, it would be left to tiles,
    which each read all weights.
    """
    around = next((one for one in operators if one.op_type in SLIDING and _has_taps(opened, one)), None)
    if around is None or len(operators) == 1:
        return False
    made = around.outputs[0]
    low = len(opened.axes.get(made, {}).keys() - {0}) == 1 and len(opened.graph.tensors[made].shape) == 4
    return low and any(one is not around and one.op_type not in ELEMENTWISE for one in operators)


def _has_taps(opened: GridGraph, operator: Operator) -> bool:
    windows = windows_of(opened, operator)
    return not isinstance(windows, str) and any(one.taps > 1 for one in windows.values())


def integers_of(operator: Operator, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """An attribute of some integers."""
    value = operator.attributes.get(name)
    return tuple(int(item) for item in value) if isinstance(value, tuple) else default
