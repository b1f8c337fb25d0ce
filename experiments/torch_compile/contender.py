"""The child that holds a network under torch.compile: `python -m experiments.torch_compile.contender`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._inductor.config

from autofuse.device.target import Target
from autofuse.measure.children.child import serve
from autofuse.measure.networks.contender import ContenderSession
from autofuse.measure.networks.network import Array, Network
from autofuse.torch_backend.backend import autofuse
from experiments.torch_compile.networks import build

INDUCTOR = "inductor"


def compiled(name: str, engine: str, database: Path, threads: int, **options: Any) -> Any:
    """A network under torch.compile by "inductor", with frozen weights, or by "autofuse"."""
    torch.set_num_threads(threads)
    if engine == INDUCTOR:
        torch._inductor.config.freezing = True
        return torch.compile(build(name))
    return torch.compile(build(name), backend=autofuse, options={"database": str(database), **options})


def first_call_file(database: Path, engine: str, name: str, threads: int) -> Path:
    """Where a child leaves the seconds that its first call took."""
    return database.with_name(f"first-{engine}-{name}-{threads}.txt")


class TorchNetwork:
    """`kind`: "ENGINE NETWORK"."""

    def __init__(self, kind: str, database: Path, threads: int, inputs: Mapping[str, Array]) -> None:
        engine, name = kind.split()
        self._module = compiled(name, engine, database, threads)
        self._inputs = [torch.from_numpy(np.array(array)) for array in inputs.values()]
        self._result: Any = None
        start = time.perf_counter()
        self.run()
        first_call_file(database, engine, name, threads).write_text(f"{time.perf_counter() - start:.3f}")
        self.run()

    def run(self) -> None:
        """See `autofuse.measure.networks.network.Network`."""
        with torch.no_grad():
            self._result = self._module(*self._inputs)

    def outputs(self) -> list[Array]:
        """See `autofuse.measure.networks.network.Network`."""
        results = self._result if isinstance(self._result, tuple) else [self._result]
        return [result.numpy() for result in results]


def open_network(kind: str, path: Path, target: Target, threads: int, inputs: Mapping[str, Array]) -> Network:
    """See `autofuse.measure.networks.network.open_network`; `path`: of the database."""
    del target
    return TorchNetwork(kind, path, threads, inputs)


if __name__ == "__main__":
    serve(ContenderSession(open_network).handlers())
