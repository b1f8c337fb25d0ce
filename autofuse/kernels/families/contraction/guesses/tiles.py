"""Tiles of registers and tasks of contractions: those first that keep most accumulators busy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod

from autofuse.device.rates import CoreRates
from autofuse.device.target import Target
from autofuse.kernels.families.contraction.form import FEW_ROWS, Contraction, results_a_column
from autofuse.kernels.families.contraction.knobs import KNOBS, NAME
from autofuse.kernels.families.contraction.panels import DEEP_PANEL, FEWEST_STEPS
from autofuse.kernels.families.contraction.parallel_grid import ParallelGrid, times_ns, weight_bytes
from autofuse.kernels.families.protocol import Case, Guess, Schedule, Values, chosen
from autofuse.kernels.nest.tiles import divisor_near, longest_row

ALGORITHM, ORDER, OPERAND, K_BLOCKING = (f"{NAME}.{knob}" for knob in ("algorithm", "order", "operand", "k_blocking"))
VECTORS, PIXELS, PIXEL_ROWS = (f"{NAME}.{knob}" for knob in ("vectors", "pixels", "pixel_rows"))
ROWS, PANELS = (f"{NAME}.{knob}" for knob in ("rows_per_task", "panels_per_task"))
NEXT_PANEL = f"{NAME}.next_panel"
TILES, STAGE = (f"{NAME}.{knob}" for knob in ("tiles", "stage"))

WIDE_PANEL = 4
"""Vectors side by side whose sums LLVM spills where a block of a map has fewer channels than a vector: it writes the
loop over so few out, and loads ahead (1x1, against 2x12: Zen 4 a fifth, Zen 5 a quarter slower, Emerald Rapids up to a
half, where a narrower panel is left over; else equal)."""
STREAMED = 4
"""Vectors side by side in a panel of weights that is streamed from memory (measured on Zen 3: 4 best, 8 slower)."""
STREAMED_ALONE, WIDE = 8, 16
"""The same of a single row, in vectors of so many lanes (Zen 5: a fifth faster than 4 with weights in the second cache,
equal with weights in the third or in memory)."""
ENOUGH = 16
"""Accumulators beyond which more of them hide nothing: of the tiles that have them, the one with the fewest loads for
each multiplication is the fastest (measured on Zen 5, 32 registers: 4x6 before 2x14 nearly everywhere)."""
FARTHER = 2.2
"""Loads that one counts for where a wide panel of weights leaves the first cache (Zen 5: 3x8 before 4x6 in products of
768 channels, not in those of 256; 3x7 before 4x6 before 2x14 in images of 7x7 pixels)."""
BIG_PANEL = 4
"""A panel of a window's weights that is larger than a quarter of the second cache is taken in parts of the first
cache's size (measured on Zen 3: a fifth faster; products gained nothing), one of a product's weights where it is deep
(`DEEP_PANEL`; Zen 5, 1,000 rows: 0.84 of the time at depth 12,544, 0.9 at 4,096, equal at 3,072 and 2,048)."""
FETCHED = 32
"""Places of memory that the hardware reads ahead from, at most (Emerald Rapids: a 1x1 convolution of 64 and 128 blocks
of channels, of maps beyond the second cache, takes 0.4 of the time in passes; of 32 blocks as long)."""
STEPS = 20
"""Differences of how evenly threads share tasks that matter: a twentieth of the time."""


def fits_registers(schedule: Schedule, target: Target) -> bool:
    """Whether the accumulators, a row of weights and one broadcast fit the vector registers."""
    vectors, pixels = schedule.get(VECTORS), schedule.get(PIXELS)
    if not isinstance(vectors, int) or not isinstance(pixels, int):
        return True
    return vectors * pixels + vectors + 1 <= target.registers


def busiest_tiles(case: Case, form: Contraction) -> list[Guess]:
    """Register tiles, those first of which most accumulators are in use on average, counting tiles that are cut short.

    Each with tasks that the threads share evenly; else of equal ones the narrower panel; with few rows, which only
    stream their weights, the wider, up to `STREAMED` (or `STREAMED_ALONE`). Of those that have enough accumulators, the
    one with the fewest loads. None with a wide panel of what is summed in short blocks (see `WIDE_PANEL`); where
    weights are waited for, those first that ask for them ahead.
    """
    knobs, target, threads = case.knobs, case.target, case.threads
    few = results_a_column(form) <= FEW_ROWS
    streamed = STREAMED_ALONE if results_a_column(form) == 1 and target.lanes >= WIDE else STREAMED
    sweep = _whole_sweeps(form, knobs, target)
    column_bytes = 4 * target.lanes * form.depth * prod(window.taps for window in form.windows)
    columns = -(-form.columns // target.lanes)
    short = 0 < case.workload.values[form.x].block < target.lanes
    streams = _streams(case, form)
    found, known = [], dict[tuple[int, int], float]()
    for vectors, pixels in product(knobs.get(VECTORS, (1,)), knobs.get(PIXELS, (longest_row(form.windows),))):
        tile: Guess = {VECTORS: vectors, PIXELS: pixels}
        v = min(int(vectors), columns)
        if not fits_registers(tile, target) or (few and v > streamed) or (short and v >= WIDE_PANEL):
            continue
        tile |= sweep | _k_blocking(case, form, v * target.lanes)
        near = 2 * STREAMED * column_bytes <= target.l1_bytes or K_BLOCKING in tile
        wide, ways = columns / -(-columns // v), []
        for number, cut in enumerate(_cuts(form, knobs, 1 if few or K_BLOCKING in tile else threads)):
            rows = results_a_column(form) if few else _row_length(form, cut)
            p = min(int(pixels), rows)
            long = rows / -(-rows // p)
            loads = 1 / wide + (1 if near else FARTHER) / long if wide * long >= ENOUGH else float("inf")
            if (v, number) not in known:  # tiles of other pixels have the same tasks
                known[v, number] = _evenness(case, form, tile | cut, columns)
            busy = min(wide * long, ENOUGH) * known[v, number]
            late = streams and -(-rows // p) < FEWEST_STEPS * v
            ways.append((late, -busy, loads, -v if few else v, p, number, tile | cut))
        found.append(min(ways, key=lambda entry: entry[:6]))
    return [tile for *_, tile in sorted(found, key=lambda entry: entry[:6])]


def _streams(case: Case, form: Contraction) -> bool:
    """Whether a product of some rows waits for its weights, which pass through the caches, longer than it computes.

    Then a panel has to be asked for while the one before it is computed, which tiles of few rows have no time for.
    """
    constant = case.workload.values[form.w].kind == "constant"
    some = results_a_column(form) > FEW_ROWS and len(form.windows) == 1 and form.windows[0].taps == 1
    if not some or not constant or weight_bytes(form) <= case.target.l2_bytes:
        return False
    computes_ns, reads_ns = times_ns(form, _rates(case))
    return computes_ns < reads_ns


def _cuts(form: Contraction, knobs: Mapping[str, Values], threads: int) -> Iterator[Guess]:
    """Ways to cut a contraction into tasks, the default first; just that for one thread."""
    yield {}
    point = getattr(form, "flat", False) and len(form.windows) == 1
    splits: Values = knobs.get(PIXEL_ROWS, ()) if point else (1,)
    panels = dict.fromkeys((*knobs.get(PANELS, ())[:1], *(value for value in knobs.get(PANELS, ()) if value == 0)))
    if threads > 1:
        for split, rows, some in product(splits, knobs.get(ROWS, ()), panels):
            if split != 1 or not point:
                yield {ROWS: rows, PANELS: some} | ({PIXEL_ROWS: split} if point else {})


def _row_length(form: Contraction, cut: Guess) -> int:
    """Results in a row, where a `cut` may split those of a point contraction into rows."""
    width = longest_row(form.windows)
    return width // divisor_near(width, int(cut.get(PIXEL_ROWS, 1)))


def _evenness(case: Case, form: Contraction, guess: Guess, columns: int) -> float:
    """Part of the time in which threads compute that share the tasks of a guess, in steps; `columns`: vectors of them.

    A thread waits for the other ones, and for the weights of its panels: those of all where it has some rows of each.
    """
    if case.threads == 1:
        return 1.0
    vectors = min(int(guess[VECTORS]), columns)
    rows = divisor_near(longest_row(form.windows), int(guess.get(PIXEL_ROWS, 1))) * prod(form.rows)
    tasks = ParallelGrid.cut(prod(form.batch), -(-columns // vectors), rows, chosen(NAME, KNOBS, case.default | guess))
    return round(STEPS * tasks.evenness(columns, vectors, case.threads) * _computing(case, form, tasks)) / STEPS


def _computing(case: Case, form: Contraction, tasks: ParallelGrid) -> float:
    """Part of its time in which a thread computes rather than waits for the weights of its panels."""
    if case.workload.values[form.w].kind != "constant":
        return 1.0
    computes_ns, reads_ns = times_ns(form, _rates(case))
    return min(1.0, computes_ns / case.threads / (reads_ns * tasks.panels_read(case.threads)))


def _rates(case: Case) -> CoreRates:
    return case.rates or CoreRates.usual(case.target.lanes)


def _whole_sweeps(form: Contraction, knobs: Mapping[str, Values], target: Target) -> Guess:
    """All rows in a task, where the weights come from memory: a sweep over all asks for the next panel ahead."""
    whole = weight_bytes(form) > target.l2_bytes and not getattr(form, "flat", False) and 0 in knobs.get(ROWS, ())
    return {ROWS: 0} if whole else {}


def _k_blocking(case: Case, form: Contraction, panel_lanes: int) -> Guess:
    """Passes over all rows, each with a part of the weights, where those of a panel are many, or a result reads more
    places of the left-hand side than come ahead of their use."""
    choices, target = [int(value) for value in case.knobs.get(K_BLOCKING, ())], case.target
    taps = prod(window.taps for window in form.windows)
    panel_bytes = 4 * panel_lanes * form.depth * taps
    block = case.workload.values[form.x].block
    blocks = form.depth // block if taps == 1 and block else 0
    apart = blocks > FETCHED and 4 * prod(form.x_shape) > target.l2_bytes
    large = panel_bytes * (BIG_PANEL if taps > 1 else DEEP_PANEL) > target.l2_bytes
    if not choices or not (apart or large):
        return {}
    nearest = min(choices, key=lambda value: abs(value - panel_bytes / target.l1_bytes))
    return {K_BLOCKING: nearest, ROWS: 0}
