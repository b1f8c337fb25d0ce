"""From a torch module to an ONNX file that still has every operator the architecture is written in."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import ModelProto
from torch import Tensor, nn

from experiments.catalogue import ARCHITECTURE, ATTENTION, NETWORKS

VISION_OPSET, LANGUAGE_OPSET = 17, 18
ANSWERS = 1e-3
"""Another input must change the output by this part of its range, else the weights have drowned the signal."""


def export(name: str, module: nn.Module, inputs: tuple[Tensor, ...], path: Path) -> ModelProto:
    """Write the network called `name` to `path`; its metadata says which it is."""
    names, transformer = list(NETWORKS[name].inputs), NETWORKS[name].family == ATTENTION
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        model = _dynamo(module, inputs, names) if transformer else _traced(module, inputs, names, path)
    model = lifted(model)
    model.graph.name = name
    onnx.helper.set_model_props(model, {ARCHITECTURE: name})
    onnx.save(model, path)
    onnx.checker.check_model(str(path), full_check=True)
    return model


def _traced(module: nn.Module, inputs: tuple[Tensor, ...], names: list[str], path: Path) -> ModelProto:
    """The tracing exporter; PRESERVE keeps BatchNormalization, which it would fold into convolutions."""
    torch.onnx.export(
        module, inputs, str(path), dynamo=False, opset_version=VISION_OPSET, input_names=names,
        training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=True,
    )  # fmt: skip
    return onnx.shape_inference.infer_shapes(onnx.load(path))


def lifted(model: ModelProto) -> ModelProto:
    """The model with its Constant nodes as initializers, which is all that they are."""
    import onnx_ir
    from onnx_ir.passes import common

    read = onnx_ir.serde.deserialize_model(model)
    lift = common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)
    return onnx_ir.serde.serialize_model(lift(read).model)


def _dynamo(module: nn.Module, inputs: tuple[Tensor, ...], names: list[str]) -> ModelProto:
    """torch.export's graph; constants folded, identities and duplicates removed, nothing fused."""
    import onnx_ir
    from onnx_ir.passes import common
    from onnxscript import optimizer

    program = torch.onnx.export(
        module, inputs, dynamo=True, opset_version=LANGUAGE_OPSET, input_names=names, optimize=False, verbose=False
    )
    assert program is not None, "without a file name the exporter returns its program"
    model = program.model
    optimizer.fold_constants(model)
    for clean in (
        common.IdentityEliminationPass(), common.CommonSubexpressionEliminationPass(), common.RemoveUnusedNodesPass(),
        common.RemoveUnusedFunctionsPass(), common.RemoveUnusedOpsetsPass(),
    ):  # fmt: skip
        model = clean(model).model
    return onnx_ir.serde.serialize_model(model)


def refusal(path: Path, inputs: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> str:
    """Why the network is no good for measuring (its outputs are not finite, or hear nothing); "" when it is."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [wanted.name for wanted in session.get_inputs()]
    first, second = (
        session.run(None, {key: value.numpy() for key, value in zip(names, given, strict=True)})
        for given in (inputs, others)
    )
    for index, (one, two) in enumerate(zip(first, second, strict=True)):
        if one.dtype.kind != "f":
            continue
        if not np.isfinite(one).all():
            return f"output {index} is not finite"
        if np.abs(one - two).max() <= ANSWERS * np.ptp(one):
            return f"output {index} does not depend on the input"
    return ""
