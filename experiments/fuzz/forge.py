"""Libraries with another content whose sizes and checksums are right, above all those of models in parts."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

from autofuse.errors import AutofuseError
from experiments.fuzz.bombs import model, node
from experiments.fuzz.mutate import damaged_json

LARGE = 2**36


def in_parts() -> ModelProto:
    """Two products of ours, and between them a pooling whose indices are an output, too: that is ONNX Runtime's."""
    real = np.random.default_rng(3).standard_normal
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("MaxPool", ["b"], ["r", "h"], kernel_shape=[9]),
        node("Squeeze", ["r", "one"], ["q"]),
        node("MatMul", ["q", "v"], ["t"]),
        node("Tanh", ["t"], ["y"]),
    ]
    made = model(
        nodes, {"x": [6, 1, 16]}, "y", w=real((16, 20)).astype("float32"), v=real((12, 8)).astype("float32"),
        one=np.array([1]),
    )  # fmt: skip
    made.graph.output.append(helper.make_tensor_value_info("h", TensorProto.INT64, None))
    return made


@contextmanager
def every_segment() -> Iterator[None]:
    """Every segment is entered meanwhile, however small it is."""
    from autofuse.segments import worth

    least, worth.LEAST_US = worth.LEAST_US, 0.0
    try:
        yield
    finally:
        worth.LEAST_US = least


def sections(data: bytes) -> tuple[list[int], list[bytes]]:
    """Sizes of image, weights, description and table; and their bytes, with what lies between."""
    from autofuse.backend.container import container

    trailer = container._TRAILER
    _, *found = trailer.unpack(data[-trailer.size :])
    place = container.Sections(*found)
    image, weights = data[: place.image_bytes], data[place.weights_offset : place.json_offset]
    text = data[place.json_offset : place.json_offset + place.json_bytes]
    table = data[place.json_offset + place.json_bytes : -trailer.size]
    return [len(image), len(weights), len(text), len(table)], [image, weights, text, table]


def built(parts: list[bytes]) -> bytes:
    """A file of these parts, with true sizes and checksums."""
    from autofuse.backend.container import container

    image, weights, text, table = parts
    digests = [hashlib.sha256(part).digest() for part in parts]
    trailer = container._TRAILER.pack(container.MAGIC, *map(len, parts), *digests)
    return image + bytes(-len(image) % container.PAGE) + weights + text + table + trailer


def retold(data: bytes, body: Any) -> bytes:
    """A library with this description, and the table that belongs to it where it makes sense."""
    _, parts = sections(data)
    parts[2] = json.dumps(body).encode()
    parts[3] = table_of(parts[2], len(parts[0])) or parts[3]
    return built(parts)


def table_of(description: bytes, image_bytes: int) -> bytes:
    """The table of a description behind an image of so many bytes; nothing where it makes no sense."""
    from autofuse.backend.container import container
    from autofuse.backend.container.metadata import Metadata
    from autofuse.backend.container.table import table_text

    start, end = container.aligned(image_bytes, container.PAGE), 0
    offsets = []
    try:
        metadata = Metadata.from_json(description, "forged")
        for spec in metadata.weights:
            offsets.append(start + container.aligned(end, container.ALIGNMENT))
            end = offsets[-1] - start + container._size(spec)
        return table_text(metadata, offsets).encode()
    except (AutofuseError, OverflowError, ValueError):
        return b""


def model_of(data: bytes) -> bytes:
    """The first model of ONNX Runtime's in a library."""
    body = json.loads(sections(data)[1][2])
    place = _model_place(body)
    start = _offsets(body)[place]
    weights: bytes = sections(data)[1][1]
    return weights[start : start + body["weights"][place]["shape"][0]]


def with_model(data: bytes, made: bytes) -> bytes:
    """A library with this model in the place of its first of ONNX Runtime's; sizes and checksums are right."""
    _, (image, weights, text, table) = sections(data)
    body = json.loads(text)
    place, before = _model_place(body), _offsets(body)
    sizes = [_size(spec) for spec in body["weights"]]
    body["weights"][place]["shape"] = [len(made)]
    packed = bytearray()
    for number, (start, size) in enumerate(zip(before, sizes, strict=True)):
        packed += bytes(-len(packed) % 64)
        packed += made if number == place else weights[start : start + size]
    return retold(built([image, bytes(packed), text, table]), body)


def _model_place(body: Any) -> int:
    return next(int(part["model"]) for part in body["parts"]["order"] if part["model"] is not None)


def _offsets(body: Any) -> list[int]:
    found, end = [], 0
    for spec in body["weights"]:
        found.append(end + -end % 64)
        end = found[-1] + _size(spec)
    return found


def _size(spec: Any) -> int:
    return int(np.prod(spec["shape"], dtype=np.int64)) * np.dtype(spec["dtype"]).itemsize


def greedy(data: bytes) -> bytes:
    """A model of the same inputs and outputs, each of which is made of a constant of hundreds of gigabytes."""
    model = ModelProto.FromString(data)
    del model.graph.node[:]
    sizes = helper.make_tensor("sizes", TensorProto.INT64, [1], [LARGE])
    model.graph.initializer.append(sizes)
    for number, value in enumerate(model.graph.output):
        kind = value.type.tensor_type.elem_type
        filled = helper.make_tensor("value", kind, [1], [0])
        model.graph.node.append(helper.make_node("ConstantOfShape", ["sizes"], [f"large{number}"], value=filled))
        model.graph.node.append(helper.make_node("Identity", [f"large{number}"], [value.name]))
    return bytes(model.SerializeToString())


def _any_value(dice: random.Random, parts: dict[str, Any]) -> None:
    name = dice.choice(sorted(parts))
    parts[name] = damaged_json(dice, parts[name])


def _another_name(dice: random.Random, parts: dict[str, Any]) -> None:
    """A value under the name of another, of another part or of none."""
    known = [name for part in parts["order"] for side in ("inputs", "outputs") for name in part[side]]
    part = dice.choice(parts["order"])
    side = dice.choice(("inputs", "outputs"))
    if part[side]:
        part[side][dice.randrange(len(part[side]))] = dice.choice((*known, "", "nowhere"))


def _another_order(dice: random.Random, parts: dict[str, Any]) -> None:
    dice.shuffle(dice.choice((parts["order"], dice.choice(parts["order"])["inputs"], parts["outputs"])))


def _another_place(dice: random.Random, parts: dict[str, Any]) -> None:
    part = dice.choice(parts["order"])
    part[dice.choice(("program", "model"))] = dice.choice((None, 0, 1, 2, 3, -1, 10**9, 2**63))


CONNECTIONS: tuple[Callable[[random.Random, Any], None], ...] = (
    _any_value, _another_name, _another_name, _another_order, _another_place,
)  # fmt: skip


def with_other_connections(dice: random.Random, data: bytes) -> bytes:
    """A library of a model in parts whose parts, or what they hand on, are not as they were."""
    body = json.loads(sections(data)[1][2])
    for _ in range(dice.choice((1, 1, 2, 3))):
        with suppress(TypeError, LookupError):  # the change before left nothing to change in this way
            dice.choice(CONNECTIONS)(dice, body["parts"])
    return retold(data, body)
