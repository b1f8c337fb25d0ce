"""Whole networks behind one face, for the child that times one of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autofuse.device.target import Target
from autofuse.ort.session import open_session, ort_value
from autofuse.values.names import BFLOAT16

Array = NDArray[np.generic]


class Network(Protocol):
    """A loaded network with its inputs bound, so that `run` is nothing but the inference."""

    def run(self) -> None:
        """One inference."""

    def outputs(self) -> list[Array]:
        """Results of the last run, in the model's order."""


class OnnxRuntimeNetwork:
    """ONNX Runtime as shipped (all optimisations, spinning allowed) with `threads` intra-op threads.

    Inputs and outputs are bound to fixed buffers (IOBinding): no copy and no allocation of theirs is timed,
    which is the least that any caller could pay.
    """

    def __init__(self, model: Path, threads: int, inputs: Mapping[str, Array]) -> None:
        self._session = open_session(model.name, model, threads=threads)
        self._binding = self._session.io_binding()
        for name, array in inputs.items():
            self._binding.bind_ortvalue_input(name, ort_value(array))
        names = [output.name for output in self._session.get_outputs()]
        self._results = [ort_value(np.asarray(array, order="C")) for array in self._session.run(names, dict(inputs))]
        for name, held in zip(names, self._results, strict=True):
            self._binding.bind_ortvalue_output(name, held)

    def run(self) -> None:
        """See Network."""
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> list[Array]:
        """See Network."""
        return [held.numpy() for held in self._results]


class LibraryNetwork:
    """A library that autofuse compiled, called on bound inputs; what it has as bfloat16 goes in and out as float32."""

    def __init__(self, library: Path, threads: int, inputs: Mapping[str, Array]) -> None:
        from autofuse.backend.library.library import load

        self._prepared = load(library, threads).prepared(inputs)
        self.run = self._prepared.run  # see Network; one call less is timed

    def outputs(self) -> list[Array]:
        """See Network."""
        made = self._prepared.outputs()
        return [array.astype(np.float32) if array.dtype.name == BFLOAT16 else array for array in made]


def open_network(kind: str, path: Path, target: Target, threads: int, inputs: Mapping[str, Array]) -> Network:
    """The network of a contender; `kind`: see `autofuse.measure.networks.bench.Contender`."""
    openers: dict[str, Any] = {
        "onnxruntime": lambda: OnnxRuntimeNetwork(path, threads, inputs),
        "autofuse": lambda: LibraryNetwork(path, threads, inputs),
        "tvm": lambda: _stock(path, target, inputs),
    }
    network: Network = openers[kind]()
    return network


def _stock(path: Path, target: Target, inputs: Mapping[str, Array]) -> Network:
    from autofuse.backend.tvm.untuned import StockNetwork

    return StockNetwork(path, target, inputs)
