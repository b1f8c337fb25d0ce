"""Input shapes from named sizes: `batch` 1, 4 and 8 of a model whose inputs are `[batch, 3, 224, 224]`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from onnx import GraphProto, NodeProto

from autofuse.errors import InputError
from autofuse.graph.loading.files import read_model
from autofuse.graph.loading.given.shapes import NamedShape
from autofuse.graph.loading.given.sizes import OpenSize, the_open_one, values_of
from autofuse.values.arguments import Constant, Given

Sizes = Mapping[str, Sequence[int]]


def bucket_shapes(
    path: Path, buckets: Sizes, given: Given, option: str = "--buckets"
) -> list[dict[str, tuple[int, ...] | Constant]]:
    """Shapes of the inputs of the model at `path` for every combination of sizes, smallest first.

    `given`: shapes of inputs that the buckets leave open, and values of inputs, the same for all. `option`: that named
    the sizes. InputError when the model has no open size of such a name.
    """
    dims = _dims(read_model(path).graph)
    known = _named(dims)
    for name in buckets:
        if not _is_among(name, known):
            raise InputError(
                f"{option}: {path} has no open size {name!r}; its open sizes: {', '.join(known) or 'none'}"
            )
    made = []
    for sizes in product(*(sorted(set(values)) for values in buckets.values())):
        chosen = dict(zip(buckets, sizes, strict=True))
        form = dict(given)
        for name, own in dims.items():
            bound = [_size(dim, chosen) for dim in own]
            given_all = [size for size in bound if size is not None]
            if bound != own and name not in form and len(given_all) == len(own):
                form[name] = NamedShape(given_all) if option == "--sizes" else tuple(given_all)
        made.append(form)
    return made


def named_sizes(path: Path) -> list[str]:
    """The names of the open sizes of a model's inputs, as the model has them: "past + 1" among them."""
    return _named(_dims(read_model(path).graph))


def own_sizes(sizes: Sequence[OpenSize], names: Sequence[str]) -> tuple[OpenSize, ...]:
    """Those of some sizes that a model has whose open sizes have such names; one that follows another which the model
    does not have is one of its own."""
    own = [size for size in sizes if _is_among(size.name, names)]
    known = {size.name for size in own}
    return tuple(size if size.follows in known else replace(size, follows="", more=0) for size in own)


def _dims(graph: GraphProto) -> dict[str, list[int | str]]:
    """The shape of each input, with names where sizes are open."""
    constants = {tensor.name for tensor in graph.initializer}
    return {
        value.name: [dim.dim_value or dim.dim_param for dim in value.type.tensor_type.shape.dim]
        for value in graph.input
        if value.name not in constants and value.type.WhichOneof("value") == "tensor_type"
    }


def _named(dims: Mapping[str, Sequence[int | str]]) -> list[str]:
    return sorted({dim for sizes in dims.values() for dim in sizes if isinstance(dim, str) and dim})


def _is_among(name: str, names: Sequence[str]) -> bool:
    """Whether a size is one of these, or one of them is so much more than it."""
    return any(_size(one, {name: 0}) is not None for one in names)


def _size(dim: int | str, chosen: Mapping[str, int]) -> int | None:
    """A size from those that were chosen by name; of a name such as "past + 1" one more than of `past`."""
    if isinstance(dim, int):
        return dim
    name, plus, more = dim.rpartition("+")
    if dim in chosen or not plus or not more.strip().isdecimal():
        return chosen.get(dim)
    return chosen[name.strip()] + int(more) if name.strip() in chosen else None


def form_of(
    model: Path, sizes: Sequence[OpenSize], values: Mapping[str, int], given: Given
) -> dict[str, tuple[int, ...] | Constant]:
    """What is given of the inputs where open `sizes` have such `values`; see `bucket_shapes`."""
    named = {name: (value,) for name, value in values_of(sizes, values).items()}
    return bucket_shapes(model, named, given, "--sizes")[0]


WINDOWS = frozenset(
    ("AveragePool", "Conv", "ConvInteger", "ConvTranspose", "DepthToSpace", "GlobalAveragePool", "GlobalMaxPool")
) | {"GroupNormalization", "InstanceNormalization", "MaxPool", "QLinearConv", "Resize", "SpaceToDepth", "Upsample"}
"""Operators on maps [N, C, ...]."""
MIXING = frozenset(("Attention", "Gemm", "MatMul", "Softmax"))
"""Operators behind which an axis of an input is hardly that of a map any more."""


def of_images(path: Path, names: Sequence[str]) -> bool:
    """Whether one of these open sizes of a model is a size of images: an input that has it behind its batch and its
    channels is read by a window."""
    return any(node.op_type in WINDOWS for node in _reached(read_model(path).graph, names, 2, MIXING))


def has_windows_behind(path: Path, names: Sequence[str]) -> bool:
    """Whether an input of a model has one of these open sizes behind its first axis, and something made of it is read
    by a window of more than one place."""
    graph = read_model(path).graph
    sized = {tensor.name: tuple(tensor.dims[2:]) for tensor in graph.initializer}
    for node in _reached(graph, names, 1):
        weights = sized.get(node.input[1], (2,)) if len(node.input) > 1 else (2,)
        if node.op_type in WINDOWS and max(weights, default=1) > 1:
            return True
    return False


def _reached(
    graph: GraphProto, names: Sequence[str], axis: int, ends: Collection[str] = frozenset()
) -> Iterator[NodeProto]:
    """The operators that read an input with one of these open sizes in this axis or a later one, or what they make of
    it, up to those of the kinds at which it `ends`."""
    reached = {
        value.name
        for value in graph.input
        if any(dim.dim_param in names for dim in value.type.tensor_type.shape.dim[axis:])
    }
    for node in graph.node:
        if node.op_type not in ends and not reached.isdisjoint(node.input):
            yield node
            reached.update(node.output)


def form_at(model: Path, sizes: Sequence[OpenSize], count: int, given: Given) -> dict[str, tuple[int, ...] | Constant]:
    """What is given of the inputs where the one open size of `sizes` is `count`; see `bucket_shapes`."""
    return form_of(model, sizes, {the_open_one(sizes).name: count}, given)
