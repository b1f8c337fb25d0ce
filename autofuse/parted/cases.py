"""A model of open sizes that ONNX Runtime runs a part of, at one size: a case of a race."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from autofuse.backend.container.metadata import InputSpec, Metadata
from autofuse.backend.library.arrays import example
from autofuse.errors import InputError
from autofuse.graph.parts.source import Source
from autofuse.parted.race import SEED, Array, Task, answers
from autofuse.segments.choice import Choice
from autofuse.segments.read import read_whole
from autofuse.values.arguments import Given


def sized_task(model: Path, form: Given, metadata: Metadata, file: Path) -> tuple[Choice, Task]:
    """The model at one size, as a case of a race; `file`: where it is written."""
    choice = read_whole(model, form, "")
    if choice is None:
        raise InputError(f"{model}: ONNX Runtime computes some of its operators otherwise than ONNX says")
    file.write_bytes(choice.source.sized())
    inputs = _inputs(choice.source, metadata)
    (wanted,) = answers(choice, file, [inputs], optimise=False)
    return choice, Task(inputs, tuple(wanted[name] for name in choice.source.results), file, metadata.kernels)


def _inputs(source: Source, metadata: Metadata) -> dict[str, Array]:
    """Reproducible inputs of a model of fixed sizes; see `PartedLibrary.example_inputs`."""
    known = {spec.name: spec for program in metadata.main for spec in program.inputs}
    generator, found = np.random.default_rng(SEED), {}
    for name in source.inputs:
        value = source.type_of(name)
        if not value.dtype or value.shape is None:
            raise InputError(f"input {name!r} is {value.text}, which cannot be made up")
        shape = tuple(size for size in value.shape if isinstance(size, int))
        spec = known.get(name) or InputSpec(name, shape, value.dtype)
        found[name] = example(replace(spec, shape=shape), generator)
    return found
