"""The child that builds kernels for a device elsewhere: `python -m autofuse.measure.children.builder`."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.device.target import Target
from autofuse.kernels.workload.workload import Workload
from autofuse.measure.children.child import Handlers, note, serve
from autofuse.measure.children.messages import Done
from autofuse.measure.children.requests import Build, Export, Exported, ExportProbe, StartBuilder, Translate
from autofuse.values.processes import processor_limit

KERNEL = "kernel.so"


class BuildSession:
    """The session of a building process, for one target."""

    def __init__(self) -> None:
        self._target: Target | None = None

    def handlers(self) -> Handlers:
        """What it does, by the kind of request."""
        return {
            StartBuilder: self.start,
            Export: self.export,
            ExportProbe: self.export_probe,
            Translate: self.translate,
        }

    def start(self, request: StartBuilder) -> Done:
        """Import everything, so that the first candidate finds a warm process."""
        self._target = request.target
        preload(request.builder)
        return Done()

    def export(self, request: Export) -> Exported:
        """Workload text, schedule -> the kernel's shared library and its packed constants in `folder`; its code."""
        from autofuse.backend.compile.function import export_function
        from autofuse.kernels.tir.digest import code_key

        assert self._target is not None
        request.folder.mkdir(parents=True, exist_ok=True)
        kernel = request.folder / KERNEL
        start = time.perf_counter()
        with processor_limit(request.cpu_s):
            _, built = kernel_of(request, self._target)
            export_function(built.function, self._target, kernel)
        build_s = time.perf_counter() - start
        constants = []
        for number, array in enumerate(built.pack(loaded(request.constants))):
            constants.append(request.folder / f"constant-{number}.npy")
            np.save(constants[-1], np.asarray(array), allow_pickle=False)
        return Exported(build_s, code_key(built.function), kernel, tuple(constants))

    def translate(self, request: Translate) -> Done:
        """A function's machine code as an object file."""
        from autofuse.backend.compile.function import read_function, write_object

        assert self._target is not None
        with processor_limit(request.cpu_s):
            function = read_function(request.function)
            write_object(function, request.symbol, self._target, request.output)
        return Done()

    def export_probe(self, request: ExportProbe) -> Done:
        """The clock probe's loop as a shared library at `path`."""
        from autofuse.backend.compile.function import export_function
        from autofuse.backend.compile.probes import fma_function

        assert self._target is not None
        function = fma_function(self._target, request.threads, request.steps)
        request.path.parent.mkdir(parents=True, exist_ok=True)
        export_function(function, self._target, request.path)
        return Done()


def kernel_of(request: Build | Export, target: Target) -> tuple[Workload, Any]:
    """The workload of a request, and what its builder makes of it: a `function`, and `pack` for its constants."""
    workload = Workload.from_text(request.workload)
    return workload, imported(request.builder)(workload, request.schedule, target)


def preload(path: str) -> None:
    """Import what "package.module:name" names; when it cannot be, the first build reports it as its own failure."""
    try:
        imported(path)
    except Exception as error:  # noqa: BLE001 a foreign builder's module may raise anything
        note(f"builder not loaded: {error}")


def imported(path: str) -> Callable[..., Any]:
    """The function that "package.module:name" names."""
    module, _, name = path.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def loaded(paths: Sequence[Path]) -> list[NDArray[np.generic]]:
    """Arrays of .npy files, mapped."""
    return [np.load(path, mmap_mode="r") for path in paths]


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve(BuildSession().handlers())


if __name__ == "__main__":
    main()
