"""Sites: the contractions that may multiply narrow numbers, what they read, and the tensors that bytes go through."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from autofuse.graph.mapping import names
from autofuse.graph.model import Graph, Operator
from autofuse.graph.own.bfloat16 import LEAST_GROUP
from autofuse.graph.transform.fold import fold, fold_sites

INT8, BF16, INT8_WEIGHTS, INT4_WEIGHTS = "int8", "bf16", "int8-weights", "int4-weights"
NARROW = (INT8, BF16, INT8_WEIGHTS, INT4_WEIGHTS)
"""Precisions that a contraction may have besides float32; the last two are of its weights alone."""
WEIGHT_BITS = {INT8_WEIGHTS: 8, INT4_WEIGHTS: 4}
BLOCKS_OPSET = 21
"""First opset that has weights with a scale for each block of them."""
CONTRACTIONS = names("Conv ConvTranspose Einsum Gemm MatMul")
MOVERS = names("DepthToSpace Flatten Identity MaxPool Reshape Slice SpaceToDepth Squeeze Transpose Unsqueeze")
"""Operators whose result has the levels of their first input."""
QUANTISED = names("ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul")
_NUMBERS = {INT8: "integers", BF16: "bfloat16", **dict.fromkeys(WEIGHT_BITS, "narrow weights alone")}
_LEAST_DEPTH = 16
_OTHERS = names("DFT GridSample GroupNormalization If Loop Scan")
"""Operators that mean something else in that opset, or whose bodies may hold such."""
_BOUNDS = names("Clip Relu")


@dataclass(frozen=True)
class Site:
    """A contraction that may multiply narrow numbers, by the name of its operator; `precisions`: which.

    `activations`: its computed operands. `weights`: its constant one ("": both are computed), with a scale for each
    channel of `axis` (None: one for all). `bias`: a constant with one number a channel, or "".
    """

    name: str
    op_type: str
    activations: tuple[str, ...]
    weights: str = ""
    axis: int | None = None
    bias: str = ""
    precisions: tuple[str, ...] = (INT8,)

    @property
    def summed(self) -> int:
        """The axis of a matrix of weights that a product sums over."""
        return 1 if self.axis == 0 else 0


@dataclass(frozen=True)
class Sites:
    """The contractions of a graph: `usable`, in the graph's order, and why the others stay real."""

    graph: Graph
    usable: tuple[Site, ...]
    refused: Mapping[str, str]

    @cached_property
    def options(self) -> tuple[tuple[str, str], ...]:
        """Name of each usable one with each precision that it may have."""
        return tuple((site.name, precision) for site in self.usable for precision in site.precisions)

    @cached_property
    def by_name(self) -> Mapping[str, Site]:
        """The usable ones by their operators."""
        return {site.name: site for site in self.usable}

    def roots(self, site: Site) -> tuple[str, ...]:
        """The tensors whose levels a site's operands have: before all that only moves elements."""
        return tuple(dict.fromkeys(root(self.graph, name) for name in site.activations))

    def result(self, site: Site) -> str:
        """What a convolution makes, its bound included, where that is no output of the graph; "" for products."""
        if site.op_type != "Conv":
            return ""
        name = self.graph.by_name[site.name].outputs[0]
        while name not in self.graph.returned:
            readers = self.graph.consumers[name]
            if len(readers) != 1 or readers[0].op_type not in _BOUNDS or readers[0].inputs[0] != name:
                return name
            name = readers[0].outputs[0]
        return ""

    @cached_property
    def read_by(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the sites that read each root."""
        found: dict[str, tuple[str, ...]] = {}
        for site in self.usable:
            for name in self.roots(site):
                found[name] = (*found.get(name, ()), site.name)
        return found

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Every tensor that bytes may stand for."""
        results = (self.result(site) for site in self.usable)
        return tuple(dict.fromkeys([*self.read_by, *(name for name in results if name)]))

    @cached_property
    def made_by(self) -> Mapping[str, str]:
        """The convolution that makes each of the tensors that one does."""
        return {name: site.name for site in self.usable if (name := self.result(site))}

    def as_bytes(self, chosen: Collection[str]) -> dict[str, bool]:
        """The tensors that are bytes when the `chosen` sites multiply integers, and whether all read them as such.

        A feature map is, for all but the contractions that stay real; rows of a product are for the product only.
        """
        found: dict[str, bool] = {}
        for name in self.tensors:
            readers = self.read_by.get(name, ())
            taken = [reader for reader in readers if reader in chosen]
            made = self.made_by.get(name, "") in chosen
            if taken or (made and not readers):
                found[name] = made or any(self.by_name[reader].op_type == "Conv" for reader in taken)
        return found

    @cached_property
    def rounded_by(self) -> Mapping[str, tuple[str, ...]]:
        """The feature maps that are bfloat16 for all that reads them, with the sites of which one has to multiply
        bfloat16 for that: the convolutions that read it, and the one that makes it for any other.

        Rows of a product are for the product only.
        """
        found: dict[str, tuple[str, ...]] = {}
        for site in self.usable:
            if site.op_type != "Conv" or BF16 not in site.precisions:
                continue
            made = self.result(site)
            wanted = any(reader.op_type == "Conv" for reader in self.graph.consumers.get(made, ()))
            for name in (*site.activations, *((made,) if made and wanted else ())):
                found[name] = (*found.get(name, ()), site.name)
        return found

    def as_halves(self, chosen: Collection[str]) -> frozenset[str]:
        """The feature maps that are bfloat16 for all when the `chosen` sites multiply such."""
        return frozenset(name for name, sites in self.rounded_by.items() if any(site in chosen for site in sites))


def prepared(graph: Graph) -> Graph:
    """The graph with its BatchNormalizations in the weights, as far as that is possible."""
    return fold(graph, fold_sites(graph))


def is_quantised(graph: Graph) -> bool:
    """Whether a model comes with integers already."""
    return any(operator.op_type in QUANTISED for operator in graph.operators)


def find_sites(graph: Graph, precisions: Sequence[str] = (INT8,)) -> Sites:
    """The contractions of a graph, usable or not; `precisions`: those that are allowed."""
    usable: list[Site] = []
    refused: dict[str, str] = {}
    for operator in graph.operators:
        if operator.op_type in CONTRACTIONS:
            reasons = {precision: _refusal(graph, operator, precision) for precision in precisions}
            able = tuple(precision for precision in precisions if not reasons[precision])
            if able:
                usable.append(replace(_site(graph, operator), precisions=able))
            else:
                refused[operator.name] = reasons[precisions[0]]
    return Sites(graph, tuple(usable), refused)


def root(graph: Graph, name: str) -> str:
    """The tensor that a tensor is a movement of; itself where it is computed, an input or an output of the graph."""
    while name not in graph.returned:
        operator = graph.producers.get(name)
        if operator is None or operator.op_type not in MOVERS or len(operator.outputs) != 1:
            break
        if operator.inputs[0] in graph.constants:
            break
        name = operator.inputs[0]
    return name


def moved(graph: Graph, sites: Iterable[Site]) -> dict[str, str]:
    """The tensors between the roots of some sites and the sites themselves, each with its root."""
    found: dict[str, str] = {}
    for site in sites:
        for name in site.activations:
            first = root(graph, name)
            while name != first:
                found[name] = first
                name = graph.producers[name].inputs[0]
    return found


def _refusal(graph: Graph, operator: Operator, precision: str) -> str:
    """Why a contraction cannot have a precision ("": it can)."""
    if operator.op_type in ("ConvTranspose", "Einsum"):
        return f"{operator.op_type} has no kernel for {_NUMBERS[precision]}"
    groups = operator.attributes.get("group", 1)
    assert isinstance(groups, int)
    if precision == BF16 and groups > 1 and graph.tensors[operator.outputs[0]].shape[1] // groups < LEAST_GROUP:
        return f"convolutions of few channels in each group have no kernel for {_NUMBERS[precision]}"
    operands = [graph.tensors[name] for name in operator.inputs[:2]]
    if any(operand.dtype != "float32" for operand in operands):
        return "its operands are not float32"
    if operands[0].name in graph.constants:
        return "its first operand is constant"
    constant = graph.constants.get(operands[1].name)
    if constant is None and operator.op_type != "MatMul":
        return "its weights are computed"
    if constant is not None and (constant.ndim < 2 or not bool(np.isfinite(constant).all())):
        return "its weights are a vector" if constant.ndim < 2 else "its weights are not finite"
    if precision in WEIGHT_BITS and (reason := _weights_refusal(graph, operator)):
        return reason
    factors = [operator.attributes.get(name, 1.0) for name in ("alpha", "beta")]
    if operator.op_type == "Gemm" and (factors != [1.0, 1.0] or operator.attributes.get("transA", 0)):
        return "it is scaled or reads its rows transposed"
    return ""


def _weights_refusal(graph: Graph, operator: Operator) -> str:
    """Why the weights of a contraction cannot be narrow alone."""
    if operator.op_type == "Conv":
        return f"convolutions have no kernel for {_NUMBERS[INT8_WEIGHTS]}"
    constant = graph.constants.get(operator.inputs[1])
    if constant is None or constant.ndim != 2:
        return "its weights are computed" if constant is None else "its weights are no matrix"
    depth = constant.shape[1 if operator.attributes.get("transB", 0) else 0]
    if depth < _LEAST_DEPTH:
        return f"it sums over {depth} numbers, and weights alone are narrow from {_LEAST_DEPTH} on"
    others = {other.op_type for other in graph.operators if not other.domain} & _OTHERS
    if graph.opset < BLOCKS_OPSET and others:
        return f"narrow weights take opset {BLOCKS_OPSET}, which has {min(others)} otherwise; export the model with it"
    return ""


def _site(graph: Graph, operator: Operator) -> Site:
    first, second, *rest = operator.inputs
    weights = graph.constants.get(second)
    if weights is None:
        return Site(operator.name, operator.op_type, (first, second))
    bias = rest[0] if rest and rest[0] in graph.constants and graph.constants[rest[0]].ndim == 1 else ""
    turned = operator.op_type == "Conv" or bool(operator.attributes.get("transB", 0))
    axis = 0 if turned else weights.ndim - 1
    per_channel = operator.op_type == "Conv" or weights.ndim == 2
    return Site(operator.name, operator.op_type, (first,), second, axis if per_channel else None, bias)
