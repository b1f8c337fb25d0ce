"""PyTorch: eager, and torch.compile with frozen weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import torch._inductor.config

from experiments.peers.runtimes.job import Array, Job, Ready
from experiments.peers.runtimes.torch_module import arrays, module_of, tensors

EAGER, COMPILED = "torch", "torch.compile"


def prepare(job: Job) -> Ready:
    """Run it once; so Inductor's kernels are compiled and in its cache."""
    network = TorchNetwork(job.kind, job.model, job.threads, job.inputs)
    network.run()
    return Ready(job.model, network.note)


class TorchNetwork:
    """`kind`: EAGER or COMPILED."""

    def __init__(self, kind: str, path: Path, threads: int, inputs: Mapping[str, Array]) -> None:
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)
        module, self.note = module_of(path)
        self._inputs, self._result = tensors(inputs), None
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        if kind == COMPILED:
            torch._inductor.config.freezing = True
            module = torch.compile(module)
            self.note += ", freezing"
        self._module = module

    def run(self) -> None:
        """See `autofuse.measure.networks.network.Network`."""
        with torch.no_grad():
            self._result = self._module(*self._inputs)

    def outputs(self) -> list[Array]:
        """See `autofuse.measure.networks.network.Network`."""
        return arrays(self._result)


open_network = TorchNetwork
