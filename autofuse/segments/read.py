"""The parts of a model's file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autofuse.errors import InputError, UncoveredError
from autofuse.graph.parts.source import Infer, ValueType, read_source
from autofuse.ort.inference import TypeInference
from autofuse.ort.session import numpy_name
from autofuse.segments.bodies import with_bodies
from autofuse.segments.choice import Choice, choose
from autofuse.segments.deviations import deviation
from autofuse.values.arguments import Given, file_title


def read_choice(
    model: Path,
    given: Given,
    least_us: float | None = None,
    bare: bool = False,
    fixed: Mapping[str, int] | None = None,
) -> Choice:
    """The parts of a model's file, those in bodies of If, Loop and Scan among them. `least_us`, `bare`: see `choose`.
    `fixed`: where given, sizes of inputs stay open, but for those that it has a value of; then segments are what has
    fixed sizes all the same.

    InputError when it is damaged, or when ONNX Runtime refuses it, too.
    """
    with TypeInference(file_title(model)) as types:
        infer = inferred(types)
        source = read_source(model, given, infer, open_sizes=fixed is not None, fixed=fixed or {})
        found = choose(source, least_us, bare)
        return with_bodies(found, infer)


def read_whole(model: Path, given: Given, reason: str) -> Choice | None:
    """All of a model in ONNX Runtime, for this reason; None where that computes otherwise than ONNX says."""
    with TypeInference(file_title(model)) as types:
        source = read_source(model, given, inferred(types))
    if any(deviation(source, node) for node in source.nodes):
        return None
    return Choice(source, (), {node.place: reason for node in source.nodes})


def inferred(types: TypeInference) -> Infer:
    """The types of a model's inputs and outputs, by ONNX Runtime."""

    def infer(content: bytes) -> dict[str, ValueType]:
        found = types(content)
        return {name: ValueType(one.text, numpy_name(one.text), one.shape) for name, one in found.items()}

    return infer


def parts_of(
    model: Path, given: Given, error: UncoveredError, least_us: float | None = None, bare: bool = False
) -> Choice:
    """The parts of a model that our kernels do not cover whole, as `error` says; see `read_choice`.

    InputError of both.
    """
    try:
        return read_choice(model, given, least_us, bare)
    except InputError as other:
        raise InputError(f"{error}; and {str(other).removeprefix(f'{model}: ')}") from error
