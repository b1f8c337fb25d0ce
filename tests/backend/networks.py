"""Small networks as libraries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper

from autofuse.backend.compile.assemble import Assembly, BoundKernel, assemble
from autofuse.backend.compile.function import compile_program
from autofuse.backend.compile.realise import describe
from autofuse.backend.container.metadata import KernelRow
from autofuse.backend.library.library import export
from autofuse.device.target import Target
from autofuse.graph.model import Graph
from autofuse.kernels.build import Kernel
from autofuse.kernels.importer.fallback import imported_function
from autofuse.kernels.workload.free_reshape import is_free_reshape
from autofuse.kernels.workload.workload import bind_workload

Array = NDArray[Any]
TARGET = Target("x86-64-v2", lanes=4, registers=16, cores=2, l1_bytes=32768, l2_bytes=262144)


def model_of(text: str, weights: dict[str, tuple[int, ...]] | None = None) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 13]> {text}')
    for seed, (name, shape) in enumerate((weights or {}).items()):
        array = np.random.default_rng(seed).standard_normal(shape).astype("float32")
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def groups_of(graph: Graph, groups: Sequence[Sequence[str]]) -> list[BoundKernel]:
    made: list[BoundKernel] = []
    for names in groups:
        bound = bind_workload(graph, names, {})
        made.append(
            (bound, None if is_free_reshape(bound.workload) else Kernel(*imported_function(bound.workload, TARGET)))
        )
    return made


def write(graph: Graph, groups: Sequence[BoundKernel], path: Path, **changes: Any) -> Assembly:
    assembly = assemble(graph, groups)
    rows = [
        KernelRow(symbol, groups[i][0].workload.label, groups[i][0].workload.key, {}, "rule")
        for i, symbol in assembly.symbols
    ]
    kernel_rows = changes.pop("kernel_rows", rows)
    metadata = replace(describe(graph, assembly, kernel_rows, TARGET, 1, "plan"), **changes)
    export(compile_program(assembly.module, TARGET), assembly.weights, metadata, path)
    return assembly


def unfused(graph: Graph) -> list[BoundKernel]:
    return groups_of(graph, [[operator.name] for operator in graph.operators])


def expected(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, inputs)]
