"""The kernel of a recurrence: step by step, each a product of the old state and packed weights, and the gates.

A tile is `vectors` vectors of hidden units with all their gates, and `rows` sequences of the batch: its sums stay in
registers until the cell is computed. Two states h stand side by side, the old and the new one, so that tiles may
come in any order: with `sweep` "alternating" every second step goes through all weights backwards, and starts with
those that the step before read last, which are still in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
from tvm import tirx

from autofuse.kernels.families.recurrent.cells import Cell
from autofuse.kernels.families.recurrent.form import Recurrence
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.nest.tiles import divisor_near
from autofuse.kernels.tir.emit import Array, Emitter, Expr, const
from autofuse.kernels.tir.offsets import delinear

Knobs = Mapping[str, int | str]


@dataclass(frozen=True)
class Tile:
    """Some hidden units of some sequences at one step: `step` counts steps, `time` is the place in the sequence.

    `unit`: the first unit; `units`: how many exist; `row`: the first sequence; `panel`: of the packed weights.
    """

    step: Expr
    time: Expr
    direction: Expr
    panel: Expr
    unit: Expr
    units: int
    row: Expr
    rows: int


class RecurrenceEmitter:
    """Emits one recurrence."""

    def __init__(self, scope: Scope, form: Recurrence, knobs: Knobs) -> None:
        self.scope, self.form = scope, form
        self.emitter: Emitter = scope.emitter
        self.lanes = self.emitter.target.lanes
        self.vectors = min(int(knobs["vectors"]), -(-form.hidden // self.lanes))
        self.rows = min(int(knobs["rows"]), form.batch)
        self.unroll = min(int(knobs["unroll"]), form.hidden)
        self.alternating = knobs["sweep"] == "alternating"
        self.width = self.vectors * self.lanes
        self.full, self.rest = divmod(form.hidden, self.width)
        self.panels = self.full + (self.rest > 0)
        self.split = divisor_near(self.full, int(knobs["split"])) if self.full else 1
        self.states = len(form.directions) * form.batch
        self.packed: list[Array] = []
        self.kept: list[Array] = []
        self.sums: list[Any] = []

    def emit(self) -> None:
        """Emits the whole nest."""
        emitter, form = self.emitter, self.form
        self.packed = [self.weights(number, gates) for number, gates in enumerate(form.passes)]
        padded = self.panels * self.width
        self.h = Array(emitter.scratch(2 * self.states * padded), (2, self.directions, form.batch, padded), "float32")
        single = (self.directions, form.batch, padded)
        buffers = {"LSTM": 1, "GRU": 2 * (len(form.passes) - 1), "RNN": 0}[form.cell]
        # The c of an LSTM; of a GRU that resets before the product: z, and r h.
        self.kept = [Array(emitter.scratch(prod(single)), single, "float32") for _ in range(buffers)]
        if self.split > 1:
            self.units_in_parallel()
        else:
            self.sequences_in_parallel()

    @property
    def directions(self) -> int:
        return len(self.form.directions)

    def sequences_in_parallel(self) -> None:
        """Directions, and as many parts of the batch as there are cores for, each by itself."""
        emitter, form = self.emitter, self.form
        parts = divisor_near(form.batch // self.rows, max(1, emitter.target.cores // self.directions))
        each = form.batch // parts if form.batch % self.rows == 0 else form.batch
        with emitter.parallel(self.directions * (form.batch // each)) as number:
            direction, part = delinear(number, (self.directions, form.batch // each))
            first = emitter.simplify(part * each)
            self.sums = self.registers()
            self.start(direction, first, each)
            with emitter.serial(form.steps) as step:
                for number_of_pass in range(len(form.passes)):
                    self.units(number_of_pass, step, direction, 0, self.full, first, each)
                    if self.rest:
                        self.row_tiles(number_of_pass, step, direction, self.full, self.rest, first, each)
            self.end(direction, first, each)

    def units_in_parallel(self) -> None:
        """In each step `split` parts of the hidden units, which all threads then wait for."""
        emitter, form = self.emitter, self.form
        each = self.full // self.split
        with emitter.parallel(self.directions) as direction:
            self.start(direction, 0, form.batch)
        with emitter.serial(form.steps) as step:
            for number_of_pass in range(len(form.passes)):
                with emitter.parallel(self.directions * self.split) as number:
                    direction, part = delinear(number, (self.directions, self.split))
                    self.sums = self.registers()
                    first = emitter.simplify(part * each)
                    self.units(number_of_pass, step, direction, first, each, 0, form.batch)
                    if self.rest:
                        with emitter.when(part == self.split - 1):
                            self.row_tiles(number_of_pass, step, direction, self.full, self.rest, 0, form.batch)
        with emitter.parallel(self.directions) as direction:
            self.end(direction, 0, form.batch)

    def registers(self) -> list[Any]:
        """The sums of one tile."""
        most = max(len(gates) for gates in self.form.passes)
        return self.emitter.registers(most * self.vectors * self.rows, self.lanes)

    def units(self, number: int, step: Expr, direction: Expr, first: Expr, panels: int, row: Expr, rows: int) -> None:
        """`panels` whole panels of hidden units from `first` on."""
        if not panels:
            return
        with self.emitter.serial(panels) as place:
            panel = self.emitter.simplify(first + self.turned(step, place, panels))
            self.row_tiles(number, step, direction, panel, self.width, row, rows)

    def turned(self, step: Expr, place: Expr, count: int) -> Expr:
        """`place` of `count`, counted from the end in every second step where steps alternate."""
        return place + step % 2 * (count - 1 - 2 * place) if self.alternating and count > 1 else place

    def row_tiles(
        self, number: int, step: Expr, direction: Expr, panel: Expr, units: int, row: Expr, rows: int
    ) -> None:
        """One panel for `rows` sequences from `row` on, some at a time."""
        emitter = self.emitter
        full, rest = divmod(rows, self.rows)
        time = step
        if self.directions > 1:
            time = step + direction * (self.form.steps - 1 - 2 * step)
        elif self.form.directions[0]:
            time = self.form.steps - 1 - step
        make = partial(Tile, step, time, direction, panel, emitter.simplify(panel * self.width), units)
        with emitter.serial(full) as group:
            self.tile(number, make(emitter.simplify(row + group * self.rows), self.rows))
        if rest:
            self.tile(number, make(emitter.simplify(row + full * self.rows), rest))

    def tile(self, number: int, tile: Tile) -> None:
        """The sums of a tile, then its cells."""
        gates = self.form.passes[number]
        vectors = -(-tile.units // self.lanes)
        places = [(g, v, r) for g in range(len(gates)) for v in range(vectors) for r in range(tile.rows)]
        held = {place: self.sums[slot] for slot, place in enumerate(places)}
        for (g, v, r), sums in held.items():
            self.begin_sum(tile, gates[g], v, r, sums)
        self.products(number, tile, held)
        for r in range(tile.rows):
            for v in range(vectors):
                self.finish(number, tile, v, r, [held[g, v, r] for g in range(len(gates))])

    def begin_sum(self, tile: Tile, gate: int, vector: int, row: int, sums: Any) -> None:
        """The projected input; of a candidate that is reset after its product, the product's bias."""
        emitter, form = self.emitter, self.form
        valid = self.valid(tile, vector)
        inner = form.linear_before_reset and form.cell == "GRU" and gate == form.gates - 1
        if valid < self.lanes or (inner and form.bias < 0):
            with emitter.vector(self.lanes) as lane:
                emitter.put(sums, lane, const(0.0, "float32"))
        if inner and form.bias < 0:
            return
        with emitter.vector(valid) as lane, self.scope.point():
            unit = tile.unit + vector * self.lanes + lane
            value = (
                self.scope.read(form.bias, (tile.direction, unit))
                if inner
                else self.projected(tile, gate, unit, tile.row + row)
            )
            emitter.put(sums, lane, value)

    def projected(self, tile: Tile, gate: int, unit: Expr, row: Expr) -> Expr:
        """The input product of one gate."""
        column = (tile.direction * self.form.gates + gate) * self.form.hidden + unit
        return self.scope.read(self.form.projected, self.form.at_step(tile.time, row, column))

    def valid(self, tile: Tile, vector: int) -> int:
        """Lanes of a vector that are hidden units."""
        return min(self.lanes, tile.units - vector * self.lanes)

    def products(self, number: int, tile: Tile, held: Mapping[tuple[int, int, int], Any]) -> None:
        """Adds the products of the old state (or of what was reset of it) and the packed weights."""
        emitter, weights = self.emitter, self.packed[number]

        def take(k: Expr) -> None:
            with self.scope.point():
                old = [emitter.bind(self.source(number, tile, r, k)) for r in range(tile.rows)]
                for (g, v, r), sums in held.items():
                    with emitter.vector(self.lanes) as lane:
                        index = (tile.direction, tile.panel, k, g, v * self.lanes + lane)
                        emitter.put(sums, lane, sums[lane] + old[r] * emitter.load(weights, index))

        full, rest = divmod(self.form.hidden, self.unroll)
        with emitter.serial(full) as group:
            group = self.turned(tile.step, group, full)
            for part in range(self.unroll):
                take(emitter.simplify(group * self.unroll + part))
        for part in range(rest):
            take(full * self.unroll + part)

    def source(self, number: int, tile: Tile, row: int, k: Expr) -> Expr:
        """Element k of what the weights of a pass are multiplied with."""
        if number == 0:
            return self.emitter.load(self.h, (tile.step % 2, tile.direction, tile.row + row, k))
        return self.emitter.load(self.kept[1], (tile.direction, tile.row + row, k))

    def finish(self, number: int, tile: Tile, vector: int, row: int, sums: list[Any]) -> None:
        """The cell of one vector of hidden units; a sequence that has ended keeps its state, and yields zeros."""
        emitter, form = self.emitter, self.form
        if form.lengths < 0:
            self.cells(number, tile, vector, row, sums)
            return
        running = tile.time < emitter.bind(self.scope.read(form.lengths, (tile.row + row,)))
        with emitter.when(running):
            self.cells(number, tile, vector, row, sums)
        if number == len(form.passes) - 1:
            with emitter.when(tirx.Not(running)), emitter.vector(self.valid(tile, vector)) as lane:
                unit, at = tile.unit + vector * self.lanes + lane, tile.row + row
                old = emitter.load(self.h, (tile.step % 2, tile.direction, at, unit))
                self.keep(tile, at, unit, old, const(0.0, "float32"))

    def cells(self, number: int, tile: Tile, vector: int, row: int, sums: list[Any]) -> None:
        """The cell of one vector; of both directions at once where these have the same activations."""
        for direction in self.apart(tile.direction):
            with direction as which, self.emitter.vector(self.valid(tile, vector)) as lane, self.scope.point():
                cell = Cell(self.form, self.form.activations[which], self.emitter.bind)
                unit = tile.unit + vector * self.lanes + lane
                self.cell(cell, number, tile, unit, tile.row + row, [buffer[lane] for buffer in sums])

    def apart(self, direction: Expr) -> Iterator[Any]:
        """Contexts in which the activations are those of the direction that they give."""

        @contextmanager
        def only(number: int | None) -> Iterator[int]:
            if number is None:
                yield 0
                return
            with self.emitter.when(direction == number):
                yield number

        same = len(set(self.form.activations)) == 1
        return map(only, [None] if same else range(self.directions))

    def cell(self, cell: Cell, number: int, tile: Tile, unit: Expr, row: Expr, sums: list[Expr]) -> None:
        """New states of one vector of hidden units."""
        emitter, form = self.emitter, self.form
        state = (tile.direction, row, unit)
        old = emitter.load(self.h, (tile.step % 2, *state))
        if form.cell == "LSTM":
            h, c = cell.lstm(sums, emitter.load(self.kept[0], state), self.peepholes(tile, unit))
            emitter.store(self.kept[0], state, c)
            self.keep(tile, row, unit, emitter.bind(h))
        elif form.cell == "RNN":
            self.keep(tile, row, unit, cell.rnn(sums[0]))
        elif form.linear_before_reset:
            r = cell.activated(0, sums[1])
            candidate = self.projected(tile, form.gates - 1, unit, row) + r * sums[2]
            self.keep(tile, row, unit, emitter.bind(cell.gru(cell.activated(0, sums[0]), candidate, old)))
        elif number == 0:
            emitter.store(self.kept[0], state, cell.activated(0, sums[0]))
            emitter.store(self.kept[1], state, cell.reset_product(sums[1], old))
        else:
            self.keep(tile, row, unit, emitter.bind(cell.gru(emitter.load(self.kept[0], state), sums[0], old)))

    def peepholes(self, tile: Tile, unit: Expr) -> list[Expr] | None:
        """Those of i, o and f."""
        form = self.form
        if form.peepholes < 0:
            return None
        return [self.scope.read(form.peepholes, (tile.direction, gate * form.hidden + unit)) for gate in range(3)]

    def keep(self, tile: Tile, row: Expr, unit: Expr, h: Expr, y: Expr | None = None) -> None:
        """Stores a new h, and the result of the step (`y`, where that is not h)."""
        emitter, first = self.emitter, self.form.output(0)
        emitter.store(self.h, ((tile.step + 1) % 2, tile.direction, row, unit), h)
        if first >= 0:
            index = self.form.at_step(tile.time, row, tile.direction, unit)
            emitter.store(self.scope.arrays[first], index, h if y is None else y)

    def start(self, direction: Expr, row: Expr, rows: int) -> None:
        """States before the first step."""
        form = self.form
        self.each(row, rows, partial(self.start_state, direction, self.h, (0,), form.initial_h))
        if form.cell == "LSTM":
            self.each(row, rows, partial(self.start_state, direction, self.kept[0], (), form.initial_c))

    def start_state(
        self, direction: Expr, buffer: Array, head: tuple[int, ...], value: int, row: Expr, unit: Expr
    ) -> None:
        given = (
            self.scope.read(value, self.form.of_state(direction, row, unit)) if value >= 0 else const(0.0, "float32")
        )
        self.emitter.store(buffer, (*head, direction, row, unit), given)

    def end(self, direction: Expr, row: Expr, rows: int) -> None:
        """States after the last step."""
        states: list[tuple[int, Array, tuple[int, ...]]] = [(1, self.h, (self.form.steps % 2,))]
        if self.form.cell == "LSTM":
            states.append((2, self.kept[0], ()))
        for place, buffer, head in states:
            if self.form.output(place) >= 0:
                self.each(row, rows, partial(self.end_state, direction, buffer, head, self.form.output(place)))

    def end_state(
        self, direction: Expr, buffer: Array, head: tuple[int, ...], value: int, row: Expr, unit: Expr
    ) -> None:
        last = self.emitter.load(buffer, (*head, direction, row, unit))
        if self.form.lengths >= 0:  # the last state of an empty sequence is zero, in ONNX Runtime
            empty = self.scope.read(self.form.lengths, (row,)) < const(1, "int32")
            last = tirx.Select(empty, const(0.0, "float32"), last)
        self.emitter.store(self.scope.arrays[value], self.form.of_state(direction, row, unit), last)

    def each(self, row: Expr, rows: int, visit: Callable[[Expr, Expr], None]) -> None:
        """Calls `visit` with the place of every vector of a state."""
        emitter, lanes = self.emitter, self.lanes
        full, rest = divmod(self.form.hidden, lanes)
        with emitter.serial(rows) as at:
            here = emitter.simplify(row + at)
            if full:
                with emitter.serial(full) as vector, emitter.vector(lanes) as lane, self.scope.point():
                    visit(here, vector * lanes + lane)
            if rest:
                with emitter.vector(rest) as lane, self.scope.point():
                    visit(here, full * lanes + lane)

    def weights(self, number: int, gates: tuple[int, ...]) -> Array:
        """Recurrent weights as [direction, panel, k, gate, unit]: packed ahead, or at run time when computed."""
        form = self.form
        shape = (self.directions, self.panels, form.hidden, len(gates), self.width)
        if self.scope.workload.values[form.weights].kind == "constant":
            place = self.scope.workload.of_kind("constant").index(form.weights)
            name = "_".join(map(str, (f"recurrent{form.weights}", number, *shape)))
            return self.scope.declare_constant(
                name, lambda constants: pack_weights(constants[place], form.gates, gates, shape), shape, "float32"
            )
        return self.pack_at_run_time(gates, shape)

    def pack_at_run_time(self, gates: tuple[int, ...], shape: tuple[int, ...]) -> Array:
        """Copies computed weights into panels, zero beyond their edges."""
        emitter, form = self.emitter, self.form
        array = Array(emitter.scratch(prod(shape)), shape, "float32")
        with emitter.parallel(self.directions * self.panels) as task, emitter.serial(form.hidden) as k:
            direction, panel = delinear(task, (self.directions, self.panels))
            for place, gate in enumerate(gates):
                with emitter.serial(self.width) as column, self.scope.point():
                    unit = panel * self.width + column
                    inside = tirx.Min(unit, tirx.IntImm("int32", form.hidden - 1)) if self.rest else unit
                    value = self.scope.read_alone(form.weights, (direction, gate * form.hidden + inside, k))
                    if self.rest:
                        value = tirx.Select(unit < form.hidden, value, const(0.0, "float32"))
                    emitter.store(array, (direction, panel, k, place, column), value)
        return array


def pack_weights(weights: Any, count: int, gates: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Weights [D, `count` * H, H] of the gates that are given as [direction, panel, k, gate, unit], zero beyond."""
    directions, panels, hidden, _, width = shape
    parts = np.asarray(weights, "float32").reshape(directions, count, hidden, hidden)[:, list(gates)]
    padded = np.zeros((directions, len(gates), panels * width, hidden), "float32")
    padded[:, :, :hidden] = parts
    cut = padded.reshape(directions, len(gates), panels, width, hidden)
    return np.ascontiguousarray(cut.transpose(0, 2, 4, 1, 3))
