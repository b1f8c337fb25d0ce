"""The kernel of a recurrence over any number of steps: LSTM, GRU or RNN after their input products.

Steps are counted when the kernel runs. It is the kernel of a fixed number of them otherwise, whose loop over time has
that count. Of several sequences some at a time go through the steps together, so that each of these reads the weights
once for all of them; the last ones are moved back, and computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import tvm
import tvm.script.ir_builder.tirx as builder
from tvm import tirx

from autofuse.device.target import Target
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis
from autofuse.kernels.build import Constants, Kernel
from autofuse.kernels.families.protocol import Schedule
from autofuse.kernels.families.recurrent.emitter import RecurrenceEmitter
from autofuse.kernels.families.recurrent.family import RECURRENT, together
from autofuse.kernels.families.recurrent.form import Recurrence, recurrence_form
from autofuse.kernels.nest.evaluate import Scope
from autofuse.kernels.open_sizes.open_function import Argument, Arguments, open_function, whole_arrays
from autofuse.kernels.open_sizes.open_rows import tile_counts
from autofuse.kernels.schedule.covers import Cover
from autofuse.kernels.tir.emit import Array, Emitter, Expr, Index
from autofuse.kernels.workload.workload import Workload

GROUPS = 4
"""Tiles of sequences that a large tile has, for threads to share."""


@dataclass(frozen=True)
class SequenceArray(Array):
    """What some sequences have, with `apart` elements from one to the next; `first`: the number of the first one.

    The other axes are those of one sequence, of which the `shape` is, but for the axis of the batch.
    """

    first: Expr = 0
    apart: Expr = 0

    def offset(self, index: Index) -> Expr:
        """See Array."""
        row, *others = index
        start = (self.first + row) * self.apart
        return start + super().offset(tuple(others)) if others else start


def recurrence_kernel(
    workload: Workload,
    rows: Mapping[int, OpenAxis],
    target: Target,
    schedule: Schedule,
    repeated: Collection[int] = (),
    along: Mapping[int, int] | None = None,
) -> Kernel:
    """The kernel of `workload`, one recurrence over all rows, at the largest size, under the `schedule` of that.

    `rows`: the inputs and outputs that have the open axis, by their index. `repeated`: what each sequence has of its
    own; see `open_function`. InputError for another layout than the plain one.
    """
    (operator,) = workload.operators
    form, knobs = recurrence_form(workload, operator), RECURRENT.chosen(schedule)
    most = form.steps

    def emit(given: Arguments, constants: Constants) -> None:
        steps = builder.bind(given.count * rows[form.projected].factor)
        counted = replace(form, steps=steps)
        if given.repeats is not None and form.batch == 1:
            _Sequences(workload, counted, most, target, knobs, given, constants).emit()
            return
        with given.each() as arguments:
            arrays = whole_arrays(workload, arguments)
            scope = Scope(workload, _emitter(target, steps, most), arrays, constants.declare)
            RecurrenceEmitter(scope, counted, knobs).emit()

    return open_function(workload, rows, emit, repeated=repeated, along=along)


def _emitter(target: Target, steps: Expr, most: int, alone: bool = False) -> Emitter:
    emitter = Emitter(target, alone=alone)
    emitter.analyzer.bind(steps, tvm.ir.Range(1, most + 1))
    return emitter


class _Sequences:
    """Emits a recurrence over any number of sequences, each of which stands behind the one before."""

    def __init__(
        self,
        workload: Workload,
        form: Recurrence,
        most: int,
        target: Target,
        knobs: Mapping[str, int | str],
        given: Arguments,
        constants: Constants,
    ) -> None:
        self.workload, self.form, self.most, self.target = workload, form, most, target
        self.knobs, self.given, self.constants = knobs, given, constants

    def emit(self) -> None:
        """Tiles of so many sequences as are worth it, one after the other."""
        several = together(self.form, self.knobs, self.target)
        rows = int(several["rows"])
        lengths = sorted({GROUPS * rows, rows, 2, 1} if rows > 1 else {1}, reverse=True)
        count, begin = self.given.repeats, tirx.const(0, "int32")
        cover = Cover.ruled(lengths, partial(tile_counts, lengths))
        for number, whole in enumerate(cover.emitted(count)):
            length = lengths[number]
            with builder.serial(0, whole) as step:
                first = builder.bind(tirx.min(begin + step * length, count - length))
                self.tile(first, length, several if length > 1 else self.knobs)
            begin = builder.bind(begin + whole * length)

    def tile(self, first: Expr, length: int, knobs: Mapping[str, int | str]) -> None:
        """So many sequences from number `first` on."""
        form = replace(self.form, batch=length, batch_first=True)
        emitter = _emitter(self.target, form.steps, self.most)
        arrays = {index: self.array(index, one, first) for index, one in self.given.one.items()}
        scope = Scope(self.workload, emitter, arrays, self.constants.declare)
        for value in (form.initial_h, form.initial_c, form.lengths):
            if value >= 0 and value not in scope.ready:  # a constant, which all have
                scope.arrays[value] = self.alike(value, scope.constant(value).buffer)
                scope.ready.add(value)
        RecurrenceEmitter(scope, form, knobs).emit()

    def array(self, index: int, argument: Argument, first: Expr) -> Array:
        """What a tile sees of an input or output."""
        value, flat = self.workload.values[index], argument.flat(prod(self.workload.values[index].shape))
        if index not in (*self.form.inputs[:1], *self.form.inputs[3:6], *self.form.outputs):
            return Array(flat, value.shape, value.dtype)
        if index not in self.given.elements:
            return self.alike(index, flat)
        return replace(self.alike(index, flat), first=first, apart=self.given.elements[index])

    def alike(self, index: int, buffer: Any) -> SequenceArray:
        """What is the same for all sequences."""
        shape = self.workload.values[index].shape
        behind = {self.form.lengths: 0, self.form.output(0): 2}.get(index, 1)
        batch = 0 if self.form.batch_first else behind
        return SequenceArray(buffer, (*shape[:batch], *shape[batch + 1 :]), self.workload.values[index].dtype)
