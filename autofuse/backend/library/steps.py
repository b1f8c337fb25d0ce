"""The parts of a model one after another, in the memory of one thread: what each reads, runs and hands on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autofuse.backend.container.metadata import InputSpec, PartSpec, Program
from autofuse.backend.library.arrays import Array, Kept, accepted, aligned_zeros, tensor_over
from autofuse.backend.library.compiled import Library
from autofuse.errors import InputError
from autofuse.ort.bound import BoundModel, is_value, run_open, value_over
from autofuse.values.names import BFLOAT16, numpy_dtype

Call = Callable[[int, Sequence[Any]], Any]
"""Runs a segment: its number and TVM's tensors -> TVM's tensors."""


@dataclass(frozen=True, eq=False)
class Held:
    """Fixed memory that one part writes and others read, as numpy, TVM and ONNX Runtime see it."""

    array: Array
    tensor: Any
    value: Any


class Step:
    """One part, in the memory of one thread."""

    def run(self, values: dict[str, Any], call: Call) -> None:
        """Reads its inputs from `values`, and puts its outputs there."""
        raise NotImplementedError


class Made:
    """An output of a segment: TVM's tensor, and how it becomes an array of the caller's own."""

    __slots__ = ("_library", "_number", "_place", "_results", "tensor")

    def __init__(self, library: Library, number: int, place: int, results: Any) -> None:
        self.tensor = library.item(results, place)
        self._library, self._number, self._place, self._results = library, number, place, results

    def array(self) -> Array:
        """The array."""
        return self._library.arrays_of(self._number, self._results)[self._place]


class Segment(Step):
    """Kernels of ours."""

    def __init__(self, part: PartSpec, program: Program, library: Library) -> None:
        self._number, self._library = part.program or 0, library
        self._inputs = [(place, spec, np.dtype(spec.dtype)) for place, spec in enumerate(program.inputs)]
        self._kept = Kept()
        self._outputs = list(enumerate(part.outputs))
        self._fits = False

    def run(self, values: dict[str, Any], call: Call) -> None:
        """See Step."""
        kept = self._kept
        given = [_tensor(values[spec.name], spec, dtype, kept, place) for place, spec, dtype in self._inputs]
        if not self._fits:
            self._look(given)
        self._hand_on(values, self._number, call(self._number, given))

    def _run(self, values: dict[str, Any], shapes: Sequence[tuple[int, ...]], number: int, call: Call) -> None:
        """Program `number` on inputs of these shapes."""
        given = [
            _tensor(values[spec.name], replace(spec, shape=shape), dtype, self._kept, place)
            for (place, spec, dtype), shape in zip(self._inputs, shapes, strict=True)
        ]
        self._hand_on(values, number, call(number, given))

    def _hand_on(self, values: dict[str, Any], number: int, results: Any) -> None:
        for place, name in self._outputs:
            values[name] = Made(self._library, number, place, results)

    def _look(self, given: Sequence[Any]) -> None:
        """InputError where a segment before makes other tensors than this one takes, at the first run as at all."""
        for (_, spec, _), tensor in zip(self._inputs, given, strict=True):
            stored = "uint16" if spec.dtype == BFLOAT16 else spec.dtype
            if (tuple(tensor.shape), str(tensor.dtype)) != (spec.shape, stored):
                made = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
                raise InputError(
                    f"{spec.name!r}: {made}, its segment takes {spec.dtype} of shape {spec.shape}: compile it again"
                )
        self._fits = True


class OpenSegment(Segment):
    """Kernels of ours that take any size of a range."""

    def run(self, values: dict[str, Any], call: Call) -> None:
        """See Step. InputError for a size outside of the range."""
        shapes = tuple([tuple(_shape(values[spec.name])) for _, spec, _ in self._inputs])
        number = self._library.plan_for(shapes)
        assert number is not None
        self._run(values, shapes, number, call)


class RowSegment(Segment):
    """Kernels of ours that take as many rows as the data say, up to a number of them.

    None are computed without a call. Another step, which `instead` makes when it is first needed, runs more of them,
    and values of other shapes.
    """

    def __init__(self, part: PartSpec, program: Program, library: Library, instead: Callable[[], Step]) -> None:
        super().__init__(part, program, library)
        opened = program.opened
        assert opened is not None
        self._opened, self._specs, self._instead = opened, program.inputs, instead
        self._none = tuple(opened.input_shapes(program.inputs, dict.fromkeys(opened.names, 0)))
        shapes = opened.output_shapes(program.outputs, [0] * len(opened.sizes))
        self._empty = [
            (spec.name, shape, numpy_dtype(spec.dtype)) for spec, shape in zip(program.outputs, shapes, strict=True)
        ]
        self._other: Step | None = None

    def run(self, values: dict[str, Any], call: Call) -> None:
        """See Step."""
        shapes = tuple([tuple(_shape(values[spec.name])) for spec in self._specs])
        if shapes == self._none:
            values.update({name: np.zeros(shape, dtype) for name, shape, dtype in self._empty})
        elif self._opened.taken(self._specs, shapes) is None:
            self._other = self._other or self._instead()
            self._other.run(values, call)
        else:
            self._run(values, shapes, self._number, call)


def _shape(value: Any) -> Sequence[int]:
    """The sizes of a value."""
    if isinstance(value, Held):
        return value.array.shape
    if isinstance(value, Made):
        return tuple(int(size) for size in value.tensor.shape)
    found: Sequence[int] = value.shape() if is_value(value) else value.shape
    return found


class Bound(Step):
    """A model of ONNX Runtime's whose values are tensors, bound to memory."""

    def __init__(self, part: PartSpec, session: Any, held: Mapping[str, Held]) -> None:
        self._inputs = part.inputs
        self._model = BoundModel(session, {name: held[name].value for name in part.outputs if name in held})
        self._outputs = [(name, held.get(name)) for name in part.outputs]

    def run(self, values: dict[str, Any], _call: Call) -> None:
        """See Step."""
        made = self._model.run([_value(values[name]) for name in self._inputs])
        for (name, held), value in zip(self._outputs, made):  # noqa: B905  # as many; `strict` costs time
            values[name] = held or value


class Open(Step):
    """A model of ONNX Runtime's with other values among its own: texts, sequences."""

    def __init__(self, part: PartSpec, session: Any) -> None:
        self._part, self._session = part, session

    def run(self, values: dict[str, Any], _call: Call) -> None:
        """See Step."""
        made = run_open(self._session, [_python(values[name]) for name in self._part.inputs])
        values.update(zip(self._part.outputs, made, strict=True))


def reserved(spec: InputSpec) -> Array:
    """Memory for a value. InputError when there is not enough."""
    try:
        return aligned_zeros(spec)
    except (MemoryError, ValueError) as error:  # numpy counts no more than 2^63 elements
        raise InputError(f"{spec.name!r}: no memory for its elements, {sizes_text(spec.shape)} {spec.dtype}") from error


def _tensor(value: Any, spec: InputSpec, dtype: np.dtype[Any], kept: Kept, place: int) -> Any:
    """A value as a segment takes it. InputError for another shape or type, and for numbers outside of a table."""
    kind = type(value)
    if kind is Made:
        return value.tensor
    held = value if kind is Held else None
    array: Array = held.array if held is not None else value.numpy() if is_value(value) else value
    if array.shape != spec.shape:
        raise InputError(f"{spec.name!r}: shape {array.shape}, its segment takes {spec.shape}")
    if array.dtype is not dtype or spec.table is not None:
        array = accepted(spec, dtype, array)
    return held.tensor if held is not None and array is held.array else tensor_over(array, kept, place)


def _value(value: Any) -> Any:
    """A value as ONNX Runtime takes it, over the same memory where that can be."""
    kind = type(value)
    if kind is Made:
        return value_over(value.tensor)
    if kind is Held:
        return value.value
    return value if is_value(value) else value_over(value)


def _python(value: Any) -> Any:
    """A value as `session.run` takes it."""
    if isinstance(value, Held):
        return value.array
    if isinstance(value, Made):
        return value.array()
    return value.numpy() if is_value(value) else value


def bound_input(value: Any, own: bool) -> Any:
    """An input that is read at every run from the same memory, aligned where there are kernels of our `own`."""
    plain = isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.size
    if plain and not own:
        return value_over(value)
    if plain:
        array = aligned_zeros(InputSpec("", value.shape, value.dtype.name))
        array[...] = value
        return Held(array, tensor_over(array), value_over(array))
    return value


def sizes_text(shape: Sequence[int | str | None]) -> str:
    """Sizes as people write them; "?" stands for one that is open."""
    return "(" + ", ".join("?" if size is None else str(size) for size in shape) + ")"
