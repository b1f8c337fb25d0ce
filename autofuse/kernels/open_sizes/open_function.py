"""The function around every kernel over an open number of rows: its arguments, and how many rows they have.

Where the library takes any number of sequences, too, an argument is a tensor of one sequence for each of them, one
behind the other, or one that all of them share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import tvm.script.ir_builder.tirx as builder
from tvm import tirx
from tvm.script.ir_builder import IRBuilder

from autofuse.errors import InputError
from autofuse.graph.transform.open_sizes.open_graph import OpenAxis
from autofuse.kernels.build import FUNCTION_ATTRIBUTES, Constants, Kernel, complete
from autofuse.kernels.tir.emit import Array, Expr, Index
from autofuse.kernels.workload.workload import Workload


@dataclass(frozen=True)
class Argument:
    """What belongs to one sequence of an input or output: from element `start` of `buffer` on, with the extents
    `shape`."""

    buffer: Any
    shape: tuple[Expr, ...]
    start: Expr = 0

    def flat(self, elements: int, start: Expr = 0) -> Any:
        """So many of its elements, from number `start` on."""
        place = self.start + start
        at = {} if isinstance(place, int) and not place else {"elem_offset": place}
        return builder.decl_buffer((elements,), self.buffer.dtype, data=self.buffer.data, align=64, **at)


@dataclass
class Arguments:
    """The inputs and outputs of a kernel, by index, as they are in one sequence.

    `counts`: rows of it, by the number of their length. `repeats`: how many sequences there are, and `elements` from
    one to the next in each tensor that every sequence has of its own; None where the kernel has one alone.
    """

    one: dict[int, Argument] = field(default_factory=dict)
    counts: dict[int, Expr] = field(default_factory=dict)
    repeats: Expr = None
    elements: dict[int, Expr] = field(default_factory=dict)

    @property
    def count(self) -> Expr:
        """How many rows there are, in a kernel of one length; None where it has none."""
        return next(iter(self.counts.values()), None)

    def of(self, sequence: Expr) -> dict[int, Argument]:
        """The arguments of sequence number `sequence`."""
        return {
            index: Argument(one.buffer, one.shape, sequence * self.elements[index]) if index in self.elements else one
            for index, one in self.one.items()
        }

    @contextmanager
    def each(self) -> Iterator[dict[int, Argument]]:
        """One sequence after the other, where there are several."""
        if self.repeats is None:
            yield self.one
            return
        with builder.serial(0, self.repeats) as sequence:
            yield self.of(sequence)


Emit = Callable[[Arguments, Constants], None]
"""Makes a body of its arguments, and a place for packed constants."""


def open_function(
    workload: Workload,
    rows: Mapping[int, OpenAxis],
    emit: Emit,
    kinds: Sequence[str] = ("input", "output"),
    repeated: Collection[int] = (),
    apart: Mapping[int, int] | None = None,
    along: Mapping[int, int] | None = None,
) -> Kernel:
    """A kernel whose body `emit` makes. `rows`: the inputs and outputs, by index, that have an open axis. `kinds`: of
    its arguments: a kernel that writes into an input is given no outputs. `repeated`: those of which each sequence has
    its own, one behind the other, or so many elements `apart` where there is room between them; their number is a
    further axis, or the extent of one that they have, which is 1 in a sequence: `along`, by index.

    InputError when an open axis is not where rows lie behind one another.
    """
    constants = Constants()
    with IRBuilder() as ib, builder.prim_func(s_tir=True):
        builder.func_name("main")
        builder.func_attr(FUNCTION_ATTRIBUTES)
        inputs, outputs, arguments = _arguments(workload, rows, kinds, repeated, along or {})
        arguments.elements = {
            index: (apart or {}).get(index) or builder.bind(prod(arguments.one[index].shape))
            for index in arguments.one
            if index in repeated
        }
        emit(arguments, constants)
    return Kernel(complete(ib.get(), inputs, constants.parameters, outputs), constants.packed)


def unless_empty(kernel: Kernel, outputs: int) -> Kernel:
    """A kernel with so many outputs, which does nothing where none of them has an element.

    Kernels count on one row at least: they share work out among rows, and divide by their number.
    """
    function = kernel.function
    extents = [[size for size in one.ty.shape if isinstance(size, tirx.Var)] for one in function.params[-outputs:]]
    if not all(extents):
        return kernel
    some = [tirx.all(*(size > 0 for size in sizes)) for sizes in extents]
    body = tirx.IfThenElse(tirx.any(*some), function.body, None)
    return Kernel(tirx.PrimFunc(function.params, body, function.ret_type, function.attrs), kernel.pack)


@dataclass(frozen=True)
class LongArray(Array):
    """An array with an open axis behind others: `extents` are those that it has when the kernel runs."""

    extents: tuple[Expr, ...] = ()

    def offset(self, index: Index) -> Expr:
        """See Array."""
        place: Expr = 0
        for position, extent in zip(index, self.extents, strict=True):
            place = place * extent + position
        return place


@dataclass(frozen=True)
class TailArray(Array):
    """An array of which the last part along `axis` is meant: what stands `before` it there is passed over."""

    axis: int = 0
    before: Expr = 0

    def offset(self, index: Index) -> Expr:
        """See Array."""
        axis = self.axis
        return super().offset((*index[:axis], index[axis] + self.before, *index[axis + 1 :]))


def whole_arrays(workload: Workload, arguments: Mapping[int, Argument], wide: Collection[int] = ()) -> dict[int, Array]:
    """The arguments of a kernel that is of all rows at once, as they are at the largest size.

    `wide`: those that lie in memory as they do at that size, so that there is room between their rows at smaller ones.
    InputError for another layout than the plain one, which such kernels do not know.
    """
    found = {}
    for index, argument in arguments.items():
        value = workload.values[index]
        if value.block or value.is_half:
            raise InputError(f"a kernel of all rows at once has no layout {value.layout!r}")
        flat = argument.flat(prod(value.shape))
        found[index] = Array(flat, value.shape, value.dtype)
        extents = argument.shape
        behind = (prod(value.shape[:axis]) > 1 for axis, extent in enumerate(extents) if isinstance(extent, tirx.Var))
        if index not in wide and any(behind):
            found[index] = LongArray(flat, value.shape, value.dtype, extents=extents)
    return found


def _arguments(
    workload: Workload,
    rows: Mapping[int, OpenAxis],
    kinds: Sequence[str],
    repeated: Collection[int],
    along: Mapping[int, int],
) -> tuple[list[Any], list[Any], Arguments]:
    """The inputs and outputs of a function that is being built, and the number of rows, read when it runs.

    Rows are counted at the outputs, where there are any: an input may be longer.
    """
    made: dict[str, list[Any]] = {"input": [], "output": []}
    found = Arguments()
    for kind in kinds:
        for index in workload.of_kind(kind):
            value = workload.values[index]
            shape: list[Expr] = list(value.physical_shape)
            where = rows.get(index)
            if where is not None:
                if value.block and where.axis:
                    raise InputError(f"layout {value.layout!r} parts rows along axis {where.axis}")
                shape[where.axis] = extent = tirx.Var(f"rows{index}", "int32")
                if where.size not in found.counts or kind == "output":
                    beyond = extent - where.more if where.more else extent
                    found.counts[where.size] = beyond if where.factor == 1 else beyond // where.factor
            lead = [tirx.Var(f"sequences{index}", "int32")] if index in repeated else []
            found.repeats = lead[0] if lead else found.repeats
            stands = [*lead, *shape]
            if lead and index in along:
                stands = [*shape]
                stands[along[index]] = lead[0]
            buffer = builder.arg(
                f"{kind}{index}",
                builder.buffer(stands, value.stored_dtype, align=64),
            )
            found.one[index] = Argument(buffer, tuple(shape))
            made[kind].append(buffer)
    return made["input"], made["output"], found
