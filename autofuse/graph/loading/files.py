"""Reading an ONNX file that nobody vouches for: size, format, and weights confined to its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from autofuse.errors import InputError
from autofuse.graph.model import Origin
from autofuse.graph.nodes import MAX_MODEL_BYTES
from autofuse.values.outputs import model_file


def read_model(path: Path) -> ModelProto:
    """The model in `path`, its external weights read into it.

    InputError when the file is missing, truncated, not ONNX or over 2 GB, or when its weights lie
    outside its folder, are missing or are too short. Nothing outside the folder is opened.
    """
    size_bytes = model_file(path).stat().st_size
    if size_bytes > MAX_MODEL_BYTES:
        raise InputError(
            f"{path}: {size_bytes / 1e9:.1f} GB; an ONNX file ends at 2 GB, and autofuse takes models up to "
            "2 GB of weights: export a smaller model, or a part of it"
        )
    model = ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot read the model: {error.strerror}") from error
    except DecodeError as error:
        raise InputError(
            f"{path}: not a readable ONNX file: it is truncated, or of another format; export or download it again"
        ) from error
    if not model.HasField("graph"):
        raise InputError(f"{path}: not an ONNX model: it holds no graph (empty file, or another format?)")
    _read_external_data(model, path)
    return model


def weight_files(path: Path) -> tuple[Path, ...]:
    """The files beside a model that hold weights of it; none where the model cannot be read."""
    model = ModelProto()
    try:
        if not path.is_file() or path.stat().st_size > MAX_MODEL_BYTES:
            return ()
        model.ParseFromString(path.read_bytes())
        places = {
            entry.value
            for tensor in _tensors(model)
            if tensor.data_location == TensorProto.EXTERNAL
            for entry in tensor.external_data
            if entry.key == "location"
        }
        return tuple(_confined(path.parent.resolve(), place, str(path)) for place in sorted(places))
    except (OSError, DecodeError, InputError):
        return ()


def refuse_external_data(model: ModelProto, source: str) -> None:
    """InputError when a model in memory refers to weights that are still in files."""
    for tensor in _tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL:
            raise InputError(
                f"{source}: weight {tensor.name!r} is in an external file that is not loaded; "
                "load the model from its path instead"
            )


def _read_external_data(model: ModelProto, path: Path) -> None:
    tensors = [tensor for tensor in _tensors(model) if tensor.data_location == TensorProto.EXTERNAL]
    total = sum(_expected_bytes(tensor, path) for tensor in tensors)
    if total > MAX_MODEL_BYTES:
        raise InputError(
            f"{path}: {total / 1e9:.1f} GB of external weights; autofuse takes models up to 2 GB: "
            "export a smaller model, or a part of it"
        )
    folder = path.parent.resolve()
    for tensor in tensors:
        tensor.raw_data = _external_bytes(tensor, path, folder)
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]


def _external_bytes(tensor: TensorProto, path: Path, folder: Path) -> bytes:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    where = f"{path}: external data {location!r} of weight {tensor.name!r}"
    file = _confined(folder, location, where)
    try:
        offset, length = int(entries.get("offset", "0")), int(entries.get("length", "-1"))
    except ValueError as error:
        raise InputError(f"{where}: offset and length must be integers: {error}") from error
    expected = _expected_bytes(tensor, path)
    if length not in (-1, expected) or offset < 0:
        raise InputError(
            f"{where}: offset {offset}, length {length} do not fit its shape and type ({expected} bytes); "
            "export the model again"
        )
    try:
        if not file.is_file():
            raise InputError(f"{where} is missing: put the file beside the model")
        with file.open("rb") as stream:
            stream.seek(offset)
            data = stream.read(expected)
    except OSError as error:
        raise InputError(f"{where} cannot be read: {error.strerror}") from error
    if len(data) != expected:
        raise InputError(
            f"{where} is truncated: {expected} bytes wanted at offset {offset}, {len(data)} there; "
            "copy or export the file again"
        )
    return data


def _confined(folder: Path, location: str, where: str) -> Path:
    """The file `location` inside `folder`; refused when the text, or a symbolic link, leads out of it."""
    if not location or "\0" in location:
        raise InputError(f"{where}: no file is named; export the model again")
    views = (PurePosixPath(location), PureWindowsPath(location))
    windows = views[1]
    if any(view.is_absolute() for view in views) or windows.drive or windows.root:
        raise InputError(f"{where}: absolute paths are not allowed; keep the file in the model's folder")
    if any(".." in view.parts for view in views):
        raise InputError(f"{where}: the path leaves the model's folder ('..'); keep the file in the model's folder")
    try:
        file = (folder / location).resolve()
    except (OSError, RuntimeError) as error:
        raise InputError(f"{where} cannot be read: {error}") from error
    if not file.is_relative_to(folder):
        raise InputError(
            f"{where}: a symbolic link leads outside the model's folder; copy the file itself into the folder"
        )
    return file


def _expected_bytes(tensor: TensorProto, path: Path) -> int:
    try:
        itemsize = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: weight {tensor.name!r} has an element type that cannot be external") from error
    if any(dim < 0 for dim in tensor.dims):
        raise InputError(f"{path}: weight {tensor.name!r} has a negative dimension: {list(tensor.dims)}")
    elements = 1
    for dim in tensor.dims:
        elements *= dim
    return elements * itemsize


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        for node in function.node:
            yield from _node_tensors(node)


def _graph_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        yield from _node_tensors(node)


def _node_tensors(node: NodeProto) -> Iterator[TensorProto]:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from _graph_tensors(graph)


def origin_of(model: ModelProto) -> Origin:
    """What `model` says about itself; bytes in it that are no text are replaced."""
    return Origin(
        _text(model.producer_name),
        _text(model.graph.name),
        _text(model.domain),
        _text(model.doc_string),
        _text(model.graph.doc_string),
        model.model_version,
        {_text(entry.key): _text(entry.value) for entry in model.metadata_props},
    )


def _text(found: Any) -> str:
    """Protobuf hands out texts that are no UTF-8 as bytes."""
    return found if isinstance(found, str) else bytes(found).decode("utf-8", "replace")
