"""TVM's own default pipeline on an ONNX file: the rival that shows what untuned TVM does."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.backend.compile.function import tvm_target
from autofuse.backend.compile.jit import tensor
from autofuse.device.target import Target
from autofuse.graph.loading.files import read_model


class StockNetwork:
    """A model imported and compiled as TVM ships: its fusion, its (lack of) schedules.

    `inputs`: one array a model input, by name; they stay bound. Errors of TVM pass through.
    """

    def __init__(self, model: Path, target: Target, inputs: Mapping[str, NDArray[np.generic]]) -> None:
        import tvm
        from tvm import relax
        from tvm.relax.frontend.onnx import from_onnx

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = from_onnx(read_model(model), keep_params_in_input=False)
        described = tvm_target(target)
        pipeline = relax.get_default_pipeline(described)
        executable = tvm.compile(module, target=described, relax_pipeline=pipeline)
        self._machine = relax.VirtualMachine(executable, tvm.cpu())
        names = [str(variable.name) for variable in module["main"].params]
        bound = [tensor(array) for array in _in_order(names, inputs)]
        self._machine.set_input("main", *bound)

    def run(self) -> None:
        """One inference on the bound inputs."""
        self._machine.invoke_stateful("main")

    def outputs(self) -> list[NDArray[np.generic]]:
        """Results of the last run, in the model's order."""
        return list(_flat(self._machine.get_outputs("main")))


def _in_order(names: list[str], inputs: Mapping[str, NDArray[np.generic]]) -> list[NDArray[np.generic]]:
    """Arrays in parameter order; TVM's importer rewrites names it does not like, then the order decides."""
    if all(name in inputs for name in names):
        return [inputs[name] for name in names]
    return list(inputs.values())


def _flat(result: Any) -> list[NDArray[np.generic]]:
    if hasattr(result, "numpy"):
        return [result.numpy()]
    return [array for item in result for array in _flat(item)]
