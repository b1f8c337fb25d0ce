"""The types that ONNX Runtime infers, in a process of its own.

`python -m autofuse.ort.inference` is that process: models come in, types go out.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from types import TracebackType
from typing import Any

from autofuse.errors import InputError
from autofuse.ort.process import LostError, OrtProcess, serve
from autofuse.ort.session import ValueType, value_types

CPU_S = 20
"""Processor time for all that is asked of one process."""
WALL_S = 300.0
"""Wall time for one answer, on a machine that is busy with others."""
MEMORY_BYTES, COPIES = 2 << 30, 4
"""Memory of the process: so much, and for each byte of the model so many more."""


class TypeInference:
    """ONNX Runtime's types of the values of models, as long as the block lasts; `name`: of the model, for messages."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._process: OrtProcess | None = None

    def __enter__(self) -> TypeInference:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.end()

    def __call__(self, model: bytes) -> dict[str, ValueType]:
        """The type of each input and output of `model`, also of outputs that declare none.

        InputError when ONNX Runtime refuses the model, or takes more than its time or memory; DeviceError when it
        cannot be started.
        """
        if self._process is None:
            self._process = OrtProcess(__name__, CPU_S, MEMORY_BYTES + COPIES * len(model))
        try:
            said = self._process.ask(model, WALL_S)
        except LostError as error:
            raise InputError(
                f"{self._name}: ONNX Runtime {error} while it read the model; simplify the model"
            ) from error
        if "refused" in said:
            raise InputError(f"{self._name}: {said['refused']}")
        return {
            name: ValueType(one["text"], None if one["shape"] is None else tuple(one["shape"]))
            for name, one in said["types"].items()
        }


def types_of(model: bytes) -> dict[str, Any]:
    """What the process answers to a model."""
    return {"types": {name: asdict(one) for name, one in value_types("", model).items()}}


if __name__ == "__main__":
    serve(types_of, *map(int, sys.argv[1:]))
