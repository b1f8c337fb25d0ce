"""Samples: what a model is given, from files of NumPy or from an iterator."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import InputError
from autofuse.graph.model import Graph, Tensor
from autofuse.values.arguments import StrPath, read_array

Array = NDArray[Any]
Sample = Mapping[str, Array]
"""One call of the model: its inputs by name, and whatever else a metric of the user's reads, such as a label."""
Source = StrPath | Iterable[Mapping[str, Any]]


def read_samples(source: Source, graph: Graph, option: str) -> tuple[Sample, ...]:
    """The samples of a folder, file by file in the order of their names, or of an iterator.

    .npz: arrays by the names of the inputs; .npy: the only input. An array has the input's shape, or further samples
    along a first axis. InputError names `option` and the file.
    """
    if isinstance(source, str | os.PathLike):
        found = tuple(sample for path in _files(Path(source), option) for sample in _of_file(path, graph, option))
    elif isinstance(source, Mapping) or not isinstance(source, Iterable):
        raise InputError(f"{option}: got {type(source).__name__}, allowed: a folder, or an iterable of mappings")
    else:
        given = enumerate(source)
        found = tuple(one for number, each in given for one in _split(each, graph, f"{option}: sample {number}"))
    if not found:
        raise InputError(f"{option}: there are no samples")
    return found


def digest(samples: Sequence[Sample]) -> str:
    """SHA-256 of samples: names, types, shapes and bytes of their arrays, in order."""
    content = hashlib.sha256()
    for sample in samples:
        for name in sorted(sample):
            array = np.ascontiguousarray(sample[name])
            content.update(f"{name}\0{array.dtype.str}{array.shape}".encode())
            content.update(array.reshape(-1).view(np.uint8).data)
    return content.hexdigest()


def _files(folder: Path, option: str) -> list[Path]:
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix in (".npy", ".npz"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{option}: {folder}: {reason}; name a folder of .npy or .npz files") from error
    if not found:
        raise InputError(f"{option}: {folder} has no .npy or .npz file; write a few hundred inputs of the model there")
    return found


def _of_file(path: Path, graph: Graph, option: str) -> Iterator[Sample]:
    where = f"{option}: {path}"
    if path.suffix == ".npy":
        if len(graph.inputs) != 1:
            names = ", ".join(graph.inputs)
            raise InputError(f"{where}: the model has {len(graph.inputs)} inputs ({names}); write .npz files with them")
        yield from _split({graph.inputs[0]: read_array(path, option)}, graph, where)
        return
    try:
        if not path.is_file():  # a pipe would be waited for
            raise OSError("no such file")
        arrays = _arrays_in(path)
    except Exception as error:  # NumPy's parsers raise what they like: zlib.error, TokenError, NotImplementedError, ...
        reason = error if isinstance(error, OSError) else "it is damaged, or holds no numbers"
        raise InputError(f"{where}: not a readable .npz file: {reason}") from error
    yield from _split(arrays, graph, where)


def _arrays_in(path: Path) -> dict[str, Array]:
    archive = np.load(path, allow_pickle=False)
    if isinstance(archive, np.ndarray):
        raise ValueError("one array")
    with archive:
        return {name: archive[name] for name in archive.files}


def _split(given: Any, graph: Graph, where: str) -> Iterator[Sample]:
    """The samples of some arrays, which are stacked where one of them is."""
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: got {type(given).__name__}, allowed: a mapping of the inputs' names to arrays")
    missing = [name for name in graph.inputs if name not in given]
    if missing:
        has = ", ".join(map(str, given)) or "nothing"
        raise InputError(f"{where}: input {missing[0]!r} is missing; given: {has}")
    stacks = {name: _stack(_array(given[name], f"{where}: input {name!r}"), graph.tensors[name],
                           f"{where}: input {name!r}") for name in graph.inputs}  # fmt: skip
    counts = {len(stack) for stack in stacks.values()}
    if len(counts) > 1:
        each = ", ".join(f"{len(stack)} of {name!r}" for name, stack in stacks.items())
        raise InputError(f"{where}: there are {each}: give as many of each input")
    (count,) = counts
    others = {name: _array(array, f"{where}: {name!r}") for name, array in given.items() if name not in stacks}
    for number in range(count):
        more = {name: array[number] if count > 1 and array.shape[:1] == (count,) else array
                for name, array in others.items()}  # fmt: skip
        yield {**{name: stack[number] for name, stack in stacks.items()}, **more}


def _array(value: Any, where: str) -> Array:
    try:
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:  # lists of several lengths, numbers that no type holds
        raise InputError(f"{where} is no array: {error}") from error


def _stack(array: Array, tensor: Tensor, where: str) -> Array:
    """An array as [samples, *shape of the input], of the input's type."""
    shape, dtype = tensor.shape, np.dtype(tensor.dtype)
    if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise InputError(f"{where} is {array.dtype.name}, the model wants {dtype.name}; convert the data")
    if array.dtype.kind == "f" and not bool(np.isfinite(array).all()):
        raise InputError(f"{where} holds NaN or infinity; leave such samples out")
    rest, batch = shape[1:], shape[0] if shape else 1
    if array.shape == shape:
        stacked = array[None]
    elif array.shape[1:] == shape and array.ndim:
        stacked = array
    elif shape and array.shape[1:] == rest and array.ndim == len(shape) and batch and array.shape[0] % batch == 0:
        stacked = array.reshape(-1, *shape)
    elif shape and batch == 1 and array.shape == rest:
        stacked = array.reshape(1, *shape)
    else:
        raise InputError(
            f"{where} has shape {list(array.shape)}, the model wants {list(shape)}, or several along a first axis"
        )
    with np.errstate(over="ignore"):
        found = np.ascontiguousarray(stacked.astype(dtype))
    if found.dtype.kind == "f" and not bool(np.isfinite(found).all()):
        raise InputError(f"{where} holds numbers beyond what {dtype.name} can; leave such samples out")
    return found
