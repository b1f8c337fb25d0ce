"""Runs of models in ONNX Runtime, in a process of its own: the reference for all that is checked.

`python -m autofuse.ort.apart` is that process. Arrays are .npy files. One process serves its maker as long as that
lives; one that a model has broken is replaced.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.errors import InputError
from autofuse.ort.process import UNLIMITED, HungError, LostError, OrtProcess, serve
from autofuse.ort.session import first_line, open_session
from autofuse.values.processes import default_memory

WALL_S = 900.0
"""For all runs of one model: a large one on a busy machine, without ONNX Runtime's optimisations, takes minutes."""
PLAIN = "fiub"
"""Kinds of arrays that can be compared."""


@dataclass(frozen=True)
class Run:
    """One call of a model: the files of its inputs, and where the values that are wanted go, by their names."""

    inputs: Mapping[str, Path]
    outputs: Mapping[str, Path]


def run_apart(name: str, model: Path, runs: Sequence[Run], *, optimise: bool, memory_bytes: int | None = None) -> None:
    """Load `model` once and do the `runs`; `name`: what messages call it.

    InputError when ONNX Runtime refuses the model or its inputs, breaks, takes more than its time or `memory_bytes`
    (None: most of the machine's), and when a value is no tensor of numbers; OSError when a file cannot be written.
    """
    request = {
        "model": str(model),
        "optimise": optimise,
        "runs": [[_texts(run.inputs), _texts(run.outputs)] for run in runs],
    }
    try:
        said = _SERVANT.ask(json.dumps(request).encode(), memory_bytes or default_memory(1))
    except LostError as error:
        raise InputError(
            f"{name}: ONNX Runtime {error} while it ran the model, so there is nothing to check results against; "
            "simplify the model"
        ) from error
    if "full" in said:
        raise OSError(*said["full"])
    if "refused" in said:
        raise InputError(f"{name}: {said['refused']}")


class _Servant:
    """The process of this one, made when it is first asked; for one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: OrtProcess | None = None
        self._owner = 0

    def ask(self, body: bytes, memory_bytes: int) -> dict[str, Any]:
        with self._lock:
            known = self._usable()
            if known is not None:
                try:
                    return known.ask(body, WALL_S)
                except HungError:
                    raise
                except LostError:
                    pass
            # A fresh one says for sure whether it was this model that broke it.
            self._process, self._owner = OrtProcess(__name__, UNLIMITED, memory_bytes), os.getpid()
            return self._process.ask(body, WALL_S)

    def end(self) -> None:
        """End it, where there is one."""
        if (known := self._usable()) is not None:
            known.end()
        self._process = None

    def _usable(self) -> OrtProcess | None:
        """The process, where it is this one's own (not that of a process which this one was forked from) and alive."""
        own = self._process if self._owner == os.getpid() else None
        return own if own is not None and own.alive else None


_SERVANT = _Servant()
atexit.register(_SERVANT.end)


def _texts(files: Mapping[str, Path]) -> dict[str, str]:
    return {name: str(path) for name, path in files.items()}


def ran(body: bytes) -> dict[str, Any]:
    """What the process answers to a request."""
    request = json.loads(body)
    session = open_session("", Path(request["model"]), optimise=request["optimise"])
    for inputs, outputs in request["runs"]:
        feeds = {name: np.load(path) for name, path in inputs.items()}
        try:
            results = session.run(list(outputs), feeds)
        except Exception as error:
            raise InputError(f"ONNX Runtime cannot run the model: {first_line(error)}") from error
        for (name, path), result in zip(outputs.items(), results, strict=True):
            if not isinstance(result, np.ndarray) or result.dtype.kind not in PLAIN:
                raise InputError(f"output {name!r} is no tensor of numbers, so nothing can be compared")
            try:
                np.save(path, result, allow_pickle=False)
            except OSError as error:
                return {"full": [*([error.errno] if error.errno else []), error.strerror or str(error)]}
    return {}


if __name__ == "__main__":
    serve(ran, *map(int, sys.argv[1:]))
