"""A whole model as it is, with notes in the metadata of its nodes, for viewers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from onnx import ModelProto, TensorProto
from onnx.helper import make_tensor_value_info, tensor_dtype_to_np_dtype

from autofuse.graph.parts.contexts import with_contexts
from autofuse.graph.parts.source import Source
from autofuse.graph.submodel import annotate


def annotated_source(
    source: Source, notes: Mapping[str, Mapping[str, str]], about: Mapping[str, str], weights: bool = True
) -> ModelProto:
    """A whole model with its operators as they are, some of which may be none of ours; see `annotated_model`."""
    model = with_contexts(source, [tuple(node.place for node in source.nodes)], {})
    if not weights:
        _open_weights(model)
    annotate(model, notes, about)
    return model


def _open_weights(model: ModelProto) -> None:
    """Constants of real numbers become inputs of the model."""
    results = {value.name for value in model.graph.output}
    kept = [one for one in model.graph.initializer if one.name in results or not _is_weight(one)]
    opened = [one for one in model.graph.initializer if one.name not in results and _is_weight(one)]
    model.graph.input.extend(make_tensor_value_info(one.name, one.data_type, one.dims) for one in opened)
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def _is_weight(tensor: TensorProto) -> bool:
    return tensor_dtype_to_np_dtype(tensor.data_type).kind not in "iub" and math.prod(tensor.dims) != 1
