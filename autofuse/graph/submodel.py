"""ONNX models of a part of a graph, or of all of it: for references, for TVM's importer, for export, for viewers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from onnx import ModelProto, StringStringEntryProto

from autofuse.errors import InputError
from autofuse.graph.model import Graph
from autofuse.graph.nodes import MAX_MODEL_BYTES, make_model

OnnxModel = ModelProto
"""What the parts above `graph`, which do not import onnx, call an ONNX model."""
METADATA_IR_VERSION = 10
"""First version of the ONNX format whose nodes have metadata."""


def submodel(
    graph: Graph,
    operators: Sequence[str],
    outputs: Sequence[str] | None = None,
    constants_as_inputs: Collection[str] = (),
) -> ModelProto:
    """A valid ONNX model of some operators of `graph`.

    Inputs: the activations that they read from outside, in order of first use, then `constants_as_inputs`
    (names of constants that shall not be embedded), as far as they are read. Outputs: `outputs`, by
    default every tensor that is needed outside. Other constants are embedded. InputError for an
    operator or output that is not there, or for more than 2 GB of constants.
    """
    unknown = [name for name in operators if name not in graph.by_name]
    if unknown or not operators:
        raise InputError(
            f"{graph.name}: no such operator: {unknown[0]!r}" if unknown else f"{graph.name}: no operators given"
        )
    ordered = [graph.by_name[name] for name in sorted(set(operators), key=graph.position.__getitem__)]
    reads, writes = graph.boundary(operators)
    made = {name for operator in ordered for name in operator.outputs if name}
    for name in outputs or ():
        if name not in made:
            raise InputError(f"{graph.name}: output {name!r} is not computed by the chosen operators")
    results = tuple(outputs) if outputs is not None else writes
    embedded = {n: graph.constants[n] for n in reads if n in graph.constants and n not in constants_as_inputs}
    size = sum(array.nbytes for array in embedded.values())
    if size > MAX_MODEL_BYTES:
        raise InputError(f"{graph.name}: {size / 1e9:.1f} GB of constants do not fit into an ONNX file of at most 2 GB")
    activations = [n for n in reads if n not in graph.constants]
    open_constants = [n for n in reads if n in graph.constants and n not in embedded]
    return make_model(
        graph.name,
        ordered,
        [graph.tensors[n] for n in (*activations, *open_constants)],
        [graph.tensors[n] for n in results],
        embedded,
        graph.opset,
        [graph.tensors[n] for n in sorted(made - set(results))],
    )


def to_model(graph: Graph) -> ModelProto:
    """The whole graph as an ONNX model with the graph's inputs (also unused ones) and outputs, in their order."""
    size = sum(array.nbytes for array in graph.constants.values())
    if size > MAX_MODEL_BYTES:
        raise InputError(f"{graph.name}: {size / 1e9:.1f} GB of constants do not fit into an ONNX file of at most 2 GB")
    made = {name for operator in graph.operators for name in operator.outputs if name}
    return make_model(
        graph.name,
        graph.operators,
        [graph.tensors[name] for name in graph.inputs],
        [graph.tensors[name] for name in graph.outputs],
        graph.constants,
        graph.opset,
        [graph.tensors[name] for name in sorted(made - set(graph.outputs))],
    )


def annotated_model(
    graph: Graph, notes: Mapping[str, Mapping[str, str]], about: Mapping[str, str], weights: bool = True
) -> OnnxModel:
    """The graph as an ONNX model with `notes` (operator -> key -> text) in the metadata of its nodes.

    `about`: metadata of the model itself. `weights=False` leaves the constants that shape nothing out: they become
    inputs, so that the file is small and still valid, but computes nothing by itself. Unknown operators are ignored.
    """
    model = to_model(graph if weights else _without_weights(graph))
    annotate(model, notes, about)
    return model


def annotate(model: ModelProto, notes: Mapping[str, Mapping[str, str]], about: Mapping[str, str]) -> None:
    """Put `notes` and `about` into a model; see `annotated_model`."""
    model.ir_version = max(model.ir_version, METADATA_IR_VERSION)
    for node in model.graph.node:
        _add(node.metadata_props, notes.get(node.name, {}))
    _add(model.metadata_props, about)


def _without_weights(graph: Graph) -> Graph:
    """Constants of real numbers become inputs; integers stay, since they are axes and shapes."""
    kept = {name: array for name, array in graph.constants.items() if array.dtype.kind not in "fc" or array.size == 1}
    opened = [name for name in graph.constants if name not in kept and name not in graph.outputs]
    kept |= {name: graph.constants[name] for name in graph.outputs if name in graph.constants}
    return replace(graph, inputs=(*graph.inputs, *opened), constants=kept)


def _add(entries: object, notes: Mapping[str, str]) -> None:
    assert hasattr(entries, "append")
    for key, value in notes.items():
        entries.append(StringStringEntryProto(key=key, value=value))
