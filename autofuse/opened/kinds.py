"""What the open sizes of a model are: rows of a batch or of tokens, or images and signals that windows slide over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autofuse.backend.compile.realise import Progress, silent
from autofuse.compiler.open_sizes.reading import computes_alike, read_open, with_plain_products
from autofuse.compiler.report import READING
from autofuse.errors import InputError, UncoveredError
from autofuse.graph.loading.given.buckets import form_of, has_windows_behind, of_images
from autofuse.graph.loading.given.constants import model_sha256
from autofuse.graph.loading.given.sizes import OpenSize, open_ones
from autofuse.graph.loading.load import load
from autofuse.graph.model import Graph
from autofuse.graph.transform.images_first import images_first, no_divisors, size_in_front
from autofuse.graph.transform.open_sizes.extents import Point
from autofuse.graph.transform.open_sizes.images.forms.averages import with_counts_at_borders
from autofuse.graph.transform.open_sizes.images.forms.places import over_places, with_places_apart
from autofuse.graph.transform.open_sizes.images.forms.turning import with_scores_first
from autofuse.graph.transform.open_sizes.images.grid_graph import GridGraph, points
from autofuse.graph.transform.open_sizes.images.reading import read_either
from autofuse.graph.transform.open_sizes.images.scales.apart import with_scales_apart
from autofuse.graph.transform.open_sizes.open_graph import OpenGraph
from autofuse.graph.transform.open_sizes.over_rows.counted import Counted, places_counted, with_counts_written_out
from autofuse.kernels.lowering.coverage import require_kernels
from autofuse.values.arguments import Given


@dataclass(frozen=True, eq=False)
class GridModel:
    """A model of images whose sizes are open."""

    opened: GridGraph
    sha256: str


def over_images(model: Path, given: Given, sizes: Sequence[OpenSize]) -> bool:
    """Whether open sizes are those of images or signals.

    Where windows stand behind products, as in encoders of speech, the file alone does not say so: they are where the
    model mixes rows, and can be read as an image.
    """
    names = [size.name for size in open_ones(sizes)]
    if of_images(model, names) or any(size.step > 1 for size in open_ones(sizes)):
        return True
    if not has_windows_behind(model, names):
        return False
    for read, images in ((read_open, False), (read_images, True)):
        try:
            read(model, given, sizes)
        except InputError:
            continue
        return images
    return False


def computes_something(model: Path, given: Given, sizes: Sequence[OpenSize], point: Mapping[str, int]) -> bool:
    """Whether there is anything to compute, and to time, where open sizes have the values of a `point`, in a model that
    can have them open: one of no rows makes no element, and is not read then."""
    if min(point.values()):
        return True
    try:
        load(model, form_of(model, sizes, point, given))
    except InputError:
        return False
    return True


def read_images(model: Path, given: Given, sizes: Sequence[OpenSize], told: Progress = silent) -> GridModel:
    """The graph of a model of images, compared with what the loader makes of it at several sizes."""
    opened_sizes = open_ones(sizes)
    none = next((size for size in opened_sizes if not size.low), None)
    if none is not None:
        raise InputError(f"--sizes: {none.name} is of images or signals and cannot be 0: let it start at {none.step}")
    base, twins, _ = points(opened_sizes)
    known = (base, *twins, tuple(size.high for size in opened_sizes))

    @cache
    def given_at(point: Point) -> Graph:
        named = {size.name: value for size, value in zip(opened_sizes, point, strict=True)}
        return with_plain_products(load(model, form_of(model, sizes, named, given)))

    turned = _with_images_first(opened_sizes, given_at)

    @cache
    def counted() -> Counted:
        return places_counted([turned(point) for point in (base, *twins)])

    @cache
    def loaded(point: Point) -> Graph:
        return with_counts_at_borders(with_scores_first(with_counts_written_out(turned(point), counted())))

    @cache
    def mixing() -> frozenset[str]:
        return over_places([loaded(point) for point in (base, *twins)])

    @cache
    def whole(point: Point) -> Graph:
        return with_places_apart(loaded(point), mixing())

    @cache
    def in_maps(point: Point) -> Graph:
        symbol = " and ".join(size.name for size in opened_sizes)
        return with_scales_apart(symbol, [whole(one) for one in (*known, point)])

    told(READING, 0, 1)
    try:
        require_kernels(whole(base))
        opened = read_either(opened_sizes, computes_alike, in_maps, whole)
    except UncoveredError as error:
        raise InputError(
            f"{error}; ONNX Runtime would run that part, at fixed sizes only: compile without --sizes"
        ) from error
    form = form_of(model, sizes, dict(zip((size.name for size in opened_sizes), opened.high, strict=True)), given)
    return GridModel(opened, model_sha256(model.read_bytes(), form))


COUNTS = 19, 23, 29, 31, 37, 41, 43, 47, 53, 59
"""Numbers of images that hardly divide another extent, or do not."""


def _with_images_first(sizes: Sequence[OpenSize], loaded: Callable[[Point], Graph]) -> Callable[[Point], Graph]:
    """The graph of a model at each point, with the number of images in front of all else, where that is open and stands
    behind other axes, as that of the sequences of a recurrence does."""
    base, twins, _ = points(sizes)
    number = size_in_front(loaded(base), [loaded(twin) for twin in twins])
    if number is None:
        return loaded

    @cache
    def opened_at(others: Point) -> OpenGraph | None:
        at = [(*others[:number], count, *others[number:]) for count in (base[number], *COUNTS)]
        counts = no_divisors(loaded(at[0]), COUNTS)
        first, second = (loaded(at[1 + COUNTS.index(count)]) for count in counts)
        return images_first(sizes[number].name, counts, first, second)

    if opened_at((*base[:number], *base[number + 1 :])) is None:
        return loaded

    def turned(point: Point) -> Graph:
        opened = opened_at((*point[:number], *point[number + 1 :]))
        return loaded(point) if opened is None else opened.at(point[number])

    alone = (*base[:number], 1, *base[number + 1 :])
    return turned if all(computes_alike(turned(point), loaded(point)) for point in (alone, base)) else loaded
