"""Operators that change places: what picks or copies elements moves to where there are fewer of them to compute."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autofuse.graph.mapping import names
from autofuse.graph.model import Operator
from autofuse.rewrite.declare import rule
from autofuse.rewrite.facts import BINARY, pointwise_of_one
from autofuse.rewrite.maker import Maker
from autofuse.rewrite.rule import Default, Kind, Rule
from autofuse.rewrite.work import Work

_C = Kind.COMMUTATIVE
_UNARY = names(
    """Abs Cast Ceil Clip Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mish Neg Not Pow Reciprocal
    Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Swish Tan Tanh"""
)
_POINTWISE = _UNARY | BINARY
_ROWS = frozenset(("LayerNormalization", "RMSNormalization", "Softmax", "LogSoftmax"))


def _again(maker: Maker, operator: Operator, old: str, new: str, shape: Sequence[int]) -> str:
    """An elementwise operator on `new` instead of `old`."""
    inputs = [new if name == old else name for name in operator.inputs]
    dtype = maker.dtype(operator.outputs[0])
    return maker.op(operator.op_type, *inputs, shape=shape, dtype=dtype, given=operator.attributes)


@rule(
    _C, ("Slice", "Gather"), exact=True, guard="one private operand varies, of the result's shape; indices are constant"
)
def selection_before_elementwise(work: Work, operator: Operator, maker: Maker) -> bool:
    """Slice(F(A)) -> F(Slice(A)), Gather(F(A)) -> F(Gather(A)) for elementwise F"""
    source = work.producer(operator.inputs[0])
    if source is None or not work.private(operator.inputs[0]) or not _selects(work, operator):
        return False
    x = pointwise_of_one(work, source)
    if x is None:
        return False
    shape = work.shape(operator.outputs[0])
    picked = maker.op(operator.op_type, x, *operator.inputs[1:], shape=shape, given=operator.attributes)
    maker.become(operator.outputs[0], _again(maker, source, x, picked, shape))
    return True


def _selects(work: Work, operator: Operator) -> bool:
    """Whether a Slice or Gather has constant indices and leaves elements out."""
    before, after = (work.tensors[name].elements for name in (operator.inputs[0], operator.outputs[0]))
    return after < before and all(map(work.is_constant, operator.inputs[1:]))


def _selected_axes(work: Work, operator: Operator) -> tuple[int, ...] | None:
    """Axes along which a Slice or Gather picks; None when they are not known."""
    if operator.op_type == "Gather":
        axis = operator.attributes.get("axis", 0)
        return (axis,) if isinstance(axis, int) else None
    return work.integers(operator.inputs[3]) if len(operator.inputs) > 3 else None


@rule(_C, ("Slice", "Gather"), exact=True, guard="both operands vary; those that broadcast along a picked axis stay")
def selection_before_binary(work: Work, operator: Operator, maker: Maker) -> bool:
    """Slice(A + B) -> Slice(A) + Slice(B), Gather(A * B) -> Gather(A) * Gather(B)"""
    source = work.producer(operator.inputs[0], *BINARY)
    axes = _selected_axes(work, operator)
    if source is None or axes is None or not work.private(operator.inputs[0]) or not _selects(work, operator):
        return False
    rank, shape = len(work.shape(operator.inputs[0])), work.shape(operator.outputs[0])
    if not _keeps_rank(work, operator, rank):
        return False
    moved = []
    for name in source.inputs:
        full = (1,) * (rank - len(work.shape(name))) + work.shape(name)
        if all(full[axis] == 1 for axis in axes):
            moved.append(name)
        elif len(work.shape(name)) == rank and all(full[axis] > 1 for axis in axes):
            moved.append(_picked(maker, operator, name))
        else:
            return False
    maker.become(operator.outputs[0], maker.op(source.op_type, *moved, shape=shape, given=source.attributes))
    return True


@rule(_C, ("Slice", "Gather"), exact=True, guard="rows are picked, not the axis that is normalised")
def selection_before_normalization(work: Work, operator: Operator, maker: Maker) -> bool:
    """Slice(LayerNormalization(A)) -> LayerNormalization(Slice(A)); also RMSNormalization, Softmax and LogSoftmax"""
    source, axes = work.producer(operator.inputs[0], *_ROWS), _selected_axes(work, operator)
    if source is None or axes is None or not work.private(operator.inputs[0]) or not _selects(work, operator):
        return False
    axis, rank = source.attributes["axis"], len(work.shape(source.inputs[0]))
    assert isinstance(axis, int)
    last = source.op_type in ("LayerNormalization", "RMSNormalization")
    if any(picked >= axis if last else picked == axis for picked in axes) or not _keeps_rank(work, operator, rank):
        return False
    if not all(map(work.is_constant, source.inputs[1:])):
        return False
    picked = _picked(maker, operator, source.inputs[0])
    shape = work.shape(operator.outputs[0])
    maker.become(
        operator.outputs[0],
        maker.op(source.op_type, picked, *source.inputs[1:], shape=shape, given=source.attributes),
    )
    return True


def _keeps_rank(work: Work, operator: Operator, rank: int) -> bool:
    return len(work.shape(operator.outputs[0])) == rank


def _picked(maker: Maker, operator: Operator, tensor: str) -> str:
    """Makes the same selection from another tensor, whose other axes may have other lengths."""
    axes = _selected_axes(maker.work, operator) or ()
    result = maker.work.shape(operator.outputs[0])
    shape = tuple(result[axis] if axis in axes else size for axis, size in enumerate(maker.shape(tensor)))
    return maker.op(operator.op_type, tensor, *operator.inputs[1:], shape=shape, given=operator.attributes)


@rule(
    _C, ("Slice", "Gather"), exact=True, guard="rows of the left matrix, or columns of a constant right one, are picked"
)
def selection_before_matmul(work: Work, operator: Operator, maker: Maker) -> bool:
    """Slice(MatMul(A, B)) -> MatMul(Slice(A), B), or MatMul(A, Slice(B)) for columns"""
    source, axes = work.producer(operator.inputs[0], "MatMul"), _selected_axes(work, operator)
    if source is None or axes is None or not work.private(operator.inputs[0]) or not _selects(work, operator):
        return False
    rank = len(work.shape(source.outputs[0]))
    left, right = source.inputs
    plain = len(work.shape(left)) == rank and len(work.shape(right)) == 2
    if not plain or len(axes) != 1 or axes[0] == rank - 1 or not _keeps_rank(work, operator, rank):
        return False
    result = operator.outputs[0]
    maker.become(result, maker.op("MatMul", _picked(maker, operator, left), right, shape=work.shape(result)))
    return True


@rule(
    _C,
    ("Gather",),
    exact=True,
    default=Default.ALWAYS,
    guard="the index is one number that is known; what A computes can be computed for that part alone",
)
def gather_as_slice(work: Work, operator: Operator, maker: Maker) -> bool:
    """Gather(A, i) -> Reshape(Slice(A, i, i + 1))"""
    index, axis = operator.inputs[1], operator.attributes.get("axis", 0)
    values = work.integers(index)
    if not isinstance(axis, int) or values is None or len(values) != 1 or work.shape(index) != ():
        return False
    source = work.producer(operator.inputs[0])
    moves = source is not None and (source.op_type in _POINTWISE | _ROWS or source.op_type == "MatMul")
    if not moves or not work.private(operator.inputs[0]):
        return False
    shape = work.shape(operator.inputs[0])
    place = values[0] % shape[axis]
    ends = [
        maker.integers(label, [value])
        for label, value in (("starts", place), ("ends", place + 1), ("axes", axis), ("steps", 1))
    ]
    cut = maker.op("Slice", operator.inputs[0], *ends, shape=(*shape[:axis], 1, *shape[axis + 1 :]))
    result = operator.outputs[0]
    maker.become(
        result, maker.op("Reshape", cut, maker.integers("shape", work.shape(result)), shape=work.shape(result))
    )
    return True


@rule(_C, _POINTWISE, exact=True, guard="nearest-neighbour Resize, or Expand; private; other operands are numbers")
def elementwise_before_copies(work: Work, operator: Operator, maker: Maker) -> bool:
    """F(Resize(A)) -> Resize(F(A)), F(Expand(A)) -> Expand(F(A)) for elementwise F"""
    x = pointwise_of_one(work, operator)
    copy = None if x is None else work.producer(x, "Resize", "Expand")
    if x is None or copy is None or not work.private(x) or copy.attributes.get("mode", "nearest") != "nearest":
        return False
    source = copy.inputs[0]
    if work.tensors[source].elements >= work.tensors[x].elements:
        return False
    small = _again(maker, operator, x, source, work.shape(source))
    result = operator.outputs[0]
    wide = maker.op(
        copy.op_type,
        small,
        *copy.inputs[1:],
        shape=work.shape(result),
        dtype=maker.dtype(result),
        given=copy.attributes,
    )
    maker.become(result, wide)
    return True


@rule(_C, sorted(BINARY), exact=True, guard="the same permutation, both private")
def binary_of_transposes(work: Work, operator: Operator, maker: Maker) -> bool:
    """Transpose(A) + Transpose(B) -> Transpose(A + B), for every elementwise operator of two operands"""
    turned = [work.producer(name, "Transpose") for name in operator.inputs]
    if len(turned) != 2 or turned[0] is None or turned[1] is None or turned[0] is turned[1]:
        return False
    first, second = turned[0], turned[1]
    private = all(map(work.private, operator.inputs))
    if not private or first.attributes["perm"] != second.attributes["perm"]:
        return False
    new = maker.op(operator.op_type, first.inputs[0], second.inputs[0], given=operator.attributes)
    result = operator.outputs[0]
    shape = work.shape(result)
    maker.become(result, maker.op("Transpose", new, shape=shape, perm=first.attributes["perm"]))
    return True


@rule(_C, ("Transpose",), exact=True, guard="F is private and has no other operand that varies")
def transposes_meet(work: Work, operator: Operator, maker: Maker) -> bool:
    """Transpose(F(Transpose(A))) -> F(A), or F(Transpose(A)), for elementwise F"""
    source = work.producer(operator.inputs[0])
    x = None if source is None else pointwise_of_one(work, source)
    inner = None if x is None else work.producer(x, "Transpose")
    if source is None or x is None or inner is None or not work.private(operator.inputs[0]) or not work.private(x):
        return False
    first, second = inner.attributes["perm"], operator.attributes["perm"]
    assert isinstance(first, tuple) and isinstance(second, tuple)
    perm = tuple(int(first[int(axis)]) for axis in second)
    shape, new = work.shape(operator.outputs[0]), inner.inputs[0]
    if perm != tuple(range(len(perm))):
        new = maker.op("Transpose", new, shape=shape, perm=perm)
    maker.become(operator.outputs[0], _again(maker, source, x, new, shape))
    return True


@rule(_C, ("Reshape",), exact=True, guard="F is private and has no other operand that varies")
def reshapes_meet(work: Work, operator: Operator, maker: Maker) -> bool:
    """Reshape(F(Reshape(A))) -> F(A), or F(Reshape(A)), for elementwise F"""
    source = work.producer(operator.inputs[0])
    x = None if source is None else pointwise_of_one(work, source)
    inner = None if x is None else work.producer(x, "Reshape", "Squeeze", "Unsqueeze", "Flatten")
    if source is None or x is None or inner is None or not work.private(operator.inputs[0]) or not work.private(x):
        return False
    shape, new = work.shape(operator.outputs[0]), inner.inputs[0]
    if shape != work.shape(new):
        new = maker.op("Reshape", new, operator.inputs[1], shape=shape)
    maker.become(operator.outputs[0], _again(maker, source, x, new, shape))
    return True


@rule(_C, ("Slice",), exact=True, guard="steps of 1, the same axes or others")
def slices_joined(work: Work, operator: Operator, maker: Maker) -> bool:
    """Slice(Slice(A)) -> Slice(A)"""
    inner = work.producer(operator.inputs[0], "Slice")
    if inner is None:
        return False
    outer = _cuts(work, operator)
    cuts = _cuts(work, inner)
    if outer is None or cuts is None:
        return False
    for axis, (start, end) in outer.items():
        shift = cuts[axis][0] if axis in cuts else 0
        cuts[axis] = (start + shift, end + shift)
    rows = [(start, end, axis, 1) for axis, (start, end) in sorted(cuts.items())]
    ends = [
        maker.integers(label, [row[i] for row in rows]) for i, label in enumerate(("starts", "ends", "axes", "steps"))
    ]
    shape = work.shape(operator.outputs[0])
    maker.become(operator.outputs[0], maker.op("Slice", inner.inputs[0], *ends, shape=shape))
    return True


def _cuts(work: Work, operator: Operator) -> dict[int, tuple[int, int]] | None:
    """Axis -> (start, end) of a Slice with steps of 1; None for another."""
    if len(operator.inputs) != 5:
        return None
    rows = [work.integers(name) for name in operator.inputs[1:]]
    starts, ends, axes, steps = rows
    if starts is None or ends is None or axes is None or steps is None or set(steps) != {1}:
        return None
    return {axis: (start, end) for axis, start, end in zip(axes, starts, ends, strict=True)}


@rule(_C, ("Concat",), exact=True)
def concats_joined(work: Work, operator: Operator, maker: Maker) -> bool:
    """Concat(Concat(A, B), C) -> Concat(A, B, C) along one axis"""
    axis = operator.attributes["axis"]
    names: list[str] = []
    for name in operator.inputs:
        inner = work.producer(name, "Concat")
        same = inner is not None and inner.attributes["axis"] == axis and work.private(name)
        names += inner.inputs if inner is not None and same else [name]
    if len(names) == len(operator.inputs):
        return False
    maker.become(operator.outputs[0], maker.op("Concat", *names, shape=work.shape(operator.outputs[0]), axis=axis))
    return True


@rule(_C, ("Concat",), exact=True, guard="all results of one Split, in their order")
def concat_of_split(work: Work, operator: Operator, maker: Maker) -> bool:
    """Concat(Split(A)) -> A along one axis"""
    split = work.producer(operator.inputs[0], "Split")
    if split is None or split.outputs != operator.inputs or split.attributes["axis"] != operator.attributes["axis"]:
        return False
    maker.become(operator.outputs[0], split.inputs[0])
    return True


@rule(_C, ("Slice",), exact=True, guard="one operand of the Concat holds all that is picked")
def slice_of_concat(work: Work, operator: Operator, maker: Maker) -> bool:
    """Slice(Concat(A, B)) -> Slice(A), or A"""
    concat, cuts = work.producer(operator.inputs[0], "Concat"), _cuts(work, operator)
    if concat is None or cuts is None or len(cuts) != 1:
        return False
    axis, (start, end) = next(iter(cuts.items()))
    begin, result = 0, operator.outputs[0]
    for name in concat.inputs if concat.attributes["axis"] == axis else ():
        size = work.shape(name)[axis]
        if begin <= start and end <= begin + size:
            if end - start == size:
                maker.become(result, name)
                return True
            ends = [
                maker.integers(label, [value]) for label, value in (("starts", start - begin), ("ends", end - begin))
            ]
            maker.become(result, maker.op("Slice", name, *ends, *operator.inputs[3:], shape=work.shape(result)))
            return True
        begin += size
    return False


@rule(_C, ("MatMul",), exact=True, guard="both operands are private transposes of the last two axes")
def matmul_of_transposes(work: Work, operator: Operator, maker: Maker) -> bool:
    """MatMul(Transpose(A), Transpose(B)) -> Transpose(MatMul(B, A))"""
    turned = [work.producer(name, "Transpose") for name in operator.inputs]
    first, second = turned
    if first is None or second is None or not all(map(work.private, operator.inputs)):
        return False
    rank = len(work.shape(operator.outputs[0]))
    swap = (*range(rank - 2), rank - 1, rank - 2)
    if first.attributes["perm"] != swap or second.attributes["perm"] != swap:
        return False
    product = maker.op("MatMul", second.inputs[0], first.inputs[0])
    shape = work.shape(operator.outputs[0])
    maker.become(operator.outputs[0], maker.op("Transpose", product, shape=shape, perm=swap))
    return True


@rule(
    _C,
    ("AveragePool", "GlobalAveragePool"),
    guard="the convolution has one tap and stride 1, and is private; the mean is of fewer places than there are",
)
def mean_before_convolution(work: Work, operator: Operator, maker: Maker) -> bool:
    """AveragePool(Conv(A)) -> Conv(AveragePool(A)), likewise GlobalAveragePool, for convolutions of one tap"""
    conv = work.producer(operator.inputs[0], "Conv")
    if conv is None or not work.private(operator.inputs[0]) or not _is_pointwise(work, conv):
        return False
    if operator.attributes.get("count_include_pad", 0) and _is_padded(operator):
        return False  # zeros outside would have no bias
    before, after = work.shape(operator.inputs[0]), work.shape(operator.outputs[0])
    if prod(after[2:]) >= prod(before[2:]):
        return False
    mean_shape = (*work.shape(conv.inputs[0])[:2], *after[2:])
    mean = maker.op(operator.op_type, conv.inputs[0], shape=mean_shape, given=operator.attributes)
    moved = maker.op("Conv", mean, *conv.inputs[1:], shape=after, given=conv.attributes)
    maker.become(operator.outputs[0], moved)
    return True


def _is_pointwise(work: Work, conv: Operator) -> bool:
    """Whether each result of a convolution is of one place, and every place has one."""
    x, w, y = (work.shape(name) for name in (conv.inputs[0], conv.inputs[1], conv.outputs[0]))
    return all(size == 1 for size in w[2:]) and x[2:] == y[2:] and not _is_padded(conv)


def _is_padded(operator: Operator) -> bool:
    """Whether a window reads beyond the map, as far as its own padding says."""
    pads = operator.attributes.get("pads", ())
    return isinstance(pads, tuple) and any(pads)


MOTIONS: tuple[Rule, ...] = (
    selection_before_elementwise, selection_before_binary, selection_before_normalization, selection_before_matmul,
    gather_as_slice, elementwise_before_copies, binary_of_transposes, transposes_meet, reshapes_meet, slices_joined,
    concats_joined, concat_of_split, slice_of_concat, matmul_of_transposes, mean_before_convolution,
)  # fmt: skip
