"""A model in parts: segments of our kernels and models of ONNX Runtime, called one after another as one library."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from autofuse.backend.container.metadata import InputSpec, Metadata, PartSpec, ValueSpec
from autofuse.backend.library.arrays import (
    Array,
    accepted,
    aligned_zeros,
    as_array,
    example,
    tensor_over,
)
from autofuse.backend.library.compiled import Inputs, Library, listed
from autofuse.backend.library.steps import (
    Bound,
    Call,
    Held,
    Made,
    Open,
    OpenSegment,
    RowSegment,
    Segment,
    Step,
    bound_input,
    reserved,
    sizes_text,
)
from autofuse.errors import DeviceError, InputError
from autofuse.ort.bound import Alone, is_value, plain_types, value_over
from autofuse.ort.provider.register import register_image
from autofuse.ort.session import open_session, value_type


class PartedLibrary:
    """A compiled model of which ONNX Runtime runs a part, or all; it is called like a `Library`, which see.

    What one part makes, the next reads where it lies. Each calling thread has memory of its own for that; all share
    the code, the weights and ONNX Runtime's sessions.
    """

    pad = False

    def __init__(self, metadata: Metadata, module: Any, weights: Sequence[Array], threads: int, name: str) -> None:
        assert metadata.parts is not None
        self.metadata, self.threads = metadata, threads
        self._parts = metadata.parts
        self._segments = Library(metadata, module, weights, threads) if metadata.programs else None
        self._name, self._models, self._lock = name, weights, threading.Lock()
        self._sessions: dict[int, Any] = {}
        for part in self._parts.order:
            if part.program is None:
                self._session(part)
        self._names = [spec.name for spec in self._parts.inputs]
        self._results = [spec.name for spec in self._parts.outputs]
        self._mine = threading.local()
        self._plain = [(s.name, np.dtype(s.dtype), s.shape) for s in self._parts.inputs if s.dtype]
        only = [part.model for part in self._parts.order]
        self._alone = Alone(self._sessions[only[0]], self._results) if only[1:] == [] and only[0] is not None else None

    def _session(self, part: PartSpec) -> Any:
        """ONNX Runtime's session of a part; that of a segment of rows is made when it is first needed.

        InputError when its model does not take and make what the description says.
        """
        number, model = self._parts.order.index(part), part.model
        assert model is not None
        with self._lock:
            if model not in self._sessions:
                provider = None
                if self._parts.provider is not None:
                    provider = partial(register_image, image=self._models[self._parts.provider].tobytes())
                session = open_session(
                    f"{self._name}, part {number}",
                    self._models[model].tobytes(),
                    threads=self.threads,
                    spinning=not self.metadata.programs,
                    provider=provider,
                )
                names = [tuple(v.name for v in values) for values in (session.get_inputs(), session.get_outputs())]
                if names != [part.inputs, part.outputs]:
                    raise InputError(f"part {number} of the library takes or makes other values: compile again")
                self._sessions[model] = session
            return self._sessions[model]

    def __call__(self, inputs: Inputs) -> list[Any]:
        """The outputs, in the model's order; those that ONNX Runtime makes may be texts or sequences, as it has them.

        See `Library`. InputError, too, when ONNX Runtime refuses the values.
        """
        if self._alone is not None:
            return self._alone(inputs if self._fits(inputs) else self._given(inputs))
        values = self._run(self._given(inputs), self._call)
        return [self._result(name, values) for name in self._results]

    def _fits(self, inputs: Inputs) -> bool:
        """Whether these are arrays of the types that the model takes, each under its name."""
        if type(inputs) is not dict or len(inputs) != len(self._parts.inputs):
            return False
        for name, dtype, shape in self._plain:
            given = inputs.get(name)
            if type(given) is not np.ndarray or given.dtype != dtype or given.shape != shape:
                return False
        return len(self._plain) == len(inputs)

    @property
    def output_names(self) -> list[str]:
        """Names of the model's outputs, in its order."""
        return self._results

    def tensors(self, inputs: Inputs) -> list[Any]:
        """Like a call, but outputs stay objects with `__dlpack__` where they are such."""
        return self(inputs)

    def prepared(self, inputs: Inputs) -> PreparedParts:
        """`inputs` bound once, to be run again and again with nothing else in between."""
        return PreparedParts(self, self._given(inputs))

    def empty_inputs(self, _program: int = 0) -> dict[str, Array]:
        """Zeros for every input, aligned so that a call reads them where they lie; open sizes are the largest, or 1
        where there is no range."""
        return {spec.name: aligned_zeros(spec) for spec in _input_specs(self.metadata, {})}

    def example_inputs(
        self, seed: int = 0, _program: int = 0, sizes: Mapping[str, int] | None = None
    ) -> dict[str, Array]:
        """Reproducible inputs: normal numbers, integers inside the tables that they index or ones. `sizes`: of what the
        library leaves open, else the largest; open sizes that have no range are 1."""
        return example_inputs(self.metadata, seed, sizes)

    def sizes_of(self, inputs: Mapping[str, Array]) -> dict[str, int]:
        """The open sizes that some inputs have, by what its segment takes."""
        opened = self.metadata.opened
        if opened is None:
            return {}
        names = [spec.name for spec in self.metadata.inputs]
        return opened.sizes_in({names.index(name): array.shape for name, array in inputs.items() if name in names})

    def count_kernels(self, inputs: Inputs) -> int:
        """Kernels of ours that one call really launches, counted while it runs."""
        return sum(self.launched(inputs).values())

    def launched(self, inputs: Inputs) -> Counter[str]:
        """How often a call launches each kernel of ours, by symbol, counted while it runs."""
        counted: Counter[str] = Counter()
        segments = self._segments
        if segments is not None:
            self._run(self._given(inputs), lambda number, tensors: segments.noted(number, tensors, counted))
        return counted

    def _call(self, number: int, tensors: Sequence[Any]) -> Any:
        assert self._segments is not None
        return self._segments.call(number, tensors)

    def _run(self, values: dict[str, Any], call: Call) -> dict[str, Any]:
        """All values by name, from those of the inputs."""
        steps: list[Step] | None = getattr(self._mine, "steps", None)
        if steps is None:
            steps = self._mine.steps = self._steps()
        for step in steps:
            step.run(values, call)
        return values

    def _steps(self) -> list[Step]:
        """The parts, with memory for the calling thread."""
        held = self._holdings()
        found: list[Step] = []
        for part in self._parts.order:
            if part.program is None:
                found.append(self._in_onnxruntime(part, held))
                continue
            assert self._segments is not None
            program = self.metadata.programs[part.program]
            if part.counts_rows:
                found.append(RowSegment(part, program, self._segments, partial(self._in_onnxruntime, part, {})))
            else:
                make = Segment if self.metadata.opened is None else OpenSegment
                found.append(make(part, program, self._segments))
        return found

    def _in_onnxruntime(self, part: PartSpec, held: Mapping[str, Held]) -> Step:
        session = self._session(part)
        return Bound(part, session, held) if plain_types(session) else Open(part, session)

    def _holdings(self) -> dict[str, Held]:
        """Memory for values of fixed size that ONNX Runtime makes and that do not leave the library."""
        found = {}
        wanted = {name for part in self._parts.order for name in part.inputs} - set(self._results)
        for part in self._parts.order:
            for output in self._session(part).get_outputs() if part.program is None else ():
                spec = _static(ValueSpec(output.name, *_type(output)))
                if output.name in wanted and spec is not None and self._segments is not None:
                    array = reserved(spec)
                    found[output.name] = Held(array, tensor_over(array), value_over(array))
        return found

    def _result(self, name: str, values: Mapping[str, Any]) -> Any:
        value = values[name]
        if isinstance(value, Held):
            return value.array.copy()
        if is_value(value):
            return value.numpy()
        if isinstance(value, Made):
            return value.array()
        return value.copy() if name in self._names and isinstance(value, np.ndarray) else value

    def _given(self, inputs: Inputs) -> dict[str, Any]:
        """The inputs by name, checked."""
        if not isinstance(inputs, Mapping):
            given = list(inputs)
            if len(given) != len(self._names):
                raise InputError(f"{len(given)} inputs given, the model has {len(self._names)}: {listed(self._names)}")
            inputs = dict(zip(self._names, given, strict=True))
        for problem, names in (
            ("unknown input", [name for name in inputs if name not in self._names]),
            ("missing input", [name for name in self._names if name not in inputs]),
        ):
            if names:
                raise InputError(f"{problem} {names[0]!r}; the model's inputs: {listed(self._names)}")
        return {spec.name: _accepted(spec, inputs[spec.name]) for spec in self._parts.inputs}


def example_inputs(metadata: Metadata, seed: int, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
    """What `PartedLibrary.example_inputs` gives, for a library that is not loaded."""
    generator = np.random.default_rng(seed)
    return {spec.name: example(spec, generator) for spec in _input_specs(metadata, sizes or {})}


def _input_specs(metadata: Metadata, sizes: Mapping[str, int]) -> list[InputSpec]:
    """The inputs as generated values need them. InputError for one that is no tensor of numbers, and for sizes that the
    library does not leave open."""
    assert metadata.parts is not None
    own = {spec.name: spec for program in metadata.main for spec in program.inputs}
    opened, ranges = metadata.opened, {size.name: size.high for size in metadata.parts.sizes}
    named = {size for spec in metadata.parts.inputs for size in spec.shape or () if isinstance(size, str)}
    fixed = not (opened or ranges)
    if unknown := [name for name in sizes if fixed or name not in named]:
        reason = "so its library has fixed sizes" if fixed else f"which leaves {listed(sorted(named))} open"
        raise InputError(f"--sizes: {unknown[0]}: ONNX Runtime runs a part of this model, {reason}")
    if opened is not None:
        specs = metadata.programs[0].inputs
        shapes = opened.input_shapes(specs, sizes)
        own = {spec.name: replace(spec, shape=shape) for spec, shape in zip(specs, shapes, strict=True)}
        ranges |= {size.name: size.high for size in opened.sizes}
    sizes, found = {**ranges, **sizes}, []
    for spec in metadata.parts.inputs:
        if not spec.dtype or spec.shape is None:
            raise InputError(f"input {spec.name!r} is {spec.type}, which cannot be made up; give it")
        shape = tuple(size if isinstance(size, int) else sizes.get(size or "", 1) for size in spec.shape)
        found.append(own.get(spec.name) or InputSpec(spec.name, shape, spec.dtype))
    return found


class PreparedParts:
    """A model in parts on bound inputs: `run` is nothing but the inference, `outputs` reads its last results."""

    def __init__(self, library: PartedLibrary, given: Mapping[str, Any]) -> None:
        self._library = library
        own = bool(library.metadata.programs)
        self._given = {name: bound_input(value, own) for name, value in given.items()}
        self._values: dict[str, Any] | None = None
        alone = library._alone
        self._prebound = None if alone is None else alone.prebound(self._given)
        self.run = self._run if self._prebound is None else self._prebound.run
        """One inference."""

    def __call__(self) -> None:
        """One inference."""
        self.run()

    def _run(self) -> None:
        self._values = self._library._run(dict(self._given), self._library._call)

    def outputs(self) -> list[Any]:
        """Results of the last run, in the model's order."""
        values = self._values if self._prebound is None else self._prebound.outputs()
        if values is None:
            raise InputError("the prepared library has not run yet")
        found = [self._library._result(name, values) for name in self._library._results]
        return found if self._prebound is None else [array.copy() for array in found]  # the next run writes there


def _accepted(spec: ValueSpec, given: Any) -> Any:
    """An input as the model takes it. InputError for an array of another type or size."""
    if not spec.dtype:
        return given
    array = as_array(given)
    array = accepted(InputSpec(spec.name, array.shape, spec.dtype), np.dtype(spec.dtype), array)
    if spec.shape is not None:
        fits = len(array.shape) == len(spec.shape) and all(
            have == size or not isinstance(size, int) for have, size in zip(array.shape, spec.shape, strict=True)
        )
        if not fits:
            raise InputError(f"input {spec.name!r}: shape {array.shape}, the model takes {sizes_text(spec.shape)}")
    return array


def _type(argument: Any) -> tuple[str, tuple[int | str | None, ...] | None]:
    found = value_type(argument)
    return found.text, found.shape


def _static(spec: ValueSpec) -> InputSpec | None:
    """A value of fixed size and some elements; None for others, and for what may be a scalar.

    ONNX Runtime describes a value of unknown rank as it does a scalar.
    """
    sizes = tuple(size for size in spec.shape or () if isinstance(size, int) and size > 0)
    if not spec.dtype or not spec.shape or len(sizes) != len(spec.shape):
        return None
    return InputSpec(spec.name, sizes, spec.dtype)


def launches(library: PartedLibrary, inputs: Inputs) -> int:
    """Kernels that a call launches. DeviceError unless they are exactly those of its segments."""
    described = library.metadata
    each = [Counter(row.symbol for row in program.kernel_rows) for program in described.main]
    launched, parts = library.launched(inputs), described.parts
    # plans of one segment, of which a call takes one
    either = [sum(each, Counter[str]())] if described.opened is None else each
    for number in sorted(parts.of_rows if parts is not None else ()):  # none where there is no row, or too many
        rows = Counter(row.symbol for row in described.programs[number].kernel_rows)
        either += [one + rows for one in either]
    planned = next((one for one in either if one == launched), either[0])
    if launched != planned:
        raise DeviceError(
            f"a call launches other kernels than planned: {dict(launched - planned | planned - launched)}"
        )
    return sum(launched.values())
