"""First guesses of convolutions that have Winograd's algorithm: which tiles of results, and how many together."""

from __future__ import annotations

from math import prod

from autofuse.kernels.families.contraction.form import Contraction
from autofuse.kernels.families.contraction.guesses.tiles import (
    ALGORITHM,
    PIXELS,
    STAGE,
    TILES,
    VECTORS,
    busiest_tiles,
    fits_registers,
)
from autofuse.kernels.families.contraction.knobs import KNOBS, NAME, Useful
from autofuse.kernels.families.contraction.panels import NARROW
from autofuse.kernels.families.contraction.parallel_grid import EVEN, algorithm_ns, evenness, multiplied
from autofuse.kernels.families.contraction.winograd import ALGORITHMS, tiles_along
from autofuse.kernels.families.protocol import Case, Guess, chosen, vector_lanes
from autofuse.kernels.families.windows import CONVOLUTIONS, integers, is_depthwise
from autofuse.kernels.nest.tiles import divisor_near
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

LEAST_TILES = 4
"""4x4 tiles of an image below which Winograd only makes its weights larger; just so many pay with 2x2 tiles."""
LEAST_CHUNK = 10
"""Tiles that must share a reading of Winograd's weights, where these are large (Zen 5, 49 tiles of 512 channels: 7 at a
time take 1.7 times as long as all together)."""
SAVING = 0.75
"""Part of the multiplications of a direct convolution up to which a dilated one is transformed."""
SOONER = 0.9
"""Part of the time of the algorithm that is else the first that another may take at most to come before it."""


def winograd_guesses(case: Case, form: Contraction) -> list[Guess]:
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
    direct |= next(iter(busiest_tiles(case, form)), {}) if target.lanes > NARROW else {}
    root: Guess = {STAGE: "root"}
    tiles, transformed = _image_tiles(case.workload), _transformed(case, form)
    if tiles < LEAST_TILES:
        found = [direct, two, four]
    elif tiles == LEAST_TILES:
        found = [two, four | root, direct, two | root]
    elif (chunk := divisor_near(tiles, int(default.get(TILES, 1)))) < LEAST_CHUNK or tiles // chunk < 2 * target.cores:
        most: Guess = {TILES: max(knobs.get(TILES, (1,)), key=int)}
        found = [four | root | most, four | most, two | root | most, direct, two]
    else:
        four, two = _chunked(case, four, transformed), _chunked(case, two, transformed)
        found = [four, four | root, direct, two]
    found = _soonest_first(case, _fewest_products_first(found, transformed), transformed)
    return [_shared(case, guess, transformed) for guess in found]


def _chunked(case: Case, guess: Guess, form: Contraction) -> Guess:
    """A guess of Winograd's algorithm with chunks of as many tiles as read least from beyond the second cache.

    Each chunk reads all weights where they leave that cache, and each panel of weights all of a chunk that does.
    """
    m, l2_bytes = ALGORITHMS[str(guess[ALGORITHM])], case.target.l2_bytes
    number_bytes = 4 * (m + 2) ** 2 * form.depth
    outer, image = form.windows[:-2], form.batch[0] * prod(tiles_along(window, m) for window in form.windows[-2:])
    weights = number_bytes * form.columns * prod(window.taps for window in outer)
    panel = int(guess.get(VECTORS, 1)) * case.target.lanes

    def read(tiles: int | str) -> float:
        chunk = divisor_near(image, int(tiles))
        leaves = 2 * number_bytes * chunk * prod(window.size for window in outer) > l2_bytes  # a panel is there, too
        return (1 / chunk if weights > l2_bytes else 0.0) + (1 / panel if leaves else 0.0)

    able = [tiles for tiles in case.knobs.get(TILES, ()) if int(tiles) >= int(guess.get(TILES, 1))]
    return guess | {TILES: min(able, key=read)} if able else guess


def _transformed(case: Case, form: Contraction) -> Contraction:
    """Of the contractions that have Winograd's form the one that computes most, the first of such; else `form`."""
    asked = [Useful(case, nest) for nest in case.nests if nest.anchor is not None and _is_dense(case, nest.anchor)]
    return max((one.form for one in asked if one.winograd), key=lambda one: one.flops, default=form)


def fills_tiles(case: Case, form: Contraction) -> bool:
    """Whether results fill the tiles of Winograd's algorithm well enough to save arithmetic: of a dilated convolution,
    each result of the first ones begins tiles of its own."""
    form = _transformed(case, form)
    if all(window.dilation == 1 for window in form.windows[-2:]):
        return True
    return min(multiplied(m, form) for m in ALGORITHMS.values()) < SAVING * multiplied(0, form)


def _fewest_products_first(found: list[Guess], form: Contraction) -> list[Guess]:
    """`found`; of a dilated convolution, whose tiles may be filled in part, those first that multiply least."""
    if all(window.dilation == 1 for window in form.windows[-2:]):
        return found
    return sorted(found, key=lambda guess: multiplied(ALGORITHMS.get(str(guess[ALGORITHM]), 0), form))


def _soonest_first(case: Case, found: list[Guess], form: Contraction) -> list[Guess]:
    """`found`; where the first one waits for its weights longer than it computes, the one that ends soonest before it.

    Winograd's algorithm saves arithmetic, and reads more: (m + 2)^2 numbers in place of nine. Which of them ends first
    depends on how fast the last cache is beside the arithmetic.
    """
    if case.rates is None:
        return found
    names = {str(guess[ALGORITHM]) for guess in found}
    times = {name: algorithm_ns(ALGORITHMS.get(name, 0), form, case.rates) for name in names}
    first = times[str(found[0][ALGORITHM])]
    soonest = min(found, key=lambda guess: max(times[str(guess[ALGORITHM])]))
    waits = first[0] < first[1] and max(times[str(soonest[ALGORITHM])]) < SOONER * max(first)
    return [soonest, *(guess for guess in found if guess is not soonest)] if waits else found


def _is_dense(case: Case, operator: WorkloadOperator) -> bool:
    return operator.op_type in CONVOLUTIONS and not is_depthwise(case.workload, operator)


def _shared(case: Case, guess: Guess, form: Contraction) -> Guess:
    """A guess of Winograd's algorithm whose tasks the threads share evenly: the given one where it is such."""
    knobs, threads = case.knobs, case.threads
    m = ALGORITHMS.get(str(guess[ALGORITHM]), 0)
    if threads == 1 or not m:
        return guess
    image = form.batch[0] * prod(tiles_along(window, m) for window in form.windows[-2:])
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
            apart = integers(operator, "dilations")[-2:] or (1,) * len(image[-2:])
            return batch * prod(each * -(-size // (4 * each)) for size, each in zip(image[-2:], apart, strict=True))
    return 0
