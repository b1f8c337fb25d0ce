"""First guesses of contractions: worth trying before any search, by rules that `experiments/priors` measures."""

from __future__ import annotations

from collections import Counter
from math import prod

from autofuse.kernels.families.contraction.dot import MOST_COLUMNS
from autofuse.kernels.families.contraction.form import (
    FEW_ROWS,
    Contraction,
    Convolution,
    Product,
    contraction_form,
    copies_rows,
    is_widened,
    pixel_lanes,
    results_a_column,
)
from autofuse.kernels.families.contraction.guesses.tiles import (
    ALGORITHM,
    K_BLOCKING,
    NEXT_PANEL,
    OPERAND,
    ORDER,
    PANELS,
    PIXEL_ROWS,
    PIXELS,
    ROWS,
    STEPS,
    VECTORS,
    busiest_tiles,
)
from autofuse.kernels.families.contraction.guesses.winograd import fills_tiles, winograd_guesses
from autofuse.kernels.families.contraction.panels import NARROW, arrives_late, streams
from autofuse.kernels.families.contraction.parallel_grid import EVEN, evenness, weight_bytes
from autofuse.kernels.families.contraction.winograd import ALGORITHMS
from autofuse.kernels.families.protocol import Case, Guess
from autofuse.kernels.nest.tiles import divisor_near, longest_row
from autofuse.kernels.workload.workload import Workload

COPIED, COPIES = 16, 8
"""Pixels at least in a row that is widened into a copy, which all panels then read; part of the second cache that the
copy takes at most."""
PAGE_BYTES, LINE_BYTES, WAYS = 4096, 64, 8
"""Addresses a page apart share a set of the first cache, which holds so many of their lines."""
FILLED = 0.85
"""Part of the lanes over pixels that hold some, from which these come first (Zen 5: 14x14 pixels do, 7x7 do not)."""
HELD = 2
"""Part of the second cache that rows fill at most which meet all panels before the next ones do."""
SAVED = 2
"""How many times as much is read from beyond that cache where such rows do not stay there, at least."""
LEAST_PART_BYTES = 512 << 10
"""Weights that each thread should read, at least; below, one thread alone is worth a try (some microseconds' work)."""
SHUFFLED = 4
"""Registers for each result where lanes run over groups: its sums, and shuffles that it shares with its neighbours."""


def contraction_guesses(case: Case, form: Contraction) -> list[Guess]:
    """Schedules of a contraction, best guess first.

    Winograd where the image fills its tiles, all of it transformed ahead where its chunks are too few for the threads;
    in other contractions the tiles that keep most accumulators busy (narrow vectors: the default first, since their
    many loads need registers too). Where what a row reads crowds the cache, a copy of it.
    """
    algorithms = case.knobs.get(ALGORITHM, ())
    if not ALGORITHMS.keys().isdisjoint(algorithms) and fills_tiles(case, form):
        guesses = winograd_guesses(case, form)
    else:
        guesses = _direct_guesses(case, form)
    if "group_lanes" in algorithms:
        return [*_group_guesses(case, form), *guesses]
    if "pixel_lanes" in algorithms and isinstance(form, Convolution) and form.flat:
        over = pixel_lanes(case.workload, form.operator)
        lie: Guess = {ALGORITHM: "pixel_lanes", OPERAND: "direct"}
        turned = [case.default | tile | lie for tile in busiest_tiles(case, over)[:2]]
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
    busiest = [case.default | tile for tile in busiest_tiles(case, form)]
    guesses = [*busiest[:2], case.default] if case.target.lanes > NARROW else [case.default, *busiest[:1]]
    if _is_waiting(case, form):
        guesses.insert(1, guesses[0] | {PANELS: 0})
    if "direct" in case.knobs.get(OPERAND, ()) and isinstance(form, Product) and _few_share(form):
        guesses = [*({**guess, OPERAND: "direct"} for guess in guesses[:2]), *guesses]
    guesses = [*_held_rows(case, guesses[0], form), *guesses]
    ahead = _widened_ahead(case, guesses[0], form) if is_widened(case.workload, form) else []
    stream = streams(case.target) and results_a_column(form) <= int(guesses[0].get(PIXELS, 1))
    if 1 in case.knobs.get(NEXT_PANEL, ()) and arrives_late(case.target, 4 * prod(form.w_shape)) and not stream:
        guesses = [*({**guess, NEXT_PANEL: 1} for guess in guesses[:2]), *guesses]
    if not _crowded(case.workload):
        return [*ahead, *guesses]
    copied: Guess = {ORDER: "copied", PANELS: 0, K_BLOCKING: 1}
    if weight_bytes(form) <= case.target.l2_bytes:
        return [guess | copied for guess in guesses[:2]] + guesses
    # Each row would read all weights from beyond the second cache: 2.4 times the time of passes over all rows.
    copied |= {ROWS: case.default[ROWS]} if ROWS in case.knobs else {}
    return [*guesses[:1], *(guess | copied for guess in guesses[:2]), *guesses[1:]]


def _few_share(form: Contraction) -> bool:
    """Whether so few rows meet a computed right-hand side that copying it takes longer than reading it as it lies."""
    return prod(window.outputs for window in form.windows) <= FEW_ROWS


def column_tile(case: Case, form: Contraction) -> Guess:
    """The tile of a product whose lanes run over what is summed, and which reads a computed matrix: as many rows as
    have registers."""
    rows = [
        int(value) for value in case.knobs.get(PIXELS, ()) if int(value) * MOST_COLUMNS <= case.target.registers - 8
    ]
    return {PIXELS: max(rows)} if rows and case.workload.values[form.w].kind != "constant" else {}


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


def _held_rows(case: Case, guess: Guess, form: Contraction) -> list[Guess]:
    """A guess that computes all columns of as many rows as stay in the second cache, then those of the next ones.

    None where that saves less than half of what is read from beyond that cache: all rows fit, or weights are many; nor
    where weights are read in passes.
    (Zen 4: 3,072 rows by 384x384 weights take 0.88 of the time, 0.83 with AVX2; 4,096 rows by 384x96 0.88 and 0.90.)
    """
    rows, row_bytes, held_bytes = longest_row(form.windows), 4 * form.depth, case.target.l2_bytes // HELD
    whole = isinstance(form, Product) and form.flat and len(form.windows) == 1
    passes = int(guess.get(K_BLOCKING, 1)) > 1
    if not whole or passes or rows * row_bytes <= held_bytes or not {PANELS, ROWS} <= case.knobs.keys():
        return []
    panels = -(-form.columns // (case.target.lanes * int(guess.get(VECTORS, 1))))
    tile, ways, weights = int(guess.get(PIXELS, 1)), [], weight_bytes(form) * (weight_bytes(form) > held_bytes)
    for value in case.knobs.get(PIXEL_ROWS, ()):
        split = divisor_near(rows, int(value))
        held = rows // split
        less = SAVED * (rows * row_bytes + split * weights) <= panels * rows * row_bytes
        if split > 1 and held >= COPIED and less and evenness([1] * split, case.threads) >= EVEN:
            excess = max(0, held * row_bytes - held_bytes)
            ways.append((excess, -round(STEPS * held / (-(-held // tile) * tile)), split, value))
    return [guess | {PIXEL_ROWS: min(ways)[-1], ROWS: 1, PANELS: 0}] if ways else []


def _is_waiting(case: Case, form: Contraction) -> bool:
    """Whether threads that share a product of few rows may wait for each other longer than they read its weights."""
    few = results_a_column(form) <= FEW_ROWS and 0 in case.knobs.get(PANELS, ())
    return few and case.threads > 1 and weight_bytes(form) <= case.threads * LEAST_PART_BYTES


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
