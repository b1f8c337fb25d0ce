"""Kernels to programs: Relax functions that call exactly one TIR function a group, in an order that can run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.compile.calls import UPPER_BOUND, weight_name
from autofuse.backend.compile.objects import Symbols
from autofuse.backend.container.open_spec import AxisSpec
from autofuse.backend.container.stored_axes import own_tensors, stored_axes
from autofuse.errors import PlanError
from autofuse.graph.model import Graph
from autofuse.graph.transform.open_sizes.stored_shapes import OpenImages, OpenRows
from autofuse.kernels.tir.loops import is_parallel
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.packing import as_stored
from autofuse.kernels.workload.workload import HALF, PLAIN, BoundWorkload, Value, Workload

Array = NDArray[np.generic]


class BuiltKernel(Protocol):
    """A kernel as the kernels part builds it: see `autofuse.kernels.build.Kernel`."""

    @property
    def function(self) -> Any:
        """TIR function of inputs (as stored), packed constants, outputs (as stored)."""

    @property
    def pack(self) -> Callable[[Sequence[Array]], list[Array]]:
        """The workload's constants, in its order -> the packed constant arguments."""


BoundKernel = tuple[BoundWorkload, BuiltKernel | None]
"""A group and its kernel; None for a group that is a view."""
Made = list[tuple[Graph, list[BoundKernel]]]
"""Graphs, and the kernel of each group of each."""


@dataclass(frozen=True)
class Step:
    """A call of the kernel `symbol`: tensors by name, weights by their places in `AssembledProgram.weights`."""

    symbol: str
    inputs: tuple[str, ...]
    weights: tuple[int, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class AssembledProgram:
    """One Relax function `entry` over a graph's inputs, then its weights; it returns a tuple of the graph's outputs.

    `weights`: positions in `Assembly.weights`. `symbols`: name of the TIR function behind each group that is
    no view, in the order of the calls, with its position among the given groups. `copied`: outputs (by
    position) that share their memory with an input, a weight or an earlier output. `parallel`: one of its kernels
    shares its work among threads.

    The same without Relax: `steps` in their order; how each tensor is `stored`, and the tensor whose memory it lies in
    (`storage`: itself, but for views); `weight_values`, as long as `weights`: how each weight is stored; `constants`:
    places among them of outputs that are constants, and of constants that depend on the open size; `axes`: of tensors
    as they are stored, those that follow an open size; `repeated`: tensors that each sequence has of its own, in front
    of whose axes stands how many there are.
    """

    entry: str
    weights: tuple[int, ...]
    symbols: tuple[tuple[int, str], ...]
    copied: tuple[int, ...]
    parallel: bool
    steps: tuple[Step, ...]
    stored: Mapping[str, Value]
    storage: Mapping[str, str]
    weight_values: tuple[Value, ...]
    constants: Mapping[str, int]
    axes: Mapping[str, tuple[AxisSpec, ...]] = field(default_factory=dict)
    repeated: Collection[str] = ()


@dataclass(frozen=True, eq=False)
class Assembly:
    """`module`: one Relax function a program. `symbols`, `copied`: the first program's."""

    module: Any
    weights: tuple[Array, ...]
    programs: tuple[AssembledProgram, ...]

    @property
    def symbols(self) -> tuple[tuple[int, str], ...]:
        """See `AssembledProgram`."""
        return self.programs[0].symbols

    @property
    def copied(self) -> tuple[int, ...]:
        """See `AssembledProgram`."""
        return self.programs[0].copied


def assemble(graph: Graph, groups: Sequence[BoundKernel]) -> Assembly:
    """The program of `graph` (already folded) from one kernel a group.

    PlanError when a tensor is read that no group makes, or in another layout than it is made in.
    """
    return assemble_all([(graph, groups)])


def assemble_all(
    parts: Sequence[tuple[Graph, Sequence[BoundKernel]]],
    symbols: Symbols | None = None,
    rows: Sequence[OpenRows | OpenImages | None] = (),
) -> Assembly:
    """One program a part, "main" and then "main1", "main2", ...; equal kernels and equal weights are shared.

    `symbols`: names that kernels have already. `rows`: what stays open in each program, whose kernels take any size;
    None in one of fixed sizes.
    """
    from tvm import relax

    builder = relax.BlockBuilder()
    functions, weights = _Functions(builder, symbols or Symbols()), _Weights(len(parts) > 1 or bool(rows))
    programs = []
    for number, (graph, groups) in enumerate(parts):
        program = _Program(graph, builder, functions, weights, rows[number] if rows else None)
        programs.append(program.add(groups).finish(f"main{number or ''}"))
    return Assembly(builder.get(), tuple(weights.arrays), tuple(programs))


class _Weights:
    """Weights of all programs. `compared`: an equal one is found again by its content."""

    def __init__(self, compared: bool) -> None:
        self.arrays: list[Array] = []
        self._compared = compared
        self._known: dict[object, int] = {}

    def add(self, array: Array) -> int:
        """Position of the weight."""
        array = np.asarray(array, order="C")
        if not self._compared:
            self.arrays.append(array)
            return len(self.arrays) - 1
        digest = hashlib.blake2b(array.reshape(-1).view(np.uint8).data).digest()
        position = self._known.setdefault((array.shape, str(array.dtype), digest), len(self.arrays))
        if position == len(self.arrays):
            self.arrays.append(array)
        return position


class _Program:
    def __init__(
        self, graph: Graph, builder: Any, functions: _Functions, weights: _Weights, rows: OpenRows | OpenImages | None
    ) -> None:
        from tvm import relax, tirx

        self._relax = relax
        self._rows = rows
        self._bounds = {} if rows is None else rows.bounds
        self._sizes = [tirx.Var(name, "int64") for name in self._bounds]
        self._builder = builder
        self._graph = graph
        self._held: dict[str, Any] = {}
        self._stored: dict[str, Value] = {}
        self._storage: dict[str, str] = {}
        self._functions = functions
        self._weights = weights
        self._positions: list[int] = []
        self._weight_variables: list[Any] = []
        self._weight_values: list[Value] = []
        self._constants: dict[str, int] = {}
        self._packed: dict[tuple[str, str, tuple[str, ...]], list[int]] = {}
        parts = {} if rows is None else rows.parts
        given = [name for name in graph.inputs if name not in parts]
        self._inputs = [self._input(i, _plain(graph, name), name) for i, name in enumerate(given)]
        self._calls: list[Callable[[], None]] = []
        self._symbols: list[tuple[int, str]] = []
        self._parallel = False
        self._steps: list[Step] = []
        for name, variable in zip(given, self._inputs, strict=True):
            self._define(name, variable, _plain(graph, name), name)
        for name, array in parts.items():
            self._constants[name] = place = self._weight(array)
            self._define(name, self._weight_variables[place], _plain(graph, name), name)

    def add(self, groups: Sequence[BoundKernel]) -> _Program:
        """Plan the calls of all groups; functions and weights are made now, the calls emitted by `finish`."""
        for position in _runnable_order(self._graph, [bound for bound, _ in groups]):
            bound, kernel = groups[position]
            if is_free_reshape(bound.workload):
                self._calls.append(lambda bound=bound: self._emit_view(bound))  # type: ignore[misc]
                continue
            if kernel is None:
                raise PlanError(f"group {bound.workload.label} is no view and has no kernel")
            function, symbol = self._functions.add(kernel.function, bound.workload.label)
            self._parallel = self._parallel or is_parallel(kernel.function)
            places = self._pack(bound, kernel, symbol)
            weights = [self._weight_variables[place] for place in places]
            self._symbols.append((position, symbol))
            self._steps.append(Step(symbol, bound.inputs, tuple(places), bound.outputs))
            self._calls.append(
                lambda bound=bound, function=function, weights=weights: self._emit_call(bound, function, weights)  # type: ignore[misc]
            )
            if self._rows is None:
                given = [self._weight_values[place] for place in places]
                self._calls.append(partial(_refuse_misfit, kernel.function, bound.workload, given))
        for name in self._graph.outputs:
            if name in self._graph.constants and name not in self._held:
                value = _plain(self._graph, name)
                self._constants[name] = place = self._weight(as_stored(self._graph.constants[name], value))
                self._define(name, self._weight_variables[place], value, name)
        return self

    def finish(self, entry: str) -> AssembledProgram:
        """Emit the function."""
        relax = self._relax
        attributes = None if self._rows is None else {UPPER_BOUND: self._bounds}
        with self._builder.function(entry, [*self._inputs, *self._weight_variables], attributes):
            for name in (name for name in self._graph.inputs if name not in self._constants):
                value = self._stored[name]
                self._held[name] = self._reshaped(self._held[name], name, value, self._shape(value, name))
            for call in self._calls:
                call()
            outputs = [self._returned(name, _plain(self._graph, name)) for name in self._graph.outputs]
            self._builder.emit_func_output(relax.Tuple(outputs))
        return AssembledProgram(
            entry, tuple(self._positions), tuple(self._symbols), self._copied(), self._parallel, tuple(self._steps),
            self._stored, self._storage, tuple(self._weight_values), self._constants, stored_axes(self._rows),
            own_tensors(self._rows),
        )  # fmt: skip

    def _emit_call(self, bound: BoundWorkload, function: Any, weights: list[Any]) -> None:
        relax, workload = self._relax, bound.workload
        inputs = [workload.values[i] for i in workload.of_kind("input")]
        outputs = [workload.values[i] for i in workload.of_kind("output")]
        arguments = [self._read(name, value) for name, value in zip(bound.inputs, inputs, strict=True)]
        types = [self._type(value, name) for name, value in zip(bound.outputs, outputs, strict=True)]
        given, made_types = relax.Tuple([*arguments, *weights]), types if len(types) > 1 else types[0]
        in_place = self._rows is not None and bound.outputs[0] in self._rows.caches
        if in_place:
            call = relax.op.call_tir_inplace(function, given, 0, made_types)
        else:
            call = relax.call_tir(function, given, made_types)
        made = self._builder.emit(call)
        fields = [made] if len(types) == 1 else [self._builder.emit(made[i]) for i in range(len(types))]
        for name, variable, value in zip(bound.outputs, fields, outputs, strict=True):
            self._define(name, variable, value, name)

    def _emit_view(self, bound: BoundWorkload) -> None:
        workload = bound.workload
        source = self._read(bound.inputs[0], workload.values[workload.of_kind("input")[0]])
        for name, index in zip(bound.outputs, workload.of_kind("output"), strict=True):
            value = workload.values[index]
            view = self._builder.emit(self._relax.op.reshape(source, self._shape(value, name)))
            self._define(name, view, value, self._storage[bound.inputs[0]])

    def _returned(self, name: str, value: Value) -> Any:
        """An output, with the shape that it has in the model."""
        return self._reshaped(self._read(name, value), name, value, self._outside(value, name))

    def _reshaped(self, variable: Any, name: str, value: Value, shape: tuple[Any, ...]) -> Any:
        """An input or output between the shape that it has in the model and that in which it is stored."""
        if len(self._shape(value, name)) == len(self._outside(value, name)):
            return variable
        return self._builder.emit(self._relax.op.reshape(variable, shape))

    def _define(self, name: str, variable: Any, value: Value, storage: str) -> None:
        self._held[name], self._stored[name], self._storage[name] = variable, value, storage

    def _read(self, name: str, value: Value) -> Any:
        """The variable that holds tensor `name`, which must be stored as `value` says."""
        if name not in self._held:
            raise PlanError(f"{self._graph.name}: no group makes tensor {name!r}")
        stored = self._stored[name]
        if (stored.shape, stored.dtype, stored.layout) != (value.shape, value.dtype, value.layout):
            made, read = (f"{v.dtype}{list(v.shape)} {v.layout}" for v in (stored, value))
            raise PlanError(f"{self._graph.name}: tensor {name!r} is made as {made} but read as {read}")
        return self._held[name]

    def _pack(self, bound: BoundWorkload, kernel: BuiltKernel, symbol: str) -> list[int]:
        """Places of a call's weights; a kernel called again on the same constants shares them.

        Workloads that differ in their literals may share one function, and need arguments of their own.
        """
        key = (symbol, bound.workload.key, bound.constants)
        if key not in self._packed:
            constants = [np.asarray(self._graph.constants[name]) for name in bound.constants]
            self._packed[key] = [self._weight(array) for array in kernel.pack(constants)]
        return self._packed[key]

    def _weight(self, array: Array) -> int:
        """Place of a weight among the program's."""
        value = Value("constant", tuple(array.shape), str(array.dtype))
        variable = self._variable(weight_name(len(self._positions)), value, "")
        self._positions.append(self._weights.add(array))
        self._weight_variables.append(variable)
        self._weight_values.append(value)
        return len(self._positions) - 1

    def _input(self, number: int, value: Value, name: str) -> Any:
        kind = self._relax.TensorType(self._outside(value, name), value.stored_dtype)
        return self._relax.Var(f"input{number}", kind)

    def _outside(self, value: Value, name: str) -> tuple[Any, ...]:
        """The shape of an input or output in the model."""
        if self._rows is None:
            return value.physical_shape
        return self._rows.outside(name, value.physical_shape, self._sizes)

    def _variable(self, variable: str, value: Value, name: str) -> Any:
        return self._relax.Var(variable, self._type(value, name))

    def _type(self, value: Value, name: str) -> Any:
        return self._relax.TensorType(self._shape(value, name), value.stored_dtype)

    def _shape(self, value: Value, name: str) -> tuple[Any, ...]:
        """How tensor `name` is stored: an open axis as an expression of the open size."""
        if self._rows is None:
            return value.physical_shape
        return self._rows.shape(name, value.physical_shape, self._sizes)

    def _copied(self) -> tuple[int, ...]:
        """Outputs whose memory belongs to an input, a constant or an earlier output."""
        taken = {*self._graph.inputs, *self._graph.constants}
        found = []
        for position, name in enumerate(self._graph.outputs):
            if self._storage[name] in taken:
                found.append(position)
            taken.add(self._storage[name])
        return tuple(found)


class _Functions:
    """TIR functions of the module, each once."""

    def __init__(self, builder: Any, symbols: Symbols) -> None:
        self._builder, self._symbols = builder, symbols
        self._variables: dict[str, Any] = {}

    def add(self, function: Any, label: str) -> tuple[Any, str]:
        """(global variable, symbol) of `function`."""
        symbol = self._symbols.of(function, label)
        if symbol not in self._variables:
            self._variables[symbol] = self._builder.add_func(function.with_attr("global_symbol", symbol), symbol)
        return self._variables[symbol], symbol


def _runnable_order(graph: Graph, groups: Sequence[BoundWorkload]) -> list[int]:
    """Positions of the groups so that each runs after those that it reads; the given order where it can."""
    maker = {name: position for position, bound in enumerate(groups) for name in bound.outputs}
    order: list[int] = []
    state: dict[int, bool] = {}
    for start in range(len(groups)):
        stack = [start]
        while stack:
            position = stack[-1]
            if state.get(position):
                stack.pop()
                continue
            state.setdefault(position, False)
            wanted = [maker[name] for name in groups[position].inputs if name in maker]
            open_ones = [other for other in wanted if not state.get(other)]
            if any(other in state for other in open_ones):
                raise PlanError(f"{graph.name}: the groups depend on each other in a circle")
            if open_ones:
                stack.extend(reversed(open_ones))
                continue
            state[position] = True
            order.append(position)
            stack.pop()
    return order


def _plain(graph: Graph, name: str) -> Value:
    tensor = graph.tensors[name]
    return Value("input", tensor.shape, tensor.dtype, HALF if name in graph.halves else PLAIN)


def _refuse_misfit(function: Any, workload: Workload, weights: Sequence[Value]) -> None:
    """PlanError when a TIR function does not take the inputs, these weights and the outputs of a workload: kernels do
    not look at their arguments when they run."""
    inputs, outputs = ([workload.values[place] for place in workload.of_kind(kind)] for kind in ("input", "output"))
    given = [(value.physical_shape, value.stored_dtype) for value in (*inputs, *weights, *outputs)]
    taken = [(tuple(map(int, buffer.shape)), str(buffer.dtype)) for buffer in function.params]
    if given != taken:
        shown = (", ".join(f"{dtype}{list(shape)}" for shape, dtype in some) for some in (given, taken))
        raise PlanError("{}: its kernel is given {}, but takes {}".format(workload.label, *shown))
