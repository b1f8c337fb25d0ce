"""ONNX Runtime as the reference: one run that keeps every tensor a group will be checked against."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.graph.model import Graph
from autofuse.graph.own.exact_sums import exact_sum
from autofuse.graph.own.weight_only import in_full
from autofuse.graph.submodel import submodel, to_model
from autofuse.kernels.workload.workload import BoundWorkload
from autofuse.measure.measurement import Case
from autofuse.ort.apart import Run, run_apart
from autofuse.ort.session import first_line
from autofuse.values.scratch import scratch_folder

CHUNK_BYTES = 512 << 20
"""Tensors fetched in one run of the model; more are fetched in further runs."""

Array = NDArray[np.generic]


@dataclass(frozen=True)
class ReferenceStore:
    """Tensors of one run as .npy files in `folder`, which child processes map into memory.

    `paths`: file of each captured tensor by its name in the graph (graph inputs too), logical layout.
    `outputs`: names of the graph's outputs.
    """

    folder: Path
    paths: dict[str, Path]
    outputs: tuple[str, ...]
    _constants: dict[str, Path] = field(default_factory=dict, compare=False, repr=False)

    def path(self, tensor: str) -> Path:
        """File of a captured tensor; InputError for one that was not captured."""
        if tensor not in self.paths:
            raise InputError(f"tensor {tensor!r} was not captured from the reference")
        return self.paths[tensor]

    def array(self, tensor: str) -> Array:
        """A captured tensor, mapped read-only."""
        mapped: Array = np.load(self.path(tensor), mmap_mode="r")
        return mapped

    def constant(self, array: Array) -> Path:
        """File that holds `array`, written on first use; equal arrays share one file."""
        contiguous = np.ascontiguousarray(array)
        content = hashlib.sha256(f"{contiguous.dtype.str}{contiguous.shape}".encode())
        content.update(contiguous.reshape(-1).view(np.uint8).data)
        key = content.hexdigest()[:32]
        if key not in self._constants:
            self._constants[key] = _save(self.folder / f"constant-{key}.npy", contiguous.reshape(array.shape))
        return self._constants[key]

    def constants(self, graph: Graph, bound: BoundWorkload) -> tuple[Path, ...]:
        """Files of a workload's constants, in its order; `graph` holds their values (after folding)."""
        return tuple(self.constant(np.asarray(graph.constants[name])) for name in bound.constants)

    def complete(self, graph: Graph, names: Iterable[str]) -> None:
        """Compute those of `names` that were not captured from what was: tensors that only a rewritten graph has.

        `graph`: the rewritten graph; tensors that it shares with the captured one have the same names.
        """
        missing = [name for name in dict.fromkeys(names) if name not in self.paths]
        needed: dict[str, None] = {}
        waiting = list(missing)
        while waiting:
            operator = graph.producers.get(waiting.pop())
            if operator is not None and operator.name not in needed:
                needed[operator.name] = None
                waiting += [n for n in operator.inputs if n and n not in self.paths and n not in graph.constants]
        if not missing:
            return
        inputs = {name: self.paths[name] for name in graph.boundary(tuple(needed))[0] if name in self.paths}
        made = {name: self.folder / f"tensor-{len(self.paths) + n:05d}.npy" for n, name in enumerate(missing)}
        part = submodel(_in_full(graph), tuple(needed), missing).SerializeToString()
        _run(graph.name, part, [Run(inputs, made)], self.folder)
        self.paths.update(made)

    def case(self, bound: BoundWorkload) -> Case:
        """What a group reads and has to produce in this run."""
        return Case(
            tuple(self.path(name) for name in bound.inputs),
            tuple(self.path(name) for name in bound.outputs),
        )


def capture(graph: Graph, inputs: Mapping[str, Array], folder: Path, tensors: Iterable[str]) -> ReferenceStore:
    """Run the model in ONNX Runtime, unoptimised, and keep `tensors` (and its inputs and outputs) in `folder`.

    `inputs`: one array a graph input. InputError when an input is missing or does not fit, when ONNX Runtime
    refuses the model, and when the model yields NaN in one of its own outputs.
    """
    feeds = _checked(graph, inputs)
    wanted = [name for name in dict.fromkeys([*graph.outputs, *tensors]) if name not in feeds]
    missing = [name for name in wanted if name not in graph.tensors or name in graph.constants]
    if missing:
        raise InputError(f"{graph.name}: cannot capture {missing[0]!r}: no operator of the graph produces it")
    folder.mkdir(parents=True, exist_ok=True)
    files = (folder / f"tensor-{number:05d}.npy" for number in count())
    given = {name: _save(next(files), array) for name, array in feeds.items()}
    runs = [Run(given, {name: next(files) for name in chunk}) for chunk in _chunks(graph, wanted)]
    _run(graph.name, _serialised(dataclasses.replace(graph, outputs=tuple(wanted))), runs, folder)
    paths = {**given, **{name: path for run in runs for name, path in run.outputs.items()}}
    arrays = {name: np.load(paths[name], mmap_mode="r") for name in wanted}
    _refuse_nan(graph, [name for name, array in arrays.items() if _has_nan(array)], arrays)
    return ReferenceStore(folder, paths, graph.outputs)


def run_reference(graph: Graph, inputs: Mapping[str, Array], optimise: bool = False) -> dict[str, Array]:
    """Outputs of the whole model in ONNX Runtime, by name. Errors as `capture`.

    `optimise`: as it is shipped, and as roughly as the model lets it compute. Its optimiser may be wrong itself: it
    joins a Pad of zeros with the MaxPool behind, whose own padding is minus infinity.
    """
    (found,) = run_references(graph, [inputs], optimise)
    return found


def run_references(
    graph: Graph, cases: Iterable[Mapping[str, Array]], optimise: bool = False
) -> Iterator[dict[str, Array]]:
    """`run_reference` of each case; the model is loaded once."""
    checked = [_checked(graph, inputs) for inputs in cases]
    with scratch_folder() as folder:
        files = (folder / f"{number}.npy" for number in count())
        runs = [
            Run(
                {name: _save(next(files), array) for name, array in feeds.items()},
                {name: next(files) for name in dict.fromkeys(graph.outputs)},
            )
            for feeds in checked
        ]
        _run(graph.name, _serialised(graph, as_shipped=optimise), runs, folder, optimise)
        for run in runs:
            found = {name: np.load(path) for name, path in run.outputs.items()}
            _refuse_nan(graph, [name for name, array in found.items() if _has_nan(array)], found)
            yield found


def _checked(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    feeds: dict[str, Array] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if name not in inputs:
            raise InputError(f"{graph.name}: input {name!r} is missing; given: {', '.join(inputs) or 'none'}")
        array = np.asarray(inputs[name])
        if array.shape != tensor.shape or array.dtype != np.dtype(tensor.dtype):
            got, want = f"{array.dtype}{list(array.shape)}", f"{tensor.dtype}{list(tensor.shape)}"
            raise InputError(f"{graph.name}: input {name!r} is {got}, the model wants {want}")
        feeds[name] = np.ascontiguousarray(array).reshape(tensor.shape)
    return feeds


def _in_full(graph: Graph) -> Graph:
    """The graph with what ONNX Runtime may compute roughly computed in full."""
    return dataclasses.replace(
        graph, operators=tuple(exact_sum(in_full(operator), graph.tensors) for operator in graph.operators)
    )


def _serialised(graph: Graph, as_shipped: bool = False) -> bytes:
    try:
        data: bytes = to_model(graph if as_shipped else _in_full(graph)).SerializeToString()
    except Exception as error:  # protobuf: beyond 2 GiB, with an error class that depends on its version
        raise InputError(f"{graph.name}: cannot serialise the model (2 GiB at most): {first_line(error)}") from error
    return data


def _run(name: str, model: bytes, runs: Sequence[Run], folder: Path, optimise: bool = False) -> None:
    path = folder / "model.onnx"
    path.write_bytes(model)
    try:
        run_apart(name, path, runs, optimise=optimise)
    finally:
        path.unlink()


def _has_nan(array: Array) -> bool:
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def _chunks(graph: Graph, names: Sequence[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    size = 0
    for name in names:
        if chunk and size + graph.tensors[name].size_bytes > CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(name)
        size += graph.tensors[name].size_bytes
    if chunk:
        yield chunk


def _refuse_nan(graph: Graph, suspects: Sequence[str], arrays: Mapping[str, Array]) -> None:
    """InputError when an output of the model has NaN; `suspects`: all tensors known to have NaN."""
    for name in graph.outputs:
        if name in suspects:
            count, size = int(np.isnan(arrays[name]).sum()), arrays[name].size
            position = {tensor: graph.position[op.name] for tensor, op in graph.producers.items()}
            origin = min(suspects, key=lambda tensor: position.get(tensor, -1))
            source = f"; NaN first appears in {origin!r}" if origin != name else ""
            raise InputError(
                f"{graph.name}: the model itself yields NaN in output {name!r} ({count} of {size} elements) for "
                f"ordinary inputs, under ONNX Runtime{source}: mend the model there, or export it again"
            )


def _save(path: Path, array: Array) -> Path:
    np.save(path, array, allow_pickle=False)
    return path
