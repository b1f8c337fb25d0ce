"""A graph as an ONNX file whose nodes carry notes: what viewers of ONNX models show beside a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx

from autofuse.graph.model import Graph
from autofuse.graph.submodel import OnnxModel, to_model

METADATA_IR_VERSION = 10
"""First version of the ONNX format whose nodes have metadata."""


def annotated_model(
    graph: Graph, notes: Mapping[str, Mapping[str, str]], about: Mapping[str, str], weights: bool = True
) -> OnnxModel:
    """The graph as an ONNX model with `notes` (operator -> key -> text) in the metadata of its nodes.

    `about`: metadata of the model itself. `weights=False` leaves the constants that shape nothing out: they become
    inputs, so that the file is small and still valid, but computes nothing by itself. Unknown operators are ignored.
    """
    model = to_model(graph if weights else _without_weights(graph))
    model.ir_version = max(model.ir_version, METADATA_IR_VERSION)
    for node in model.graph.node:
        _add(node.metadata_props, notes.get(node.name, {}))
    _add(model.metadata_props, about)
    return model


def _without_weights(graph: Graph) -> Graph:
    """Constants of real numbers become inputs; integers stay, since they are axes and shapes."""
    kept = {name: array for name, array in graph.constants.items() if array.dtype.kind not in "fc" or array.size == 1}
    opened = [name for name in graph.constants if name not in kept and name not in graph.outputs]
    kept |= {name: graph.constants[name] for name in graph.outputs if name in graph.constants}
    return replace(graph, inputs=(*graph.inputs, *opened), constants=kept)


def _add(entries: object, notes: Mapping[str, str]) -> None:
    assert hasattr(entries, "append")
    for key, value in notes.items():
        entries.append(onnx.StringStringEntryProto(key=key, value=value))
