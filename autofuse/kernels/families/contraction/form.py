"""The one form that convolutions and matrix products share: batch x rows x width pixels, columns, depth, taps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from autofuse.kernels.families.windows import convolution_windows, integers
from autofuse.kernels.nest.tiles import Window, divisor_near
from autofuse.kernels.tir.emit import Expr, Index
from autofuse.kernels.tir.offsets import delinear
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

FEW_ROWS = 16
"""Results a column up to which a product is bound by its weights."""


@dataclass(frozen=True)
class Contraction:
    """out[batch, pixel, column] = alpha * sum over taps and depth of x * w, + beta * bias.

    `windows`: one for each pixel dimension (the last one is tiled); `rows`: the outer pixel extents.
    Subclasses map these coordinates to the logical indices of the operator's tensors.
    """

    operator: WorkloadOperator
    x: int
    w: int
    bias: int
    batch: tuple[int, ...]
    weight_batch: tuple[int, ...]
    windows: tuple[Window, ...]
    columns: int
    depth: int
    x_shape: tuple[int, ...]
    w_shape: tuple[int, ...]
    bias_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    alpha: float = 1.0
    beta: float = 1.0

    @property
    def rows(self) -> tuple[int, ...]:
        """Extents of the outer pixel dimensions."""
        return tuple(window.outputs for window in self.windows[:-1]) or (1,)

    @property
    def packing(self) -> str:
        """Part of the name of packed weights that tells apart the orders in which `weights` reads equal arrays."""
        return ""

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        pixels = prod(window.outputs for window in self.windows)
        taps = prod(window.taps for window in self.windows)
        return 2 * prod(self.batch) * pixels * self.columns * self.depth * taps

    def x_index(self, batch: Index, position: Index, depth: Expr) -> Index:
        """Logical index of the left operand."""
        raise NotImplementedError

    def w_index(self, batch: Index, tap: Expr, depth: Expr, column: Expr) -> Index:
        """Logical index of the right operand."""
        raise NotImplementedError

    def out_index(self, batch: Index, row: Index, pixel: Expr, column: Expr) -> Index:
        """Logical index of the result."""
        raise NotImplementedError

    def bias_index(self, out: Index) -> Index:
        """Logical index of the bias at a result index."""
        raise NotImplementedError

    def weights(self, array: np.ndarray) -> np.ndarray:
        """Constant weights as [batch, column, depth, tap]."""
        raise NotImplementedError


@dataclass(frozen=True)
class Convolution(Contraction):
    """Conv: x [N, G*depth, *size], w [G*columns, depth, *taps]; batch = (N, G).

    `flat`: all pixels are fused, then cut into (split, rest).
    """

    flat: bool = False

    def x_index(self, batch: Index, position: Index, depth: Expr) -> Index:
        """See Contraction."""
        channel = batch[1] * self.depth + depth
        if self.flat:
            position = delinear(self._flat(position), self.x_shape[2:])
        return (batch[0], channel, *position)

    def _flat(self, position: Index) -> Expr:
        return position[0] if len(position) == 1 else position[0] * self.windows[-1].outputs + position[1]

    def w_index(self, batch: Index, tap: Expr, depth: Expr, column: Expr) -> Index:
        """See Contraction."""
        return (batch[1] * self.columns + column, depth, *delinear(tap, self.w_shape[2:]))

    def out_index(self, batch: Index, row: Index, pixel: Expr, column: Expr) -> Index:
        """See Contraction."""
        spatial = (*row[: len(self.windows) - 1], pixel)
        if self.flat:
            spatial = delinear(self._flat(spatial), self.out_shape[2:])
        return (batch[0], batch[1] * self.columns + column, *spatial)

    def bias_index(self, out: Index) -> Index:
        """See Contraction."""
        return (out[1],)

    def weights(self, array: np.ndarray) -> np.ndarray:
        """See Contraction."""
        groups = self.batch[1]
        return array.reshape(groups, self.columns, self.depth, -1)


@dataclass(frozen=True)
class TransposedConvolution(Convolution):
    """ConvTranspose: as Conv, but w [G*depth, columns, *taps]; where the stride is 1, the taps run backwards."""

    @property
    def flops(self) -> int:
        """See Contraction: every element of the input meets every tap."""
        return 2 * prod(self.x_shape) * self.columns * prod(self.w_shape[2:])

    @property
    def backwards(self) -> tuple[int, ...]:
        """Spatial dimensions whose windows take the taps of the weights in the reverse order."""
        strides = integers(self.operator, "strides")
        return tuple(i for i in range(len(self.w_shape) - 2) if not strides or strides[i] == 1)

    @property
    def packing(self) -> str:
        """See Contraction."""
        return "_".join(map(str, ("_spread", *self.backwards)))

    def w_index(self, batch: Index, tap: Expr, depth: Expr, column: Expr) -> Index:
        """See Contraction."""
        taps = list(delinear(tap, self.w_shape[2:]))
        for dimension in self.backwards:
            taps[dimension] = self.w_shape[dimension + 2] - 1 - taps[dimension]
        return (batch[1] * self.depth + depth, column, *taps)

    def weights(self, array: np.ndarray) -> np.ndarray:
        """See Contraction."""
        turned: np.ndarray = np.flip(array, tuple(dimension + 2 for dimension in self.backwards))
        return turned.reshape(self.batch[1], self.depth, self.columns, -1).swapaxes(1, 2)


@dataclass(frozen=True)
class GroupLanes(Convolution):
    """A Conv of small groups as if it had one: each column reads `depth` channels of its own group.

    So the left operand is not one number for all columns; see `GroupLanesEmitter`.
    """


@dataclass(frozen=True)
class PixelLanes(Convolution):
    """A 1x1 Conv with its sides exchanged: "columns" are pixels, "pixels" are output channels, `w` is the map.

    Maps that lie in rows of pixels are then read and written as they lie.
    """

    def x_index(self, batch: Index, position: Index, depth: Expr) -> Index:
        """See Contraction: an element of the convolution's weights."""
        return (self._channel(batch, position[:-1], position[-1]), depth, *(0 for _ in self.x_shape[2:]))

    def w_index(self, batch: Index, tap: Expr, depth: Expr, column: Expr) -> Index:
        """See Contraction: an element of the map."""
        return (batch[0], batch[1] * self.depth + depth, *delinear(column, self.w_shape[2:]))

    def out_index(self, batch: Index, row: Index, pixel: Expr, column: Expr) -> Index:
        """See Contraction."""
        channel = self._channel(batch, row[: len(self.windows) - 1], pixel)
        return (batch[0], channel, *delinear(column, self.out_shape[2:]))

    def _channel(self, batch: Index, row: Index, pixel: Expr) -> Expr:
        """The output channel, of all groups."""
        within = row[0] * self.windows[-1].outputs + pixel if row else pixel
        return batch[1] * (self.out_shape[1] // self.batch[1]) + within

    def weights(self, array: np.ndarray) -> np.ndarray:
        """See Contraction: the map is no constant."""
        raise NotImplementedError


@dataclass(frozen=True)
class Product(Contraction):
    """MatMul and Gemm: x [..., M, K], w [..., K, N]; `flat`: all leading dimensions of x are rows.

    `vector`: x or w lacks the dimension of M or N; in `x_shape`, `w_shape` and `out_shape` it stands with length 1.
    """

    flat: bool = False
    transposed: tuple[bool, bool] = (False, False)
    vector: tuple[bool, bool] = (False, False)

    @property
    def packing(self) -> str:
        """See Contraction."""
        return "_turned" if self.transposed[1] else ""

    def x_index(self, batch: Index, position: Index, depth: Expr) -> Index:
        """See Contraction."""
        if self.vector[0]:
            return (depth,)
        if self.flat:
            pixel = position[0] if len(position) == 1 else position[0] * self.windows[-1].outputs + position[1]
            lead = delinear(pixel, self.x_shape[:-1])
            return (depth, *lead) if self.transposed[0] else (*lead, depth)
        lead = _lead(batch, self.x_shape)
        return (*lead, position[-1], depth)

    def w_index(self, batch: Index, tap: Expr, depth: Expr, column: Expr) -> Index:
        """See Contraction."""
        if self.vector[1]:
            return (depth,)
        lead = _lead(batch, self.w_shape)
        return (*lead, column, depth) if self.transposed[1] else (*lead, depth, column)

    def out_index(self, batch: Index, row: Index, pixel: Expr, column: Expr) -> Index:
        """See Contraction."""
        lead: Index = (*batch, pixel)
        if self.flat:
            flat = pixel if len(self.windows) == 1 else row[0] * self.windows[-1].outputs + pixel
            lead = delinear(flat, self.out_shape[:-1])
        return (*(lead[:-1] if self.vector[0] else lead), *(() if self.vector[1] else (column,)))

    def bias_index(self, out: Index) -> Index:
        """See Contraction."""
        tail = out[len(out) - len(self.bias_shape) :]
        return tuple(0 if extent == 1 else part for part, extent in zip(tail, self.bias_shape, strict=True))

    def weights(self, array: np.ndarray) -> np.ndarray:
        """See Contraction."""
        matrix = array if self.transposed[1] or self.vector[1] else np.swapaxes(array, -1, -2)
        return np.ascontiguousarray(matrix).reshape(prod(self.weight_batch), self.columns, self.depth, 1)


FORMS: Mapping[str, type[Convolution]] = {
    "Bfloat16Conv": Convolution,
    "Conv": Convolution,
    "ConvInteger": Convolution,
    "ConvTranspose": TransposedConvolution,
}


def _lead(batch: Index, shape: tuple[int, ...]) -> Index:
    """The batch index as leading indices of an operand, which may broadcast."""
    lead = shape[:-2]
    return tuple(0 if extent == 1 else part for part, extent in zip(batch[len(batch) - len(lead) :], lead, strict=True))


def _split(pixels: int, split: int) -> tuple[Window, ...]:
    """Pixels of a 1x1 contraction as (split, rest) rows."""
    rows = divisor_near(pixels, max(1, split))
    rest = pixels // rows
    last = Window(rest, 1, outputs=rest)
    return (last,) if rows == 1 else (Window(rows, 1, outputs=rows), last)


def contraction_form(
    workload: Workload, operator: WorkloadOperator, split: int = 1, by_rows: bool = False
) -> Contraction:
    """The form of a convolution or a product; `split`: rows that the pixels of a point contraction make.

    `by_rows`: the pixels of a 1x1 convolution keep their own rows.
    """
    if operator.op_type in FORMS:
        return _convolution(workload, operator, split, by_rows)
    return _product(workload, operator, split)


def _convolution(workload: Workload, operator: WorkloadOperator, split: int, by_rows: bool) -> Convolution:
    shape = [workload.values[v].shape if v >= 0 else () for v in (*operator.inputs, -1)][:3]
    out = workload.values[operator.outputs[0]].shape
    groups = int(operator.attribute("group", 1) or 1)  # type: ignore[arg-type]
    windows = convolution_windows(workload, operator)
    flat = not by_rows and all(w.taps == 1 and w.stride == 1 and w.clean and w.outputs == w.size for w in windows)
    biased = len(operator.inputs) > 2 and operator.op_type != "ConvInteger"  # which has zero points behind the weights
    bias = operator.inputs[2] if biased else -1
    return FORMS[operator.op_type](
        operator, operator.inputs[0], operator.inputs[1], bias, (out[0], groups), (1, groups),
        _split(prod(out[2:]), split) if flat else windows, out[1] // groups, shape[0][1] // groups,
        shape[0], shape[1], shape[2] if biased else (), out, flat=flat,
    )  # fmt: skip


def pixel_lanes(workload: Workload, operator: WorkloadOperator, split: int = 1) -> PixelLanes:
    """The form of a 1x1 convolution whose lanes run over pixels; `split`: rows that its output channels make."""
    form = _convolution(workload, operator, 1, by_rows=False)
    windows = _split(form.columns, split)
    return PixelLanes(
        operator, form.w, form.x, form.bias, form.batch, form.batch, windows, prod(form.out_shape[2:]), form.depth,
        form.w_shape, form.x_shape, form.bias_shape, form.out_shape, flat=True,
    )  # fmt: skip


def pixel_lanes_refusal(workload: Workload, form: Contraction, in_rows: Callable[[int], bool]) -> str | None:
    """Why the lanes of a convolution cannot, or need not, run over its pixels (None: they may)."""
    if type(form) is not Convolution or not form.flat:
        return "it is no convolution of one tap and stride 1"
    if workload.values[form.w].kind != "constant":
        return "the weights are not constant"
    if any(value.block for value in workload.values) or not in_rows(form.x):
        return "the pixels of a channel are not neighbours in memory"
    return None


def group_lanes(form: Convolution) -> GroupLanes:
    """The form of a convolution of small groups whose lanes run over the channels of several of them."""
    images, groups = form.batch
    return GroupLanes(
        form.operator, form.x, form.w, form.bias, (images, 1), (1, 1), form.windows, groups * form.columns, form.depth,
        form.x_shape, form.w_shape, form.bias_shape, form.out_shape, flat=form.flat,
    )  # fmt: skip


def group_lanes_refusal(workload: Workload, form: Contraction, lanes: int) -> str | None:
    """Why the lanes of a convolution cannot run over channels of several groups (None: they may)."""
    x = workload.values[form.x]
    if type(form) is not Convolution or form.batch[1] == 1 or form.columns != form.depth:
        return "it is no convolution of groups with as many channels on both sides"
    if form.depth >= lanes or lanes % form.depth:
        return "no whole number of groups fills a vector"
    if x.kind != "input" or x.block != lanes or x.is_half:
        return "its input does not lie in blocks of a vector"
    return None if workload.values[form.w].kind == "constant" else "the weights are not constant"


def _product(workload: Workload, operator: WorkloadOperator, split: int) -> Product:
    a, b = (workload.values[v].shape for v in operator.inputs[:2])
    out = workload.values[operator.outputs[0]].shape
    vector = (len(a) == 1, len(b) == 1)
    lead, tail = (out, (1,)) if vector[1] else (out[:-1], out[-1:])
    out = (*lead, *((1,) if vector[0] else ()), *tail)
    a, b = (1, *a) if vector[0] else a, (*b, 1) if vector[1] else b
    gemm = operator.op_type == "Gemm"
    transposed = (_flag(operator, "transA"), _flag(operator, "transB")) if gemm else (False, False)
    bias = operator.inputs[2] if gemm and len(operator.inputs) > 2 else -1
    alpha, beta = (float(operator.attribute(k, 1.0) or 0.0) if gemm else 1.0 for k in ("alpha", "beta"))  # type: ignore[arg-type]
    columns, depth = (b[-2], b[-1]) if transposed[1] else (b[-1], b[-2])
    flat = len(b) == 2
    pixels = prod(out[:-1]) if flat else out[-2]
    x_shape = (a[1], a[0]) if transposed[0] else a
    return Product(
        operator, operator.inputs[0], operator.inputs[1], bias, (1,) if flat else out[:-2],
        (1,) if flat else _weight_batch(out[:-2], b[:-2]), _split(pixels, split if flat else 1), columns, depth,
        x_shape, b, workload.values[bias].shape if bias >= 0 else (), out, alpha, beta,
        flat=flat, transposed=transposed, vector=vector,
    )  # fmt: skip


def _flag(operator: WorkloadOperator, name: str) -> bool:
    return bool(operator.attribute(name, 0))


def _weight_batch(batch: tuple[int, ...], lead: tuple[int, ...]) -> tuple[int, ...]:
    """Extents of the batch in which the right operand really differs."""
    return (1,) * (len(batch) - len(lead)) + lead


def reads_rows(form: Contraction, in_rows: Callable[[int], bool]) -> bool:
    """Whether the right-hand side of a product can be read as it lies: computed, its columns side by side."""
    turned = isinstance(form, Product) and form.transposed[1]
    return isinstance(form, (Product, PixelLanes)) and not turned and in_rows(form.w)


def copies_rows(form: Contraction) -> bool:
    """Whether a row of results reads whole rows of the left-hand side: a convolution with a window."""
    return isinstance(form, Convolution) and not form.flat and all(type(window) is Window for window in form.windows)


def is_widened(workload: Workload, form: Contraction) -> bool:
    """Whether a 1x1 contraction reads float16 inputs that it widens: once for each panel, unless rows are copied."""
    if type(form) not in (Convolution, Product) or not getattr(form, "flat", False):
        return False
    made = next((operator for operator in workload.operators if form.x in operator.outputs), None)
    if made is None or made.op_type != "Cast":
        return False
    given = workload.values[made.inputs[0]]
    return (given.kind, given.dtype) == ("input", "float16")


def copies_left(workload: Workload, form: Contraction) -> bool:
    """Whether what a row of results reads may be copied side by side first: of a window, or where it is widened."""
    return copies_rows(form) or is_widened(workload, form)


def results_a_column(form: Contraction) -> int:
    """Results that share a column of the right-hand side."""
    return prod(form.batch) * prod(window.outputs for window in form.windows)
