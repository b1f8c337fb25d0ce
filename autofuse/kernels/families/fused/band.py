"""Windows that slide over one another's feature maps, computed a band of rows at a time.

Depthwise -> pointwise, pointwise -> depthwise -> pointwise, convolution -> convolution, convolution -> pooling: of what
stands between them only the rows of a band ever exist. Rows that two bands need (the halo: two of them below a 3x3
window of stride 1) are computed in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from autofuse.kernels.families.contraction.direct import ContractionEmitter
from autofuse.kernels.families.contraction.family import CONTRACTION
from autofuse.kernels.families.fused.chain import hands_on
from autofuse.kernels.families.protocol import Case, Declared, FusedFamily, Guess, Joined, Knob, Schedule, Unit, Values
from autofuse.kernels.families.windowed.direct import WindowedEmitter
from autofuse.kernels.families.windowed.family import WINDOWED
from autofuse.kernels.families.windows import convolution_windows
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import Window
from autofuse.kernels.tir.emit import Array, Emitter, Expr, Index, larger, smaller
from autofuse.kernels.tir.offsets import delinear, linear
from autofuse.kernels.workload.workload import Workload

SLIDING = frozenset({"Conv", "MaxPool", "AveragePool"})
ORDER = CONTRACTION.full("order")
IDLE = frozenset(
    {
        *map(CONTRACTION.full, CONTRACTION.in_whole_maps),
        *map(WINDOWED.full, WINDOWED.in_whole_maps),
    }
)
"""Knobs without a meaning where windows are computed by bands of rows: convolutions are direct, a band is a task."""
SPATIAL = 2
"""Dimensions of space from which on a map has rows: the first is cut into bands, the last is a row."""


@dataclass(frozen=True)
class Band(Joined):
    """Nests each of which slides its windows over what the one before it makes."""


@dataclass(frozen=True)
class RowRange:
    """Rows `begin` to `begin + count` of a feature map; those outside the map are not computed."""

    begin: Expr
    count: int


@dataclass(frozen=True)
class MapRows(Array):
    """`count` rows (of axis 2) from `base` on, of one image of a feature map that never exists as a whole."""

    base: Expr = 0
    count: int = 0

    def offset(self, index: Index) -> Expr:
        """See Array."""
        _, channel, row, *rest = index
        _, channels, _, *inner = self.shape
        place, extents = (row - self.base, *rest), (self.count, *inner)
        if not self.block:
            return linear((channel, *place), (channels, *extents))
        outer, lane = channel // self.block, channel % self.block
        return linear((outer, *place, lane), (channels // self.block, *extents, self.block))


def banded(workload: Workload, units: Sequence[Unit]) -> list[Unit]:
    """`units` with every longest run of nests that slide over one another as one band."""
    found: list[Unit] = []
    run: list[Nest] = []
    for unit in (*units, None):
        if isinstance(unit, Nest) and (not run or _linked(workload, run[-1], unit)):
            run.append(unit)
            continue
        found += [Band(tuple(run))] if len(run) > 1 else run
        run = [unit] if isinstance(unit, Nest) else []
        if isinstance(unit, Joined):
            found.append(unit)
    return found


def band_rows(workload: Workload, band: Band) -> int:
    """Rows of a band's result."""
    return _row_windows(workload, band)[-1].outputs


def _linked(workload: Workload, first: Nest, second: Nest) -> bool:
    return _slides(first) and _slides(second) and hands_on(workload, first, second)


def _slides(nest: Nest) -> bool:
    return nest.anchor is not None and nest.anchor.op_type in SLIDING and len(nest.space) >= 2 + SPATIAL


def _row_windows(workload: Workload, band: Band) -> list[Window]:
    return [convolution_windows(workload, nest.anchor)[0] for nest in band.nests if nest.anchor is not None]


class BandEmitter:
    """Emits a band under a schedule, `together` rows of its result at a time."""

    def __init__(self, scope: Scope, band: Band, schedule: Schedule, together: int) -> None:
        self.scope, self.band, self.schedule, self.together = scope, band, schedule, together
        self.emitter: Emitter = scope.emitter
        self.windows = _row_windows(scope.workload, band)

    def emit(self) -> None:
        """Emits bands in parallel, then the rows that fill none."""
        total = self.windows[-1].outputs
        rows = min(self.together, total)
        full, rest = divmod(total, rows)
        for first, bands, count in ((0, full, rows), (full * rows, 1, rest)):
            if count:
                self.bands(first, bands, count)

    def bands(self, first: int, bands: int, rows: int) -> None:
        """`bands` bands of `rows` result rows, from row `first` on, of every image."""
        emitter, nests = self.emitter, self.band.nests
        with emitter.parallel(nests[-1].space[0] * bands) as task:
            image = emitter.simplify(task // bands)
            outer = self.scope.ready
            self.scope.ready = set(outer)
            spans = self.spans(RowRange(emitter.simplify(first + task % bands * rows), rows))
            for nest, span in zip(nests[:-1], spans, strict=False):
                self.hold(nest.stores[0], span)
                self.rows(nest, image, span)
                self.scope.ready.add(nest.stores[0])
            self.rows(nests[-1], image, spans[-1])
            self.scope.ready = outer

    def spans(self, last: RowRange) -> list[RowRange]:
        """The rows that each nest has to make for the `last` one's."""
        found = [last]
        for window in reversed(self.windows[1:]):
            begin, count = window.seen(found[0].begin, found[0].count)
            found.insert(0, RowRange(self.emitter.simplify(begin), count))
        return found

    def hold(self, value: int, span: RowRange) -> None:
        """Memory for the rows of one map, blocked by vectors of channels where these divide."""
        shape, lanes = self.scope.shape(value), self.emitter.lanes
        buffer = self.emitter.scratch(shape[1] * span.count * prod(shape[3:]))
        block = lanes if shape[1] % lanes == 0 else 0
        self.scope.arrays[value] = MapRows(buffer, shape, "float32", block, span.begin, span.count)

    def rows(self, nest: Nest, image: Expr, span: RowRange) -> None:
        """The rows of a span that are in the map, of one image of one nest."""
        assert nest.anchor is not None
        emitter, size = self.emitter, nest.space[2]
        low = emitter.hidden(emitter.simplify(larger(span.begin, 0)))
        end = emitter.simplify(smaller(span.begin + span.count, size))
        count = emitter.hidden(emitter.simplify(larger(end - low, 0)))
        if WINDOWED.takes(self.scope.workload, nest):
            self.windowed(WINDOWED.by_channels(self.scope, nest, self.schedule), image, low, count)
        else:
            self.contraction(CONTRACTION.by_rows(self.scope, nest, self.schedule), image, low, count)

    @contextmanager
    def row(self, low: Expr, count: Expr, inner: Sequence[int]) -> Iterator[Index]:
        """A loop over rows from `low` on, and over the dimensions of space between them and a row's own."""
        with self.emitter.serial(count) as step, self.emitter.serial(prod(inner)) as between:
            places = delinear(between, inner) if inner else ()
            yield tuple(self.emitter.simplify(part) for part in (low + step, *places))

    def windowed(self, part: WindowedEmitter, image: Expr, low: Expr, count: Expr) -> None:
        """Rows of a depthwise convolution or a pooling, one block of channels after the other."""
        part.prepare()
        accumulators = part.registers()
        inner = part.nest.space[3:-1]
        with self.emitter.serial(part.blocks) as block, self.row(low, count, inner) as row:
            part.channel_block(image, block, row, accumulators)

    def contraction(self, part: ContractionEmitter, image: Expr, low: Expr, count: Expr) -> None:
        """Rows of a convolution: all rows for a panel of its weights, or all panels for a row."""
        part.prepare()
        accumulators = part.registers()
        inner = part.nest.space[3:-1]
        with self.emitter.serial(part.form.batch[1]) as group:
            if part.knobs["order"] == "weights":
                with self.emitter.serial(part.panels) as panel, self.row(low, count, inner) as row:
                    part.panel((image, group), panel, row, accumulators)
            else:
                with self.row(low, count, inner) as row, self.emitter.serial(part.panels) as panel:
                    part.panel((image, group), panel, row, accumulators)


class BandFamily(FusedFamily):
    """Windows that slide over one another's feature maps, a band of rows at a time."""

    name = "band"
    knobs: ClassVar[Declared] = {
        "rows": Knob((0, 4, 8, 2, 14), "rows of its result that a chain of windows computes together (0: all, in turn)")
    }

    def joined(self, workload: Workload, units: Sequence[Unit]) -> Sequence[Unit]:
        """See FusedFamily."""
        return banded(workload, units)

    def takes(self, workload: Workload, unit: Unit) -> bool:
        """See Family."""
        return isinstance(unit, Band)

    def useful(self, case: Case, unit: Unit, knob: str, values: Values) -> Iterable[int | str]:
        """See Family: fewer rows than the band has."""
        assert isinstance(unit, Band)
        rows = band_rows(case.workload, unit)
        return tuple(value for value in values if int(value) < rows) or values[:1]

    def rules(self, schedule: Schedule) -> bool:
        """See FusedFamily."""
        return self.is_on(schedule)

    def canonical(self, schedule: Guess, knobs: Mapping[str, Values]) -> Guess:
        """See Family: the rows of a band stand side by side, so they need no copy."""
        if not self.is_on(schedule):
            return schedule
        order = {ORDER: "pixels"} if schedule.get(ORDER) == "copied" else {}
        return {name: value for name, value in (schedule | order).items() if name not in IDLE}

    def guesses(self, case: Case, found: list[Guess]) -> list[Guess]:
        """See Family: the best guess so far, by bands of some rows."""
        rows = [value for value in case.knobs.get(self.full("rows"), ()) if value]
        return [*found, *(found[0] | {self.full("rows"): value} for value in rows[:2])]

    def emit(self, scope: Scope, unit: Unit, schedule: Schedule) -> None:
        """See Family."""
        assert isinstance(unit, Band)
        BandEmitter(scope, unit, schedule, int(self.chosen(schedule)["rows"])).emit()


BAND = BandFamily()
