"""A compiled model behind the interface that users of ONNX Runtime know."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.container.metadata import Metadata, TensorSpec, ValueSpec
from autofuse.backend.library.library import load
from autofuse.errors import InputError

_ONNX_TYPES = {"float32": "float", "float64": "double"}
"""numpy's names of element types -> ONNX Runtime's, where they differ."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output as ONNX Runtime describes it: `type` such as "tensor(float)".

    `shape`: a size that differs between the library's programs is None; one that is open in ONNX Runtime's part of a
    model, its name there, or None.
    """

    name: str
    shape: tuple[int | str | None, ...]
    type: str


class Session:
    """`Session("model.so").run(None, {"input": array})`, as with ONNX Runtime; safe to call from several threads.

    `threads`: those that run the model for each caller (None: those it was tuned for). `pad`: fill up inputs to
    the next larger shape of the library, see `autofuse.backend.library.library.Library`. `trust`: files of public
    keys, one of which must have signed it (none: any library, and its code runs). Errors: see `load` there.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int | None = None,
        pad: bool = False,
        trust: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        self._library = load(Path(path), threads, pad=pad, trust=[Path(key) for key in trust])
        self._names = self._library.output_names

    @property
    def metadata(self) -> Metadata:
        """What the library says about itself."""
        return self._library.metadata

    @property
    def threads(self) -> int:
        """Threads that run the model for each caller."""
        return self._library.threads

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs, in its order."""
        parts = self.metadata.parts
        return _described([p.inputs for p in self.metadata.programs]) if parts is None else _arguments(parts.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs, in its order."""
        parts = self.metadata.parts
        return _described([p.outputs for p in self.metadata.programs]) if parts is None else _arguments(parts.outputs)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: None = None
    ) -> list[NDArray[np.generic]]:
        """The outputs called `output_names` (None: all) for inputs by name; `run_options` must be None.

        Inputs and outputs are read and returned without a copy where `Library` says so.
        """
        if run_options is not None:
            raise InputError(f"run_options: got {run_options!r}, allowed: None")
        places = self._places(output_names)
        results = self._library(input_feed)
        return results if places is None else [results[place] for place in places]

    def run_dlpack(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> list[Any]:
        """Like `run`, with outputs as objects that have `__dlpack__`: `torch.from_dlpack(output)` copies nothing."""
        places = self._places(output_names)
        results = self._library.tensors(input_feed)
        return results if places is None else [results[place] for place in places]

    def empty_inputs(self, program: int = 0) -> dict[str, NDArray[np.generic]]:
        """Zeros for every input, to be written into: aligned so that `run` reads them without a copy."""
        return self._library.empty_inputs(program)

    def _places(self, names: Sequence[str] | None) -> list[int] | None:
        """Where outputs stand among the model's; None for all of them."""
        if names is None:
            return None
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise InputError(f"output_names: got {names!r}, allowed: None, or a list such as {self._names[:1]}")
        for name in names:
            if name not in self._names:
                raise InputError(f"output {name!r} is unknown; the model's outputs: {', '.join(self._names)}")
        return [self._names.index(name) for name in names]


def _arguments(specs: Sequence[ValueSpec]) -> list[NodeArg]:
    return [NodeArg(spec.name, spec.shape or (), spec.type) for spec in specs]


def _described(programs: Sequence[Sequence[TensorSpec]]) -> list[NodeArg]:
    found = []
    for specs in zip(*programs, strict=True):
        shape = tuple(
            sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*(s.shape for s in specs), strict=True)
        )
        dtype = specs[0].dtype
        found.append(NodeArg(specs[0].name, shape, f"tensor({_ONNX_TYPES.get(dtype, dtype)})"))
    return found
