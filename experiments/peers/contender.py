"""The child that holds one rival, in the rival's own environment: `python -m experiments.peers.contender`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.device.target import Target
from autofuse.measure.children.child import RefusedError, serve
from autofuse.measure.networks.contender import ContenderSession
from autofuse.measure.networks.network import Array, Network
from experiments.peers.requests import Prepare, RivalReady
from experiments.peers.runtimes.job import Job, UnsupportedError

MODULES = {
    "openvino": "openvino_runtime",
    "openvino:default": "openvino_runtime",
    "torch": "torch_runtime",
    "torch.compile": "torch_runtime",
    "torch.compile:bf16": "torch_runtime",
    "torch.compile:int8": "torch_runtime",
    "litert": "litert_runtime",
    "litert:int8": "litert_runtime",
    "litert:dynamic": "litert_runtime",
    "ncnn": "ncnn_runtime",
    "ncnn:bf16": "ncnn_runtime",
    "ncnn:int8": "ncnn_runtime",
    "metaschedule": "metaschedule_runtime",
}
"""Module in `experiments.peers.runtimes` of each kind: it has `prepare(job)` and `open_network(...)`."""


def runtime(kind: str) -> Any:
    """The module of a kind; RefusedError for one that is not in `MODULES`."""
    if kind not in MODULES:
        raise RefusedError("run_error", f"kind {kind!r} is not one of {', '.join(MODULES)}")
    return importlib.import_module(f"experiments.peers.runtimes.{MODULES[kind]}")


def open_network(kind: str, path: Path, target: Target, threads: int, inputs: Mapping[str, Array]) -> Network:
    """See `autofuse.measure.networks.network.open_network`."""
    del target
    network: Network = runtime(kind).open_network(kind, path, threads, inputs)
    return network


def prepare(request: Prepare) -> RivalReady:
    """Make a rival's form of the model; its path and a note."""
    inputs = {name: np.load(path) for name, path in request.inputs.items()}
    job = Job(request.kind, request.model, request.folder, request.threads, inputs, request.target, request.budget_s)
    try:
        ready = runtime(job.kind).prepare(job)
    except UnsupportedError as error:
        raise RefusedError("build_error", str(error)) from error
    return RivalReady(ready.path, ready.note)


def main() -> None:
    """Serve one coordinator until it goes away."""
    serve({**ContenderSession(open_network).handlers(), Prepare: prepare})


if __name__ == "__main__":
    main()
