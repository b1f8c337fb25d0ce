"""First guesses: schedules worth trying before any search, by rules that `experiments/priors` holds to measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import product
from math import prod

from autofuse.device.target import Target
from autofuse.kernels.contraction import NARROW
from autofuse.kernels.contraction_form import CONVOLUTIONS, Contraction, contraction_form, copies_rows, pixel_lanes
from autofuse.kernels.families import WINOGRAD, family_of
from autofuse.kernels.knobs import (
    FEW_ROWS,
    Values,
    canonical,
    fits_registers,
    nests_of,
    results_a_column,
)
from autofuse.kernels.tiles import divisor_near, longest_row
from autofuse.kernels.workload import Workload

Guess = dict[str, int | str]

VECTORS, PIXELS = "contraction.vectors", "contraction.pixels"

STREAMED = 4
"""Vectors side by side in a panel of weights that is streamed from memory (measured on Zen 3: 4 best, 8 slower)."""
PAGE_BYTES, LINE_BYTES, WAYS = 4096, 64, 8
"""Addresses a page apart share a set of the first cache, which holds so many of their lines."""
LEAST_TILES = 4
"""4x4 tiles of an image below which Winograd only makes its weights larger; just so many pay with 2x2 tiles."""
ENOUGH = 16
"""Accumulators beyond which more of them hide nothing: of the tiles that have them, the one with the fewest loads for
each multiplication is the fastest (measured on Zen 5, 32 registers: 4x6 before 2x14 nearly everywhere)."""
FARTHER = 2
"""Loads that one counts for where the panel of weights leaves the first cache (Zen 5: 3x8 before 4x6 in products of
768 channels, not in those of 256)."""
LEAST_CHUNK = 10
"""Tiles that must share a reading of Winograd's weights, where these are large (Zen 5, 49 tiles of 512 channels: 7 at a
time take 1.7 times as long as all together)."""
BIG_PANEL = 4
"""A panel of a window's weights that is larger than a quarter of the second cache is taken in parts of the first
cache's size (measured on Zen 3: a fifth faster; products gained nothing)."""


def first_schedules(workload: Workload, knobs: Mapping[str, Values], target: Target) -> list[Guess]:
    """Schedules worth trying before any search, best guess first; all within `knobs`.

    Winograd where the image fills its tiles, all of it transformed ahead where its chunks are too few for the threads;
    in other contractions the tiles that keep most accumulators busy (narrow vectors: the default first, since their
    many loads need registers too). Where what a row reads crowds the cache, a copy of it.
    """
    default: Guess = {name: values[0] for name, values in knobs.items()}
    guesses = [default]
    form = _contraction(workload)
    if form is not None and not WINOGRAD.keys().isdisjoint(knobs.get("contraction.algorithm", ())):
        guesses = _winograd_guesses(workload, form, knobs, target)
    elif form is not None:
        busiest = [default | tile for tile in _busiest_tiles(form, knobs, target)]
        guesses = [*busiest[:2], default] if target.lanes > NARROW else [default, *busiest[:1]]
        if _crowded(workload):
            copied: Guess = {"contraction.order": "copied", "contraction.panels_per_job": 0, "contraction.passes": 1}
            guesses = [guess | copied for guess in guesses[:2]] + guesses
    if form is not None and "pixel_lanes" in knobs.get("contraction.algorithm", ()):
        turned: Guess = {"contraction.algorithm": "pixel_lanes", "contraction.operand": "direct"}
        tiles = _busiest_tiles(pixel_lanes(workload, form.operator), knobs, target)
        guesses = [default | tile | turned for tile in tiles[:2]] + guesses
    if "dot" in knobs.get("contraction.algorithm", ()):
        guesses.insert(0, default | {"contraction.algorithm": "dot"})
    bands = [rows for rows in knobs.get("band.rows", ()) if rows]
    guesses += [guesses[0] | {"band.rows": rows} for rows in bands[:2]]
    unique: dict[str, Guess] = {}
    for guess in guesses:
        if all(value in knobs[name] for name, value in guess.items() if name in knobs):
            kept = canonical(guess, knobs)
            unique.setdefault(str(sorted(kept.items())), kept)
    return list(unique.values())


def _contraction(workload: Workload) -> Contraction | None:
    """The first contraction of a workload, in logical form."""
    anchors = [nest.anchor for nest in nests_of(workload) if family_of(workload, nest.anchor) == "contraction"]
    return contraction_form(workload, anchors[0]) if anchors and anchors[0] is not None else None


def _busiest_tiles(form: Contraction, knobs: Mapping[str, Values], target: Target) -> list[Guess]:
    """Register tiles, those first of which most accumulators are in use on average, counting tiles that are cut short.

    Of those that have enough, the one with the fewest loads; else of equal ones the narrower panel; with few rows,
    which only stream their weights, the wider, up to `STREAMED`.
    """
    few = results_a_column(form) <= FEW_ROWS
    rows = results_a_column(form) if few else longest_row(form.windows)
    column_bytes = 4 * target.lanes * form.depth * prod(window.taps for window in form.windows)
    columns = -(-form.columns // target.lanes)
    found = []
    for vectors, pixels in product(knobs.get(VECTORS, (1,)), knobs.get(PIXELS, (rows,))):
        tile: Guess = {VECTORS: vectors, PIXELS: pixels}
        v, p = min(int(vectors), columns), min(int(pixels), rows)
        if fits_registers(tile, target) and not (few and v > STREAMED):
            wide, long = columns / -(-columns // v), rows / -(-rows // p)
            tile |= _passes(form, v * target.lanes, knobs, target)
            near = 2 * v * column_bytes <= target.l1_bytes or "contraction.passes" in tile
            loads = 1 / wide + (1 if near else FARTHER) / long if wide * long >= ENOUGH else float("inf")
            found.append((-min(wide * long, ENOUGH), loads, -v if few else v, p, tile))
    return [tile for *_, tile in sorted(found, key=lambda entry: entry[:4])]


def _passes(form: Contraction, panel_lanes: int, knobs: Mapping[str, Values], target: Target) -> Guess:
    """Passes over all rows, each with a part of the weights, where those of a panel are many."""
    choices = [int(value) for value in knobs.get("contraction.passes", ())]
    taps = prod(window.taps for window in form.windows)
    panel_bytes = 4 * panel_lanes * form.depth * taps
    if not choices or taps == 1 or panel_bytes * BIG_PANEL <= target.l2_bytes:
        return {}
    nearest = min(choices, key=lambda value: abs(value - panel_bytes / target.l1_bytes))
    return {"contraction.passes": nearest, "contraction.rows_per_job": 0}


def _crowded(workload: Workload) -> bool:
    """Whether a row of results of a convolution reads more lines of one set than the first cache holds.

    So in maps whose size is a multiple of a page: all channels and outer taps of a position meet in a few sets.
    """
    for operator in workload.operators:
        block = workload.values[operator.inputs[0]].block if operator.op_type == "Conv" else 0
        form = contraction_form(workload, operator) if block else None
        if form is None or not copies_rows(form):
            continue
        starts = [0]
        row_bytes = form.windows[-1].size * block * 4
        for window in reversed(form.windows[:-1]):
            starts = [s + tap * window.dilation * row_bytes for s in starts for tap in range(window.taps)]
            row_bytes *= window.size
        starts = [s + number * row_bytes for s in starts for number in range(-(-form.depth // block))]
        lines = Counter(start % PAGE_BYTES // LINE_BYTES for start in starts)
        if max(lines.values()) > WAYS:
            return True
    return False


def _winograd_guesses(
    workload: Workload, form: Contraction, knobs: Mapping[str, Values], target: Target
) -> list[Guess]:
    """Choices of algorithm and stage for a convolution that has them, best guess first.

    Of an image of few tiles, or of tiles that divide badly, all together: so its weights, which are most of its bytes,
    are read once.
    """
    default: Guess = {name: values[0] for name, values in knobs.items()}
    fitting = [p for p in knobs.get(PIXELS, ()) if fits_registers(default | {"contraction.pixels": p}, target)]
    if fitting and target.lanes > NARROW:
        default["contraction.pixels"] = max(fitting)
    names = ("winograd4", "winograd2", "direct")
    four, two, direct = (default | {"contraction.algorithm": name} for name in names)
    direct |= next(iter(_busiest_tiles(form, knobs, target)), {}) if target.lanes > NARROW else {}
    root: Guess = {"contraction.stage": "root"}
    tiles = _image_tiles(workload)
    if tiles < LEAST_TILES:
        return [direct, two, four]
    if tiles == LEAST_TILES:
        return [two, four | root, direct, two | root]
    chunk = divisor_near(tiles, int(default.get("contraction.tiles", 1)))
    if tiles // chunk < 2 * target.cores or chunk < LEAST_CHUNK:
        most: Guess = {"contraction.tiles": max(knobs.get("contraction.tiles", (1,)), key=int)}
        return [four | root | most, four | most, two | root | most, direct, two]
    return [four, four | root, direct, two]


def _image_tiles(workload: Workload) -> int:
    """4x4 tiles of the results (of a layer, where they have several) of a workload's first convolution."""
    for operator in workload.operators:
        if operator.op_type in CONVOLUTIONS:
            batch, _, *image = workload.values[operator.outputs[0]].shape
            return batch * prod(-(-extent // 4) for extent in image[-2:])
    return 0
