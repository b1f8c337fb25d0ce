"""The built artefact: one file to carry about, loaded and called without the model it was made from."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.architecture import host_architecture
from autofuse.backend.container import ALIGNMENT, read_image, read_sections, read_weights, write_container
from autofuse.backend.linking import exported
from autofuse.backend.metadata import InputSpec, Metadata
from autofuse.backend.threads import configure_threads, held_on, usable_threads
from autofuse.device.host import HostCpu, probe_host
from autofuse.errors import DeviceError, InputError
from autofuse.scratch import scratch_folder

Array = NDArray[np.generic]
Inputs = Mapping[str, Array] | Sequence[Array]

_PREPARED = "prepared"

LINKING_BYTES = 32 << 20
"""Temporary space for object code: about a megabyte for a network of a hundred kernels, with room for the linker."""


def export(executable: Any, weights: Sequence[Array], metadata: Metadata, path: Path) -> None:
    """Write a compiled program, its weights and its description to the one file `path`.

    DeviceError when no linker is found or the file cannot be written; what stood at `path` then stays.
    """
    _require_space(path)
    with scratch_folder() as folder:
        image = folder / "image.so"
        try:
            exported(executable, image, metadata.architecture, folder)
        except DeviceError as error:
            raise DeviceError(f"{path}: {error}") from error
        write_container(path, image, weights, metadata)


def _require_space(path: Path) -> None:
    """LLVM ends the process when it cannot write, so a full temporary folder has to be noticed before."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < LINKING_BYTES:
        raise DeviceError(
            f"{path}: cannot link the library: the disk of {tempfile.gettempdir()} is full ({free >> 20} MiB free, "
            f"{LINKING_BYTES >> 20} needed); free some space, or name another folder in TMPDIR"
        )


def read_metadata(path: Path) -> Metadata:
    """The description of a library file; none of its code is loaded. InputError when it is not one of ours."""
    with _opened(path) as file:
        return read_sections(file, path)[1]


def load(path: Path, threads: int | None = None) -> Library:
    """The library in `path`, to be called on `threads` threads (by default those it was tuned for).

    InputError when the file is missing, damaged or not ours; DeviceError when this machine lacks a CPU
    feature that the code uses, or TVM has another version than the one that built it.
    """
    path = Path(path)
    with _opened(path) as file:
        sections, metadata = read_sections(file, path)
        _check_host(path, metadata)
        image = read_image(file, path, sections)
        weights = read_weights(file, path, sections, metadata.weights)
    if threads is None:
        threads = min(metadata.threads, usable_threads())
    return Library(metadata, _load_image(image), weights, threads)


class Library:
    """A compiled model. `metadata` says what it computes and how it was built."""

    def __init__(self, metadata: Metadata, module: Any, weights: Sequence[Array], threads: int) -> None:
        import tvm
        from tvm.runtime.vm import VirtualMachine

        self.metadata = metadata
        self.threads = threads
        configure_threads(threads)
        self._module = module
        self._arrays = list(weights)
        self._weights = [_tensor(array) for array in weights]
        self._machine = VirtualMachine(module, tvm.cpu())
        self._main = self._machine["main"]

    def __call__(self, inputs: Inputs) -> list[Array]:
        """The outputs, in the model's order, for `inputs` by name or in the model's order.

        InputError when a name, a shape or a dtype is not the model's. The results belong to the caller.
        """
        tensors = [_tensor(array) for array in self._checked(inputs)]
        with held_on(configure_threads(self.threads)):
            results = self._main(*tensors, *self._weights)
        return self._arrays_of(results)

    def prepared(self, inputs: Inputs) -> Prepared:
        """`inputs` bound once, to be run again and again with nothing else in between."""
        return Prepared(self, [_tensor(array) for array in self._checked(inputs)])

    def example_inputs(self, seed: int = 0) -> dict[str, Array]:
        """Reproducible inputs that the model accepts: normal numbers, and integers inside the tables they index."""
        generator = np.random.default_rng(seed)
        return {spec.name: _example(spec, generator) for spec in self.metadata.inputs}

    def count_kernels(self, inputs: Inputs) -> int:
        """Kernels that one call really launches, counted while it runs."""
        return sum(self.launched(inputs).values())

    def launched(self, inputs: Inputs) -> Counter[str]:
        """How often a call launches each kernel, by symbol, counted while it runs."""
        import tvm
        from tvm.runtime.vm import VirtualMachine

        counted: Counter[str] = Counter()

        def note(_function: Any, symbol: str, before: bool, _result: Any, *_arguments: Any) -> int:
            if before and not symbol.startswith("vm.builtin."):
                counted[symbol] += 1
            return 0

        machine = VirtualMachine(self._module, tvm.cpu())
        machine.set_instrument(note)
        machine["main"](*(_tensor(array) for array in self._checked(inputs)), *self._weights)
        return counted

    def _checked(self, inputs: Inputs) -> list[Array]:
        specs = self.metadata.inputs
        names = ", ".join(repr(spec.name) for spec in specs) or "none"
        if isinstance(inputs, Mapping):
            unknown = [name for name in inputs if name not in {spec.name for spec in specs}]
            missing = [spec.name for spec in specs if spec.name not in inputs]
            if unknown or missing:
                problem = f"unknown input {unknown[0]!r}" if unknown else f"input {missing[0]!r} is missing"
                raise InputError(f"{problem}; the model's inputs: {names}")
            given = [inputs[spec.name] for spec in specs]
        else:
            given = list(inputs)
            if len(given) != len(specs):
                raise InputError(f"{len(given)} inputs given, the model has {len(specs)}: {names}")
        return [_checked_array(spec, array) for spec, array in zip(specs, given, strict=True)]

    def _arrays_of(self, results: Any) -> list[Array]:
        copied = set(self.metadata.copied)
        return [
            result.numpy() if position in copied or str(result.dtype) == "bool" else np.from_dlpack(result)
            for position, result in enumerate(results)
        ]


class Prepared:
    """A library on bound inputs: `run` is nothing but the inference, `outputs` reads its last results."""

    def __init__(self, library: Library, inputs: Sequence[Any]) -> None:
        import tvm
        from tvm.runtime.vm import VirtualMachine

        self._library = library
        self._machine = VirtualMachine(library._module, tvm.cpu())
        self._machine.save_function("main", _PREPARED, *inputs, *library._weights)
        self._call = self._machine[_PREPARED]
        self._results: Any = None

    def run(self) -> None:
        """One inference."""
        with held_on(configure_threads(self._library.threads)):
            self._results = self._call()

    __call__ = run

    def outputs(self) -> list[Array]:
        """Results of the last run, in the model's order."""
        if self._results is None:
            raise InputError("the prepared library has not run yet")
        return [result.numpy() for result in self._results]


def count_kernels(library: Library, inputs: Inputs) -> int:
    """Kernels that a call launches, counted while it runs. DeviceError unless they are exactly the plan's."""
    launched, planned = library.launched(inputs), Counter(row.symbol for row in library.metadata.kernel_rows)
    if launched != planned:
        extra, missing = dict(launched - planned), dict(planned - launched)
        raise DeviceError(f"a call launches other kernels than planned: beyond the plan {extra}, missing {missing}")
    return sum(launched.values())


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        file = Path(path).open("rb")  # noqa: SIM115  # closed below; errors of the reader are not ours to translate
    except OSError as error:
        raise InputError(f"{path}: cannot read the library: {error.strerror or error}") from error
    with file:
        yield file


def _check_host(path: Path, metadata: Metadata) -> None:
    machine = host_architecture()
    if metadata.architecture != machine:
        raise DeviceError(f"{path}: built for {metadata.architecture}, this machine is {machine}")
    missing = sorted(set(metadata.cpu_features) - host_features())
    if missing:
        raise DeviceError(
            f"{path}: built for CPU {metadata.target.get('mcpu')!r}; this machine lacks {', '.join(missing)}: "
            "compile the model on this machine or for its device profile"
        )
    for name, version in installed_versions().items():
        built = metadata.versions.get(name)
        if name != "autofuse" and built != version:
            raise DeviceError(f"{path}: built with {name} {built}, installed is {version}: compile the model again")


def host_features() -> frozenset[str]:
    """CPU features of this machine that generated code may use, in LLVM's spelling."""
    return frozenset(probe_host(HostCpu("")).features)


def installed_versions() -> dict[str, str]:
    """Versions that a library depends on, by package."""
    from importlib.metadata import version

    from autofuse import __version__

    return {"autofuse": __version__, "apache-tvm": version("apache-tvm"), "apache-tvm-ffi": version("apache-tvm-ffi")}


def _load_image(image: bytes) -> Any:
    """The checked bytes as a module: from a file of this load alone, so that nothing can change under it."""
    import tvm

    with scratch_folder() as folder:
        name = folder / "image.so"
        name.write_bytes(image)
        return tvm.runtime.load_module(str(name))


def _tensor(array: Array) -> Any:
    """The array as TVM's tensor: the same memory where its alignment allows it, else a copy."""
    import tvm

    usable = array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % ALIGNMENT == 0
    if usable and array.dtype != np.bool_:
        return tvm.runtime.from_dlpack(array)
    return tvm.runtime.tensor(np.asarray(array, order="C"))


def _checked_array(spec: InputSpec, given: Any) -> Array:
    array = np.asarray(given)
    if tuple(array.shape) != spec.shape:
        raise InputError(f"input {spec.name!r}: shape {tuple(array.shape)}, the model takes {spec.shape}")
    if array.dtype.name != spec.dtype:
        raise InputError(f"input {spec.name!r}: dtype {array.dtype.name}, the model takes {spec.dtype}")
    if spec.table is not None and array.size and (array.min() < -spec.table or array.max() >= spec.table):
        raise InputError(
            f"input {spec.name!r}: values from {array.min()} to {array.max()}, but it indexes a table of {spec.table}: "
            f"allowed are {-spec.table} to {spec.table - 1}"
        )
    return array


def _example(spec: InputSpec, generator: np.random.Generator) -> Array:
    dtype = np.dtype(spec.dtype)
    if spec.example is not None:
        return generator.integers(*spec.example, size=spec.shape, endpoint=True).astype(dtype)
    if dtype.kind == "f":
        return generator.standard_normal(spec.shape).astype(dtype)
    return np.ones(spec.shape, dtype)
