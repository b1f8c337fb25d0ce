"""The graph of a model with open sizes: read at several of them, and compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import gcd
from pathlib import Path

from autofuse.backend.compile.realise import Progress, silent
from autofuse.compiler.open_sizes.samples import UNLIKELY, Point, Samples, samples, samples_of
from autofuse.compiler.report import READING
from autofuse.errors import InputError, UncoveredError
from autofuse.graph.inputs import generate_inputs
from autofuse.graph.loading.given.buckets import form_of
from autofuse.graph.loading.given.constants import model_sha256
from autofuse.graph.loading.given.sizes import OpenSize, open_ones, the_open_one
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.graph.transform.leading import with_leading_size
from autofuse.graph.transform.open_sizes.lengths import OpenLengths, check_lengths, with_lengths_given
from autofuse.graph.transform.open_sizes.open_graph import (
    ADVICE,
    Array,
    OpenGraph,
    check_size,
    is_alike,
    makes_nothing,
    open_graph,
    refused_grid,
    refused_small,
)
from autofuse.graph.transform.open_sizes.over_rows.counted import (
    Counted,
    numbers_counted,
    with_counts_written_out,
)
from autofuse.graph.transform.open_sizes.over_rows.picks import picks_over_open, with_picks_written_out
from autofuse.graph.transform.open_sizes.over_rows.positions import (
    Positions,
    has_positions,
    positions_counted,
    with_positions_written_out,
)
from autofuse.graph.transform.open_sizes.over_rows.shares import with_shares_written_out
from autofuse.graph.transform.open_sizes.over_rows.vectors import with_vectors_as_matrices
from autofuse.graph.transform.open_sizes.repeats import Repeats
from autofuse.graph.transform.open_sizes.rows import check_rows
from autofuse.graph.transform.real_levels import with_real_levels
from autofuse.kernels.lowering.coverage import require_kernels
from autofuse.measure.checking.reference import run_references
from autofuse.measure.checking.tolerance import compare
from autofuse.rewrite.driver import rewrite
from autofuse.rewrite.rules.einsum import einsum_as_product
from autofuse.values.arguments import Constant, Given

_SMALL_FACTORS = 2 * 3 * 5 * 7 * 11 * 13
"""Of what most sizes in models are multiples."""
SINGLE_CASES = 3
"""Inputs on which a graph for a single row, or none, is compared, where its operators are others."""
COMPARED_SIZES = 2, 3
"""Sizes at which a graph that was written anew is compared with the model."""


@dataclass(frozen=True, eq=False)
class OpenModel:
    """A model whose rows along its open lengths, `sizes`, are kept apart; `twins`: for each of them another value, and
    the same graph there. `repeats`: where a further size says how many sequences there are."""

    opened: OpenLengths
    sizes: tuple[OpenSize, ...]
    twins: tuple[tuple[int, Graph], ...]
    sha256: str
    repeats: Repeats | None = None

    @cached_property
    def emptied(self) -> frozenset[int]:
        """The numbers of the lengths that may be 0, where no output has an element then: nothing is to be computed."""
        small = (number for number, size in enumerate(self.sizes) if not size.low)
        return frozenset(number for number in small if makes_nothing(self.opened.at({number: 0})))


Load = Callable[[Point], Graph]
Reader = Callable[[Path, Given], Graph]
"""Loads a model in a form."""


def read_open(model: Path, given: Given, sizes: Sequence[OpenSize], told: Progress = silent) -> OpenModel:
    """The graph of a model with open sizes, compared with what the loader makes of it at several sizes: of one length,
    or of two; a further one says how many sequences there are. Where it cannot be read with all that follows from
    shapes folded, positions that are counted from a length are left in it."""
    try:
        return _read(model, given, sizes, told, load)
    except InputError as error:
        refusal = error
    try:
        return _read(model, given, sizes, told, _load_counted)
    except InputError:
        raise refusal from None


def _load_counted(model: Path, given: Given) -> Graph:
    """The graph of a model with the positions that are counted from a length left in it. InputError where it has none:
    nothing else is read of it then."""
    graph = load(model, given, counted=True)
    if not has_positions(graph):
        raise InputError(f"{model}: no positions are counted from a length")
    return graph


def _read(model: Path, given: Given, sizes: Sequence[OpenSize], told: Progress, read: Reader) -> OpenModel:
    if len(open_ones(sizes)) in (2, 3):
        return _read_several(model, given, sizes, told, read)
    the_open_one(sizes)
    return _read_lengths(model, given, sizes, told, read)


def _read_lengths(model: Path, given: Given, sizes: Sequence[OpenSize], told: Progress, read: Reader) -> OpenModel:
    """The graph of a model whose open sizes are lengths."""
    lengths = open_ones(sizes)
    for size in lengths:
        the_open_one([size])

    def form(point: Point) -> dict[str, tuple[int, ...] | Constant]:
        return form_of(model, sizes, dict(zip((size.name for size in lengths), point, strict=True)), given)

    @cache
    def given_at(point: Point) -> Graph:
        return with_plain_products(read(model, form(point)))

    @cache
    def picks() -> frozenset[str]:
        at = samples(lengths)
        return picks_over_open([given_at(point) for point in (at.first, *at.twins)])

    @cache
    def numbers() -> Counted:
        at = samples(lengths)
        return numbers_counted([given_at(point) for point in (at.first, *at.twins)] if len(lengths) == 1 else [])

    @cache
    def places() -> Positions:
        at = samples(lengths)
        return positions_counted([given_at(point) for point in (at.first, *at.twins)])

    def written(point: Point, counted: Positions) -> Graph:
        graph = with_positions_written_out(given_at(point), counted)
        return with_picks_written_out(with_counts_written_out(graph, numbers()), picks())

    @cache
    def loaded(point: Point) -> Graph:
        return written(point, places())

    try:
        told(READING, 0, 2)
        require_kernels(written(samples(lengths).first, {}))
        opened, kept = _compared_anywhere(lengths, loaded, told)
    except UncoveredError as error:
        raise InputError(
            f"{error}; ONNX Runtime would run that part, at fixed sizes only: compile without --sizes"
        ) from error
    highs = tuple(size.high for size in lengths)
    opened = with_lengths_given(kept, highs)
    seconds = [twin[number] for number, twin in enumerate(samples(lengths).twins)]
    twins = tuple((second, opened.at({number: second})) for number, second in enumerate(seconds))
    return OpenModel(opened, lengths, twins, model_sha256(model.read_bytes(), form(highs)))


def _compared_anywhere(lengths: Sequence[OpenSize], loaded: Load, told: Progress) -> tuple[OpenLengths, OpenLengths]:
    """See `_compared`: by the usual two sizes, or by two at the end of the range."""
    try:
        return _compared(lengths, loaded, samples(lengths), told)
    except InputError as error:
        if len(lengths) > 1 or lengths[0].high <= max(UNLIKELY) + 1:
            raise
        refusal = error
    try:
        return _read_at_the_end(lengths[0], loaded, told)
    except InputError:
        raise refusal from None


def _compared(
    lengths: Sequence[OpenSize], loaded: Load, at: Samples, told: Progress
) -> tuple[OpenLengths, OpenLengths]:
    """The open graph by the first points of `at`, compared at the others, and that whose rows are kept apart."""
    views = tuple(
        open_graph(size.name, at.first[number], loaded(at.first), twin[number], loaded(twin), loaded(at.largest))
        for number, (size, twin) in enumerate(zip(lengths, at.twins, strict=True))
    )
    opened = OpenLengths(views)
    if len(views) == 1:
        kept = OpenLengths((_kept_apart(views[0], at.twins[0][0], at.largest[0]),))
    else:
        check_lengths(opened)
        kept = opened
    for number, point in enumerate(at.more):
        told(READING, 2 + number, 2 + len(at.more))
        if min(point) > 1:
            _check_at(opened, lengths, point, loaded)
        else:
            _check_small(opened, lengths, point, loaded)
    return opened, kept


def _read_at_the_end(size: OpenSize, loaded: Load, told: Progress) -> tuple[OpenLengths, OpenLengths]:
    """The open graph as it is where the size is largest: a mask of so many neighbours leaves all of fewer tokens in,
    and is then no mask at all. InputError where it is another model all the same."""
    unlikely = (count for count in range(size.high, max(UNLIKELY), -1) if gcd(count, _SMALL_FACTORS) == 1)
    second, first = next(unlikely, size.high), next(unlikely, size.high - 1)
    usual = samples([size])
    more = sorted({*usual.more, *((count,) for count in UNLIKELY)} - {(first,), (second,)})
    both = _compared([size], loaded, Samples((first,), ((second,),), tuple(more), (size.high,)), told)
    opened, kept = (_based(one, usual.first[0]) for one in both)
    return opened, kept


def _based(opened: OpenLengths, size: int) -> OpenLengths:
    """The same of one length, as it is where that has another value."""
    return OpenLengths((replace(opened.views[0], graph=opened.at({0: size}), size=size),))


def _shown(lengths: Sequence[OpenSize], point: Point) -> str:
    """A point as people read it."""
    if len(point) == 1:
        return str(point[0])
    return ", ".join(f"{size.name} {value}" for size, value in zip(lengths, point, strict=True))


def _check_at(opened: OpenLengths, lengths: Sequence[OpenSize], point: Point, loaded: Load) -> None:
    """InputError unless the open graph at a point is what the model is there, or, at less than the sizes that it was
    read at, computes the same in ONNX Runtime."""
    made = opened.at(dict(enumerate(point)))
    try:
        check_size(opened.symbol, _shown(lengths, point), made, loaded(point))
    except InputError:
        smaller = any(value < view.size for value, view in zip(point, opened.views, strict=True))
        if not smaller or not computes_alike(made, loaded(point)):
            raise


def _kept_apart(opened: OpenGraph, second: int, largest: int, *, apart: bool = False) -> OpenGraph:
    """An open graph whose rows are kept apart, with products of bytes over the size in float32; else one in which what
    goes over its rows is written out.

    That is compared with the model in ONNX Runtime at `COMPARED_SIZES`. InputError for the model as it is where it
    cannot be written so. `apart`: see `check_rows`.
    """
    opened = with_real_levels(opened)
    try:
        return _with_rows(opened, second, largest, apart)
    except InputError as error:
        refusal = error
    try:
        written = with_shares_written_out(opened, second, largest)
        found = written and _with_rows(written, second, largest, apart)
    except InputError:
        raise refusal from None
    if found is None or not all(computes_alike(found.at(size), opened.at(size)) for size in COMPARED_SIZES):
        raise refusal
    return found


def _with_rows(opened: OpenGraph, second: int, largest: int, apart: bool) -> OpenGraph:
    """An open graph whose rows are kept apart; where the size stands behind other axes, one with it in front of all,
    compared with the first in ONNX Runtime."""
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
    for size in COMPARED_SIZES:
        if not computes_alike(leading.at(size), opened.at(size)):
            raise refusal
    return leading


def with_plain_products(graph: Graph) -> Graph:
    """A graph with each Einsum as the product that it is, and vectors as matrices in products: nothing else is known of
    how these treat rows, or places."""
    graph = with_vectors_as_matrices(graph)
    if not any(operator.op_type == "Einsum" for operator in graph.operators):
        return graph
    return rewrite(graph, lambda match: match.rule is einsum_as_product).graph


def computes_alike(made: Graph, wanted: Graph, known: Mapping[str, Array] | None = None) -> bool:
    """Whether two graphs give the same in ONNX Runtime, of a few made-up inputs, and of those that are `known`."""
    cases = [{**generate_inputs(wanted, seed), **(known or {})} for seed in range(SINGLE_CASES)]
    pairs = zip(run_references(made, cases), run_references(wanted, cases), strict=True)
    return all(
        one.keys() == other.keys() and all(compare(one[name], other[name]).ok for name in other) for one, other in pairs
    )


def _check_small(opened: OpenLengths, lengths: Sequence[OpenSize], point: Point, loaded: Load) -> None:
    """InputError unless the open graph at a point with a size of 1 or 0 is what the model is there, or computes the
    same in ONNX Runtime."""
    name, size = next((one.name, value) for one, value in zip(lengths, point, strict=True) if value <= 1)
    made = opened.at(dict(enumerate(point)))
    if makes_nothing(made):
        return
    try:
        graph = loaded(point)
        if is_alike(made, graph):
            return
        given, known = ([one.tensors[name] for name in one.inputs] for one in (made, graph))
        alike = given == known and computes_alike(made, graph)
    except InputError as error:
        if min(point):
            raise
        raise refused_small(name, size) from error
    if not alike:
        raise refused_small(name, size)


def _read_several(model: Path, given: Given, sizes: Sequence[OpenSize], told: Progress, read: Reader) -> OpenModel:
    """The graph of a model with two open sizes, or three, one of which may count sequences. InputError with all reasons
    where they cannot stay open."""
    found = open_ones(sizes)
    reasons = []
    for outer in found:
        inner = [size for size in found if size is not outer]
        single = [replace(size, low=1, high=1) if size is outer else size for size in sizes]
        try:
            axes = _sequences(model, given, sizes, outer, inner, read)
            return replace(_read_lengths(model, given, single, told, read), repeats=Repeats(outer, axes))
        except InputError as error:
            reasons.append(f"{outer.name} as a number of sequences: {_reason(error)}")
    names = " and ".join(size.name for size in found)
    if len(found) == 2:
        try:
            return _read_lengths(model, given, sizes, told, read)
        except InputError as error:
            reasons.append(f"{names} as two lengths: {_reason(error)}")
    last = found[-1]
    raise InputError(
        f"--sizes: {names} cannot stay open together; fix one, such as {last.name}={last.high}, or {ADVICE}. "
        f"{'; '.join(reasons)}"
    )


def _reason(error: InputError) -> str:
    return str(error).removeprefix("--sizes: ").removesuffix(f"; {ADVICE}")


def _sequences(
    model: Path, given: Given, sizes: Sequence[OpenSize], outer: OpenSize, inner: Sequence[OpenSize], read: Reader
) -> dict[str, int]:
    """The axis of each input and output along which sequences stand, as many as `outer` says.

    InputError unless they are kept apart at several values of `inner`, and one of them alone is what the model is then.
    """
    if outer.step > 1:
        raise InputError(f"let {outer.name} have no step")
    found: list[dict[str, int]] = []
    for at in dict.fromkeys((samples(inner).first, tuple(max(1, size.low) for size in inner))):

        @cache
        def loaded(point: Point, at: Point = at) -> Graph:
            named = {size.name: value for size, value in zip((outer, *inner), (*point, *at), strict=True)}
            graph = with_positions_written_out(read(model, form_of(model, sizes, named, given)), {})
            return with_picks_written_out(with_plain_products(graph))

        first, second, _ = samples_of(outer)
        opened = open_graph(outer.name, first, loaded((first,)), second, loaded((second,)))
        _kept_apart(opened, second, max(outer.high, second), apart=True)
        _check_small(OpenLengths((opened,)), [outer], (1,), loaded)
        named = (*opened.graph.inputs, *opened.graph.outputs)
        places = {name: place for name in named if (place := opened.place(name)) is not None}
        merged = next((name for name, place in places.items() if name in opened.grids and place.factor > 1), "")
        if merged:
            raise refused_grid(opened, merged)
        shared = next((name for name in opened.graph.outputs if name not in places), "")
        if shared and not outer.low:
            raise InputError(f"the output {shared!r} is there without {outer.name}, too: let {outer.name} start at 1")
        found.append({name: place.axis for name, place in places.items()})
    if any(axes != found[0] for axes in found):
        raise InputError(
            f"where {outer.name} stands in its inputs and outputs depends on {' or '.join(size.name for size in inner)}"
        )
    return found[0]
