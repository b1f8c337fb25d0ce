"""A whole model whose nodes can be taken out, with what is known of its values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper, inliner, numpy_helper

from autofuse.errors import InputError
from autofuse.graph.loading.constants import FOLDABLE, evaluate, shape_value
from autofuse.graph.loading.draft import scalars_of
from autofuse.graph.loading.files import origin_of, read_model
from autofuse.graph.loading.given.constants import bind_constants, shapes_of
from autofuse.graph.loading.given.shapes import bind_shapes
from autofuse.graph.loading.limits import check_operator_count
from autofuse.graph.loading.simplify.classical import with_plain_scalers
from autofuse.graph.loading.simplify.inline import constant_value
from autofuse.graph.loading.simplify.microsoft.nchwc import with_plain_layout
from autofuse.graph.loading.validity import check_graph_lists
from autofuse.graph.model import Graph, Operator, Tensor
from autofuse.graph.nodes import (
    SUPPORTED_DTYPES,
    captured_names,
    dtype_name,
    element_type,
    operator_of,
    subgraphs_of,
)
from autofuse.graph.parts.order import needed_nodes, sorted_nodes
from autofuse.values.arguments import Given, Shapes

KNOWN_ELEMENTS = 4096
"""Elements of a value that is computed at once, such as a shape; larger constants stay operators of their part."""
ROUNDS = 8
"""How often types are asked for again because values became known."""
_ABOUT = ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string")


@dataclass(frozen=True)
class ValueType:
    """The type of a value: `text` in ONNX Runtime's words, `dtype` numpy's name of its elements.

    `dtype`: "" for elements that numpy lacks, and for what is no tensor. `shape`: sizes; a text or None for an open
    one, None for a rank that is unknown.
    """

    text: str
    dtype: str = ""
    shape: tuple[int | str | None, ...] | None = None


Infer = Callable[[bytes], Mapping[str, ValueType]]
"""The types of all inputs and outputs of a model, outputs without a declared type included."""
_UNKNOWN = ValueType("unknown")


@dataclass(frozen=True)
class Node:
    """A node of the whole model: its place in topological order, and the names that it reads and writes.

    `reads` has what its bodies capture; constants and values that are known are not among them.
    """

    place: int
    name: str
    op_type: str
    domain: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    has_body: bool


class Source:
    """A model of which parts can be taken. `nodes`: in topological order, without those of known results.

    `types`: of every value that a node reads or writes, as far as known. `inputs`, `outputs`: the model's, in order,
    each once; `results`: the outputs as its file lists them, some perhaps twice. `open_sizes`: inputs need no sizes.
    `whole_model`: the model as its file has it, where operators were written otherwise before it was cut.
    """

    def __init__(self, name: str, model: ModelProto, shapes: Shapes, infer: Infer, *, open_sizes: bool = False) -> None:
        self.name, self._model, self.origin = name, model, origin_of(model)
        self.whole_model = model
        graph = model.graph
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self._declared = {v.name: v for v in graph.input if v.name not in self.constants}
        self.inputs = tuple(self._declared)
        self.results = tuple(value.name for value in graph.output)
        self.outputs = tuple(dict.fromkeys(self.results))
        self._sizes = {} if open_sizes else _static_inputs(self._declared, shapes, name)
        self._protos = needed_nodes(sorted_nodes(graph, {*self.inputs, *self.constants}, name), self.outputs)
        self._known: dict[str, NDArray] = {}  # type: ignore[type-arg]
        self.types: dict[str, ValueType] = {}
        self._infer_all(infer)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """See the class."""
        found: list[Node] = []
        for place, proto in enumerate(self._kept):
            writes = tuple(name for name in proto.output if name)
            reads = dict.fromkeys(n for n in (*proto.input, *captured_names(proto)) if n and not self.is_constant(n))
            domain = "" if proto.domain == "ai.onnx" else proto.domain
            body = bool(subgraphs_of(proto))
            found.append(Node(place, proto.name, proto.op_type, domain, tuple(reads), writes, body))
        return tuple(found)

    @cached_property
    def _kept(self) -> list[NodeProto]:
        known = self._known
        return [p for p in self._protos if not all(n in known for n in p.output if n)]

    @property
    def opset(self) -> int:
        """The version of ONNX's operators."""
        return next((item.version for item in self._model.opset_import if item.domain in ("", "ai.onnx")), 1)

    def is_constant(self, name: str) -> bool:
        """Whether a value is a weight of the model, or became known."""
        return name in self.constants or name in self._known

    def type_of(self, name: str) -> ValueType:
        """The type of a value, as far as known."""
        return self.types.get(name, _UNKNOWN)

    def dtype_of(self, name: str) -> str:
        """numpy's name of a value's elements, "" for what is no tensor of numbers that kernels may have."""
        if name in self.constants:
            dtype = dtype_name(self.constants[name].data_type)
        elif name in self._known:
            dtype = self._known[name].dtype.name
        else:
            dtype = self.type_of(name).dtype
        return dtype if dtype in SUPPORTED_DTYPES else ""

    def tensor_of(self, name: str) -> Tensor | None:
        """A value as a tensor of static shape; None where it is none."""
        if name in self.constants:
            shape: tuple[object, ...] | None = tuple(self.constants[name].dims)
        elif name in self._known:
            shape = self._known[name].shape
        else:
            shape = self.type_of(name).shape
        dtype = self.dtype_of(name)
        if shape is None or not dtype or not all(isinstance(size, int) and size >= 0 for size in shape):
            return None
        return Tensor(name, tuple(int(str(size)) for size in shape), dtype)

    def signature(self, node: Node) -> bytes:
        """Equal for nodes that compute the same from inputs of the same types and small constants."""
        proto = NodeProto()
        proto.CopyFrom(self._kept[node.place])
        words = [repr(self._described(name)) for name in proto.input]
        proto.ClearField("name")
        del proto.input[:], proto.output[:]
        return b"\0".join([proto.SerializeToString(deterministic=True), *(word.encode() for word in words)])

    def proto(self, node: Node) -> NodeProto:
        """A node as the file has it; not to be changed."""
        return self._kept[node.place]

    def operator(self, node: Node) -> Operator:
        """A node with its attributes, and all its inputs and outputs ("": left out)."""
        return operator_of(self._kept[node.place])

    def numbers(self, name: str) -> NDArray | None:  # type: ignore[type-arg]
        """What a constant holds; None for what is none."""
        return numpy_helper.to_array(self.constants[name]) if name in self.constants else self._known.get(name)

    def declared_sizes(self, name: str) -> tuple[int, ...] | None:
        """The sizes that the file gives for an output; None where it leaves one open."""
        value = next(value for value in self._model.graph.output if value.name == name)
        sizes = tuple(size.dim_value for size in value.type.tensor_type.shape.dim)
        return sizes if sizes and all(sizes) else None

    def alone(self, node: Node) -> Graph | None:
        """A graph of this node alone, for its cost; None where a size is open, and for what is not ONNX's own."""
        operator = self.operator(node)
        named = [name for name in (*operator.inputs, *operator.outputs) if name]
        tensors = {name: tensor for name in named if (tensor := self.tensor_of(name)) is not None}
        if node.domain or node.has_body or len(tensors) < len(set(named)):
            return None
        return Graph("", operator.inputs, operator.outputs, (operator,), tensors, self._known, 0)

    def part(self, members: Sequence[int], results: Iterable[str], name: str) -> ModelProto:
        """The model of some nodes. Inputs: what they read from elsewhere, in order of use; outputs: `results`."""
        protos = [self._kept[place] for place in sorted(members)]
        made = {out for proto in protos for out in proto.output if out}
        reads = dict.fromkeys(n for p in protos for n in (*p.input, *captured_names(p)) if n and n not in made)
        graph = GraphProto(name=name)
        graph.node.extend(protos)
        for wanted in reads:
            if wanted in self._known:
                graph.initializer.append(numpy_helper.from_array(self._known[wanted], wanted))
            elif wanted in self.constants:
                graph.initializer.append(self.constants[wanted])
            else:
                graph.input.append(self.value_info(wanted))
        for result in results:
            if result not in made and result in self.constants and result not in reads:
                graph.initializer.append(self.constants[result])
            graph.output.append(self.value_info(result))
        model = ModelProto(ir_version=self._model.ir_version, producer_name="autofuse", graph=graph)
        model.opset_import.extend(self._model.opset_import)
        return model

    def whole(self) -> bytes:
        """The model as its file has it, weights inside; an output that is listed twice is there once."""
        if self.results == self.outputs:
            return serialised(self.whole_model)
        model = ModelProto()
        model.CopyFrom(self.whole_model)
        del model.graph.output[:]
        model.graph.output.extend({value.name: value for value in self.whole_model.graph.output}.values())
        return serialised(model)

    def sized(self) -> bytes:
        """The whole model with the sizes of its inputs set that were given."""
        model = ModelProto()
        model.CopyFrom(self.whole_model)
        for value in model.graph.input:
            value.CopyFrom(self._sized(value))
        return serialised(model)

    def frame(self) -> ModelProto:
        """What the model says of itself, its inputs (of the sizes that were given) and outputs, without any node."""
        model = ModelProto()
        for name in _ABOUT:
            if self._model.HasField(name):
                setattr(model, name, getattr(self._model, name))
        model.opset_import.extend(self._model.opset_import)
        model.metadata_props.extend(self._model.metadata_props)
        graph = self._model.graph
        model.graph.name, model.graph.doc_string = graph.name, graph.doc_string
        model.graph.sparse_initializer.extend(graph.sparse_initializer)
        model.graph.input.extend(map(self._sized, self._declared.values()))
        model.graph.output.extend(graph.output)
        return model

    def _sized(self, value: ValueInfoProto) -> ValueInfoProto:
        tensor = self._sizes.get(value.name)
        if tensor is None:
            return value
        return helper.make_tensor_value_info(value.name, element_type(tensor.dtype), tensor.shape)

    def _described(self, name: str) -> object:
        if not name:
            return ""
        if name in self._known:
            return self._known[name].dtype.name, self._known[name].shape, self._known[name].tobytes()
        tensor = self.tensor_of(name)
        if name in self.constants and math.prod(self.constants[name].dims) <= KNOWN_ELEMENTS:
            return self.constants[name].SerializeToString(deterministic=True)
        return (tensor.shape, tensor.dtype, name in self.constants) if tensor else name

    def value_info(self, name: str) -> ValueInfoProto:
        """A value with its type, as far as it is known; inputs of the model as its file has them."""
        found = self.type_of(name)
        if not found.dtype:
            return self._declared.get(name) or ValueInfoProto(name=name)
        sizes = None if found.shape is None else [None if size == "" else size for size in found.shape]
        return helper.make_tensor_value_info(name, element_type(found.dtype), sizes)

    def _infer_all(self, infer: Infer) -> None:
        """Types, and the values that follow from them, until no more become known."""
        for _ in range(ROUNDS):
            light = self.light_model()
            found = infer(serialised(light))
            scalars = scalars_of(light) if any(one.shape == () for one in found.values()) else set()
            self.types = {name: one if one.shape != () or name in scalars else replace(one, shape=None)
                          for name, one in found.items()}  # fmt: skip
            before = len(self._known)
            self._note_known()
            if len(self._known) == before:
                return

    def light_model(self) -> ModelProto:
        """The model without large weights, its sizes set and every value an output."""
        small = {n: t for n, t in self.constants.items() if math.prod(t.dims) <= KNOWN_ELEMENTS}
        graph = GraphProto(name="types")
        graph.node.extend(p for p in self._protos if not all(n in self._known for n in p.output if n))
        for name, value in self._declared.items():
            sized = self._sizes.get(name)
            graph.input.append(
                value if sized is None else helper.make_tensor_value_info(name, element_type(sized.dtype), sized.shape)
            )
        for name, tensor in self.constants.items():
            if name in small:
                graph.initializer.append(tensor)
            else:
                graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
        graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in self._known.items())
        graph.sparse_initializer.extend(self._model.graph.sparse_initializer)
        made = dict.fromkeys(out for proto in graph.node for out in proto.output if out)
        graph.output.extend(ValueInfoProto(name=name) for name in made)
        model = ModelProto(ir_version=self._model.ir_version, graph=graph)
        model.opset_import.extend(self._model.opset_import)
        return model

    def _note_known(self) -> None:
        """Shapes of tensors whose size is fixed, and what is computed from them and from small constants."""
        opset = self.opset
        for proto in self._protos:
            outputs = [name for name in proto.output if name]
            if proto.domain not in ("", "ai.onnx") or not outputs or any(n in self.outputs for n in outputs):
                continue
            if not all(name in self._known for name in outputs):
                self._known.update(self._evaluated(proto, opset))

    def _evaluated(self, proto: NodeProto, opset: int) -> dict[str, NDArray]:  # type: ignore[type-arg]
        if subgraphs_of(proto):
            return {}
        operator = operator_of(proto)
        if proto.op_type == "Constant":
            try:
                found = constant_value(operator)
            except (TypeError, ValueError):
                return {}
            return {n: a for n, a in found.items() if a.size <= KNOWN_ELEMENTS and a.dtype.name in SUPPORTED_DTYPES}
        first = self.tensor_of(proto.input[0]) if proto.input else None
        if proto.op_type == "Shape" and first is not None:
            return {proto.output[0]: shape_value(operator, first.shape)}
        if operator.op_type not in FOLDABLE or not all(self._is_small(name) for name in operator.inputs if name):
            return {}
        sized = {n: t for n in operator.outputs if n and (t := self.tensor_of(n)) is not None}
        if len(sized) < sum(map(bool, operator.outputs)) or any(t.elements > KNOWN_ELEMENTS for t in sized.values()):
            return {}
        arrays = {n: self._known[n] if n in self._known else numpy_helper.to_array(self.constants[n])
                  for n in operator.inputs if n}  # fmt: skip
        results = evaluate(operator, arrays, opset, sized)
        return {} if results is None else {n: a for n, a in zip(operator.outputs, results, strict=True) if n}

    def _is_small(self, name: str) -> bool:
        if name in self._known:
            return True
        return (
            name in self.constants
            and math.prod(self.constants[name].dims) <= KNOWN_ELEMENTS
            and bool(self.dtype_of(name))
        )


def serialised(model: ModelProto) -> bytes:
    """A model as the bytes of its file, the same each time. InputError for more than 2 GB."""
    try:
        return bytes(model.SerializeToString(deterministic=True))
    except Exception as error:  # protobuf has an error class that depends on its version
        raise InputError(f"{model.graph.name}: more than 2 GB do not fit into an ONNX file") from error


def read_source(
    path: Path, given: Given, infer: Infer, *, open_sizes: bool = False, fixed: Mapping[str, int] = MappingProxyType({})
) -> Source:
    """The model of a file. `open_sizes`: inputs need no sizes; `fixed`: values of some that have names.

    InputError when it cannot be read or is damaged, and when what is given does not fit."""
    model, name = read_model(path), str(path)
    for size in (size for value in model.graph.input for size in value.type.tensor_type.shape.dim):
        if size.dim_param in fixed:
            size.dim_value = fixed[size.dim_param]
    bind_constants(model, given, name)
    check_graph_lists(model.graph, name)
    check_operator_count(model, name)
    if model.functions:
        try:
            model = inliner.inline_local_functions(model)
        except Exception as error:
            raise InputError(f"{name}: the model's functions cannot be inlined: {error}") from error
    found = Source(name, with_plain_scalers(with_plain_layout(model)), shapes_of(given), infer, open_sizes=open_sizes)
    found.whole_model = model
    return found


def _static_inputs(declared: Mapping[str, ValueInfoProto], shapes: Shapes, source: str) -> dict[str, Tensor]:
    """Inputs whose sizes are fixed, in the file or by the user; see `bind_shapes`. Others than tensors stay out."""
    empty = {name for name, shape in shapes.items() if 0 in shape}
    bound = [v for v in declared.values() if _is_bindable(v) and v.name not in empty]
    others = empty | {name for name in declared if not _is_bindable(declared[name])}
    found = bind_shapes(bound, {name: shape for name, shape in shapes.items() if name not in others}, source)
    for name in empty & set(declared):
        tensor = declared[name].type.tensor_type
        if _is_tensor(declared[name]):
            found[name] = Tensor(name, shapes[name], dtype_name(tensor.elem_type))
    return found


def _is_tensor(value: ValueInfoProto) -> bool:
    kind = value.type.tensor_type
    return value.type.WhichOneof("value") == "tensor_type" and dtype_name(kind.elem_type) in SUPPORTED_DTYPES


def _is_bindable(value: ValueInfoProto) -> bool:
    dims = value.type.tensor_type.shape.dim if _is_tensor(value) else ()
    return _is_tensor(value) and not any(dim.HasField("dim_value") and not dim.dim_value for dim in dims)
