"""Graphs with QuantizeLinear and DequantizeLinear around the contractions that multiply integers, and roundings before
those that multiply bfloat16.

y = Conv(x, w, b)   becomes   y = Conv(x', w', b')   with x' = DequantizeLinear(QuantizeLinear(x)), and w' and b' the
DequantizeLinear of constant bytes and of a constant int32: the form in which ONNX has quantised models, and from which
runtimes make products of integers. In bfloat16, x' is x rounded, which is two Casts in ONNX, and w' a constant; what
else reads a feature map that is rounded reads x', too, so that nobody needs x.
Where weights alone are narrow, x' is x, and w' the DequantizeLinear of constant integers with a scale for each block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from autofuse.graph.model import Graph, Operator
from autofuse.graph.transform.quantize.editor import Editor
from autofuse.graph.transform.quantize.levels import Range, bias_levels, block_levels, weight_levels
from autofuse.graph.transform.quantize.sites import (
    BF16,
    BLOCKS_OPSET,
    CONTRACTIONS,
    INT8,
    WEIGHT_BITS,
    Site,
    Sites,
    moved,
)


def quantised_graph(sites: Sites, chosen: Mapping[str, str], ranges: Mapping[str, Range]) -> Graph:
    """The graph of `sites` in which the `chosen` ones have the precision beside their name, the others float32.

    `ranges`: of each of the sites' tensors.
    """
    return _Quantiser(sites, chosen, ranges).graph()


class _Quantiser:
    def __init__(self, sites: Sites, chosen: Mapping[str, str], ranges: Mapping[str, Range]) -> None:
        self.sites, self.ranges = sites, ranges
        self.edit = Editor(sites.graph)
        self.chosen = {site.name: site for site in sites.usable if chosen.get(site.name) == INT8}
        self.halves = {site.name: site for site in sites.usable if chosen.get(site.name) == BF16}
        self.bits = {name: WEIGHT_BITS[kind] for name, kind in chosen.items() if kind in WEIGHT_BITS}
        self.everywhere = sites.as_bytes(self.chosen)
        self.rounded = sites.as_halves(self.halves) - set(self.everywhere)
        self.roots = {**{name: name for name in self.everywhere}, **moved(sites.graph, self.chosen.values())}
        self.real: dict[str, str] = {}
        self.parameters: dict[str, tuple[str, str]] = {}

    def graph(self) -> Graph:
        """The whole graph."""
        graph = self.sites.graph
        for name in graph.inputs:
            self.pair(name)
        for operator in graph.operators:
            self.edit.put(self.changed(operator))
            for name in operator.outputs:
                self.pair(name)
        whole = self.edit.finished()
        return replace(whole, opset=max(whole.opset, BLOCKS_OPSET)) if self.bits else whole

    def pair(self, name: str) -> None:
        """Behind a tensor that is bytes: what makes them, and what reads them as numbers."""
        if name not in self.roots:
            return
        source = name if name in self.everywhere else self.moved(name)
        shape, levels = self.edit.tensors[name].shape, self.levels(self.roots[name])
        integers = self.edit.op("QuantizeLinear", f"{name}/bytes", [source, *levels], shape, "uint8")
        self.real[name] = self.edit.op("DequantizeLinear", f"{name}/real", [integers, *levels], shape, "float32")

    def moved(self, name: str) -> str:
        """A movement of bytes; others go on reading the movement of numbers, if there are any."""
        operator = self.sites.graph.producers[name]
        inputs = [self.real[operator.inputs[0]], *operator.inputs[1:]]
        return self.edit.op(
            operator.op_type, f"{name}/moved", inputs, self.edit.tensors[name].shape, "float32", **operator.attributes
        )

    def levels(self, name: str) -> tuple[str, str]:
        """Scale and zero point of a tensor, as constants."""
        if name not in self.parameters:
            scale, zero = self.ranges[name].levels
            made = self.edit.constant(f"{name}/scale", scale), self.edit.constant(f"{name}/zero", zero)
            self.parameters[name] = made
        return self.parameters[name]

    def changed(self, operator: Operator) -> Operator:
        """An operator that reads narrow numbers where it shall."""
        half = self.halves.get(operator.name)
        if half is not None:
            narrow = {*half.activations, half.weights}
            read = (self.edit.halves(name) if name in narrow else name for name in operator.inputs)
            return replace(operator, inputs=tuple(read))
        site = self.chosen.get(operator.name)
        if site is not None:
            return replace(operator, inputs=self.operands(operator, site))
        if operator.name in self.bits:
            x, _, *rest = operator.inputs
            return replace(operator, inputs=(x, self.in_blocks(self.sites.by_name[operator.name]), *rest))
        if operator.op_type in CONTRACTIONS:
            return replace(operator, inputs=tuple(map(self.as_rounded, operator.inputs)))
        return replace(operator, inputs=tuple(map(self.read, operator.inputs)))

    def as_rounded(self, name: str) -> str:
        """What reads numbers reads of a map that is bfloat16 for all."""
        return self.edit.halves(name) if name in self.rounded else name

    def read(self, name: str) -> str:
        """What an operator that is no contraction reads."""
        whole = self.everywhere.get(self.roots.get(name, ""), False)
        return self.real[name] if whole else self.as_rounded(name)

    def operands(self, operator: Operator, site: Site) -> tuple[str, ...]:
        """Inputs of a contraction of bytes."""
        read = [self.real[name] if name in site.activations else name for name in operator.inputs]
        if not site.weights:
            return tuple(read)
        found = weight_levels(self.sites.graph.constants[site.weights], site.axis)
        axis = {} if site.axis is None else {"axis": site.axis}
        scale = self.edit.constant(f"{site.name}/weight_scale", found.scale)
        zero = self.edit.constant(f"{site.name}/weight_zero", np.zeros(found.scale.shape, np.int8))
        integers = self.edit.constant(f"{site.name}/weight_bytes", found.integers)
        shape = found.integers.shape
        read[1] = self.edit.op(
            "DequantizeLinear", f"{site.name}/weights", [integers, scale, zero], shape, "float32", **axis
        )
        if site.bias:
            read[2] = self.bias(site, found.scale)
        return tuple(read)

    def in_blocks(self, site: Site) -> str:
        """Weights that alone are integers."""
        found = block_levels(self.sites.graph.constants[site.weights], site.summed, self.bits[site.name])
        integers = self.edit.constant(f"{site.name}/weight_codes", found.integers)
        scale = self.edit.constant(f"{site.name}/block_scale", found.scale)
        places = {"axis": found.axis, "block_size": found.block}
        return self.edit.op(
            "DequantizeLinear", f"{site.name}/weights", [integers, scale], found.integers.shape, "float32", **places
        )

    def bias(self, site: Site, weight_scale: np.ndarray) -> str:
        """The bias in steps of the sums; as it is where they do not reach it."""
        bias = self.sites.graph.constants[site.bias]
        (name,) = self.sites.roots(site)
        step = np.asarray(self.ranges[name].levels[0] * weight_scale, np.float32)
        step = np.ascontiguousarray(np.broadcast_to(step, bias.shape))
        integers = bias_levels(bias, step)
        if integers is None:
            return site.bias
        inputs = [self.edit.constant(f"{site.name}/bias_steps", integers),
                  self.edit.constant(f"{site.name}/bias_scale", step)]  # fmt: skip
        return self.edit.op("DequantizeLinear", f"{site.name}/bias", inputs, bias.shape, "float32", axis=0)
