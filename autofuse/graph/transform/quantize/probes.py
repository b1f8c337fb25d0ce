"""Graphs that tell of a model what its levels depend on: ranges of its tensors, and what rounding each costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autofuse.graph.model import Graph, Operator, Tensor
from autofuse.graph.transform.quantize.editor import Editor
from autofuse.graph.transform.quantize.levels import Range, block_levels, weight_levels
from autofuse.graph.transform.quantize.sites import BF16, CONTRACTIONS, INT8, WEIGHT_BITS, Site, Sites, root

LOWS, HIGHS, PICKED = "autofuse/lows", "autofuse/highs", "autofuse/picked"
SWITCHES = "autofuse/switches"
"""Input of a switched graph: which contractions have which precision, in the order of the sites' options."""
MOST_PICKED = 2048
"""Elements of a tensor that are looked at one by one, of each sample."""


@dataclass(frozen=True)
class Watched:
    """A graph that gives, besides its own outputs, the least and the greatest number of some tensors, and a few of
    their elements: those of tensor i are `picked[starts[i]:starts[i + 1]]`."""

    graph: Graph
    tensors: tuple[str, ...]
    starts: tuple[int, ...]


def watched(graph: Graph, tensors: Sequence[str]) -> Watched:
    """See `Watched`."""
    edit = Editor(graph)
    for operator in graph.operators:
        edit.put(operator)
    flat = edit.constant("autofuse/flat", np.array([-1]))
    one = edit.constant("autofuse/one", np.array([1]))
    first = edit.constant("autofuse/first", np.array([0]))
    parts: dict[str, list[str]] = {"ReduceMin": [], "ReduceMax": [], "": []}
    starts = [0]
    for name in tensors:
        size = graph.tensors[name].elements
        for kind in ("ReduceMin", "ReduceMax"):
            end = edit.op(kind, f"{name}/{kind}", [name], (), "float32", keepdims=0)
            parts[kind].append(edit.op("Reshape", f"{end}/vector", [end, one], (1,), "float32"))
        step = max(1, -(-size // MOST_PICKED)) | 1  # odd: not always the same channel
        vector = edit.op("Reshape", f"{name}/flat", [name, flat], (size,), "float32")
        ends = edit.constant(f"{name}/end", np.array([size]))
        steps = edit.constant(f"{name}/step", np.array([step]))
        count = -(-size // step)
        parts[""].append(edit.op("Slice", f"{name}/picked", [vector, first, ends, first, steps], (count,), "float32"))
        starts.append(starts[-1] + count)
    made = []
    for result, kind in ((LOWS, "ReduceMin"), (HIGHS, "ReduceMax"), (PICKED, "")):
        total = starts[-1] if not kind else len(tensors)
        made.append(edit.op("Concat", result, parts[kind], (total,), "float32", axis=0))
    return Watched(edit.finished(outputs=(*graph.outputs, *made)), tuple(tensors), tuple(starts))


def switched(sites: Sites, ranges: Mapping[str, Range]) -> Graph:
    """The graph of `sites` with one more input, `SWITCHES`: which of them multiply bytes, or bfloat16.

    What is rounded then are numbers: the sums are those of real numbers, which differ from integers' by nothing that
    matters to a model.
    """
    return _Switcher(sites, ranges).graph()


class _Switcher:
    def __init__(self, sites: Sites, ranges: Mapping[str, Range]) -> None:
        self.sites, self.ranges = sites, ranges
        self.edit = Editor(sites.graph)
        self.place = {option: number for number, option in enumerate(sites.options)}
        self.owners = {name: self.owner(name) for name in sites.tensors}
        self.rounded: dict[str, str] = {}
        self.shared: dict[str, str] = {}
        self.halved: dict[str, str] = {}

    def graph(self) -> Graph:
        """The whole graph."""
        edit, graph = self.edit, self.sites.graph
        edit.tensors[SWITCHES] = Tensor(SWITCHES, (len(self.place),), "bool")
        self.switches = {option: self.switch(*option) for option in self.place}
        for name in graph.inputs:
            self.share(name)
        for operator in graph.operators:
            edit.put(self.changed(operator))
            for name in operator.outputs:
                self.share(name)
        return edit.finished(inputs=(SWITCHES,))

    def switch(self, name: str, precision: str) -> str:
        place = self.edit.constant(f"{name}/{precision}/place", np.array(self.place[name, precision]))
        return self.edit.op("Gather", f"{name}/{precision}/switch", [SWITCHES, place], (), "bool", axis=0)

    def owner(self, name: str) -> str:
        """The convolution whose switch makes bytes of a feature map for all; "" for what is none."""
        readers = [one for one in self.sites.read_by.get(name, ()) if self.sites.by_name[one].op_type == "Conv"]
        found = self.sites.made_by.get(name) or (readers[0] if readers else "")
        return found if (found, INT8) in self.place else ""

    def share(self, name: str) -> None:
        """Behind a feature map: what all read where bfloat16 is shared, and what all but the contractions do."""
        if self.owners.get(name):
            option = (self.owners[name], INT8)
            self.shared[name] = self.chosen(option, name, self.round(name, self.ranges[name]), "all")
        for site in self.sites.rounded_by.get(name, ()):
            for read in (self.halved, self.shared):
                read[name] = self.chosen((site, BF16), read.get(name, name), self.edit.halves(name), "all")

    def chosen(self, option: tuple[str, str], name: str, other: str, label: str) -> str:
        shape = self.edit.tensors[name].shape
        inputs = [self.switches[option], other, name]
        return self.edit.op("Where", f"{name}/{label}/{'/'.join(option)}", inputs, shape, "float32")

    def round(self, name: str, span: Range) -> str:
        """A tensor after a way through bytes."""
        if name not in self.rounded:
            edit, shape = self.edit, self.edit.tensors[name].shape
            scale, zero = span.levels
            levels = [edit.constant(f"{name}/scale", scale), edit.constant(f"{name}/zero", zero)]
            integers = edit.op("QuantizeLinear", f"{name}/bytes", [name, *levels], shape, "uint8")
            self.rounded[name] = edit.op("DequantizeLinear", f"{name}/real", [integers, *levels], shape, "float32")
        return self.rounded[name]

    def changed(self, operator: Operator) -> Operator:
        site = self.sites.by_name.get(operator.name)
        if site is not None:
            return replace(operator, inputs=self.operands(operator, site))
        read = self.halved if operator.op_type in CONTRACTIONS else self.shared
        return replace(operator, inputs=tuple(read.get(name, name) for name in operator.inputs))

    def operands(self, operator: Operator, site: Site) -> tuple[str, ...]:
        read = [self.halved.get(name, name) for name in operator.inputs]
        for place, name in enumerate(operator.inputs):
            for precision in site.precisions if name in (*site.activations, site.weights) else ():
                if name == site.weights or precision not in WEIGHT_BITS:
                    other = self.narrow(site, name, precision)
                    read[place] = self.chosen((site.name, precision), read[place], other, f"operand{place}")
        return tuple(read)

    def narrow(self, site: Site, name: str, precision: str) -> str:
        """An operand of a site as it is in a precision."""
        if precision == BF16:
            return self.edit.halves(name)
        if name in site.activations:
            return self.round(name, self.ranges[root(self.sites.graph, name)])
        weights = self.sites.graph.constants[name]
        if precision == INT8:
            near = weight_levels(weights, site.axis).numbers
        else:
            near = block_levels(weights, site.summed, WEIGHT_BITS[precision]).numbers
        return self.edit.constant(f"{site.name}/{precision}/near", near)
