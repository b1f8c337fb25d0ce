"""PyTorch: eager, and torch.compile with frozen weights: in float32, in bfloat16 (autocast) and in int8 (its x86
quantiser, calibrated by the inputs that are timed)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config

from experiments.peers.runtimes.job import Array, Job, Ready
from experiments.peers.runtimes.torch_module import arrays, module_of, tensors

EAGER, COMPILED = "torch", "torch.compile"
BFLOAT16, INT8 = f"{COMPILED}:bf16", f"{COMPILED}:int8"


def prepare(job: Job) -> Ready:
    """Run it once; so Inductor's kernels are compiled and in its cache."""
    network = TorchNetwork(job.kind, job.model, job.threads, job.inputs)
    network.run()
    return Ready(job.model, network.note)


class TorchNetwork:
    """`kind`: EAGER, COMPILED, BFLOAT16 or INT8."""

    def __init__(self, kind: str, path: Path, threads: int, inputs: Mapping[str, Array]) -> None:
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)
        module, self.note = module_of(path)
        self._inputs, self._result = tensors(inputs), None
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        if kind == INT8:
            module = _quantised(module, self._inputs)
            self.note += ", int8 by X86InductorQuantizer"
        if kind != EAGER:
            torch._inductor.config.freezing = True
            module = torch.compile(module)
            self.note += ", freezing"
        self._module, self._cast = module, kind == BFLOAT16

    def run(self) -> None:
        """See `autofuse.measure.networks.network.Network`."""
        cast: AbstractContextManager[object] = torch.autocast("cpu", torch.bfloat16) if self._cast else nullcontext()
        with torch.no_grad(), cast:
            self._result = self._module(*self._inputs)

    def outputs(self) -> list[Array]:
        """See `autofuse.measure.networks.network.Network`."""
        return arrays(self._result)


def _quantised(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Any:
    """The module in int8 as torch's own tutorial for x86 makes it, calibrated by `inputs`."""
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    with torch.no_grad():
        prepared = prepare_pt2e(torch.export.export(module, inputs).module(), quantizer)
        prepared(*inputs)
        return move_exported_model_to_eval(convert_pt2e(prepared))


open_network = TorchNetwork
