"""A compiled model in memory, ready to be called."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np

from autofuse.backend.container.metadata import InputSpec, Metadata
from autofuse.backend.library.arrays import (
    Array,
    Caches,
    Kept,
    accepted,
    aligned_zeros,
    as_array,
    example,
    largest_bytes,
    lies_at,
    room,
    tensor_over,
)
from autofuse.backend.library.dispatch import Cut, Dispatch, Shapes, padded
from autofuse.backend.library.runtime import Machine, copied, global_function
from autofuse.backend.library.threads import configure_threads, held_on
from autofuse.errors import AutofuseError, InputError
from autofuse.values.names import BFLOAT16, numpy_dtype

Inputs = Mapping[str, Array] | Sequence[Array]

_PREPARED = "prepared"
_NO_KERNELS = ("vm.builtin.", "shape_func")
"""What a virtual machine calls besides kernels: its own functions, and those that compute shapes of open sizes."""


class Library:
    """A compiled model. `metadata` says what it computes and how it was built.

    It may be called from several threads at once: each gets a virtual machine and a thread pool of its own,
    and all share the code and the weights. A size that the library leaves open may differ from call to call and from
    thread to thread; outputs have the size of the call. `pad`: inputs that no program was made for are filled up with
    zeros to the next larger one, and its outputs cut back. That is right for a batch; for a sequence only in
    a model that masks what is padded. `caches`: what a library that was compiled with them keeps between calls; None
    for others. Calls that extend them come one after the other.
    """

    def __init__(
        self, metadata: Metadata, module: Any, weights: Sequence[Array], threads: int, pad: bool = False
    ) -> None:
        self.metadata = metadata
        self.threads = threads
        self.pad = pad
        configure_threads(threads)
        self._module = module
        self._arrays = list(weights)
        tensors = [tensor_over(array) for array in weights]
        self._weights = [[tensors[i] for i in program.weights] for program in metadata.programs]
        self.item = global_function("ffi.ArrayGetItem")  # Array's own iterator takes five times as long
        self._parallel = [program.parallel for program in metadata.programs]
        opened = metadata.opened
        self.caches = Caches(metadata.programs[0]) if opened is not None and opened.caches else None
        # A cache that is handed on has another size at each step, and a pool would keep all of them.
        self._pooled = opened is None or not any(one.more > 0 for axes in opened.outputs for one in axes)
        self._kept_names = () if self.caches is None else self.caches.names
        self._names = [spec.name for spec in metadata.inputs if spec.name not in self._kept_names]
        self._accepts = [[(numpy_dtype(spec.dtype), spec) for spec in program.inputs] for program in metadata.programs]
        self._places = [range(len(program.inputs)) for program in metadata.programs]
        self._most = [largest_bytes(program) for program in metadata.programs]
        self._copies = [
            [(place, place in program.copied or spec.dtype == "bool") for place, spec in enumerate(program.outputs)]
            for program in metadata.programs
        ]
        self._halves = [
            [place for place, spec in enumerate(one.outputs) if spec.dtype == BFLOAT16] for one in metadata.programs
        ]
        self._dispatch = Dispatch(metadata.main or metadata.programs)
        self._exact = self._dispatch.exact
        self._mine = threading.local()
        self._entries()
        self._look()

    def __call__(self, inputs: Inputs) -> list[Array]:
        """The outputs, in the model's order, for `inputs` by name or in the model's order.

        Inputs are numpy arrays or anything with `__dlpack__` on the CPU. Contiguous, writable and aligned to 64
        bytes (see `empty_inputs`) they are read where they lie, otherwise copied. InputError when a name, a
        shape or a dtype is not the model's. The results belong to the caller.
        """
        if self.caches is None:
            return self._results(inputs)
        with self.caches.extended():
            return self._results(inputs)

    def _results(self, inputs: Inputs) -> list[Array]:
        number, arrays, cuts = self._chosen(inputs)
        kept, places, most = self._kept(number), self._places[number], self._most[number]
        tensors = list(map(tensor_over, arrays, repeat(kept), places, most))
        made = self.arrays_of(number, self.call(number, tensors))
        if cuts is None:
            return made
        return [array if cut is None else array[cut] for array, cut in zip(made, cuts, strict=True)]

    @property
    def output_names(self) -> list[str]:
        """Names of the model's outputs, in its order."""
        return [spec.name for spec in self.metadata.outputs]

    def tensors(self, inputs: Inputs) -> list[Any]:
        """Like a call, but the outputs stay TVM's tensors: objects with `__dlpack__`, never copied, never cut.

        An output that is an input or a weight of the model shares its memory. bfloat16 are their bits, in uint16.
        """
        number, arrays, cuts = self._chosen(inputs)
        if cuts is not None:
            raise InputError("padded inputs have outputs that must be cut: call the library itself")
        if self.caches is None:
            return list(self._run(number, arrays))
        with self.caches.extended():
            return list(self._run(number, arrays))

    def prepared(self, inputs: Inputs) -> Prepared:
        """`inputs` bound once, to be run again and again with nothing else in between."""
        number, arrays, _ = self._chosen(inputs)
        return Prepared(self, number, [tensor_over(array) for array in arrays])

    def bound(self, inputs: Inputs) -> Prepared | None:
        """As `prepared`, for inputs whose elements change between runs.

        None where each run has to look at them: to copy them, to check what they index, to extend caches.
        """
        if self.caches is not None:
            return None
        number, arrays, cuts = self._chosen(inputs)
        checked = any(spec.table is not None for _, spec in self._accepts[number])
        tensors = [tensor_over(array) for array in arrays]
        if cuts is not None or checked or not all(map(lies_at, tensors, self._given(inputs))):
            return None
        return Prepared(self, number, tensors)

    def empty_inputs(self, program: int = 0) -> dict[str, Array]:
        """Zeros for every input of a program, aligned so that a call reads them where they lie; their sizes: see
        `example_inputs`."""
        return {spec.name: aligned_zeros(spec) for spec in self._given_specs(program, {})}

    def example_inputs(
        self, seed: int = 0, program: int = 0, sizes: Mapping[str, int] | None = None
    ) -> dict[str, Array]:
        """Reproducible inputs that a program accepts: normal numbers, and integers inside the tables they index.

        `sizes`: of what the library leaves open; else the largest, or that which its caches have now.
        """
        generator = np.random.default_rng(seed)
        return {spec.name: example(spec, generator) for spec in self._given_specs(program, sizes or {})}

    def sizes_of(self, inputs: Mapping[str, Array]) -> dict[str, int]:
        """The open sizes that some inputs have."""
        opened, names = self.metadata.programs[0].opened, [spec.name for spec in self.metadata.inputs]
        known = {names.index(name): array.shape for name, array in inputs.items() if name in names}
        return {} if opened is None else opened.sizes_in(known)

    def _given_specs(self, program: int, sizes: Mapping[str, int]) -> list[InputSpec]:
        """The inputs of a call at these sizes."""
        specs, opened = self.metadata.programs[program].inputs, self.metadata.programs[program].opened
        known = list(opened.names) if opened else []
        unknown = [name for name in sizes if name not in known]
        if unknown:
            raise InputError(f"--sizes: the library has no open size {unknown[0]!r}; its open sizes: {listed(known)}")
        if opened is not None:
            now = self.caches.sizes if self.caches else {}
            shapes = opened.input_shapes(specs, {**now, **sizes})
            specs = tuple(replace(spec, shape=shape) for spec, shape in zip(specs, shapes, strict=True))
        return [spec for spec in specs if spec.name not in self._kept_names]

    def count_kernels(self, inputs: Inputs) -> int:
        """Kernels that one call really launches, counted while it runs."""
        return sum(self.launched(inputs).values())

    def launched(self, inputs: Inputs) -> Counter[str]:
        """How often a call launches each kernel, by symbol, counted while it runs."""
        counted: Counter[str] = Counter()
        number, arrays, _ = self._chosen(inputs)
        self.noted(number, [tensor_over(array) for array in arrays], counted)
        return counted

    def noted(self, number: int, tensors: Sequence[Any], counted: Counter[str]) -> Any:
        """Like `call`; each kernel that it launches is `counted`, by symbol."""

        def note(_function: Any, symbol: str, before: bool, _result: Any, *_arguments: Any) -> int:
            if before and not symbol.startswith(_NO_KERNELS):
                counted[symbol] += 1
            return 0

        machine = Machine(self._module, self._pooled)
        machine.instrument(note)
        return machine[self.metadata.programs[number].entry](*tensors, *self._weights[number])

    def _look(self) -> None:
        """Fails where the code takes other inputs or weights than the description says: kernels do not look."""
        for program, weights in zip(self.metadata.programs, self._weights, strict=True):
            look = self._mine.machine.find(program.looker)
            if look is None:
                look = None if program.opened is None else self._mine.machine.find(program.weight_looker)
                if look is not None:
                    look(*weights)
                continue
            if program.opened is not None:
                raise InputError("the library's code has no open sizes, as its description says: compile it again")
            look(*[tensor_over(room(spec)) for spec in program.inputs], *weights)

    def _entries(self) -> list[Any]:
        """The programs as functions for the calling thread."""
        if not hasattr(self._mine, "entries"):
            machine = Machine(self._module, self._pooled)
            self._mine.machine = machine
            self._mine.entries = [machine[program.entry] for program in self.metadata.programs]
        entries: list[Any] = self._mine.entries
        return entries

    def _kept(self, number: int) -> Kept:
        """Copies of the inputs of a program, of the calling thread's own; results never share their memory."""
        try:
            kept: Kept = self._mine.kept[number]
        except AttributeError:
            self._mine.kept = [Kept() for _ in self.metadata.programs]
            kept = self._mine.kept[number]
        return kept

    def _run(self, number: int, arrays: Sequence[Array]) -> Any:
        return self.call(number, list(map(tensor_over, arrays)))

    def call(self, number: int, tensors: Sequence[Any]) -> Any:
        """What program `number` makes of TVM's tensors: its outputs as such; nothing is checked."""
        core = self.core(number)
        try:
            entry = self._mine.entries[number]
        except AttributeError:
            entry = self._entries()[number]
        try:
            if core is None:
                return entry(*tensors, *self._weights[number])
            with held_on(core):
                return entry(*tensors, *self._weights[number])
        except Exception as error:
            raise fault("the library's code", error) from error

    def core(self, number: int) -> int | None:
        """Sets up the threads for a call of program `number`; the core to hold this one on, None to let it be.

        A tiny program, whose kernels run on this thread alone, would take twice as long if it were held.
        """
        return configure_threads(self.threads) if self._parallel[number] else None

    def _chosen(self, inputs: Inputs) -> tuple[int, list[Array], list[Cut | None] | None]:
        """(program, its inputs, what to keep of its outputs: None for all)."""
        arrays = self._given(inputs)
        if self.caches is not None:
            given = dict(zip(self._names, arrays, strict=True))
            several = self.sizes_of(given).get(self.caches.several) if self.caches.several else None
            known = {**given, **self.caches.given(several)}
            arrays = [known[spec.name] for spec in self.metadata.inputs]
        number = self._exact.get(tuple([array.shape for array in arrays]))
        cuts = None
        if number is None:
            number, arrays, cuts = self._inexact(arrays)
        for place, (dtype, spec) in enumerate(self._accepts[number]):
            if arrays[place].dtype is not dtype or spec.table is not None:
                arrays[place] = accepted(spec, dtype, arrays[place])
        return number, arrays, cuts

    def _inexact(self, arrays: list[Array]) -> tuple[int, list[Array], list[Cut | None] | None]:
        """A program for inputs of shapes that did not come before: of an open size, padded, or InputError."""
        shapes = tuple([array.shape for array in arrays])
        found = self.plan_for(shapes)
        if found is not None:
            return found, arrays, None
        if len(self.metadata.programs) == 1:
            specs = self.metadata.programs[0].inputs
            spec, shape = next((spec, shape) for spec, shape in zip(specs, shapes, strict=True) if spec.shape != shape)
            raise InputError(f"input {spec.name!r}: shape {shape}, the model takes {spec.shape}")
        if not self.pad:
            raise InputError(
                f"inputs of shapes {shapes}: the library has {self._dispatch.offered()}; "
                "compile this shape too, or load it with pad=True"
            )
        number = self._dispatch.covering(shapes)
        return number, padded(self.metadata.programs[number], arrays), self._dispatch.cuts(number, shapes)

    def plan_for(self, shapes: Shapes) -> int | None:
        """The program that takes inputs of such shapes at a size that it leaves open; see `Dispatch`."""
        if shapes not in self._exact and (found := self._dispatch.of_open_size(shapes)) is not None:
            self._exact[shapes] = found
        return self._exact.get(shapes)

    def _given(self, inputs: Inputs) -> list[Array]:
        names = self._names
        if type(inputs) is dict or isinstance(inputs, Mapping):  # the first is ten times as fast
            try:
                given = [inputs[name] for name in names]
            except KeyError:
                given = []
            if len(given) == len(inputs) == len(names):
                return [item if type(item) is np.ndarray else as_array(item) for item in given]
            unknown = [name for name in inputs if name not in names]
            missing = [name for name in names if name not in inputs]
            problem = f"unknown input {unknown[0]!r}" if unknown else f"input {missing[0]!r} is missing"
            raise InputError(f"{problem}; the model's inputs: {listed(names)}")
        what: object = inputs
        if not isinstance(what, Sequence):
            raise InputError(
                f"inputs: got {type(what).__name__}, allowed: a mapping from names to arrays, or a list of arrays in "
                f"the order {listed(names)}"
            )
        given = list(inputs)
        if len(given) != len(names):
            raise InputError(f"{len(given)} inputs given, the model has {len(names)}: {listed(names)}")
        return [as_array(item) for item in given]

    def arrays_of(self, number: int, results: Any) -> list[Array]:
        """The outputs of program `number` as arrays that belong to the caller."""
        item, from_dlpack = self.item, np.from_dlpack
        made = [
            copied(item(results, place)) if own else from_dlpack(item(results, place))
            for place, own in self._copies[number]
        ]
        return self.with_halves(number, made)

    def with_halves(self, number: int, made: list[Array]) -> list[Array]:
        """The outputs of program `number`, where those of bfloat16 came as bits."""
        for place in self._halves[number]:
            made[place] = made[place].view(numpy_dtype(BFLOAT16))
        return made


class Prepared:
    """A library on bound inputs: `run` is nothing but the inference, `outputs` reads its last results."""

    def __init__(self, library: Library, number: int, inputs: Sequence[Any]) -> None:
        self._library, self._number = library, number
        self._machine = Machine(library._module, library._pooled)
        entry = library.metadata.programs[number].entry
        self._machine.save(entry, _PREPARED, [*inputs, *library._weights[number]])
        self._call = self._machine[_PREPARED]
        self._results: Any = None

    def run(self) -> None:
        """One inference."""
        core = self._library.core(self._number)
        try:  # without a context manager where none is needed: two of them take longer than a small kernel
            if core is None:
                self._results = self._call()
                return
            with held_on(core):
                self._results = self._call()
        except Exception as error:
            raise fault("the library's code", error) from error

    __call__ = run

    def results(self) -> list[Array]:
        """Outputs of one inference, as of a call of the library."""
        self.run()
        return self._library.arrays_of(self._number, self._results)

    def outputs(self) -> list[Array]:
        """Results of the last run, in the model's order."""
        if self._results is None:
            raise InputError("the prepared library has not run yet")
        return self._library.with_halves(self._number, [copied(result) for result in self._results])


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Turns what TVM raises into an error that says what is wrong with the library."""
    try:
        yield
    except AutofuseError:
        raise
    except Exception as error:
        raise fault(what, error) from error


def fault(what: str, error: Exception) -> Exception:
    """TVM's errors share no base; one on inputs that were checked tells that code and description do not fit."""
    if isinstance(error, MemoryError):
        return error
    text = next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "")
    return InputError(
        f"{what} is not what its description says ({type(error).__name__}: {text:.200}): compile it again"
    )


def listed(names: Sequence[str]) -> str:
    """Names for a message."""
    return ", ".join(map(repr, names)) or "none"
