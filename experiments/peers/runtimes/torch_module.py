"""The torch module behind an ONNX file: the architecture it was exported from, else a conversion of the file."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor, fx, nn

from experiments.catalogue import ARCHITECTURE, NETWORKS
from experiments.peers.runtimes.job import Array, UnsupportedError


def module_of(model: Path, attention: str = "sdpa") -> tuple[nn.Module, str]:
    """(module in eval mode, where it comes from); `attention`: of transformers that are built from their library.

    UnsupportedError when there is no such module.
    """
    proto = onnx.load(model)
    name = next((entry.value for entry in proto.metadata_props if entry.key == ARCHITECTURE), "")
    if name in NETWORKS:
        network = NETWORKS[name]
        if network.operators:
            raise UnsupportedError(f"needs the compiled operators of {network.operators}, which do not load here")
        from experiments.models.build import build

        transformer = network.exported.startswith("language:")
        given = {"attention": attention} if transformer else {}
        return build(name, **given), f"torch module ({attention} attention)" if transformer else "torch module"
    from experiments.models import torchvision_operators

    torchvision_operators.declare()  # which onnx2torch imports
    from onnx2torch import convert

    from experiments.peers.runtimes import torch_recurrent

    torch_recurrent.declare()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fixed_reshapes(convert(proto)).eval(), "onnx2torch"
        except NotImplementedError as error:
            raise UnsupportedError(f"onnx2torch: {error}") from error


class FixedReshape(nn.Module):
    """Reshape to a shape that is known; 0 keeps the input's size, as in ONNX."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        """Same elements."""
        return x.reshape([size or x.shape[axis] for axis, size in enumerate(self.shape)])


def fixed_reshapes(module: fx.GraphModule) -> fx.GraphModule:
    """Reshape(x, constant tensor)   becomes   FixedReshape(x): no compiler can see through the tensor."""
    for node in module.graph.nodes:
        if node.op != "call_module" or type(module.get_submodule(node.target)).__name__ != "OnnxReshape":
            continue
        x, shape = node.args
        if shape.op == "get_attr":
            values = tuple(int(value) for value in module.get_buffer(shape.target))
            module.set_submodule(node.target, FixedReshape(values))
            node.args = (x,)
    module.recompile()
    return module


def tensors(inputs: Mapping[str, Array]) -> tuple[Tensor, ...]:
    """Inputs in the model's order, copied."""
    return tuple(torch.from_numpy(np.array(array)) for array in inputs.values())


def arrays(result: object) -> list[Array]:
    """A module's result, however nested, as arrays in order; None is a result that nobody reads."""
    if result is None:
        return []
    if isinstance(result, Tensor):
        held = result.float() if result.dtype == torch.bfloat16 else result  # numpy has no such type
        return [held.detach().contiguous().numpy()]
    parts = result.values() if isinstance(result, Mapping) else result
    if not isinstance(parts, Iterable):
        raise TypeError(f"a module returned {type(result).__name__}, not tensors")
    return [array for part in parts for array in arrays(part)]
