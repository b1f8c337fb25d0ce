"""Schedules of kernels that go over a whole image: not every one of a sample's has such a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autofuse.backend.compile.open_sizes.grid_program import BuiltGroup
from autofuse.compiler.report import RULE
from autofuse.compiler.schedule_ladder import Found, Ladder
from autofuse.device.target import Target
from autofuse.graph.model import Operator
from autofuse.graph.transform.open_sizes.images.grid_graph import GridGraph
from autofuse.graph.transform.open_sizes.images.grid_rules import GridGroup
from autofuse.graph.transform.open_sizes.images.grid_windows import Look, Slide
from autofuse.graph.transform.open_sizes.images.sliding import windows_of
from autofuse.kernels.families.protocol import Schedule
from autofuse.kernels.families.windowed.family import POOLS
from autofuse.kernels.open_sizes.images.grid_tiles import Range
from autofuse.kernels.open_sizes.images.open_grid import GridForm
from autofuse.kernels.open_sizes.images.row_parts import Border
from autofuse.kernels.open_sizes.images.whole_grid import (
    PLANE,
    algorithm,
    by_rows,
    by_winograd,
    has_borders,
    is_within,
    row_sample,
    shares_rows,
    winograd_samples,
)
from autofuse.kernels.workload.workload import BoundWorkload, Workload


def is_whole(samples: Sequence[Workload], form: GridForm, ladder: Ladder) -> bool:
    """Whether the rules compute all samples of a kernel by what goes over a whole image."""
    first = samples[0]
    if not _takes_whole(first, ladder.rule(first).schedule, form.winograd, ladder.target):
        return False
    if not form.winograd and not (has_borders(first, form) if form.borders else is_within(form)):
        return False
    if not form.winograd and not shares_rows(first, form, ladder.environment.setting.threads):
        return False
    return all(_guess_for_whole(one, form.winograd, ladder) for one in samples)


def _takes_whole(workload: Workload, schedule: Schedule, winograd: bool, target: Target) -> bool:
    """Whether a kernel under a schedule goes over a whole image: by Winograd's algorithm, or row by row."""
    if winograd:
        return bool(algorithm(schedule)) and by_winograd(workload, target)
    return by_rows(workload, schedule, target)


def _guess_for_whole(workload: Workload, winograd: bool, ladder: Ladder) -> dict[str, int | str] | None:
    """The best guess of the rules that does; None where none does."""
    guesses = ladder.guesses(workload)
    return next((guess for guess in guesses if _takes_whole(workload, guess, winograd, ladder.target)), None)


@dataclass(frozen=True)
class ImagePlane:
    """Rows and columns of images whose windows one kernel computes: the `ranges` of results, which are `fixed`, what
    windows see along them (`slides`) and beyond them (`borders`: none where they stay inside), and which of the inputs
    (`names`) is `looked` at."""

    ranges: tuple[Range, ...]
    fixed: tuple[bool, ...]
    slides: tuple[Slide, ...]
    borders: tuple[Border, ...]
    names: tuple[str, ...]
    looked: str


def plane_of(
    opened: GridGraph, group: GridGroup, bound: BoundWorkload, ranges: Sequence[Range], look: Look | None, beyond: bool
) -> ImagePlane | None:
    """What a kernel over whole images knows of theirs; None where a group's results are no images.

    `ranges`: of its results along open sizes, which are rows, columns or both; `look`: what its head sees, whether
    `beyond` the borders.
    """
    result = bound.outputs[0]
    made = {axis: one for axis, one in opened.axes[result].items() if axis}
    shape = opened.graph.tensors[result].shape
    if len(shape) != len(PLANE) + 2 or not made or not made.keys() <= {*PLANE}:
        return None
    slides = {} if look is None else look.slides
    along = {axis: slides.get(one.size, Slide()) for axis, one in made.items()}
    known = dict(zip(sorted(made), ranges, strict=True))
    looked = opened.graph.by_name[group.head].inputs[0] if group.head else ""
    borders = {}
    if len(made) < len(PLANE):
        anchor = _windowed(opened, group, bound)
        windows = None if anchor is None else windows_of(opened, anchor)
        if anchor is None or not isinstance(windows, dict) or (looked and anchor.inputs[0] != looked):
            return None
        looked = anchor.inputs[0]
        seen = opened.graph.tensors[looked].shape
        for axis in {*PLANE} - made.keys():
            one, results = windows[axis], shape[axis]
            along[axis] = slide = Slide(one.stride, 1, -one.begin, one.reach)
            known[axis] = Range(results, results, results)
            borders[axis] = Border(one.begin, (seen[axis] - results * one.stride,))
            beyond = beyond or one.begin > 0 or slide.seen(results) - one.begin > seen[axis]
    if beyond:
        grid = opened.grid(looked)
        for axis, extent in made.items():
            stride = along[axis].multiply
            borders[axis] = Border(-along[axis].offset, opened.beyond(grid[extent.size], extent, stride))
    return ImagePlane(
        ranges=tuple(known[axis] for axis in PLANE),
        fixed=tuple(axis not in made for axis in PLANE),
        slides=tuple(along[axis] for axis in PLANE),
        borders=tuple(borders[axis] for axis in PLANE) if beyond else (),
        names=tuple(bound.inputs),
        looked=looked,
    )


def _windowed(opened: GridGraph, group: GridGroup, bound: BoundWorkload) -> Operator | None:
    """The one operator of a group whose windows slide over rows and columns of images that the group is given, of which
    one is fixed; None where there is none, or where windows count what is beyond a border otherwise."""
    found = [opened.graph.by_name[name] for name in group.operators]
    found = [operator for operator in found if operator.op_type in {"Conv", *POOLS}]
    if len(found) != 1 or found[0].inputs[0] not in bound.inputs or len(found[0].outputs) != 1:
        return None
    operator = found[0]
    padded = any(one for one in operator.attributes.get("pads", ()) or ())  # type: ignore[union-attr]
    counts = operator.attributes.get("count_include_pad", 0)
    if operator.op_type == "AveragePool" and padded and not counts:
        return None
    return None if operator.attributes.get("ceil_mode", 0) else operator


def sides_of(plane: ImagePlane, winograd: bool) -> tuple[tuple[int, ...], ...]:
    """The lengths of the samples of a kernel over whole images, along rows and columns."""
    sides = (winograd_samples if winograd else row_sample)(plane.ranges)
    return tuple(
        (one.low,) * len(side.lengths) if still else side.lengths
        for side, one, still in zip(sides, plane.ranges, plane.fixed, strict=True)
    )


def for_whole(workload: Workload, found: Found, winograd: bool, ladder: Ladder) -> Found:
    """What was found for a sample, or the rules' guess, where that has no kernel of a whole image."""
    if _takes_whole(workload, found.schedule, winograd, ladder.target):
        return found
    return Found(_guess_for_whole(workload, winograd, ladder) or found.schedule, RULE)


def used(groups: Iterable[BuiltGroup], found: Mapping[str, Found]) -> dict[str, Found]:
    """What was found, without that of samples in whose place a guess of the rules is taken."""
    guessed = {
        tile.bound.workload.key
        for group in groups
        for tile in group.tiles.values()
        if tile.tier == RULE and group.form is not None and group.form.bounds
    }
    return {key: one for key, one in found.items() if key not in guessed}
