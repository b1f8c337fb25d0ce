"""The graph of a model with open sizes: read at several of them, and compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import gcd
from pathlib import Path

from autofuse.backend.compile.realise import Progress, silent
from autofuse.compiler.job import READING
from autofuse.errors import InputError, UncoveredError
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.given.buckets import form_at, form_of
from autofuse.graph.loading.given.constants import model_sha256
from autofuse.graph.loading.given.sizes import OpenSize, open_ones, the_open_one
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.graph.transform.leading import with_leading_size
from autofuse.graph.transform.open_sizes.open_graph import (
    ADVICE,
    OpenGraph,
    check_size,
    is_alike,
    open_graph,
    refused_small,
    with_parts_given,
)
from autofuse.graph.transform.open_sizes.repeats import Repeats
from autofuse.graph.transform.open_sizes.rows import check_rows
from autofuse.graph.transform.real_levels import with_real_levels
from autofuse.kernels.lowering.coverage import require_kernels
from autofuse.measure.checking.reference import run_references
from autofuse.measure.checking.tolerance import compare
from autofuse.values.arguments import Given

UNLIKELY = 19, 23
"""Sizes that models hardly have anywhere else."""
_SMALL_FACTORS = 2 * 3 * 5 * 7 * 11 * 13
"""Of what most sizes in models are multiples."""
SINGLE_CASES = 3
"""Inputs on which a graph for a single row, or none, is compared, where its operators are others."""
MOVED_SIZES = 2, 3
"""Sizes at which a graph whose open size was put in front is compared with the model."""


@dataclass(frozen=True, eq=False)
class OpenModel:
    """A model whose rows along an open size are kept apart; `twin`: the same graph at another size. `repeats`:
    where a second size says how many sequences there are."""

    opened: OpenGraph
    size: OpenSize
    twin: Graph
    twin_size: int
    sha256: str
    repeats: Repeats | None = None


def read_open(model: Path, given: Given, sizes: Sequence[OpenSize], told: Progress = silent) -> OpenModel:
    """The graph of a model with an open size, compared with what the loader makes of it at several sizes; with two, of
    which one says how many sequences of the other there are."""
    if len(open_ones(sizes)) == 2:
        return _read_repeated(model, given, sizes, told)
    size = the_open_one(sizes)

    @cache
    def loaded(count: int) -> Graph:
        return load(model, form_at(model, sizes, count, given))

    form = form_at(model, sizes, size.high, given)
    first, second, _ = samples(size)
    try:
        told(READING, 0, 2)
        require_kernels(loaded(first))
        opened, kept = _compared_anywhere(size, loaded, told)
    except UncoveredError as error:
        raise InputError(
            f"{error}; ONNX Runtime would run that part, at fixed sizes only: compile without --sizes"
        ) from error
    opened = with_parts_given(kept, size.high)
    return OpenModel(opened, size, opened.at(second), second, model_sha256(model.read_bytes(), form))


def _compared_anywhere(size: OpenSize, loaded: Callable[[int], Graph], told: Progress) -> tuple[OpenGraph, OpenGraph]:
    """See `_compared`: by the usual two sizes, or by two at the end of the range."""
    try:
        return _compared(size, loaded, samples(size), told)
    except InputError as error:
        if size.high <= max(UNLIKELY) + 1:
            raise
        refusal = error
    try:
        return _read_at_the_end(size, loaded, told)
    except InputError:
        raise refusal from None


def _compared(
    size: OpenSize, loaded: Callable[[int], Graph], at: tuple[int, int, tuple[int, ...]], told: Progress
) -> tuple[OpenGraph, OpenGraph]:
    """The open graph by two sizes of `at`, compared at the others, and that whose rows are kept apart."""
    first, second, more = at
    opened = open_graph(size.name, first, loaded(first), second, loaded(second), loaded(max(size.high, second)))
    kept = _kept_apart(opened, second, max(size.high, second))
    for number, count in enumerate(more):
        told(READING, 2 + number, 2 + len(more))
        if count > 1:
            _check_at(opened, count, loaded)
        else:
            _check_small(opened, count, loaded)
    return opened, kept


def _read_at_the_end(size: OpenSize, loaded: Callable[[int], Graph], told: Progress) -> tuple[OpenGraph, OpenGraph]:
    """The open graph as it is where the size is largest: a mask of so many neighbours leaves all of fewer tokens in,
    and is then no mask at all. InputError where it is another model all the same."""
    unlikely = (count for count in range(size.high, max(UNLIKELY), -1) if gcd(count, _SMALL_FACTORS) == 1)
    second, first = next(unlikely, size.high), next(unlikely, size.high - 1)
    more = sorted({*samples(size)[2], *UNLIKELY} - {first, second})
    opened, kept = _compared(size, loaded, (first, second, tuple(more)), told)
    usual = samples(size)[0]
    return replace(opened, graph=opened.at(usual), size=usual), replace(kept, graph=kept.at(usual), size=usual)


def _check_at(opened: OpenGraph, size: int, loaded: Callable[[int], Graph]) -> None:
    """InputError unless the open graph at `size` is what the model is there, or, at less than the size that it was read
    at, computes the same in ONNX Runtime."""
    try:
        check_size(opened, size, loaded(size))
    except InputError:
        if size >= opened.size or not _computes_alike(opened.at(size), loaded(size)):
            raise


def _kept_apart(opened: OpenGraph, second: int, largest: int, *, apart: bool = False) -> OpenGraph:
    """An open graph whose rows are kept apart, with products of bytes over the size in float32; where the size stands
    behind other axes, one with it in front of all.

    That is compared with the model in ONNX Runtime at `MOVED_SIZES`. InputError for the model as it is where it cannot
    be written so. `apart`: see `check_rows`.
    """
    opened = with_real_levels(opened)
    try:
        check_rows(opened, apart=apart)
        return opened
    except InputError as error:
        if not opened.grids:
            raise
        refusal = error
    try:
        graphs = [with_leading_size(opened, size) for size in (opened.size, second, largest)]
        leading = open_graph(opened.symbol, opened.size, graphs[0], second, *graphs[1:])
        check_rows(leading, apart=apart)
    except InputError:
        raise refusal from None
    for size in MOVED_SIZES:
        if not _computes_alike(leading.at(size), opened.at(size)):
            raise refusal
    return leading


def _computes_alike(made: Graph, wanted: Graph) -> bool:
    """Whether two graphs give the same in ONNX Runtime, of a few made-up inputs."""
    cases = [generate_inputs(wanted, seed) for seed in range(SINGLE_CASES)]
    pairs = zip(run_references(made, cases), run_references(wanted, cases), strict=True)
    return all(
        one.keys() == other.keys() and all(compare(one[name], other[name]).ok for name in other) for one, other in pairs
    )


def _check_small(opened: OpenGraph, size: int, load_at: Callable[[int], Graph]) -> None:
    """InputError unless the open graph at a size of 1 or 0 is what the model is there, or computes the same in ONNX
    Runtime."""
    try:
        loaded = load_at(size)
    except UncoveredError as error:
        if size:
            raise
        raise refused_small(opened, size) from error
    if is_alike(opened, size, loaded):
        return
    made = opened.at(size)
    if tuple(made.tensors[name] for name in made.inputs) != tuple(loaded.tensors[name] for name in loaded.inputs):
        raise refused_small(opened, size)
    if not _computes_alike(made, loaded):
        raise refused_small(opened, size)


def samples(size: OpenSize) -> tuple[int, int, tuple[int, ...]]:
    """Sizes at which a model is read: two that say where the size stands in its tensors, and those that are compared.

    None of the first two is 1, where the loader leaves operators out, nor smaller than a tile. `UNLIKELY` are hardly
    the size of something else, too.
    """
    first, second = UNLIKELY if size.high >= max(UNLIKELY) else (max(2, size.high), max(2, size.high) + 1)
    more = {size.low, min(size.low + 1, size.high), (size.low + size.high) // 2, size.high} - {first, second}
    return first, second, tuple(sorted(more))


def _read_repeated(model: Path, given: Given, sizes: Sequence[OpenSize], told: Progress) -> OpenModel:
    """The graph of a model with two open sizes. InputError with both reasons where neither counts sequences."""
    one, other = open_ones(sizes)
    reasons = []
    for outer, inner in ((one, other), (other, one)):
        try:
            axes = _sequences(model, given, sizes, outer, inner)
            single = [replace(size, low=1, high=1) if size is outer else size for size in sizes]
            return replace(read_open(model, given, single, told), repeats=Repeats(outer, axes))
        except InputError as error:
            reason = str(error).removeprefix("--sizes: ").removesuffix(f"; {ADVICE}")
            reasons.append(f"{outer.name} as a number of sequences: {reason}")
    raise InputError(
        f"--sizes: {one.name} and {other.name} cannot stay open together; fix one, such as {other.name}={other.high}, "
        f"or {ADVICE}. {'; '.join(reasons)}"
    )


def _sequences(
    model: Path, given: Given, sizes: Sequence[OpenSize], outer: OpenSize, inner: OpenSize
) -> dict[str, int]:
    """The axis of each input and output along which sequences stand, as many as `outer` says.

    InputError unless they are kept apart at several values of `inner`, and one of them alone is what the model is then.
    """
    if outer.low < 1 or outer.step > 1:
        raise InputError(f"let {outer.name} start at 1, without a step")
    found: list[dict[str, int]] = []
    for at in dict.fromkeys((samples(inner)[0], max(1, inner.low))):

        @cache
        def loaded(count: int, at: int = at) -> Graph:
            return load(model, form_of(model, sizes, {outer.name: count, inner.name: at}, given))

        first, second, _ = samples(outer)
        opened = open_graph(outer.name, first, loaded(first), second, loaded(second))
        _kept_apart(opened, second, max(outer.high, second), apart=True)
        _check_small(opened, 1, loaded)
        named = (*opened.graph.inputs, *opened.graph.outputs)
        found.append({name: opened.axes[name].axis for name in named if name in opened.axes})
    if any(axes != found[0] for axes in found):
        raise InputError(f"where {outer.name} stands in its inputs and outputs depends on {inner.name}")
    return found[0]
