"""Mutations, each made of a seed alone: of bytes, of JSON, of ONNX models, of SQLite files and of command lines."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from autofuse.graph.mapping import names

NUMBERS = (
    *(0, 1, -1, 2, 3, 7, 127, 128, 255, 1 << 15, 1 << 20, 2**31 - 1, -(2**31), 2**32, 2**40, 2**62, -(2**62)),
    2**63 - 1,
)
TEXTS = (
    *("", " ", "x", "\x00", "../../x", "a" * 5_000, "𝛑", "NaN", "-1", "1e999", "\x1b[31m", "%s%n"),
    "'; DROP TABLE af_run; --",
)
OPERATORS = sorted(
    names(
        """Add Mul Conv MatMul Gemm Relu Softmax Reshape Transpose Concat Slice Split Gather Pad Expand Tile Resize If
        Loop Cast Where ReduceSum ReduceMean MaxPool AveragePool ConvTranspose Einsum TopK NonZero Range OneHot Shape
        Constant LayerNormalization BatchNormalization InstanceNormalization LSTM Identity Squeeze Unsqueeze CumSum"""
    )
)


def damaged(dice: random.Random, data: bytes) -> bytes:
    """Some bytes changed, cut, doubled or put in."""
    content = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 8, 40))):
        place, end = sorted(dice.randrange(len(content) + 1) for _ in range(2))
        way = dice.randrange(7)
        if way <= 2 and content:
            content[min(place, len(content) - 1)] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        elif way == 3:
            del content[place : min(end, place + 64)]
        elif way == 4:
            content[place:place] = content[place : min(end, place + 64)]
        elif way == 5:
            content[place:place] = dice.randbytes(dice.choice((1, 4, 8)))
        elif dice.random() < 0.3:
            del content[place:]
    return bytes(content)


def nasty(dice: random.Random) -> Any:
    """A value of JSON that nobody expects."""
    return dice.choice(
        (*NUMBERS, *TEXTS, None, True, 1e308, -0.0, 10**400, [], {}, [[]], [None] * 100, {"": {"": None}})
    )


def damaged_json(dice: random.Random, body: Any) -> Any:
    """One value, somewhere, is another one, is gone, or stands twice."""
    if not isinstance(body, dict | list) or not body or dice.random() < 0.25:
        return nasty(dice)
    if isinstance(body, list):
        place = dice.randrange(len(body))
        ways = ([*body[:place], *body[place + 1 :]], [*body, body[place]])
        changed = [*body[:place], damaged_json(dice, body[place]), *body[place + 1 :]]
        return dice.choice((*ways, changed, changed, changed))
    key = dice.choice(list(body))
    way = dice.randrange(8)
    if way == 0:
        return {name: value for name, value in body.items() if name != key}
    if way == 1:
        return {**body, dice.choice(TEXTS): nasty(dice)}
    return {**body, key: damaged_json(dice, body[key])}


def damaged_model(dice: random.Random, data: bytes) -> bytes:
    """An ONNX file with bytes changed, or with operators, attributes, shapes and names changed."""
    if dice.random() < 0.3:
        return damaged(dice, data)
    model = ModelProto.FromString(data)
    for _ in range(dice.choice((1, 1, 2, 4))):
        dice.choice(_MODEL_WAYS)(dice, model.graph)
    if dice.random() < 0.1 and model.opset_import:
        model.opset_import[0].version = dice.choice((0, 1, 6, 7, 9, 11, 13, 17, 21, 25, 10**6))
    return model.SerializeToString()


def _operator(dice: random.Random, graph: GraphProto) -> NodeProto | None:
    return dice.choice(graph.node) if graph.node else None


def _other_type(dice: random.Random, graph: GraphProto) -> None:
    if (node := _operator(dice, graph)) is not None:
        node.op_type = dice.choice(OPERATORS)


def _other_input(dice: random.Random, graph: GraphProto) -> None:
    node = _operator(dice, graph)
    if node is None:
        return
    names = [name for other in graph.node for name in (*other.input, *other.output)] + [v.name for v in graph.input]
    names += [tensor.name for tensor in graph.initializer] + ["", "missing"]
    if node.input and dice.random() < 0.7:
        node.input[dice.randrange(len(node.input))] = dice.choice(names)
    elif node.input and dice.random() < 0.5:
        del node.input[-1]
    else:
        node.input.append(dice.choice(names))


def _other_output(dice: random.Random, graph: GraphProto) -> None:
    node = _operator(dice, graph)
    if node is not None and node.output:
        node.output[dice.randrange(len(node.output))] = dice.choice(("", *(n for o in graph.node for n in o.output)))


def _other_attribute(dice: random.Random, graph: GraphProto) -> None:
    node = _operator(dice, graph)
    if node is None:
        return
    if not node.attribute or dice.random() < 0.2:
        made = node.attribute.add(name=dice.choice(("axis", "pads", "group", "perm", "to", "strides", "keepdims", "x")))
        made.type, made.i = AttributeProto.INT, dice.choice(NUMBERS)
        return
    attribute = dice.choice(node.attribute)
    way = dice.randrange(6)
    if way == 0:
        node.attribute.remove(attribute)
    elif way == 1:
        attribute.type = dice.choice((1, 2, 3, 4, 5, 6, 7, 8, 0))
    elif attribute.ints:
        attribute.ints[dice.randrange(len(attribute.ints))] = dice.choice(NUMBERS)
        if dice.random() < 0.2:
            attribute.ints.append(dice.choice(NUMBERS))
    elif attribute.HasField("t"):
        _damage_tensor(dice, attribute.t)
    elif attribute.HasField("g"):
        dice.choice(_MODEL_WAYS)(dice, attribute.g)
    else:
        attribute.i, attribute.f = dice.choice(NUMBERS), dice.choice((0.0, -1.0, 1e38, float("nan"), float("inf")))
        attribute.s = dice.choice(TEXTS).encode()


def _other_shape(dice: random.Random, graph: GraphProto) -> None:
    values = [value for value in (*graph.input, *graph.output, *graph.value_info) if value.type.HasField("tensor_type")]
    if not values:
        return
    kind = dice.choice(values).type.tensor_type
    if dice.random() < 0.25:
        kind.elem_type = dice.randrange(25)
    elif kind.shape.dim and dice.random() < 0.8:
        dim = dice.choice(kind.shape.dim)
        if dice.random() < 0.8:
            dim.dim_value = dice.choice(NUMBERS)
        else:
            dim.dim_param = dice.choice(TEXTS)
    else:
        kind.shape.dim.add(dim_value=dice.choice(NUMBERS))


def _other_weight(dice: random.Random, graph: GraphProto) -> None:
    if graph.initializer:
        _damage_tensor(dice, dice.choice(graph.initializer))


def _damage_tensor(dice: random.Random, tensor: TensorProto) -> None:
    way = dice.randrange(6)
    if way == 0:
        tensor.data_type = dice.randrange(25)
    elif way == 1:
        tensor.dims.append(dice.choice(NUMBERS))
    elif way == 2 and tensor.dims:
        tensor.dims[dice.randrange(len(tensor.dims))] = dice.choice(NUMBERS)
    elif way == 3:
        tensor.name = dice.choice(TEXTS)
    elif way == 4:
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", dice.choice(TEXTS)), ("offset", str(dice.choice(NUMBERS)))):
            tensor.external_data.add(key=key, value=value)
    elif tensor.raw_data:
        tensor.raw_data = damaged(dice, tensor.raw_data)


def _other_list(dice: random.Random, graph: GraphProto) -> None:
    """Something stands twice, is gone, or elsewhere."""
    chosen: Any = dice.choice((graph.node, graph.input, graph.output, graph.initializer))
    if not chosen:
        return
    place = dice.randrange(len(chosen))
    copy = type(chosen[place])()
    copy.CopyFrom(chosen[place])
    if dice.random() < 0.6:
        del chosen[place]
    if dice.random() < 0.5:
        chosen.append(copy)


_MODEL_WAYS: tuple[Callable[[random.Random, GraphProto], None], ...] = (
    _other_type, _other_input, _other_input, _other_output, _other_attribute, _other_attribute, _other_attribute,
    _other_shape, _other_shape, _other_weight, _other_weight, _other_list,
)  # fmt: skip


def damage_database(dice: random.Random, path: Path) -> None:
    """An SQLite file with bytes changed, or with rows or its schema changed through SQL."""
    if dice.random() < 0.5:
        path.write_bytes(damaged(dice, path.read_bytes()))
        return
    with closing(sqlite3.connect(path)) as connection, suppress(sqlite3.Error, OverflowError):
        connection.executescript("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;")
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(dice.choice((1, 2))):
            if not tables:
                break
            table = dice.choice(tables)
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
            if not columns:  # the schema was spoilt before
                break
            value = dice.choice((*NUMBERS, *TEXTS, None, 1e308, b"\xff\x00"))
            statements = (
                f'UPDATE "{table}" SET "{dice.choice(columns)}" = ?',
                f'ALTER TABLE "{table}" DROP COLUMN "{columns[-1]}"',
                f'DROP TABLE "{table}"', f'CREATE TRIGGER t AFTER INSERT ON "{table}" BEGIN DELETE FROM "{table}"; END',
            )  # fmt: skip
            number = dice.choice((0, 0, 0, 0, 1, 2, 3))
            connection.execute(statements[number], (value,) if number == 0 else ())
        connection.commit()


def damage_export(dice: random.Random, folder: Path) -> None:
    """A folder of JSON lines with values, lines or bytes changed."""
    file = dice.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    data = file.read_bytes()
    if dice.random() < 0.4:
        file.write_bytes(damaged(dice, data))
    elif file.suffix == ".json":
        file.write_text(json.dumps(damaged_json(dice, json.loads(data))))
    else:
        lines = data.splitlines(keepends=True)
        place = dice.randrange(max(1, len(lines)))
        made = json.dumps(damaged_json(dice, json.loads(lines[place]) if lines else {})).encode() + b"\n"
        file.write_bytes(b"".join([*lines[:place], made, *lines[place + 1 :]]))
