"""A library called once, from and to .npy files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.library.compiled import Library
from autofuse.backend.library.parted import PartedLibrary
from autofuse.errors import InputError
from autofuse.values import outputs
from autofuse.values.arguments import read_array
from autofuse.values.names import BFLOAT16
from autofuse.values.outputs import Inputs

MAX_STEM = 100
"""Letters of an output's name that its file is named by."""
ARRAY = outputs.Kind("an array of NumPy", lambda path: outputs.has_head(path, b"\x93NUMPY"))


@dataclass(frozen=True)
class RunOutput:
    """An output of a call; `min`, `mean`, `max`: None where it has no numbers. `file`: where it was written."""

    output: str
    shape: tuple[int, ...]
    dtype: str
    min: float | None = None
    mean: float | None = None
    max: float | None = None
    file: str | None = None


@dataclass(frozen=True)
class RunReport:
    """The report of one run of a library: what it computed."""

    library: str
    outputs: tuple[RunOutput, ...]


def run_once(
    library: Library | PartedLibrary,
    path: Path,
    inputs: Mapping[str, Path],
    folder: Path | None,
    sizes: Mapping[str, int],
) -> RunReport:
    """Call `library`, which was loaded from `path`, with the arrays of `inputs` (generated where one is left out).

    `sizes`: of what it leaves open; else those of the inputs that are given, or the largest.
    `folder`: where each output is written; bfloat16 as float32, since files of NumPy have no name for it.
    InputError for inputs that are none, and for files that must stay.
    """
    feeds = _feeds(library, inputs, sizes)
    names = library.output_names
    given = {f"the input {name}={file}": file for name, file in inputs.items()}
    files = {} if folder is None else _array_files(folder, names, {"the library": path, **given})
    found = []
    for name, array in zip(names, library(feeds), strict=True):
        dtype = str(array.dtype)
        array = array.astype(np.float32) if dtype == BFLOAT16 else array
        if name in files:
            _save(files[name], array)
        numbers: dict[str, float] = {}
        if array.size and array.dtype.kind in "fiu":
            numbers = {"min": float(array.min()), "mean": float(array.mean()), "max": float(array.max())}
        file = str(files[name]) if name in files else None
        found.append(RunOutput(name, array.shape, dtype, **numbers, file=file))
    return RunReport(str(path), tuple(found))


def _feeds(
    library: Library | PartedLibrary, inputs: Mapping[str, Path], sizes: Mapping[str, int]
) -> dict[str, NDArray[np.generic]]:
    """Arrays from .npy files, and valid generated ones for the inputs that are not given."""
    names, given = library.example_inputs(), dict[str, NDArray[np.generic]]()
    for name, file in inputs.items():
        if name not in names:
            got = f"{name}={file}" if name else str(file)
            raise InputError(f"--input: got {got!r}, allowed: NAME=FILE.npy with NAME one of {', '.join(names)}")
        given[name] = read_array(file, "--input")
    found = library.sizes_of(given)
    return {**(library.example_inputs(sizes={**found, **sizes}) if found or sizes else names), **given}


def _array_files(folder: Path, names: Sequence[str], inputs: Inputs) -> dict[str, Path]:
    """A file in `folder` for each output, by its name; no two are the same, and none is an input."""
    found: dict[str, Path] = {}
    outputs.output_folder(folder)
    for name in names:
        safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
        stem = safe.lstrip(".")[:MAX_STEM] or "output"
        number, path = 1, folder / f"{stem}.npy"
        while path in found.values():
            number += 1
            path = folder / f"{stem}-{number}.npy"
        outputs.check_output(path, ARRAY, inputs)
        found[name] = path
    return found


def _save(path: Path, array: NDArray[np.generic]) -> None:
    with outputs.output_file(path, ARRAY) as part, part.open("wb") as file:
        np.save(file, array, allow_pickle=False)
