"""An ONNX model of a workload: what the reference and TVM's importer read when no graph is at hand."""

from __future__ import annotations

from autofuse.graph.model import Operator, Tensor
from autofuse.graph.nodes import make_model
from autofuse.graph.submodel import OnnxModel
from autofuse.kernels.workload.workload import Workload


def workload_model(workload: Workload) -> OnnxModel:
    """A model whose values are called v0, v1, ... after their index.

    Shapes are the logical ones whatever the layout. Inputs, in this order: the workload's inputs, then
    its constants; literals are embedded. Outputs: those of the workload.
    """
    tensors = [Tensor(f"v{index}", value.shape, value.dtype) for index, value in enumerate(workload.values)]

    def names(indices: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(tensors[index].name if index >= 0 else "" for index in indices)

    operators = [
        Operator(f"n{index}", node.op_type, names(node.inputs), names(node.outputs), dict(node.attributes), node.domain)
        for index, node in enumerate(workload.operators)
    ]
    arguments = (*workload.of_kind("input"), *workload.of_kind("constant"))
    literals = {f"v{index}": workload.values[index].literal_array() for index in workload.of_kind("literal")}
    return make_model(
        "workload",
        operators,
        [tensors[index] for index in arguments],
        [tensors[index] for index in workload.of_kind("output")],
        literals,
        workload.opset,
        [tensors[index] for index in workload.of_kind("inner")],
    )
