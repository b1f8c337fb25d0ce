"""Winograd convolution F(2x2, 3x3) and F(4x4, 3x3): Lavin and Gray, "Fast algorithms for convolutional
neural networks" (CVPR 2016), for 3x3 kernels of stride 1.

Per tile of m x m results: V = B^T d B, M = sum over input channels of U * V (one small matrix product for
each of the (m+2)^2 points), Y = A^T M A; U = G g G^T is computed ahead, in float64. A third dimension before these two
(the depth of a volume, the frames of a video) is summed directly: M of a layer of results is the sum of U * V over the
slices of the input that its window sees, and a slice is transformed once for all layers.

Results of a dilated convolution that are `dilation` apart read what a plain one does whose input has so many pixels
left out. So a tile is of results that far apart, and each of the `dilation` first ones begins tiles of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np
from tvm import tirx

from autofuse.kernels.families.contraction.form import Convolution
from autofuse.kernels.families.contraction.panels import PrefetchShare, prefetch
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.nest import Nest
from autofuse.kernels.nest.tiles import Window, divisor_near, runs
from autofuse.kernels.tir.emit import Array, Emitter, Expr, const
from autofuse.kernels.tir.offsets import delinear
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

Knobs = Mapping[str, int | str]
Matrix = Sequence[Sequence[float]]

ALGORITHMS = {"winograd2": 2, "winograd4": 4}
"""Values of the knob `algorithm` -> sides of a tile of results."""

PAGE_BYTES = 4096
"""Addresses so far apart share a set of the first cache."""
MEETING_BYTES = 1024
"""Steps of so many bytes through 36 points meet in four sets or fewer, which do not hold a line of each."""

# m -> (B^T, G, A^T)
TRANSFORMS: Mapping[int, tuple[Matrix, Matrix, Matrix]] = {
    2: (
        [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
        [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]],
        [[1, 1, 1, 0], [0, 1, -1, -1]],
    ),
    4: (
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ],
        [
            [1 / 4, 0, 0],
            [-1 / 6, -1 / 6, -1 / 6],
            [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6],
            [0, 0, 1],
        ],
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
    ),
}


def winograd_refusal(workload: Workload, operator: WorkloadOperator, form: Convolution, lanes: int) -> str | None:
    """Why a convolution has no Winograd form here (None: it has)."""
    windows = form.windows
    if len(windows) not in (2, 3) or any((w.taps, w.stride) != (3, 1) for w in windows[-2:]):
        return "Winograd needs 3x3 kernels of stride 1 in the last two of two or three dimensions"
    if form.batch[1] != 1:
        return "Winograd needs one group"
    if form.depth % lanes or form.columns % lanes:
        return f"Winograd needs channels in multiples of {lanes}"
    if workload.values[operator.inputs[1]].kind != "constant":
        return "Winograd needs constant weights"
    return None


@dataclass(frozen=True)
class Side:
    """A dimension of the images: places of the input and of the results, and padding before the first one. `filled`:
    results that the last tile has at least."""

    size: Expr
    outputs: Expr
    pad_begin: int
    filled: int


def tiles_along(window: Window, m: int) -> int:
    """Tiles of `m` results along a dimension: of those that begin at each of the first results, as many as the first
    one has."""
    return window.dilation * -(-window.outputs // (window.dilation * m))


class WinogradEmitter:
    """Emits one 3x3 convolution; `tiles` of all slices are transformed together, then multiplied panel by panel.

    `stage`: "chunk" transforms a chunk's input where it is used; "root" transforms the whole input first, so
    that few chunks still give every thread work (the panels are spread as well).
    """

    def __init__(self, scope: Scope, nest: Nest, form: Convolution, knobs: Knobs, m: int) -> None:
        self.scope, self.nest, self.form, self.knobs, self.m = scope, nest, form, knobs, m
        self.emitter: Emitter = scope.emitter
        self.lanes = self.emitter.lanes
        self.alpha = m + 2
        self.points = self.alpha**2
        self.bt, self.g, self.at = TRANSFORMS[m]
        self.depth = form.windows[0] if len(form.windows) == 3 else Window(1, 1, outputs=1)
        self.slices, self.layers = self.depth.size, self.depth.outputs
        self.plane = form.windows[-2:]
        self.grid = (form.batch[0], *(tiles_along(window, m) for window in self.plane))
        self.chunk = divisor_near(prod(self.grid), int(knobs["tiles"]))
        self.chunks = prod(self.grid) // self.chunk
        self.sides = tuple(
            Side(window.size, window.outputs, window.pad_begin, self.least_in_last(window)) for window in self.plane
        )
        self.filled: Expr = self.chunk
        self.finished: Expr = self.chunk
        vectors_total = form.columns // self.lanes
        self.vectors = divisor_near(vectors_total, min(int(knobs["vectors"]), vectors_total))
        self.panels = vectors_total // self.vectors
        self.panel_lanes = self.vectors * self.lanes
        size = self.points * self.depth.kernel * form.depth * form.columns
        self.streams = self.chunks == 1 or 4 * size > self.emitter.target.l2_bytes
        self.apart = spaced(self.slices * self.chunk * form.depth, self.lanes)
        self.products_apart = spaced(self.vectors * self.layers * self.chunk * self.lanes, self.lanes)
        self.products = self.points * self.products_apart

    def emit(self) -> None:
        """Emits the whole nest."""
        emitter = self.emitter
        self.weights = self.packed_weights()
        size = self.points * self.apart
        blocks = self.form.depth // self.lanes
        if self.knobs["stage"] == "root":
            v = emitter.scratch(self.chunks * size)
            with emitter.parallel(self.chunks * blocks) as task:
                self.transform_input(task // blocks, task % blocks, v, task // blocks * size)
            per_task = divisor_near(self.panels, int(self.knobs["panels_per_task"]))
            grid = (self.panels // per_task, self.chunks)
            with emitter.parallel(prod(grid)) as task:
                product = emitter.scratch(self.products)
                panel_task, chunk = delinear(task, grid)
                with emitter.serial(per_task) as step:
                    self.panel(chunk, emitter.simplify(panel_task * per_task + step), v, chunk * size, product)
            return
        with emitter.parallel(self.chunks) as chunk:
            v = emitter.scratch(size)
            product = emitter.scratch(self.products)
            with emitter.serial(blocks) as block:
                self.transform_input(chunk, block, v, 0)
            with emitter.serial(self.panels) as panel:
                self.panel(chunk, panel, v, 0, product)

    def tile_at(self, chunk: Expr, p: Expr) -> tuple[Expr, Expr, Expr]:
        """(image, tile row, tile column) of tile `p` of a chunk."""
        image, row, column = delinear(self.emitter.simplify(chunk * self.chunk + p), self.grid)
        simplify = self.emitter.simplify
        return simplify(image), simplify(row), simplify(column)

    def transform_input(self, chunk: Expr, block: Expr, v: Any, base: Expr) -> None:
        """V[point, slice, tile, channel] of one channel block: interior tiles load without asking."""
        emitter = self.emitter
        rows, columns = self.plane
        high, wide = self.sides
        with emitter.serial(self.slices) as layer, emitter.serial(self.filled) as p:
            image, row, column = self.tile_at(chunk, p)
            top = emitter.simplify(self.first_of(row, rows) - high.pad_begin)
            left = emitter.simplify(self.first_of(column, columns) - wide.pad_begin)
            interior = tirx.all(
                top >= 0, top + self.reach(rows) <= high.size, left >= 0, left + self.reach(columns) <= wide.size
            )  # fmt: skip
            for guarded, condition in ((False, interior), (True, tirx.Not(interior))):
                with emitter.when(condition), emitter.vector(self.lanes) as lane, self.scope.point():
                    channel = emitter.simplify(block * self.lanes + lane)
                    place = base + (layer * self.chunk + p) * self.form.depth + channel
                    self.tile_transform((image, channel, *self.at_depth(layer)), (top, left), guarded, v, place)

    def first_of(self, tile: Expr, window: Window) -> Expr:
        """The first result of a tile along a dimension."""
        if window.dilation == 1:
            return tile * self.m
        each = tiles_along(window, self.m) // window.dilation
        return tile // each + tile % each * (window.dilation * self.m)

    def reach(self, window: Window) -> int:
        """Pixels of the input from the first to the last that a tile reads along a dimension."""
        return (self.alpha - 1) * window.dilation + 1

    def least_in_last(self, window: Window) -> int:
        """Results that the last tile has at least of those that begin at the same result."""
        each = tiles_along(window, self.m) // window.dilation
        return window.outputs // window.dilation - (each - 1) * self.m

    def at_depth(self, layer: Expr) -> tuple[Expr, ...]:
        """The part of an index that says which slice or layer; an image has none."""
        return (layer,) if len(self.form.windows) == 3 else ()

    def tile_transform(
        self, lead: tuple[Expr, ...], corner: tuple[Expr, Expr], guarded: bool, v: Any, place: Expr
    ) -> None:
        """V = B^T d B of one tile."""
        emitter, alpha = self.emitter, self.alpha
        (top, left), (down, right) = corner, (window.dilation for window in self.plane)
        half: list[list[Expr]] = []
        for j in range(alpha):
            column = []
            for i in range(alpha):
                index = (*lead, emitter.simplify(top + i * down), emitter.simplify(left + j * right))
                column.append(emitter.bind(self.load(index, guarded)))
            half.append([emitter.bind(value) for value in transformed(self.bt, column, emitter.bind)])
        for i in range(alpha):
            row = transformed(self.bt, [half[j][i] for j in range(alpha)], emitter.bind)
            for j, value in enumerate(row):
                emitter.put(v, place + (i * alpha + j) * self.apart, value)

    def load(self, index: tuple[Expr, ...], guarded: bool) -> Expr:
        """One element of the input; zero in the padding."""
        if not guarded:
            return self.scope.read(self.form.x, index)
        rows, columns = self.sides
        *_, i, j = index
        inside = tirx.all(i >= 0, i < rows.size, j >= 0, j < columns.size)
        return tirx.if_then_else(inside, self.scope.read_alone(self.form.x, index), const(0.0, "float32"))

    def panel(self, chunk: Expr, panel: Expr, v: Any, base: Expr, product: Any) -> None:
        """Multiplies every point of a chunk with one panel of U, then transforms and finishes its results."""
        emitter = self.emitter
        accumulators = emitter.registers(self.vectors * int(self.knobs["pixels"]), self.lanes)
        with emitter.serial(self.points) as point, emitter.serial(self.layers) as layer:
            for start, width, count in self.multiplied_together():
                with emitter.serial(count) as step:
                    first = emitter.simplify(step * width + start)
                    self.multiply((panel, point, layer), first, width, v, base, accumulators)
                    for c, r in np.ndindex(self.vectors, width):
                        with emitter.vector(self.lanes) as lane:
                            offset = self.product_at(point, c, layer, first + r) + lane
                            emitter.put(product, offset, accumulators[c * width + r][lane])
        with (
            emitter.serial(self.vectors) as c,
            emitter.serial(self.layers) as layer,
            emitter.serial(self.finished) as p,
        ):
            self.transform_output(chunk, (panel, c, layer), p, product)

    def multiplied_together(self) -> Iterator[tuple[Expr, int, Expr]]:
        """(first tile, how many, how often) of the tiles of a chunk whose sums are in registers together."""
        for run in runs(Window(self.chunk, 1, outputs=self.chunk), int(self.knobs["pixels"])):
            yield run.start, run.width, run.count

    def product_at(self, point: Expr, vector: Expr, layer: Expr, p: Expr) -> Expr:
        """Offset of a vector of M[point, vector, layer, tile]."""
        return point * self.products_apart + ((vector * self.layers + layer) * self.chunk + p) * self.lanes

    def multiply(
        self, site: tuple[Expr, Expr, Expr], first: Expr, width: int, v: Any, base: Expr, sums: list[Any]
    ) -> None:
        """M[point] of `width` tiles of a layer and one panel: a sum over all slices and channels in registers."""
        emitter, lanes, depth = self.emitter, self.lanes, self.form.depth
        panel, point, layer = site
        for total in sums[: self.vectors * width]:
            with emitter.vector(lanes) as lane:
                emitter.put(total, lane, const(0.0, "float32"))
        low, high = self.depth.tap_range(layer)
        with emitter.serial(emitter.simplify(high - low)) as step:
            tap = emitter.simplify(step + low)
            at = self.depth.position(layer, tap) * self.chunk + first
            v_at = emitter.simplify(base + point * self.apart + at * depth)
            u_tap = (panel * self.points + point) * self.depth.kernel + self.depth.kernel_tap(layer, tap)
            u_at = emitter.simplify(u_tap * depth * self.panel_lanes)
            tiles = -(-self.chunk // width)
            share = PrefetchShare(layer * tiles + first // width, self.layers * tiles, lanes * self.panel_lanes, lanes)
            pieces = share.pieces(lanes) if self.streams else 1
            with emitter.serial(depth // lanes) as block, emitter.serial(pieces) as piece:
                if self.streams:
                    behind = u_at + (depth + block * lanes) * self.panel_lanes
                    prefetch(emitter, self.weights.buffer, behind, share.part(piece, pieces))
                with emitter.serial(lanes // pieces) as inner:
                    k = emitter.simplify(block * lanes + piece * (lanes // pieces) + inner)
                    for r in range(width):
                        x = v[emitter.simplify(v_at + r * depth + k)]
                        for c in range(self.vectors):
                            at = emitter.simplify(u_at + k * self.panel_lanes + c * lanes)
                            self.add(sums[c * width + r], x, at)

    def add(self, total: Any, x: Expr, at: Expr) -> None:
        """Adds `x` times the vector of weights at `at`."""
        with self.emitter.vector(self.lanes) as lane:
            self.emitter.put(total, lane, total[lane] + x * self.weights.buffer[self.emitter.simplify(at + lane)])

    def transform_output(self, chunk: Expr, site: tuple[Expr, Expr, Expr], p: Expr, product: Any) -> None:
        """Y = A^T M A of one tile, then bias and epilogue; results beyond the edge are dropped."""
        emitter, alpha, m = self.emitter, self.alpha, self.m
        panel, c, layer = site
        image, row, column = self.tile_at(chunk, p)
        results = emitter.registers(m * m, self.lanes)
        with emitter.vector(self.lanes) as lane:
            half: list[list[Expr]] = []
            for j in range(alpha):
                points = [self.product_at(i * alpha + j, c, layer, p) for i in range(alpha)]
                values = [emitter.bind(product[emitter.simplify(at + lane)]) for at in points]
                half.append([emitter.bind(value) for value in transformed(self.at, values, emitter.bind)])
            for i in range(m):
                finished = transformed(self.at, [half[k][i] for k in range(alpha)], emitter.bind)
                for j, value in enumerate(finished):
                    emitter.put(results[i * m + j], lane, value)
        channel = emitter.simplify((panel * self.vectors + c) * self.lanes)
        for i, j in np.ndindex(m, m):
            spatial, beyond = [], []
            for tile, window, side, offset in zip((row, column), self.plane, self.sides, (i, j), strict=True):
                at = emitter.simplify(self.first_of(tile, window) + offset * window.dilation)
                spatial.append(at)
                if offset >= side.filled:
                    beyond.append(at < side.outputs)
            inside = tirx.all(*beyond) if len(beyond) > 1 else (beyond or [tirx.const(True, "bool")])[0]
            with emitter.when(inside), emitter.vector(self.lanes) as lane:
                index = (image, emitter.simplify(channel + lane), *self.at_depth(layer), *spatial)
                self.finish(index, results[i * m + j][lane])

    def finish(self, index: tuple[Expr, ...], value: Expr) -> None:
        """Bias and epilogue of one vector of results."""
        if self.form.bias >= 0:
            value = value + self.scope.read(self.form.bias, self.form.bias_index(index))
        self.scope.finish(self.nest, index, value)

    def packed_weights(self) -> Array:
        """U = G g G^T as [panel, point, tap in depth, channel, lane]."""
        form, g = self.form, np.asarray(self.g, "float64")
        place = self.scope.workload.of_kind("constant").index(form.w)
        taps = self.depth.kernel
        shape = (self.panels, self.points, taps, form.depth, self.panel_lanes)
        both = np.kron(g, g)  # G on both sides, as one matrix of [point, 9]: one product a panel

        def pack(constants: Any) -> Any:
            kernel = form.weights(constants[place]).reshape(self.panels, self.panel_lanes, form.depth, taps, 9)
            u = np.empty((self.panels, self.points, taps * form.depth * self.panel_lanes), "float32")
            for number, panel in enumerate(kernel):
                u[number] = both @ panel.transpose(3, 2, 1, 0).reshape(9, -1).astype("float64")
            return u.reshape(shape)

        return self.scope.declare_constant(f"winograd{form.w}{form.packing}", pack, shape, "float32")


def spaced(elements: int, lanes: int) -> int:
    """Elements between neighbouring points that have so many each: a vector more, where the points would meet in few
    sets of the first cache."""
    return elements + lanes if gcd(4 * elements, PAGE_BYTES) >= MEETING_BYTES else elements


def transformed(matrix: Matrix, values: Sequence[Expr], bind: Callable[[Expr], Expr]) -> list[Expr]:
    """The product of a matrix with `values`; what two rows or two columns share but for signs is computed once."""
    rows, operands = [list(row) for row in matrix], list(values)
    for a, b in pairs([list(column) for column in zip(*rows, strict=True)]):
        signs = [row[a] * row[b] for row in rows]
        if all(row[a] == row[b] or row[a] == -row[b] for row in rows) and min(signs) < 0 < max(signs):
            operands[a], operands[b] = bind(operands[a] + operands[b]), bind(operands[a] - operands[b])
            for row, sign in zip(rows, signs, strict=True):
                row[a], row[b] = (row[a], 0) if sign > 0 else (0, row[a])
    found: dict[int, Expr] = {}
    for a, b in pairs(rows):
        same = [x if x == y else 0 for x, y in zip(rows[a], rows[b], strict=True)]
        other = [x if x == -y else 0 for x, y in zip(rows[a], rows[b], strict=True)]
        if sum(map(bool, same)) > 1 and sum(map(bool, other)) > 1:
            even, odd = bind(combine(same, operands)), bind(combine(other, operands))
            found |= {a: even + odd, b: even - odd}
    return [found[number] if number in found else combine(row, operands) for number, row in enumerate(rows)]


def pairs(vectors: Sequence[Sequence[float]]) -> Iterator[tuple[int, int]]:
    """Numbers of neighbouring vectors that differ in nothing but signs."""
    for number, (one, other) in enumerate(itertools.pairwise(vectors)):
        if list(map(abs, one)) == list(map(abs, other)):
            yield number, number + 1


def combine(coefficients: Sequence[float], values: Sequence[Expr]) -> Expr:
    """The linear combination of `values`, without the zero terms, those that are added first."""
    terms = sorted(((c, v) for c, v in zip(coefficients, values, strict=True) if c), key=lambda term: term[0] < 0)
    total: Expr = const(0.0, "float32")
    for number, (coefficient, value) in enumerate(terms):
        term = value if abs(coefficient) == 1 else value * const(abs(coefficient), "float32")
        added = total + term if number else term
        total = total - term if coefficient < 0 else added
    return total
