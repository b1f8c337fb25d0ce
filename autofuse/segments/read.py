"""The parts of a model's file."""

from __future__ import annotations

from pathlib import Path

from autofuse.errors import InputError, UncoveredError
from autofuse.graph.parts.source import ValueType, read_source
from autofuse.ort.inference import TypeInference
from autofuse.ort.session import numpy_name
from autofuse.segments.bodies import with_bodies
from autofuse.segments.choice import Choice, choose
from autofuse.values.arguments import Given, file_title


def read_choice(model: Path, given: Given, least_us: float | None = None, bare: bool = False) -> Choice:
    """The parts of a model's file, those in bodies of If, Loop and Scan among them. `least_us`, `bare`: see `choose`.

    InputError when it is damaged, or when ONNX Runtime refuses it, too.
    """

    with TypeInference(file_title(model)) as types:

        def infer(content: bytes) -> dict[str, ValueType]:
            found = types(content)
            return {name: ValueType(one.text, numpy_name(one.text), one.shape) for name, one in found.items()}

        found = choose(read_source(model, given, infer), least_us, bare)
        return with_bodies(found, infer)


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
