"""Rearrangements of all elements of a tensor, as maps of indices that work in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autofuse.kernels.tir.math import Expr

Index = tuple[Expr, ...]


def regroup(index: Index, source: Sequence[int], target: Sequence[int]) -> Index:
    """The index in shape `target` of the element that has `index` in `source` (same elements, row-major).

    Runs of dimensions that cover the same elements are converted by themselves: [N, C, H, W] to [N, C, HW]
    leaves n and c untouched.
    """
    result: list[Expr] = []
    i = j = 0
    while i < len(source) or j < len(target):
        first_source, first_target = i, j
        left = right = 1
        while True:
            if left == right and (i > first_source or j > first_target):
                break
            if i < len(source) and (left <= right or j >= len(target)):
                left *= source[i]
                i += 1
            else:
                right *= target[j]
                j += 1
        result += _convert(index[first_source:i], source[first_source:i], target[first_target:j])
    return tuple(result)


def _convert(index: Index, source: Sequence[int], target: Sequence[int]) -> list[Expr]:
    """`regroup` of one run."""
    offset: Expr = 0
    for position, extent in zip(index, source, strict=True):
        if extent > 1:
            offset = offset * extent + position if not _is_zero(offset) else position
    result: list[Expr] = [0] * len(target)
    remaining = prod(target)
    for place in reversed(range(len(target))):
        extent = target[place]
        if extent > 1:
            remaining //= extent
            result[place] = offset if remaining == 1 else offset % extent
            offset = offset // extent
    return result


def _is_zero(position: Expr) -> bool:
    return isinstance(position, int) and position == 0


def to_depth(index: Index, block: int, channels: int, crd: bool) -> Index:
    """Of an element of [N, C, H b, W b]: its index in [N, C b b, H, W]."""
    n, c, h, w = index
    inner = h % block * block + w % block
    return (n, c * (block * block) + inner if crd else inner * channels + c, h // block, w // block)


def to_space(index: Index, block: int, channels: int, crd: bool) -> Index:
    """Of an element of [N, C b b, H, W]: its index in [N, C, H b, W b]."""
    n, deep, h, w = index
    c, inner = (deep // (block * block), deep % (block * block)) if crd else (deep % channels, deep // channels)
    return (n, c, h * block + inner // block, w * block + inner % block)
