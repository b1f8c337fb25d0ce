"""A model of open sizes that ends in operators whose results have as many places as the data say: boxes that are found.

Its *head* is what needs none of these. Our kernels run it at any size of a range; ONNX Runtime runs what is behind,
with the sizes that are known then. What is computed of shapes alone is there on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from math import gcd
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from autofuse.errors import AutofuseError, InputError
from autofuse.graph.loading.files import read_model
from autofuse.graph.loading.given.sizes import OpenSize, open_ones
from autofuse.graph.model import Graph
from autofuse.graph.nodes import subgraphs_of
from autofuse.graph.parts.source import Node, Source, read_source
from autofuse.graph.submodel import OnnxModel
from autofuse.ort.inference import TypeInference
from autofuse.ort.session import numpy_name, open_session
from autofuse.segments.choice import Choice, Piece
from autofuse.segments.deviations import deviation
from autofuse.segments.read import inferred
from autofuse.values.arguments import Given, file_title
from autofuse.values.scratch import scratch_folder

Made = TypeVar("Made")
BY_DATA = frozenset(("Compress", "NonMaxSuppression", "NonZero", "TopK", "Unique"))
"""Operators that end the head: of those without bodies, the ones that find places by what stands there."""
WINDOWS = frozenset(("Conv", "ConvTranspose"))
"""Operators whose images a head may begin with."""
DRAWN = 8
"""Sizes of inputs, beside the ends of their ranges, at which the images that a head begins with are looked at."""


@dataclass(frozen=True, eq=False)
class OpenHead:
    """A model in parts, one of which is the head. `path`: the file of the head; `asked`: the open sizes of the model;
    `sizes`: those that the head leaves open, where they are others. `pieces`: all parts; `place`: that of the head
    among them; `reasons`: see `Choice`; `rowless`: why segments of rows are left to ONNX Runtime; "" where they are
    not."""

    path: Path
    source: Source
    pieces: tuple[Piece, ...]
    place: int
    reasons: Mapping[int, str]
    asked: tuple[OpenSize, ...]
    sizes: tuple[OpenSize, ...] = ()
    rowless: str = ""

    @property
    def own(self) -> Piece:
        """The part that is the head."""
        return self.pieces[self.place]

    def choice(self, graph: Graph) -> Choice:
        """The parts of the model; `graph`: that of the head."""
        pieces = [replace(one, graph=graph) if place == self.place else one for place, one in enumerate(self.pieces)]
        return Choice(self.source, tuple(pieces), dict(self.reasons))


def finds_places(model: Path) -> bool:
    """Whether a model has operators whose results have as many places as the data say, or bodies."""
    nodes = read_model(model).graph.node
    return any((node.op_type in BY_DATA and not node.domain) or subgraphs_of(node) for node in nodes)


@contextmanager
def heads_of(model: Path, given: Given, sizes: Sequence[OpenSize]) -> Iterator[Iterator[OpenHead]]:
    """The heads that a model may have, in files that are there for as long: what stands before operators that find
    places, and what stands between these and the images that are made of the inputs, by resizing, say. Behind these
    come shorter ones, which end with the last windows: rows of all places, and boxes that are made of them, may depend
    on sizes in ways that ours have no kernels for.

    None of a model without such operators, or with some that ONNX Runtime computes otherwise than ONNX says, or does
    not know.
    """
    with scratch_folder() as folder:
        yield _heads(model, given, sizes, folder)


def of_a_head(
    model: Path, given: Given, sizes: Sequence[OpenSize], error: InputError, use: Callable[[OpenHead], Made]
) -> Made:
    """What `use` makes of the first head of a model that it does not refuse. InputError with all reasons; `error`: why
    the model as a whole is refused."""
    reasons = str(error)
    with heads_of(model, given, sizes) as heads:
        for head in heads:
            try:
                return use(head)
            except InputError as other:
                reasons += "" if str(other) in reasons else f"; and of what stands before it: {other}"
    raise InputError(reasons) from error


def _heads(model: Path, given: Given, sizes: Sequence[OpenSize], folder: Path) -> Iterator[OpenHead]:
    fixed = {size.name: size.low for size in sizes if size.is_fixed and not size.follows}
    seen: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
    for short, (make, known) in product((False, True), ((_from_inputs, {}), (_from_images, fixed))):
        try:
            with TypeInference(file_title(model)) as types:
                source = read_source(model, given, inferred(types), open_sizes=True, fixed=known)
            found = make(_Cut(source, short), sizes, folder / model.name)
        except AutofuseError:
            found = None
        if found is not None and (ends := (found.own.inputs, found.own.outputs)) not in seen:
            seen.add(ends)
            yield found


def _from_inputs(cut: _Cut, sizes: Sequence[OpenSize], path: Path) -> OpenHead | None:
    """The head that begins with the inputs of a model."""
    source = cut.source
    if not _is_usable(cut):
        return None
    pieces = _piece(source, cut.head, cut.results, "segment0"), _piece(source, cut.behind, cut.left, "rest1")
    path.write_bytes(pieces[0].content)
    return OpenHead(path, source, pieces, 0, cut.reasons, open_ones(sizes))


def _from_images(cut: _Cut, sizes: Sequence[OpenSize], path: Path) -> OpenHead | None:
    """The head that begins with the images of the first windows, whose sizes are found by running what makes them."""
    source, images = cut.source, cut.images()
    if not _is_usable(cut) or not images:
        return None
    before = cut.ancestors(images)
    front = [node for node in cut.head if node.place in before]
    head = [node for node in cut.head if node.place not in before]
    if not front or any(deviation(source, node) for node in front):
        return None
    made = {name for node in front for name in node.writes}
    read = {name for node in (*head, *cut.behind) for name in node.reads} | set(source.outputs)
    handed_on = [name for node in front for name in node.writes if name in read]
    first = _piece(source, front, handed_on, "rest0")
    found, shapes = _sizes_of(first, images, sizes)
    results = [name for name in cut.results if name not in made]
    if not found or not results:
        return None
    own = _piece(source, head, results, "segment1")
    for value in own.model.graph.input:
        if value.name in shapes:
            _set_shape(value.type.tensor_type.shape, shapes[value.name])
    path.write_bytes(own.content)
    reasons = {
        **cut.reasons,
        **{node.place: "it makes images whose sizes no operator behind it decides" for node in front},
    }
    pieces = (first, own, _piece(source, cut.behind, cut.left, "rest2"))
    return OpenHead(path, source, pieces, 1, reasons, open_ones(sizes), found)


Shape = list[int | str]


def _set_shape(described: Any, shape: Shape) -> None:
    """Describes a shape, in which names stand for open sizes."""
    del described.dim[:]
    for size in shape:
        axis = described.dim.add()
        if isinstance(size, int):
            axis.dim_value = size
        else:
            axis.dim_param = size


def _sizes_of(
    front: Piece, images: Sequence[str], sizes: Sequence[OpenSize]
) -> tuple[tuple[OpenSize, ...], dict[str, Shape]]:
    """The sizes of the images that ONNX Runtime makes at the ends of all ranges and between, and their shapes by
    these."""
    session = open_session("what makes images", front.content, threads=1)
    draw = np.random.default_rng(0)
    ends = [
        dict(zip((one.name for one in sizes), ends, strict=True)) for ends in product(*((s.low, s.high) for s in sizes))
    ]
    between = [
        {s.name: int(draw.integers(s.low // s.step, s.high // s.step + 1)) * s.step for s in sizes}
        for _ in range(DRAWN)
    ]
    seen: dict[str, list[tuple[int, ...]]] = {name: [] for name in images}
    for point in (*ends, *between):
        feeds = {}
        for value in session.get_inputs():
            shape = [one if isinstance(one, int) else point.get(one, 1) for one in value.shape]
            feeds[value.name] = draw.random(shape, np.float32).astype(numpy_name(value.type))
        for name, array in zip(images, session.run(list(images), feeds), strict=True):
            seen[name].append(array.shape)
    found: list[OpenSize] = []
    shapes: dict[str, Shape] = {}
    for name, rows in seen.items():
        shapes[name] = []
        for axis, extents in enumerate(zip(*rows, strict=True)):
            if len(set(extents)) == 1:
                shapes[name].append(extents[0])
                continue
            size = OpenSize(f"axis {axis} of {name}", min(extents), max(extents), gcd(*extents))
            shapes[name].append(size.name)
            found.append(size)
    return tuple(found), shapes


def _is_usable(cut: _Cut) -> bool:
    """Whether there is a head, and something behind it that ONNX Runtime computes as ONNX says."""
    typed = all(map(cut.source.dtype_of, cut.results))
    known = not any(deviation(cut.source, node) for node in cut.behind)
    return bool(cut.found and cut.results and cut.head) and typed and known


def _piece(source: Source, nodes: Sequence[Node], results: Sequence[str], name: str) -> Piece:
    model = source.part([node.place for node in nodes], results, name)
    _forget_sizes(model, source.inputs)
    return Piece(tuple(nodes), model, tuple(value.name for value in model.graph.input), tuple(results))


def _forget_sizes(model: OnnxModel, own: Iterable[str]) -> None:
    """Names of sizes that were found when types were inferred, of all but the model's `own` inputs: they are no names
    of the model."""
    for value in (*model.graph.input, *model.graph.output):
        for size in value.type.tensor_type.shape.dim if value.name not in own else ():
            size.ClearField("dim_param")


class _Cut:
    """What belongs to each side. `short`: whether the head ends with its last windows. `found`: the operators whose
    results have as many places as the data say; `head`, `behind`: operators in order; `results`, `left`: what each side
    makes that is read elsewhere; `reasons`: see `Choice`."""

    def __init__(self, source: Source, short: bool = False) -> None:
        self.source = source
        self.maker = {name: node for node in source.nodes for name in node.writes}
        self.found: list[Node] = []
        self.reasons: dict[int, str] = {}
        counted: set[int] = set()
        for node in source.nodes:
            before = [self.maker[name] for name in node.reads if name in self.maker]
            if node.has_body or (node.op_type in BY_DATA and not node.domain):
                self.found.append(node)
                self.reasons[node.place] = "how many places it finds depends on data, or on what its bodies do"
            elif any(one.place in self.reasons for one in before):
                self.reasons[node.place] = "it reads what such an operator makes"
            elif node.op_type in ("Shape", "Size") or all(
                name in self.maker and self.maker[name].place in counted for name in node.reads
            ):
                counted.add(node.place)
        if short:
            self._end_with_windows(counted)
        self._part(counted)

    def _end_with_windows(self, counted: Collection[int]) -> None:
        """Leaves what no window of the head needs to the other side."""
        windows = [one for one in self.source.nodes if one.op_type in WINDOWS and one.place not in self.reasons]
        kept = self.ancestors(name for one in windows for name in one.writes)
        for node in self.source.nodes if kept else ():
            if node.place not in kept and node.place not in counted:
                self.reasons.setdefault(node.place, "it stands behind the last windows whose sizes stay open")

    def _part(self, counted: set[int]) -> None:
        source, maker = self.source, self.maker
        made = [name for name in source.outputs if name in maker]
        tail = set(self.reasons) | {maker[name].place for name in made if maker[name].place in counted}
        wanted = [source.nodes[place] for place in sorted(tail)]
        borders: dict[str, None] = {}
        while wanted:
            for name in wanted.pop(0).reads:
                one = maker.get(name)
                if one is None or one.place in tail:
                    continue
                if one.place in counted:
                    tail.add(one.place)
                    self.reasons[one.place] = "it computes sizes"
                    wanted.append(one)
                else:
                    borders[name] = None
        self.results = list(dict.fromkeys([*borders, *(name for name in made if maker[name].place not in tail)]))
        self.left = [name for name in source.outputs if name not in self.results and name not in source.inputs]
        self.head = [source.nodes[place] for place in sorted(self.ancestors(self.results))]
        self.behind = [source.nodes[place] for place in sorted(tail)]

    def ancestors(self, names: Iterable[str]) -> set[int]:
        """The operators that some values are made of, by their place."""
        found: set[int] = set()
        needed = [self.maker[name] for name in names if name in self.maker]
        while needed:
            one = needed.pop()
            if one.place not in found:
                found.add(one.place)
                needed += [self.maker[name] for name in one.reads if name in self.maker]
        return found

    def images(self) -> list[str]:
        """What the first windows of the head read: those that are made of none of another."""
        windows = [node for node in self.head if node.op_type in WINDOWS and not node.domain]
        places = {node.place for node in windows}
        first = [node for node in windows if not self.ancestors(node.reads[:1]) & places]
        return list(dict.fromkeys(node.reads[0] for node in first if node.reads[0] in self.maker))
