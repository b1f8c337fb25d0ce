"""A model cut into segments, which our kernels run, and the rest, which ONNX Runtime runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256

from autofuse.errors import InputError
from autofuse.graph.loading.given.parameters import Parameters
from autofuse.graph.model import Graph
from autofuse.graph.parts.bodies import Body
from autofuse.graph.parts.source import Node, Source, serialised
from autofuse.graph.submodel import OnnxModel
from autofuse.segments.coverage import BODIES, Coverage, unfit
from autofuse.segments.deviations import deviation
from autofuse.segments.legality import Part, cut
from autofuse.segments.worth import too_small, work_us


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of the model, in the order in which parts run. `graph`: of a segment, None for the rest.

    `inputs`, `outputs`: values that it takes and makes. `work_us`: see `worth`; 0 for the rest. `most_rows`: set of a
    segment of rows, which has no one graph: how many our kernels take, while ONNX Runtime runs any other number; its
    work is that of the usual number of rows.
    """

    nodes: tuple[Node, ...]
    model: OnnxModel
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    graph: Graph | None = None
    work_us: float = 0.0
    most_rows: int = 0

    @property
    def content(self) -> bytes:
        """The part as an ONNX file."""
        return serialised(self.model)

    @cached_property
    def sha256(self) -> str:
        """Of `content`."""
        return sha256(self.content).hexdigest()


@dataclass(frozen=True, eq=False)
class Choice:
    """The parts of a model, and why an operator (by its place) is in the rest; see `segments`, `rest`.

    `bodies`: those of the rest that have segments inside.
    """

    source: Source
    pieces: tuple[Piece, ...]
    reasons: dict[int, str]
    bodies: tuple[Inside, ...] = ()

    @property
    def segments(self) -> tuple[Piece, ...]:
        """What our kernels run."""
        return tuple(piece for piece in self.pieces if piece.graph is not None)

    @property
    def rows(self) -> tuple[Piece, ...]:
        """The segments of rows."""
        return tuple(piece for piece in self.pieces if piece.most_rows)

    @property
    def all_segments(self) -> tuple[Piece, ...]:
        """The segments, then those of each body in turn."""
        return (*self.segments, *(piece for inside in self.bodies for piece in inside.choice.all_segments))

    def without_segments(self, reason: str) -> Choice:
        """All of the model in ONNX Runtime; `reason`: why what was in a segment is not."""
        why = {node.place: reason for piece in self.segments for node in piece.nodes}
        plain = self.without_bodies(reason)
        return Choice(self.source, (), {**why, **plain.reasons})

    def without_bodies(self, reason: str) -> Choice:
        """Bodies all of which ONNX Runtime runs; `reason`: why."""
        why = {inside.body.node.place: f"{BODIES} ({reason})" for inside in self.bodies}
        return replace(self, reasons={**self.reasons, **why}, bodies=())

    @property
    def rest(self) -> tuple[Piece, ...]:
        """What ONNX Runtime runs, always or where a segment of rows has others than its kernels take."""
        return tuple(piece for piece in self.pieces if piece.graph is None)


@dataclass(frozen=True, eq=False)
class Inside:
    """A body of a node of the rest, and the parts of it."""

    body: Body
    choice: Choice


def choose(source: Source, least_us: float | None = None, bare: bool = False) -> Choice:
    """Cut the model so that every operator that has a kernel, in a segment that pays, is on our side.

    `least_us`: see `worth.too_small`. `bare`: kernels must run without TVM's own runtime, as those of nodes in ONNX
    Runtime do.
    """
    return _Chooser(source, least_us, bare).choose()


def _type_of(source: Source, name: str) -> tuple[str, tuple[int | None, ...] | None]:
    """The type of an input: its elements and its sizes, None for those that are open."""
    found = source.type_of(name)
    sizes = None if found.shape is None else tuple(size if isinstance(size, int) else None for size in found.shape)
    return found.dtype, sizes


@dataclass
class _Chooser:
    source: Source
    least_us: float | None
    bare: bool
    reasons: dict[int, str] = field(default_factory=dict)

    def choose(self) -> Choice:
        nodes, source = self.source.nodes, self.source
        self.reasons = {node.place: self._hinted(node, why) for node in nodes if (why := unfit(source, node))}
        carried = {name for node in nodes for name in node.writes if source.dtype_of(name)}
        coverage = Coverage(source, self.bare)
        graphs: dict[tuple[int, ...], Graph] = {}
        while True:
            parts = cut(nodes, set(range(len(nodes))) - set(self.reasons), carried)
            self._note_tied(parts)
            new = [part for part in parts if part.own and part.members not in graphs]
            if not new:
                small = self._small([part for part in parts if part.own], graphs)
                if not small:
                    return self._chosen(parts, graphs)
                continue
            for part in new:
                self._examine(part, coverage, graphs)

    def _note_tied(self, parts: Sequence[Part]) -> None:
        rest = {place for part in parts if not part.own for place in part.members}
        for place in rest - set(self.reasons):
            self.reasons[place] = "it stands between operators whose values only ONNX Runtime can hand on"

    def _examine(self, part: Part, coverage: Coverage, graphs: dict[tuple[int, ...], Graph]) -> None:
        """The graph of a segment, or reasons for some of its operators."""
        found = coverage.graph(self._model(part.members, "segment"))
        if isinstance(found, Graph):
            graphs[part.members] = found
            return
        members = [self.source.nodes[place] for place in part.members]
        refused = {node.place: self._hinted(node, why) for node in members if (why := coverage.alone(node))}
        if not refused:
            self._halved(part.members, found, coverage)
        self.reasons |= refused

    def _hinted(self, node: Node, why: str) -> str:
        """Why a node is in the rest, and which inputs of the model to give a value for another answer."""
        hint = self._parameters.hint(self.source.operator(node))
        return f"{why}; {hint}" if hint else why

    @cached_property
    def _parameters(self) -> Parameters:
        source = self.source
        operators = [source.operator(node) for node in source.nodes]
        constants = [name for one in operators for name in one.inputs if name and source.is_constant(name)]
        return Parameters(operators, {name: _type_of(source, name) for name in source.inputs}, constants)

    def _halved(self, members: tuple[int, ...], why: str, coverage: Coverage) -> None:
        """Reasons for operators that are refused only beside others: the second half, of halves, that is."""
        half = len(members) // 2
        if half == 0:
            self.reasons[members[0]] = why
            return
        for some in (members[:half], members[half:]):
            found = coverage.graph(self._model(some, "segment"))
            if isinstance(found, str):
                self._halved(some, found, coverage)
                return
        self.reasons |= dict.fromkeys(members[half:], why)

    def _small(self, parts: Sequence[Part], graphs: dict[tuple[int, ...], Graph]) -> bool:
        """Whether the smallest segment does not pay; then it joins the rest."""
        sized = [(work_us(graphs[part.members]), part.members) for part in parts]
        work, members = min(sized, default=(float("inf"), ()))
        reason = too_small(work, self.least_us)
        if reason:
            self.reasons |= dict.fromkeys(members, reason)
        return bool(reason)

    def _model(self, members: Sequence[int], name: str) -> OnnxModel:
        return self.source.part(members, self._results(members), name)

    def _results(self, members: Sequence[int]) -> list[str]:
        """What is needed of some operators' results: by others, or by who calls the model."""
        inside = set(members)
        nodes = self.source.nodes
        wanted = {name for node in nodes if node.place not in inside for name in node.reads} | set(self.source.outputs)
        return [name for place in sorted(inside) for name in nodes[place].writes if name in wanted]

    def _refuse_deviations(self, parts: Sequence[Part]) -> None:
        """InputError where the rest holds what ONNX Runtime computes otherwise than ONNX says."""
        for place in (place for part in parts if not part.own for place in part.members):
            node = self.source.nodes[place]
            if why := deviation(self.source, node):
                raise InputError(f"{self.source.name}: {node.op_type} {node.name!r} has no kernel, and {why}")

    def _chosen(self, parts: Sequence[Part], graphs: dict[tuple[int, ...], Graph]) -> Choice:
        self._refuse_deviations(parts)
        pieces = []
        stray = [name for name in self.source.outputs if self.source.is_constant(name)]
        last = next((part for part in reversed(parts) if not part.own), None)
        if stray and last is None:
            last = Part(False, ())
            parts = [*parts, last]
        for number, part in enumerate(parts):
            results = [*self._results(part.members), *(stray if part is last else ())]
            name = f"segment{number}" if part.own else f"rest{number}"
            model = self.source.part(part.members, results, name)
            nodes = tuple(self.source.nodes[place] for place in part.members)
            graph = graphs[part.members] if part.own else None
            inputs = tuple(value.name for value in model.graph.input)
            pieces.append(Piece(nodes, model, inputs, tuple(results), graph, work_us(graph) if graph else 0.0))
        return Choice(self.source, tuple(pieces), self.reasons)
