"""Parts of the rest whose tensors have as many rows as the data say: what follows boxes that were found, say.

What depends on data is the number of rows alone, the extent of the first axis. Kernels of an open number of rows
compute such a part, if it has products or convolutions; what is computed of shapes alone is there on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from autofuse.graph.model import Graph
from autofuse.graph.parts.sizes import Sizes, followed_sizes, set_sizes
from autofuse.graph.parts.source import Node, Source
from autofuse.graph.submodel import OnnxModel
from autofuse.segments.choice import Choice, Piece
from autofuse.segments.coverage import unfit_at_any_size
from autofuse.segments.legality import Part, cut
from autofuse.segments.worth import too_small, work_us

ROWS = "rows"
"""The name of the open size of a segment of rows."""
DEFAULT_ROWS = 1024
"""How many rows kernels take where the model does not say how many there may be."""
MOST_ROWS = 4096
LEAST_ROWS = 2
USUAL_ROWS = 32
"""Rows at which a segment is judged whether it pays: nobody knows how many there will be."""
PRODUCTS = frozenset(("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"))
"""What a segment of rows must have one of: all else costs hardly more than the change of sides."""
HANDS_ON = frozenset(("Cast", "Concat", "Gather", "Identity", "Squeeze", "Transpose", "Unsqueeze"))
"""Operators behind which there are as many rows as some operator before them says."""
Examine = Callable[[OnnxModel, int], Graph | str]
"""The graph, at so many rows, of a model whose inputs have `ROWS`; or why there are no kernels of it."""


@dataclass(frozen=True)
class Reading:
    """An operator as it is cut: what is computed of shapes alone stands for the tensors whose shapes these are."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]


def with_rows(choice: Choice, examine: Examine, least_us: float | None = None) -> Choice:
    """The choice with segments of rows in its rest. `least_us`: see `worth.too_small`."""
    finder = _Finder(choice.source, examine, least_us)
    pieces = [part for piece in choice.pieces for part in ([piece] if piece.graph else finder.parts(piece))]
    if not any(piece.most_rows for piece in pieces):
        return choice
    own = {node.place for piece in pieces if piece.most_rows for node in piece.nodes}
    reasons = {place: why for place, why in choice.reasons.items() if place not in own}
    return replace(choice, pieces=tuple(pieces), reasons=reasons)


def may_have_rows(choice: Choice) -> bool:
    """Whether the rest has a product or a convolution of as many rows as the data say."""
    nodes = (node for piece in choice.rest for node in piece.nodes if node.op_type in PRODUCTS)
    shapes = (choice.source.type_of(name).shape for node in nodes for name in node.reads[:1])
    return any(shape is None or not isinstance((*shape, 0)[0], int) for shape in shapes)


@dataclass
class _Finder:
    source: Source
    examine: Examine
    least_us: float | None
    found: dict[tuple[object, ...], Graph | str] = field(default_factory=dict)
    piece: Piece | None = None
    """The part of the rest that is cut."""
    idle: frozenset[int] = frozenset()
    """Operators of shapes that only segments of rows need, which compute them anew."""

    def __post_init__(self) -> None:
        self.followed = followed_sizes(self.source)
        self.maker = {name: node for node in self.source.nodes for name in node.writes}
        self.readers: dict[str, list[int]] = {}
        self.counted: dict[str, tuple[str, ...]] = {}
        for node in self.source.nodes:
            self._note_counted(node)
            for name in node.reads:
                self.readers.setdefault(name, []).append(node.place)

    def parts(self, piece: Piece) -> list[Piece]:
        """A part of the rest, cut where segments of rows begin and end."""
        self.piece = piece
        own = {node.place for node in piece.nodes if self._fits(node)}
        while own:
            cuts = self._cut(piece, own)
            self.idle = self._idle(piece, own)
            groups = [group for one in cuts if one.own for group in self._connected(one.members)]
            left_out = {place for group in groups for place in self._left_out(group)}
            if not left_out:
                return self._pieces(piece, cuts)
            own -= left_out
        return [piece]

    def _note_counted(self, node: Node) -> None:
        """Notes of what is computed of shapes alone: the tensors whose shapes these are."""
        if node.has_body or not node.writes or node.domain:
            return
        if node.op_type in ("Shape", "Size"):
            of = node.reads
        elif node.reads and all(name in self.counted for name in node.reads):
            of = tuple(dict.fromkeys(one for name in node.reads for one in self.counted[name]))
        else:
            return
        self.counted.update(dict.fromkeys(node.writes, of))

    def _fits(self, node: Node) -> bool:
        """Whether an operator may be in a segment of rows, by the shapes of what it reads and makes."""
        if unfit_at_any_size(self.source, node) or any(name in self.counted for name in node.writes):
            return False
        reads = self._seen(node).reads
        known = all(self.is_rows(name) or self._is_fixed(name) for name in reads)
        return known and any(map(self.is_rows, reads)) and all(map(self.is_rows, node.writes))

    def is_rows(self, name: str) -> bool:
        """Whether only the first extent of a tensor is unknown."""
        sizes = self.sizes(name)
        return bool(sizes and self.source.dtype_of(name) and sizes[0] is None and all(sizes[1:]))

    def sizes(self, name: str) -> Sizes:
        """The sizes of a tensor, None for each that is unknown; none of one whose rank is."""
        found, followed = self.source.type_of(name).shape, self.followed.get(name)
        known = tuple(size if isinstance(size, int) else None for size in found or ())
        if followed is None or (found is not None and len(known) != len(followed)):
            return known
        return followed if found is None else tuple(o if s is None else s for s, o in zip(known, followed, strict=True))

    def _is_fixed(self, name: str) -> bool:
        known = self.source.type_of(name).shape is not None or name in self.followed
        return known and bool(self.source.dtype_of(name)) and all(self.sizes(name))

    def _seen(self, node: Node) -> Reading:
        """An operator with the tensors whose shapes it needs, in place of what is computed of these."""
        if any(name in self.counted for name in node.writes):
            return Reading(node.reads, node.writes)
        reads = (one for name in node.reads for one in self.counted.get(name, (name,)))
        return Reading(tuple(dict.fromkeys(reads)), node.writes)

    def _cut(self, piece: Piece, own: Collection[int]) -> tuple[Part, ...]:
        """The operators of a part in parts of both sides, by their places in the model."""
        places = [node.place for node in piece.nodes]
        items = [self._seen(node) if node.place in own else Reading(node.reads, node.writes) for node in piece.nodes]
        carried = {name for node in piece.nodes for name in node.writes if self.source.dtype_of(name)}
        inside = {number for number, place in enumerate(places) if place in own}
        return tuple(Part(one.own, tuple(places[n] for n in one.members)) for one in cut(items, inside, carried))

    def _connected(self, members: Sequence[int]) -> list[tuple[int, ...]]:
        """Operators by the rows that they share: those of one group have as many."""
        groups: list[tuple[set[str], list[int]]] = []
        for place in members:
            node = self.source.nodes[place]
            names = {name for name in (*self._seen(node).reads, *node.writes) if self.is_rows(name)}
            touched = [group for group in groups if group[0] & names]
            groups = [group for group in groups if group not in touched]
            groups.append((names.union(*(one for one, _ in touched)), [*(p for _, ps in touched for p in ps), place]))
        return sorted(tuple(sorted(places)) for _, places in groups)

    def _left_out(self, members: tuple[int, ...]) -> set[int]:
        """Those of a group that cannot be in a segment of rows: all, where it does not pay."""
        nodes = [self.source.nodes[place] for place in members]
        if not any(node.op_type in PRODUCTS for node in nodes):
            return set(members)
        found = self._examined(members)
        if isinstance(found, Graph):
            return set(members) if too_small(work_us(found), self.least_us) else set()
        if len(members) == 1:
            return set(members)
        refused = {place for place in members if isinstance(self._examined((place,)), str)}
        return refused or set(members[len(members) // 2 :])

    def _examined(self, members: tuple[int, ...]) -> Graph | str:
        results = tuple(self._results(members))
        if (members, results) not in self.found:
            self.found[members, results] = self.examine(self._segment(members, results), self.most_rows(members))
        return self.found[members, results]

    def _segment(self, members: Sequence[int], results: Sequence[str]) -> OnnxModel:
        """The model of a segment of rows, whose inputs and outputs say where these are."""
        model = self.source.part(self._with_counted(members), results, ROWS)
        for value in (*model.graph.input, *model.graph.output):
            sizes = self.sizes(value.name)
            set_sizes(value, (ROWS, *sizes[1:]) if self.is_rows(value.name) else sizes)
        return model

    def _with_counted(self, members: Iterable[int]) -> list[int]:
        """Operators, and those that compute the shapes that these need."""
        found = set(members)
        wanted = list(found)
        while wanted:
            for name in self.source.nodes[wanted.pop()].reads:
                if name in self.counted and (place := self.maker[name].place) not in found:
                    found.add(place)
                    wanted.append(place)
        return sorted(found)

    def _results(self, members: Collection[int]) -> list[str]:
        """What is needed of some operators' results elsewhere in the part that is cut, and of it: another part may
        compute the same sizes for itself."""
        assert self.piece is not None
        inside = {*members, *self.idle}
        wanted = {name for node in self.piece.nodes if node.place not in inside for name in node.reads}
        wanted |= set(self.piece.outputs)
        return [name for place in sorted(members) for name in self.source.nodes[place].writes if name in wanted]

    def most_rows(self, members: Sequence[int]) -> int:
        """The most rows that kernels take: as many as the operators before let through, where one says so."""
        made = {name for place in members for name in self.source.nodes[place].writes}
        reads = dict.fromkeys(n for place in members for n in self._seen(self.source.nodes[place]).reads)
        bounds = [bound for name in reads if name not in made and self.is_rows(name) and (bound := self._bound(name))]
        return max(LEAST_ROWS, min((*bounds, MOST_ROWS))) if bounds else DEFAULT_ROWS

    def _bound(self, name: str) -> int:
        """How many rows a tensor can have; 0 where nothing near it says so."""
        seen: set[str] = set()
        wanted = [name]
        while wanted:
            name = wanted.pop(0)
            node = self.maker.get(name)
            if node is None or name in seen:
                continue
            seen.add(name)
            if bound := self._bound_of(node):
                return bound
            if node.op_type in HANDS_ON or node.op_type == "Slice":
                wanted += node.reads[::-1] if node.op_type == "Gather" else node.reads
        return 0

    def _bound_of(self, node: Node) -> int:
        """How many places an operator finds, or lets through, at most; 0 where it does not say so."""
        given = self.source.operator(node).inputs
        if node.op_type in ("Compress", "NonZero") and (tensor := self.source.tensor_of(given[0])) is not None:
            return tensor.elements if node.op_type == "NonZero" else max(tensor.shape)
        if node.op_type == "NonMaxSuppression" and len(given) > 2:
            most, scores = self._integers(given[2]), self.source.type_of(given[1]).shape
            if most and scores and all(isinstance(size, int) for size in scores[:2]):
                return most[0] * prod(size for size in scores[:2] if isinstance(size, int))
        if node.op_type == "Slice" and len(given) > 2:
            starts, ends = self._integers(given[1]), self._integers(given[2])
            axes = self._integers(given[3]) if len(given) > 3 and given[3] else range(len(starts))
            if len(starts) == len(ends) == 1 and tuple(axes) == (0,) and 0 <= starts[0] < ends[0] <= MOST_ROWS:
                return ends[0] - starts[0]
        return 0

    def _integers(self, name: str) -> tuple[int, ...]:
        found = self.source.numbers(name)
        return () if found is None else tuple(int(one) for one in found.reshape(-1))

    def _pieces(self, piece: Piece, cuts: Sequence[Part]) -> list[Piece]:
        stray = [name for name in piece.outputs if self.source.is_constant(name)]
        last = max((number for number, one in enumerate(cuts) if not one.own), default=-1)
        found = []
        for number, one in enumerate(cuts):
            if one.own:
                found += [self._rows_piece(members) for members in self._connected(one.members)]
                continue
            members = [place for place in one.members if place not in self.idle]
            results = [*self._results(members), *(stray if number == last else ())]
            found += [self._rest_piece(members, results, f"{piece.model.graph.name}_{number}")] if results else []
        if stray and last < 0:
            found.append(self._rest_piece([], stray, f"{piece.model.graph.name}_stray"))
        return found

    def _idle(self, piece: Piece, own: set[int]) -> frozenset[int]:
        """See `idle`."""
        found: set[int] = set()
        outputs = set(self.source.outputs)
        for node in reversed(piece.nodes):
            counts = bool(node.writes) and all(name in self.counted for name in node.writes)
            if counts and outputs.isdisjoint(node.writes) and self._readers(node) <= own | found:
                found.add(node.place)
        return frozenset(found)

    def _readers(self, node: Node) -> set[int]:
        return {place for name in node.writes for place in self.readers.get(name, ())}

    def _rows_piece(self, members: tuple[int, ...]) -> Piece:
        results = self._results(members)
        model = self.source.part(self._with_counted(members), results, ROWS)
        found = self._examined(members)
        work = work_us(found) if isinstance(found, Graph) else 0.0
        return replace(self._piece(members, model, results, self.most_rows(members)), work_us=work)

    def _rest_piece(self, members: Sequence[int], results: Sequence[str], name: str) -> Piece:
        return self._piece(members, self.source.part(members, results, name), results)

    def _piece(self, members: Sequence[int], model: OnnxModel, results: Sequence[str], most_rows: int = 0) -> Piece:
        nodes = tuple(self.source.nodes[place] for place in members)
        inputs = tuple(value.name for value in model.graph.input)
        return Piece(nodes, model, inputs, tuple(results), most_rows=most_rows)
