"""A compiled model behind the interface that users of ONNX Runtime know."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.container.metadata import Metadata, TensorSpec, ValueSpec
from autofuse.backend.container.open_spec import AxisSpec
from autofuse.backend.library.arrays import Caches
from autofuse.backend.library.binding import IOBinding, known_name
from autofuse.backend.library.compiled import Library
from autofuse.backend.library.library import load
from autofuse.backend.library.parted import PartedLibrary
from autofuse.errors import AutofuseError, InputError
from autofuse.graph.loading.given.trace import SizeCounter
from autofuse.graph.model import Origin
from autofuse.ort.bound import value_over

PROVIDER, CPU_PROVIDER = "AutofuseExecutionProvider", "CPUExecutionProvider"
Provider = str | tuple[str, Mapping[str, Any]]
"""As ONNX Runtime takes them: a name, or a name with options."""

_ONNX_TYPES = {"float32": "float", "float64": "double"}
"""numpy's names of element types -> ONNX Runtime's, where they differ."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output as ONNX Runtime describes it: `type` such as "tensor(float)".

    `shape`: a size that the library leaves open is its name; one that differs between the library's programs is None;
    one that is open in ONNX Runtime's part of a model, its name there, or None.
    """

    name: str
    shape: tuple[int | str | None, ...]
    type: str


class Session:
    """`Session("model.so").run(None, {"input": array})`, as with ONNX Runtime; safe to call from several threads.

    `sess_options`: ONNX Runtime's; its intra_op_num_threads counts where `threads` is None, and profiling is refused.
    `providers`: must name this one or the CPU's; others are passed over, and `provider_options` with them.
    `threads`: those that run the model for each caller (None: those it was tuned for). `pad`: fill up inputs to
    the next larger shape of the library, see `autofuse.backend.library.library.Library`. `trust`: files of public
    keys, one of which must have signed it (none: any library, and its code runs). `record_sizes`: of a library with an
    open size, count which sizes calls have; see `recorded_sizes`. Errors: see `load` there.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        sess_options: Any = None,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        threads: int | None = None,
        pad: bool = False,
        trust: Sequence[str | os.PathLike[str]] = (),
        record_sizes: bool = False,
    ) -> None:
        _check_providers(providers, provider_options)
        self._options = sess_options
        wished = threads or _wished_threads(sess_options)
        self._library = self._loaded(Path(path), wished, pad, [Path(key) for key in trust])
        self._names = self._library.output_names
        self._sizes = _recorder_of(self.metadata) if record_sizes else None

    def _loaded(self, path: Path, threads: int | None, pad: bool, trust: Sequence[Path]) -> Library | PartedLibrary:
        """The library that the session runs."""
        return load(path, threads, pad=pad, trust=trust)

    @property
    def metadata(self) -> Metadata:
        """What the library says about itself."""
        return self._library.metadata

    @property
    def threads(self) -> int:
        """Threads that run the model for each caller."""
        return self._library.threads

    @property
    def caches(self) -> Caches | None:
        """What the library keeps between calls; None where it was compiled without `caches`."""
        return self._library.caches if isinstance(self._library, Library) else None

    def get_providers(self) -> list[str]:
        """Who computes: this one, and ONNX Runtime's CPU provider where it has a part in the model."""
        return [PROVIDER] if self.metadata.parts is None else [PROVIDER, CPU_PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of each provider: there are none."""
        return {name: {} for name in self.get_providers()}

    def set_providers(
        self,
        providers: Sequence[Provider] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Changes nothing; InputError as at the start."""
        _check_providers(providers, provider_options)

    def get_session_options(self) -> Any:
        """The `sess_options` that were given."""
        return self._options

    def get_modelmeta(self) -> Origin:
        """What the model that the library was compiled from says about itself."""
        return self.metadata.origin

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: weights are part of the library."""
        return []

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs, in its order."""
        if self.metadata.parts is not None:
            return _arguments(self.metadata.parts.inputs)
        count = len(self.metadata.programs[0].inputs)
        found = _described([p.inputs for p in self.metadata.programs], _named_shapes(self.metadata)[:count])
        return [one for one in found if self.caches is None or one.name not in self.caches.names]

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs, in its order."""
        if self.metadata.parts is not None:
            return _arguments(self.metadata.parts.outputs)
        count = len(self.metadata.programs[0].inputs)
        return _described([p.outputs for p in self.metadata.programs], _named_shapes(self.metadata)[count:])

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[NDArray[np.generic]]:
        """The outputs called `output_names` (None: all) for inputs by name.

        Inputs and outputs are read and returned without a copy where `Library` says so. `run_options`: ONNX Runtime's,
        which have nothing to say here, or None.
        """
        _check_run_options(run_options)
        places = self._places(output_names)
        results = self._library(input_feed)
        if self._sizes is not None:
            self._sizes.record(input_feed)
        return results if places is None else [results[place] for place in places]

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Like `run`, with values of ONNX Runtime's."""
        return [value_over(result) for result in self.run(output_names, input_dict_ort_values, run_options)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """Like `run`, in a thread of its own; it calls `callback` with the results, `user_data`, and an error or ""."""
        _check_run_options(run_options)
        self._places(output_names)

        def compute() -> None:
            try:
                results = self.run(output_names, input_feed)
            except AutofuseError as error:
                callback([], user_data, str(error))
            else:
                callback(results, user_data, "")

        Thread(target=compute, name="autofuse run_async").start()

    def io_binding(self) -> IOBinding:
        """A fresh binding of inputs and outputs to memory, for `run_with_iobinding`."""
        return IOBinding([one.name for one in self.get_inputs()], self._names)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Run with the inputs and outputs of `iobinding`."""
        _check_run_options(run_options)
        results = iobinding.results(self._library)
        if self._sizes is not None:
            self._sizes.record(iobinding.feed)
        iobinding.deliver(dict(zip(self._names, results, strict=True)))

    def run_dlpack(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> list[Any]:
        """Like `run`, with outputs as objects that have `__dlpack__`: `torch.from_dlpack(output)` copies nothing."""
        places = self._places(output_names)
        results = self._library.tensors(input_feed)
        if self._sizes is not None:
            self._sizes.record(input_feed)
        return results if places is None else [results[place] for place in places]

    @property
    def recorded_sizes(self) -> dict[int | tuple[int, ...], int]:
        """Calls by size, the smallest first; by all where several are open. Empty unless `record_sizes` was set."""
        return {} if self._sizes is None else self._sizes.counter.counts

    def write_sizes(self, path: str | os.PathLike[str]) -> None:
        """Writes the recorded sizes, for `autofuse tune --sizes ... --trace FILE`, over an older trace as well."""
        if self._sizes is None:
            raise InputError("no sizes were recorded: open the session with record_sizes=True")
        self._sizes.counter.write(Path(path))

    def empty_inputs(self, program: int = 0) -> dict[str, NDArray[np.generic]]:
        """Zeros for every input, to be written into: aligned so that `run` reads them without a copy."""
        return self._library.empty_inputs(program)

    def _places(self, names: Sequence[str] | None) -> list[int] | None:
        """Where outputs stand among the model's; None for all of them."""
        if names is None:
            return None
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise InputError(f"output_names: got {names!r}, allowed: None, or a list such as {self._names[:1]}")
        return [self._names.index(known_name(name, self._names, "output")) for name in names]


def _check_providers(providers: Sequence[Provider] | None, options: Sequence[Mapping[str, Any]] | None) -> None:
    """InputError where none of the providers is one that computes here, or their options are not as many."""
    if options is not None and len(options) != len(providers or ()):
        raise InputError(f"provider_options: {len(options)} given for {len(providers or ())} providers")
    names = [one if isinstance(one, str) else next(iter(one), "") for one in providers or ()]
    if names and not {PROVIDER, CPU_PROVIDER} & set(names):
        listed = ", ".join(map(str, names))
        raise InputError(f"providers: got {listed}; a library runs on the CPU: add {CPU_PROVIDER!r}")


@dataclass(frozen=True)
class _SizeRecorder:
    """Counts sizes of calls: each open size as an axis of the input with a name says it."""

    counter: SizeCounter
    axes: Sequence[tuple[str, AxisSpec]]

    def record(self, feed: Mapping[str, Any]) -> None:
        """Counts a call that went well."""
        self.counter.add(*(one.value(int(_extents(feed[name])[one.axis])) for name, one in self.axes))


def _extents(value: Any) -> Sequence[int]:
    shape = getattr(value, "shape", None)
    found: Sequence[int] = shape() if callable(shape) else np.shape(value) if shape is None else shape
    return found


def _recorder_of(metadata: Metadata) -> _SizeRecorder:
    opened = metadata.opened
    if opened is None:
        raise InputError("record_sizes: the library has no open size; compile the model with --sizes")
    names = [spec.name for spec in metadata.programs[0].inputs]
    given = [[(names[place], one) for place, one in axes] for axes in opened.said.values()]
    seen = [[(name, one) for name, one in axes if name not in opened.kept] for axes in given]
    if not all(seen):
        raise InputError("record_sizes: only what the library keeps itself has the open size")
    return _SizeRecorder(SizeCounter(*opened.names), [axes[0] for axes in seen])


def _wished_threads(options: Any) -> int | None:
    """What ONNX Runtime's session options ask for; None where they leave it open. InputError for what is not done."""
    if options is None:
        return None
    if not hasattr(options, "intra_op_num_threads"):
        raise InputError(f"sess_options: got {type(options).__name__}, allowed: onnxruntime.SessionOptions or None")
    if options.enable_profiling:
        raise InputError("sess_options: enable_profiling is not done here; `autofuse explain` shows the kernels' times")
    if options.optimized_model_filepath:
        raise InputError("sess_options: optimized_model_filepath is not written; `autofuse compile` writes a library")
    return options.intra_op_num_threads or None


def _check_run_options(options: Any) -> None:
    if options is not None and type(options).__name__ != "RunOptions":
        raise InputError(f"run_options: got {options!r}, allowed: None, or onnxruntime.RunOptions")


def _arguments(specs: Sequence[ValueSpec]) -> list[NodeArg]:
    return [NodeArg(spec.name, spec.shape or (), spec.type) for spec in specs]


def _named_shapes(metadata: Metadata) -> list[tuple[int | str, ...]]:
    """The shapes of all inputs and then all outputs, with names where open sizes stand; none where none is open."""
    program = metadata.programs[0]
    opened = program.opened
    return [] if opened is None else opened.texts((*program.inputs, *program.outputs))


def _described(programs: Sequence[Sequence[TensorSpec]], named: Sequence[tuple[int | str, ...]]) -> list[NodeArg]:
    """The inputs or outputs of all programs. `named`: their shapes, where sizes are open."""
    found = []
    for place, specs in enumerate(zip(*programs, strict=True)):
        shape: tuple[int | str | None, ...] = tuple(
            sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*(s.shape for s in specs), strict=True)
        )
        if named:
            shape = named[place]
        dtype = specs[0].dtype
        found.append(NodeArg(specs[0].name, shape, f"tensor({_ONNX_TYPES.get(dtype, dtype)})"))
    return found
