"""Schedules of kernels that go over a whole image: not every one of a sample's has such a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autofuse.backend.compile.open_sizes.grid_program import BuiltGroup
from autofuse.compiler.report import RULE
from autofuse.compiler.schedule_ladder import Found, Ladder
from autofuse.device.target import Target
from autofuse.graph.transform.open_sizes.images.grid_graph import GridGraph
from autofuse.graph.transform.open_sizes.images.grid_windows import Slide
from autofuse.kernels.families.protocol import Schedule
from autofuse.kernels.open_sizes.images.open_grid import GridForm
from autofuse.kernels.open_sizes.images.row_parts import Border
from autofuse.kernels.open_sizes.images.whole_grid import algorithm, by_rows, by_winograd, has_borders, is_within
from autofuse.kernels.workload.workload import Workload


def is_whole(samples: Sequence[Workload], form: GridForm, ladder: Ladder) -> bool:
    """Whether the rules compute all samples of a kernel by what goes over a whole image."""
    first = samples[0]
    if not _takes_whole(first, ladder.rule(first).schedule, form.winograd, ladder.target):
        return False
    if not form.winograd and not (is_within(form) if form.fill is None else has_borders(first, form)):
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


def borders_of(opened: GridGraph, looked: str, result: str, slides: Mapping[int, Slide]) -> tuple[Border, ...]:
    """What windows see beyond the borders, along each axis of places."""
    seen, made = opened.grid(looked), opened.axes[result]
    return tuple(
        Border(-slides[one.size].offset, opened.beyond(seen[one.size], one, slides[one.size].multiply))
        for axis, one in sorted(made.items())
        if axis
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
