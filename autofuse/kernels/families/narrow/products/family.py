"""What families of narrow products share: their knobs, when each has an effect, and first guesses."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import prod

import numpy as np

from autofuse.device.target import Target
from autofuse.errors import InputError
from autofuse.kernels.families.contraction.form import FEW_ROWS, Contraction
from autofuse.kernels.families.contraction.panels import NARROW, arrives_late
from autofuse.kernels.families.contraction.parallel_grid import ParallelGrid
from autofuse.kernels.families.narrow.instructions import Multiplier, wanted
from autofuse.kernels.families.narrow.products.emitter import NarrowEmitter
from autofuse.kernels.families.narrow.products.form import NarrowContraction
from autofuse.kernels.families.narrow.products.matrices import MatrixEmitter
from autofuse.kernels.families.narrow.products.tiles import TileEmitter
from autofuse.kernels.families.narrow.tiles import REGISTERS, TILES, TileMultiplier, tiles_refusal
from autofuse.kernels.families.protocol import Case, Declared, Family, Guess, Knob, Schedule, Unit, Values, up_to
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import Window, divisor_near, longest_row, runs
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

EVEN = 0.95
"""How evenly threads have to share the tasks of the first guess; of several that do, the one of the fewest tasks."""
ENOUGH = 14
"""Sums of a tile below which an instruction waits for the last one on the same sum (Zen 5, two in a cycle: a step of
bfloat16 takes as long for 8 or 12 sums as for 14)."""
MOST_STREAMED, BFLOAT16_BYTES = 4, 2
"""Rows up to which weights come as fast as memory gives them anyway; bytes of a weight in bfloat16."""
OFFSETS = 1 << 36
"""Products of pixels and bytes of weights below which pixels times lines of weights fit 32 bits."""
WORTH = 0.97
"""Part of the time of the default tile from which on another one is the first guess."""
KNOBS: Declared = {
    "vectors": Knob((4, 2, 3, 1), "vectors of columns of a tile", tile=True, packs=True),
    "pixels": Knob((6, 4, 5, 7, 3, 2, 8), "pixels or rows of a tile, held in registers with its vectors", tile=True),
    "rows_per_task": Knob((0, 1, 2, 4, 8), "rows of results a parallel task computes (0: all)"),
    "pixel_rows": Knob((1, 2, 4, 8, 16), "rows that the pixels of a product without a window are cut into"),
    "prefetch": Knob((0, 64, 32), "of few rows: lines of a cache by which weights are asked for ahead (0: not at all)"),
    "next_panel": Knob((0, 1), "of more rows: whether a panel of columns asks for the next one's weights (1: it does)"),
}


class NarrowFamily(Family):
    """Products and convolutions of narrow numbers.

    `algorithms`: names of their instructions, the fastest first; last tiles, which nobody has timed, so that they are
    never a default. `tile_feature`: what a target has that multiplies by those.
    """

    algorithms: Sequence[str] = ()
    tile_feature: str

    @abstractmethod
    def form(self, workload: Workload, operator: WorkloadOperator, split: int = 1) -> NarrowContraction:
        """What an operator computes; `split`: see `contraction_form`."""

    @abstractmethod
    def able(self, workload: Workload, product: NarrowContraction, target: Target) -> Mapping[str, Multiplier]:
        """The instructions that compute a product exactly on a target."""

    def _able(self, workload: Workload, product: NarrowContraction, target: Target) -> dict[str, Multiplier]:
        """Those that have as many neighbouring rows to take."""
        able, rows = self.able(workload, product, target), longest_row(product.form.windows)
        return {name: one for name, one in able.items() if one.rows <= rows}

    def useful(self, case: Case, unit: Unit, knob: str, values: Values) -> Iterable[int | str]:
        """See Family."""
        product, lanes = self._product(case.workload, unit), case.target.lanes
        form = product.form
        if knob == "algorithm":
            able = self._able(case.workload, product, case.target)
            return sorted((value for value in values if value in able), key=TILES.__eq__)
        if knob == "vectors":
            return up_to(values, -(-form.columns // lanes))
        if knob == "pixels":
            return up_to(values, longest_row(form.windows))
        if knob == "prefetch":
            return values if _is_flat(form) and 1 < form.windows[-1].outputs <= FEW_ROWS else values[:1]
        if knob == "next_panel":
            return values if _has_panels(case, form) else values[:1]
        flat = len(form.windows) == 1 and form.windows[-1].outputs > 1 and form.rows == (1,)
        if knob == "pixel_rows":
            return _dividing(values, form.windows[-1].outputs) if flat and _is_flat(form) else values[:1]
        rows = prod(form.rows)
        return _dividing(values, rows) if rows > 1 else values[:1]

    def canonical(self, schedule: Guess, knobs: Mapping[str, Values]) -> Guess:
        """See Family: tiles take as many pixels as they hold, and ask for nothing ahead."""
        by_tiles = schedule.get(self.full("algorithm")) == TILES
        idle = [self.full(knob) for knob in ("pixels", "prefetch", "next_panel")] if by_tiles else []
        return {name: value for name, value in schedule.items() if name not in idle}

    def fault(self, schedule: Schedule, target: Target) -> str | None:
        """See Family."""
        by_tiles = schedule.get(self.full("algorithm")) == TILES
        return tiles_refusal(target, self.tile_feature) if by_tiles else None

    def guesses(self, case: Case, found: list[Guess]) -> list[Guess]:
        """See Family: tiles that are cut well; threads share rows of the results where they share the panels of columns
        badly."""
        unit = next((nest for nest in case.nests if self.takes(case.workload, nest)), None)
        if unit is None:
            return found
        form = self._product(case.workload, unit).form
        guess = found[0] | self._tile(case, form, found[0])
        knob = self.full(row_knob(form))
        if case.threads > 1 and knob in case.knobs:
            vectors = -(-form.columns // case.target.lanes)
            panel = min(int(self.chosen(guess)["vectors"]), vectors)
            guess[knob] = evenest_rows(form, case.knobs[knob], (vectors, panel), case.threads)
        ahead = self.full("prefetch")
        if ahead in case.knobs and self._streams(case, form):
            guess[ahead] = next((value for value in case.knobs[ahead] if value), 0)
        following = self.full("next_panel")
        if following in case.knobs and arrives_late(case.target, _weight_bytes(case, form)):
            guess[following] = next((value for value in case.knobs[following] if value), 0)
        return found if guess == found[0] else [guess, *found]

    def _streams(self, case: Case, form: Contraction) -> bool:
        """Whether weights come from beyond the second cache, and rows are so many that the hardware's own prefetching
        falls behind (Zen 5: at eight rows; a single row is slower when it asks)."""
        large = _weight_bytes(case, form) > case.target.l2_bytes
        return large and MOST_STREAMED < form.windows[-1].outputs <= FEW_ROWS

    def _tile(self, case: Case, form: Contraction, guess: Guess) -> Guess:
        """A tile in place of a guess's where its own is cut so short that the sums wait for one another, or threads for
        one another; none where few registers make all tiles such."""
        sides = [self.full(knob) for knob in ("vectors", "pixels")]
        if case.target.lanes <= NARROW or case.target.registers <= 2 * ENOUGH:
            return {}
        columns, row = -(-form.columns // case.target.lanes), longest_row(form.windows)
        parts = case.knobs.get(self.full(row_knob(form)), (1,))

        def cost(tile: Guess) -> float:
            vectors, pixels = (int(self.chosen(tile)[knob]) for knob in ("vectors", "pixels"))
            shares = max(_evenness(form, int(part), (columns, min(vectors, columns)), case.threads) for part in parts)
            return waited_sums(columns, vectors, row, pixels) / min(shares, EVEN)

        values = product(*(case.knobs.get(side, (guess[side],) if side in guess else ()) for side in sides))
        tiles: list[Guess] = [guess | dict(zip(sides, pair, strict=True)) for pair in values]
        fitting = [tile for tile in tiles if self.fits(tile, case.target)]
        best = min(fitting, key=lambda tile: (cost(tile), sum(1 / int(tile[side]) for side in sides)), default=guess)
        return best if cost(best) < WORTH * cost(guess) else {}

    def fits(self, schedule: Schedule, target: Target) -> bool:
        """See Family."""
        vectors, pixels = schedule.get(self.full("vectors")), schedule.get(self.full("pixels"))
        if schedule.get(self.full("algorithm")) == TILES:
            return not isinstance(vectors, int) or vectors + 2 <= REGISTERS  # tiles of sums, and two that meet
        if not isinstance(vectors, int) or not isinstance(pixels, int):
            return True
        if target.isa == "neon":  # whose instructions take the numbers of every pixel from lanes of a vector
            return (vectors + 1) * pixels + 2 <= target.registers
        return vectors * (pixels + 1) + 1 <= target.registers

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        assert isinstance(unit, Nest) and unit.anchor is not None
        plain, multiplier = self.multiplied(scope.workload, unit, schedule, scope.emitter.target)
        split, knobs = row_parts(plain.form, self.chosen(schedule))
        product = self.form(scope.workload, unit.anchor, split)
        tiles = isinstance(multiplier, TileMultiplier)
        emitter = TileEmitter if tiles else MatrixEmitter if multiplier.rows > 1 else NarrowEmitter
        emitter(scope, unit, product, multiplier, knobs).emit()

    def multiplied(
        self, workload: Workload, unit: Unit, schedule: Schedule, target: Target
    ) -> tuple[NarrowContraction, Multiplier]:
        """What a unit computes, and the instruction that a schedule has it computed by.

        InputError where the target has no such tiles.
        """
        product, algorithm = self._product(workload, unit), self.chosen(schedule)["algorithm"]
        able = self._able(workload, product, target)
        if algorithm == TILES and TILES not in able:
            reason = self.fault(schedule, target) or "the weights may exceed signed bytes"
            raise InputError(f"{self.full('algorithm')}: {reason}")
        return product, wanted(algorithm, able, self.algorithms)

    def _product(self, workload: Workload, unit: Unit) -> NarrowContraction:
        assert isinstance(unit, Nest) and unit.anchor is not None
        return self.form(workload, unit.anchor)


def evenest_rows(form: Contraction, values: Values, vectors: tuple[int, int], threads: int) -> int | str:
    """The value of the knob that cuts rows by which threads share the tasks evenly; of several, that of the fewest.

    `vectors`: of all columns, and of a panel.
    """

    ordered = sorted(values, key=lambda value: _row_tasks(form, int(value)))
    return max(ordered, key=lambda value: min(_evenness(form, int(value), vectors, threads), EVEN))


def _evenness(form: Contraction, value: int, vectors: tuple[int, int], threads: int) -> float:
    """How evenly threads share the tasks by a value of the knob that cuts rows; `vectors`: see `evenest_rows`."""
    grid = (prod(form.batch), -(-vectors[0] // vectors[1]), _row_tasks(form, value))
    return ParallelGrid(1, 1, grid).evenness(*vectors, threads)


def waited_sums(columns: int, vectors: int, row: int, pixels: int) -> int:
    """Sums over the tiles of a row of results and all vectors of `columns`, those counted that others wait for."""
    panels = [min(vectors, columns - first) for first in range(0, columns, vectors)]
    widths = [width for run in runs(Window(row, 1, outputs=row), pixels) for width in [run.width] * run.count]
    return sum(max(panel * width, ENOUGH) for panel in panels for width in widths)


def row_knob(form: Contraction) -> str:
    """The knob by which threads share rows of results."""
    return "pixel_rows" if _is_flat(form) else "rows_per_task"


def row_parts(form: Contraction, knobs: Guess) -> tuple[int, Guess]:
    """Parts that pixels are cut into, and the knobs: rows that were cut so are for the threads to share, one by one."""
    split = int(knobs["pixel_rows"]) if _is_flat(form) else 1
    return split, knobs | {"rows_per_task": 1} if split > 1 else knobs


def _weight_bytes(case: Case, form: Contraction) -> int:
    """Bytes of the weights as they are multiplied."""
    size = np.dtype(case.workload.values[form.w].dtype).itemsize
    taps = prod(window.taps for window in form.windows)
    return form.columns * form.depth * taps * (size if size == 1 else BFLOAT16_BYTES)


def _has_panels(case: Case, form: Contraction) -> bool:
    """Whether there are several panels, and so many pixels that others are computed while weights come; offsets of
    shares fit 32 bits."""
    pixels, most = prod(form.rows) * form.windows[-1].outputs, max(int(value) for value in KNOBS["vectors"].values)
    several = form.columns > most * case.target.lanes and pixels > FEW_ROWS
    return several and pixels * _weight_bytes(case, form) < OFFSETS


def _is_flat(form: Contraction) -> bool:
    """Whether pixels can be cut into rows: those of a product without a window that shares its columns."""
    return bool(getattr(form, "flat", False))


def _row_tasks(form: Contraction, value: int) -> int:
    """Parts that threads share the rows of a panel in, by the value of `pixel_rows` or else of `rows_per_task`."""
    rows = prod(form.rows)
    return value if _is_flat(form) else rows // divisor_near(rows, value)


def _dividing(values: Values, total: int) -> list[int | str]:
    """Values of parts that `total` can be cut into; 0 stands for all."""
    return [value for value in values if isinstance(value, int) and (value == 0 or total % value == 0)]
