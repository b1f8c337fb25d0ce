"""First guesses of contractions: worth trying before any search, by rules that `experiments/priors` measures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product
from math import prod

from autofuse.device.rates import CoreRates
from autofuse.device.target import Target
from autofuse.kernels.families.contraction.form import (
    FEW_ROWS,
    Contraction,
    Convolution,
    contraction_form,
    copies_rows,
    is_widened,
    pixel_lanes,
    results_a_column,
)
from autofuse.kernels.families.contraction.knobs import KNOBS, NAME, Useful
from autofuse.kernels.families.contraction.panels import FEWEST_STEPS, NARROW, arrives_late
from autofuse.kernels.families.contraction.parallel_grid import (
    EVEN,
    READING,
    ParallelGrid,
    evenness,
    times_ns,
    weight_bytes,
)
from autofuse.kernels.families.contraction.winograd import ALGORITHMS
from autofuse.kernels.families.protocol import Case, Guess, Schedule, Values, chosen, vector_lanes
from autofuse.kernels.families.windows import CONVOLUTIONS, is_depthwise
from autofuse.kernels.nest.tiles import divisor_near, longest_row
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

ALGORITHM, ORDER, OPERAND, K_BLOCKING = (f"{NAME}.{knob}" for knob in ("algorithm", "order", "operand", "k_blocking"))
VECTORS, PIXELS, PIXEL_ROWS = (f"{NAME}.{knob}" for knob in ("vectors", "pixels", "pixel_rows"))
ROWS, PANELS = (f"{NAME}.{knob}" for knob in ("rows_per_task", "panels_per_task"))
NEXT_PANEL = f"{NAME}.next_panel"
TILES, STAGE = (f"{NAME}.{knob}" for knob in ("tiles", "stage"))

WIDE_PANEL = 4
"""Vectors side by side whose sums LLVM spills where a block of a map has fewer channels than a vector: it writes the
loop over so few out, and loads ahead (1x1, against 2x12: Zen 4 a fifth, Zen 5 a quarter slower, Emerald Rapids up to a
half, where a narrower panel is left over; else equal)."""
COPIED, COPIES = 16, 8
"""Pixels at least in a row that is widened into a copy, which all panels then read; part of the second cache that the
copy takes at most."""
STREAMED = 4
"""Vectors side by side in a panel of weights that is streamed from memory (measured on Zen 3: 4 best, 8 slower)."""
STREAMED_ALONE, WIDE = 8, 16
"""The same of a single row, in vectors of so many lanes (Zen 5: a fifth faster than 4 with weights in the second cache,
equal with weights in the third or in memory)."""
PAGE_BYTES, LINE_BYTES, WAYS = 4096, 64, 8
"""Addresses a page apart share a set of the first cache, which holds so many of their lines."""
LEAST_TILES = 4
"""4x4 tiles of an image below which Winograd only makes its weights larger; just so many pay with 2x2 tiles."""
ENOUGH = 16
"""Accumulators beyond which more of them hide nothing: of the tiles that have them, the one with the fewest loads for
each multiplication is the fastest (measured on Zen 5, 32 registers: 4x6 before 2x14 nearly everywhere)."""
FARTHER = 2.2
"""Loads that one counts for where a wide panel of weights leaves the first cache (Zen 5: 3x8 before 4x6 in products of
768 channels, not in those of 256; 3x7 before 4x6 before 2x14 in images of 7x7 pixels)."""
LEAST_CHUNK = 10
"""Tiles that must share a reading of Winograd's weights, where these are large (Zen 5, 49 tiles of 512 channels: 7 at a
time take 1.7 times as long as all together)."""
SOONER = 0.9
"""Part of the time of the algorithm that is else the first that another may take at most to come before it."""
BIG_PANEL = 4
"""A panel of a window's weights that is larger than a quarter of the second cache is taken in parts of the first
cache's size (measured on Zen 3: a fifth faster; products gained nothing)."""


FILLED = 0.85
"""Part of the lanes over pixels that hold some, from which these come first (Zen 5: 14x14 pixels do, 7x7 do not)."""
LEAST_PART_BYTES = 512 << 10
"""Weights that each thread should read, at least; below, one thread alone is worth a try (some microseconds' work)."""
SHUFFLED = 4
"""Registers for each result where lanes run over groups: its sums, and shuffles that it shares with its neighbours."""
STEPS = 20
"""Differences of how evenly threads share tasks that matter: a twentieth of the time."""


def contraction_guesses(case: Case, form: Contraction) -> list[Guess]:
    """Schedules of a contraction, best guess first.

    Winograd where the image fills its tiles, all of it transformed ahead where its chunks are too few for the threads;
    in other contractions the tiles that keep most accumulators busy (narrow vectors: the default first, since their
    many loads need registers too). Where what a row reads crowds the cache, a copy of it.
    """
    algorithms = case.knobs.get(ALGORITHM, ())
    if not ALGORITHMS.keys().isdisjoint(algorithms):
        guesses = _winograd_guesses(case, form)
    else:
        guesses = _direct_guesses(case, form)
    if "group_lanes" in algorithms:
        return [*_group_guesses(case, form), *guesses]
    if "pixel_lanes" in algorithms and isinstance(form, Convolution) and form.flat:
        over = pixel_lanes(case.workload, form.operator)
        lie: Guess = {ALGORITHM: "pixel_lanes", OPERAND: "direct"}
        turned = [case.default | tile | lie for tile in _busiest_tiles(case, over)[:2]]
        filled = over.columns / (-(-over.columns // case.target.lanes) * case.target.lanes)
        guesses = turned + guesses if filled >= FILLED else [*guesses[:1], *turned, *guesses[1:]]
    return guesses


def _group_guesses(case: Case, form: Contraction) -> list[Guess]:
    """One vector of channels, whose shuffles need most registers, and as many results as fill rows."""
    width = longest_row(form.windows)
    able = [int(p) for p in case.knobs.get(PIXELS, ()) if int(p) * SHUFFLED <= case.target.registers]
    able.sort(key=lambda pixels: -width / -(-width // pixels))
    tiles: list[Guess] = [{PIXELS: pixels} for pixels in able[:2]] or [{}]
    return [case.default | tile | {ALGORITHM: "group_lanes", VECTORS: 1} for tile in tiles]


def _direct_guesses(case: Case, form: Contraction) -> list[Guess]:
    """Register tiles, and copies of what a row reads where that crowds the cache."""
    busiest = [case.default | tile for tile in _busiest_tiles(case, form)]
    guesses = [*busiest[:2], case.default] if case.target.lanes > NARROW else [case.default, *busiest[:1]]
    if _is_waiting(case, form):
        guesses.insert(1, guesses[0] | {PANELS: 0})
    ahead = _widened_ahead(case, guesses[0], form) if is_widened(case.workload, form) else []
    if 1 in case.knobs.get(NEXT_PANEL, ()) and arrives_late(case.target, 4 * prod(form.w_shape)):
        guesses = [*({**guess, NEXT_PANEL: 1} for guess in guesses[:2]), *guesses]
    if not _crowded(case.workload):
        return [*ahead, *guesses]
    copied: Guess = {ORDER: "copied", PANELS: 0, K_BLOCKING: 1}
    if weight_bytes(form) <= case.target.l2_bytes:
        return [guess | copied for guess in guesses[:2]] + guesses
    # Each row would read all weights from beyond the second cache: 2.4 times the time of passes over all rows.
    copied |= {ROWS: case.default[ROWS]} if ROWS in case.knobs else {}
    return [*guesses[:1], *(guess | copied for guess in guesses[:2]), *guesses[1:]]


def _widened_ahead(case: Case, guess: Guess, form: Contraction) -> list[Guess]:
    """A guess whose rows are widened into a copy before all panels read it; none where there are too few rows.

    As few and long rows as have a copy in the second cache, since each reads all weights, but some for each thread.
    """
    width = longest_row(form.windows)
    least = 2 * case.threads if case.threads > 1 else 2
    splits = (int(value) for value in case.knobs.get(PIXEL_ROWS, ()))
    able = sorted(value for value in splits if value > 1 and width // value >= COPIED)
    if "copied" not in case.knobs.get(ORDER, ()) or not able:
        return []
    most = case.target.l2_bytes // COPIES
    split = next((one for one in able if one >= least and 4 * width // one * form.depth <= most), able[-1])
    copied: Guess = {ORDER: "copied", PANELS: 0, ROWS: 1, K_BLOCKING: 1, PIXEL_ROWS: split}
    return [guess | {name: value for name, value in copied.items() if name in case.knobs}]


def _is_waiting(case: Case, form: Contraction) -> bool:
    """Whether threads that share a product of few rows may wait for each other longer than they read its weights."""
    few = results_a_column(form) <= FEW_ROWS and 0 in case.knobs.get(PANELS, ())
    return few and case.threads > 1 and weight_bytes(form) <= case.threads * LEAST_PART_BYTES


def fits_registers(schedule: Schedule, target: Target) -> bool:
    """Whether the accumulators, a row of weights and one broadcast fit the vector registers."""
    vectors, pixels = schedule.get(VECTORS), schedule.get(PIXELS)
    if not isinstance(vectors, int) or not isinstance(pixels, int):
        return True
    return vectors * pixels + vectors + 1 <= target.registers


def _busiest_tiles(case: Case, form: Contraction) -> list[Guess]:
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
    found = []
    for vectors, pixels in product(knobs.get(VECTORS, (1,)), knobs.get(PIXELS, (longest_row(form.windows),))):
        tile: Guess = {VECTORS: vectors, PIXELS: pixels}
        v = min(int(vectors), columns)
        if not fits_registers(tile, target) or (few and v > streamed) or (short and v >= WIDE_PANEL):
            continue
        tile |= sweep | _k_blocking(form, v * target.lanes, knobs, target)
        near = 2 * STREAMED * column_bytes <= target.l1_bytes or K_BLOCKING in tile
        wide, ways = columns / -(-columns // v), []
        for number, cut in enumerate(_cuts(form, knobs, 1 if few or K_BLOCKING in tile else threads)):
            rows = results_a_column(form) if few else _row_length(form, cut)
            p = min(int(pixels), rows)
            long = rows / -(-rows // p)
            loads = 1 / wide + (1 if near else FARTHER) / long if wide * long >= ENOUGH else float("inf")
            busy = min(wide * long, ENOUGH) * _evenness(case, form, tile | cut, columns)
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


def _k_blocking(form: Contraction, panel_lanes: int, knobs: Mapping[str, Values], target: Target) -> Guess:
    """Passes over all rows, each with a part of the weights, where those of a panel are many."""
    choices = [int(value) for value in knobs.get(K_BLOCKING, ())]
    taps = prod(window.taps for window in form.windows)
    panel_bytes = 4 * panel_lanes * form.depth * taps
    if not choices or taps == 1 or panel_bytes * BIG_PANEL <= target.l2_bytes:
        return {}
    nearest = min(choices, key=lambda value: abs(value - panel_bytes / target.l1_bytes))
    return {K_BLOCKING: nearest, ROWS: 0}


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


def _winograd_guesses(case: Case, form: Contraction) -> list[Guess]:
    """Choices of algorithm and stage for a convolution that has them, best guess first.

    Of an image of few tiles, or of tiles that divide badly, all together: so its weights, which are most of its bytes,
    are read once.
    """
    knobs, target, default = case.knobs, case.target, case.default
    fitting = [p for p in knobs.get(PIXELS, ()) if fits_registers(default | {PIXELS: p}, target)]
    if fitting and target.lanes > NARROW:
        default[PIXELS] = max(fitting)
    names = ("winograd4", "winograd2", "direct")
    four, two, direct = (default | {ALGORITHM: name} for name in names)
    direct |= next(iter(_busiest_tiles(case, form)), {}) if target.lanes > NARROW else {}
    root: Guess = {STAGE: "root"}
    tiles = _image_tiles(case.workload)
    if tiles < LEAST_TILES:
        found = [direct, two, four]
    elif tiles == LEAST_TILES:
        found = [two, four | root, direct, two | root]
    elif (chunk := divisor_near(tiles, int(default.get(TILES, 1)))) < LEAST_CHUNK or tiles // chunk < 2 * target.cores:
        most: Guess = {TILES: max(knobs.get(TILES, (1,)), key=int)}
        found = [four | root | most, four | most, two | root | most, direct, two]
    else:
        found = [four, four | root, direct, two]
    transformed = _transformed(case, form)
    return [_shared(case, guess, transformed) for guess in _soonest_first(case, found, transformed)]


def _transformed(case: Case, form: Contraction) -> Contraction:
    """Of the contractions that have Winograd's form the one that computes most, the first of such; else `form`."""
    asked = [Useful(case, nest) for nest in case.nests if nest.anchor is not None and _is_dense(case, nest.anchor)]
    return max((one.form for one in asked if one.winograd), key=lambda one: one.flops, default=form)


def _soonest_first(case: Case, found: list[Guess], form: Contraction) -> list[Guess]:
    """`found`; where the first one waits for its weights longer than it computes, the one that ends soonest before it.

    Winograd's algorithm saves arithmetic, and reads more: (m + 2)^2 numbers in place of nine. Which of them ends first
    depends on how fast the last cache is beside the arithmetic.
    """
    if case.rates is None:
        return found
    times = {str(guess[ALGORITHM]): _core_ns(str(guess[ALGORITHM]), form, case.rates) for guess in found}
    first = times[str(found[0][ALGORITHM])]
    soonest = min(found, key=lambda guess: max(times[str(guess[ALGORITHM])]))
    waits = first[0] < first[1] and max(times[str(soonest[ALGORITHM])]) < SOONER * max(first)
    return [soonest, *(guess for guess in found if guess is not soonest)] if waits else found


def _is_dense(case: Case, operator: WorkloadOperator) -> bool:
    return operator.op_type in CONVOLUTIONS and not is_depthwise(case.workload, operator)


def _core_ns(algorithm: str, form: Contraction, rates: CoreRates) -> tuple[float, float]:
    """Nanoseconds that one core computes, and that it reads weights; each may hide the other."""
    m, (*outer, high, wide) = ALGORITHMS.get(algorithm, 0), form.windows
    products = form.depth * form.columns * prod(window.taps for window in outer)
    points, places = 9, high.outputs * wide.outputs
    if m:
        points, places = (m + 2) ** 2, -(-high.outputs // m) * -(-wide.outputs // m)
    flops = 2 * form.batch[0] * prod(window.outputs for window in outer) * places * points * products
    return flops / rates.gflops, READING * 4 * points * products / rates.l3_gbs


def _shared(case: Case, guess: Guess, form: Contraction) -> Guess:
    """A guess of Winograd's algorithm whose tasks the threads share evenly: the given one where it is such."""
    knobs, threads = case.knobs, case.threads
    m = ALGORITHMS.get(str(guess[ALGORITHM]), 0)
    if threads == 1 or not m:
        return guess
    image = form.batch[0] * prod(-(-window.outputs // m) for window in form.windows[-2:])
    columns = form.columns // vector_lanes(case.workload, case.target)

    def even(one: Guess) -> float:
        knob = chosen(NAME, KNOBS, one)
        chunks = image // divisor_near(image, int(knob["tiles"]))
        panels = columns // divisor_near(columns, min(int(knob["vectors"]), columns))
        tasks = (
            chunks
            if knob["stage"] == "chunk"
            else chunks * (panels // divisor_near(panels, int(knob["panels_per_task"])))
        )
        return evenness([1] * tasks, threads)

    others = [guess | {STAGE: "root", TILES: tiles} for tiles in sorted(knobs.get(TILES, ()), key=int, reverse=True)]
    best = max([guess, *others], key=lambda one: min(even(one), EVEN))
    return best if STAGE in knobs else guess


def _image_tiles(workload: Workload) -> int:
    """4x4 tiles of the results (of a layer, where they have several) of a workload's first convolution."""
    for operator in workload.operators:
        if operator.op_type in CONVOLUTIONS:
            batch, _, *image = workload.values[operator.outputs[0]].shape
            return batch * prod(-(-extent // 4) for extent in image[-2:])
    return 0
