"""The child that builds kernels for a device elsewhere: `python -m autofuse.measure.children.builder`."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.device.target import Target
from autofuse.kernels.workload.workload import Workload
from autofuse.measure.children.child import Handler, note, serve
from autofuse.measure.children.codec import target_from_json
from autofuse.measure.children.messages import Message

KERNEL = "kernel.so"


class BuildSession:
    """What one building process holds: its target."""

    def __init__(self) -> None:
        self._target: Target | None = None

    def handlers(self) -> Mapping[str, Handler]:
        """Requests by name."""
        return {"hello": self.hello, "export": self.export, "probe": self.probe}

    def hello(self, request: Message) -> Message:
        """Import everything, so that the first candidate finds a warm process."""
        self._target = target_from_json(request["target"])
        preload(str(request["builder"]))
        return {}

    def export(self, request: Message) -> Message:
        """Workload text, schedule -> the kernel's shared library and its packed constants in `folder`; its code."""
        from autofuse.backend.compile.function import export_function
        from autofuse.kernels.tir.digest import code_key

        assert self._target is not None
        folder = Path(str(request["folder"]))
        folder.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        _, built = kernel_of(request, self._target)
        export_function(built.function, self._target, folder / KERNEL)
        build_s = time.perf_counter() - start
        constants = []
        for number, array in enumerate(built.pack(loaded(request["constants"]))):
            constants.append(str(folder / f"constant-{number}.npy"))
            np.save(constants[-1], np.asarray(array), allow_pickle=False)
        code = code_key(built.function)
        return {"build_s": build_s, "code": code, "kernel": str(folder / KERNEL), "constants": constants}

    def probe(self, request: Message) -> Message:
        """The clock probe's loop as a shared library at `path`."""
        from autofuse.backend.compile.function import export_function
        from autofuse.backend.compile.probes import fma_function

        assert self._target is not None
        function = fma_function(self._target, int(str(request["threads"])), int(str(request["steps"])))
        path = Path(str(request["path"]))
        path.parent.mkdir(parents=True, exist_ok=True)
        export_function(function, self._target, path)
        return {}


def kernel_of(request: Message, target: Target) -> tuple[Workload, Any]:
    """The workload of a request, and what its builder makes of it: a `function`, and `pack` for its constants."""
    workload = Workload.from_text(str(request["workload"]))
    return workload, imported(str(request["builder"]))(workload, request["schedule"], target)


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


def loaded(paths: object) -> list[NDArray[np.generic]]:
    """Arrays of .npy files, mapped."""
    assert isinstance(paths, list)
    return [np.load(str(path), mmap_mode="r") for path in paths]


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve(BuildSession().handlers())


if __name__ == "__main__":
    main()
