"""Which operators may work on images whose sizes are open, and which of them one kernel may compute together.

A kernel computes its results tile by tile. One operator of it, its head, may look around each place; all others read
what stands at the place where their result will stand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from autofuse.errors import InputError, PlanError
from autofuse.graph.mapping import QUANTISATION, names
from autofuse.graph.model import Operator
from autofuse.graph.own.byte_lookup import is_byte_lookup
from autofuse.graph.own.joined_places import joins_places
from autofuse.graph.own.recurrence import is_recurrence
from autofuse.graph.transform.open_sizes.attention import ELEMENTWISE, VIEWS, Attention
from autofuse.graph.transform.open_sizes.images.grid_attention import (
    attending,
    grid_attentions,
    keeps_lines,
    line_of,
    of_one_image,
    rows_along,
    size_of_images,
)
from autofuse.graph.transform.open_sizes.images.grid_graph import GridGraph
from autofuse.graph.transform.open_sizes.images.grid_windows import Look, gathers_apart, look_of
from autofuse.graph.transform.open_sizes.images.over_places.reducing import reduces_places, varies_along_fixed
from autofuse.graph.transform.open_sizes.images.over_places.resizing import resizing_of
from autofuse.graph.transform.open_sizes.images.sliding import beyond_windows
from autofuse.graph.transform.open_sizes.over_rows.recurrences import recurs
from autofuse.graph.transform.open_sizes.rows import keeps_rows

_BEFORE_REDUCTIONS = (ELEMENTWISE - names("Shrink")) | QUANTISATION | VIEWS | names("BatchNormalization Expand")
"""Operators of which a reduction over all places computes each element where it reads it: a 1x1 convolution, a softmax
of channels, whose elements each take sums, have kernels of their own."""
_ALONG = names("ArgMax ArgMin")
"""Reductions along one axis, which their result may lack."""


@dataclass(frozen=True)
class GridOperators:
    """What is known of each operator of an open graph."""

    opened: GridGraph

    @cached_property
    def looks(self) -> dict[str, Look | str]:
        """What each operator that touches an open size sees around a place; see `look_of`."""
        return {one.name: look_of(self.opened, one) for one in self.opened.graph.operators if self.opened.touches(one)}

    @cached_property
    def alone(self) -> GridGraph:
        """The graph of one image."""
        return of_one_image(self.opened)

    @cached_property
    def attending(self) -> dict[str, Attention]:
        """The attention of each operator that belongs to one over places. InputError where a softmax is of none."""
        return attending(self.alone, grid_attentions(self.alone))

    @cached_property
    def _still(self) -> dict[str, str]:
        graph = self.opened.graph
        touching = (one for one in graph.operators if self.opened.touches(one) and one.name not in self.attending)
        return {one.name: self._reason(one) for one in touching}

    def check(self) -> None:
        """InputError that names the first operator that no kernel of ours computes at any size."""
        for operator in self.opened.graph.operators:
            if not self.opened.touches(operator):
                continue
            if operator.name in self.attending:
                softmax = self.alone.graph.by_name[self.attending[operator.name].softmax]
                if size_of_images(self.opened) is not None and line_of(self.alone, softmax) is not None:
                    raise self.opened.refused(
                        softmax, "it goes along one side of each of several images: fix their number"
                    )
                if not self._keeps_images(operator) or not keeps_lines(self.alone, softmax, operator):
                    raise self.opened.refused(operator, "it mixes images, or nothing is known of how it treats them")
                continue
            if self.reduces(operator) or self.resizes(operator) or self.recurs(operator) or self.joins(operator):
                continue
            look = self.looks[operator.name]
            reason = self._still[operator.name] if look == "" else look if isinstance(look, str) else ""
            reason = reason or self._target_reason(operator)
            if reason:
                raise self.opened.refused(operator, reason)

    def merges(self, operator: Operator) -> bool:
        """Whether an operator is a view that puts places, or these and channels, into other axes than they are in.

        What has known extents before and behind it lies there as it did at any size.
        """
        data, made = operator.inputs[0] if operator.inputs else "", operator.outputs[0]
        if (
            operator.op_type not in VIEWS
            or operator.domain
            or not (data in self.opened.axes and made in self.opened.axes)
        ):
            return False
        return self._runs(data) != self._runs(made)

    def resizes(self, operator: Operator) -> bool:
        """Whether an operator resizes images by other factors than a tile knows."""
        known = isinstance(self.looks[operator.name], Look)
        return not known and resizing_of(self.opened, operator) is not None

    def recurs(self, operator: Operator) -> bool:
        """Whether an operator is a recurrence whose steps are the places along one size, and nothing else is open."""
        if not is_recurrence(operator):
            return False
        named = (*operator.inputs, *operator.outputs)
        own = {extent for name in named for extent in self.alone.axes.get(name, {}).values()}
        return (
            len(own) == 1 and recurs(rows_along(self.alone, next(iter(own))), operator) and self._keeps_images(operator)
        )

    def _keeps_images(self, operator: Operator) -> bool:
        """Whether an operator keeps images apart, where their number is open, each of what has one for each image."""
        number = size_of_images(self.opened)
        named = [name for name in (*operator.inputs, *operator.outputs) if number in self.opened.grid(name)]
        if number is None or not named:
            return True
        single = all(self.alone.graph.tensors[name].shape[0] == 1 for name in named if name not in self._inside)
        return single and bool(keeps_rows(self.opened.along(number), operator))

    @cached_property
    def _inside(self) -> frozenset[str]:
        """What operators of attentions make for others of the same."""
        graph = self.opened.graph
        made = {name: one for one in self.attending for name in graph.by_name[one].outputs}
        return frozenset(name for name, one in made.items() if name != self.attending[one].result)

    def is_still(self, operator: Operator) -> bool:
        """Whether each result of an operator depends on what stands at its place only."""
        look = self.looks[operator.name]
        return look.is_still if isinstance(look, Look) else not self._still[operator.name]

    def look(self, operator: Operator) -> Look | None:
        """What an operator that is not still sees."""
        look = self.looks.get(operator.name)
        return look if isinstance(look, Look) and not look.is_still else None

    def reduces(self, operator: Operator) -> bool:
        """Whether an operator reduces each image to one place, or to those along one side, and nothing else."""
        return reduces_places(self.opened, operator)

    def joins(self, operator: Operator) -> bool:
        """Whether an operator makes rows of the places of maps, which lie in them as they are."""
        if not joins_places(operator) or any(name in self.opened.joined for name in operator.inputs):
            return False
        terms = [terms for whole in self.opened.joined.get(operator.outputs[0], {}).values() for terms in whole.terms]
        given = {*self.opened.parts, *self.opened.graph.constants}
        return bool(terms) and all(extents for _, extents in terms) and given.isdisjoint(operator.inputs)

    def _reason(self, operator: Operator) -> str:
        """Why an operator is not known to keep all places apart; "" where it does."""
        opened = self.opened
        if any(name in opened.joined for name in (*operator.inputs, *operator.outputs)):
            return f"it has places along {opened.symbol} as rows of one axis: cut the model before it"
        if self.merges(operator):
            return ""
        touched = [name for name in (*operator.inputs, *operator.outputs) if opened.has(name)]
        made = [name for name in operator.outputs if name]
        square = next((name for name in touched if opened.is_square(name)), None)
        if square is not None:
            shape = "x".join(map(str, opened.graph.tensors[square].shape))
            return f"{square!r} ({shape}) has one of them in several axes, and it belongs to no attention"
        for size in sorted({one.size for name in touched for one in opened.axes[name].values()}):
            grids = {opened.grid(name)[size] for name in touched if size in opened.grid(name)}
            if not all(size in opened.grid(name) for name in made):
                return f"it mixes places along {opened.sizes[size].name}"
            if len(grids) > 1:
                return f"its tensors have several extents along {opened.sizes[size].name}"
            if not self._apart(operator, size):
                return f"nothing is known of how it treats places along {opened.sizes[size].name}, or it mixes them"
        return ""

    def _target_reason(self, operator: Operator) -> str:
        """Why the target shape of an operator is none that a tile has, too; "" where it is."""
        made, look = set(self.opened.axes.get(operator.outputs[0], {}).values()), self.looks.get(operator.name)
        read = look.operator.inputs if isinstance(look, Look) else operator.inputs
        targets = [self.opened.targets[name] for name in read if name in self.opened.targets]
        fits = all(extent in made for places in targets for extent in places.values())
        return "" if fits else "its target shape is another than that of its result"

    def _apart(self, operator: Operator, size: int) -> bool:
        opened = self.opened
        if operator.domain and not is_byte_lookup(operator):
            return False
        if operator.op_type in VIEWS:
            return self._runs(operator.inputs[0]) == self._runs(operator.outputs[0])
        if operator.op_type in _ALONG:
            rank = len(opened.graph.tensors[operator.inputs[0]].shape)
            axis = operator.attributes.get("axis", 0)
            return isinstance(axis, int) and axis % rank not in opened.axes[operator.inputs[0]]
        if operator.op_type == "MatMul" and size not in opened.grid(operator.inputs[0]):
            # Places behind channels: a product with what is the same for all of them.
            last = opened.axes[operator.inputs[1]].get(len(opened.graph.tensors[operator.inputs[1]].shape) - 1)
            if last is not None and last.size == size:
                return True
        if operator.op_type == "Gather" and not opened.has(operator.inputs[1]):
            return gathers_apart(opened, operator)
        if operator.op_type == "BatchNormalization":
            data, *parameters = operator.inputs
            return 1 not in opened.axes.get(data, {1: None}) and not any(opened.has(name) for name in parameters)
        return bool(keeps_rows(opened.along(size), operator))

    def _runs(self, name: str) -> list[object]:
        """Elements before, between and behind the open axes, which a view leaves as they are, or puts elsewhere."""
        runs: list[object] = [1]
        for axis, extent in enumerate(self.opened.graph.tensors[name].shape):
            one = self.opened.axes.get(name, {}).get(axis)
            if one is None:
                assert isinstance(runs[-1], int)
                runs[-1] *= extent
            else:
                runs += [one, 1]
        return runs


@dataclass(frozen=True)
class GridGroup:
    """`operators` of one kernel, in order. `head`: the one that looks around, if any does. `reduces`: it ends with a
    reduction over all places; `resizes`: it is a resizing of all of them; `recurs`: it is a recurrence over all of
    them; `joins`: it makes rows of the places of maps; `attention`: they are one over all of them; `view`: it puts
    places of several sizes into one axis, or takes them apart, where they lie; `static`: nothing of it has an open
    size."""

    operators: tuple[str, ...]
    head: str = ""
    reduces: bool = False
    resizes: bool = False
    recurs: bool = False
    joins: bool = False
    static: bool = False
    attention: Attention | None = None
    view: bool = False

    @property
    def in_tiles(self) -> bool:
        """Whether its kernel is one of tiles of places, or of fixed sizes; else it is one of all places at once."""
        whole = self.reduces or self.resizes or self.recurs or self.joins or self.view
        return not whole and self.attention is None


Operators = tuple[str, ...]
Order = Callable[[Sequence[Operators]], Sequence[Operators]]
"""Groups in an order in which they can run. PlanError where they wait for one another."""


def grid_groups(known: GridOperators, planned: Sequence[Operators], ordered: Order) -> list[GridGroup]:
    """The groups of a plan, cut where no kernel computes both sides together, in an order in which they can run. Those
    of an attention are one. PlanError where groups wait for one another."""
    graph, attentions = known.opened.graph, {id(one): one for one in known.attending.values()}
    if not attentions:
        return _cut(known, planned)
    outer = [tuple(name for name in group if name not in known.attending) for group in planned]
    found = [GridGroup(one.operators, attention=one) for one in attentions.values()]
    singles = [(operator.name,) for operator in graph.operators if operator.name not in known.attending]
    for tried in (outer, singles):
        made = {frozenset(group.operators): group for group in [*_cut(known, tried), *found]}
        try:
            return [made[frozenset(one)] for one in ordered([group.operators for group in made.values()])]
        except PlanError:
            continue
    raise PlanError(f"{graph.name}: an attention waits for itself")


def _cut(known: GridOperators, planned: Sequence[tuple[str, ...]]) -> list[GridGroup]:
    """Groups in parts that one kernel computes."""
    graph = known.opened.graph
    found: list[GridGroup] = []
    for group in planned:
        left = [graph.by_name[name] for name in sorted(group, key=graph.position.__getitem__)]
        while left:
            count = next(count for count in range(len(left), 0, -1) if _group(known, left[:count]) is not None)
            made = _group(known, left[:count])
            assert made is not None
            found.append(made)
            left = left[count:]
    return found


def _group(known: GridOperators, operators: Sequence[Operator]) -> GridGroup | None:
    """Operators as one group; None where they cannot be one. A single operator always can."""
    opened, order = known.opened, tuple(operator.name for operator in operators)
    touching = [operator for operator in operators if opened.touches(operator)]
    if not touching:
        return GridGroup(order, static=True)
    if len(touching) < len(operators):
        return None
    if any(known.merges(operator) for operator in touching):
        return GridGroup(order, view=True) if len(operators) == 1 else None
    if any(known.resizes(operator) for operator in touching):
        return GridGroup(order, resizes=True) if len(operators) == 1 else None
    if any(known.recurs(operator) for operator in touching):
        return GridGroup(order, recurs=True) if len(operators) == 1 else None
    if any(known.joins(operator) for operator in touching):
        return GridGroup(order, joins=True) if len(operators) == 1 else None
    if any(known.reduces(operator) for operator in touching):
        return GridGroup(order, reduces=True) if _is_reduction(known, operators) else None
    heads = [operator for operator in operators if not known.is_still(operator)]
    head = heads[0] if heads else None
    if _joins_windows(operators):
        return None
    if len(heads) > 1 or not _one_grid(known, operators, head) or beyond_windows(opened, operators):
        return None
    return GridGroup(order, head="" if head is None else head.name)


def _joins_windows(operators: Sequence[Operator]) -> bool:
    """Whether operators compute several convolutions side by side, none of what another makes: each goes over the whole
    image where it is alone, and together they would be cut into tiles that read all weights each."""
    made: set[str] = set()
    for operator in operators:
        if operator.op_type == "Conv" and made and operator.inputs[0] not in made:
            return True
        if operator.op_type == "Conv" or not made.isdisjoint(operator.inputs):
            made |= {*operator.outputs}
    return False


def _is_reduction(known: GridOperators, operators: Sequence[Operator]) -> bool:
    """Whether operators are a reduction, and before it what computes each place of it and nothing else."""
    *before, reduction = operators
    opened, data = known.opened, reduction.inputs[0]
    if not known.reduces(reduction) or not all(known.is_still(operator) for operator in before):
        return False
    if reduction.op_type != "MatMul" and not all(_is_read_along(operator) for operator in before):
        return False
    read_here = {name for operator in operators for name in operator.inputs}
    made = {name for operator in before for name in operator.outputs}
    own = {operator.name for operator in operators}
    kept = {reader.name for name in made for reader in opened.graph.consumers.get(name, ())} <= own
    if not kept or not made <= read_here or not made.isdisjoint(opened.graph.outputs):
        return False
    if reduction.op_type == "MatMul":
        extents = set(opened.axes[data].values())
        read = [opened.axes[name] for name in read_here if opened.has(name)]
        moves = ELEMENTWISE | VIEWS | {"Slice", "Transpose"}
        return all(one.op_type in moves for one in before) and all(set(axes.values()) == extents for axes in read)
    if not read_here.isdisjoint(opened.parts):  # places are counted through all axes, and a constant has more of them
        return False
    whole = opened.axes[data]
    images = {axis: extent for axis, extent in whole.items() if axis == 0}
    shape = opened.graph.tensors[data].shape
    alike = (
        opened.graph.tensors[name].shape == shape and opened.axes[name] == whole
        if opened.axes[name].keys() - {0}
        else opened.axes[name] == images
        for name in read_here
        if opened.has(name)
    )
    factors = {name for operator in before if operator.op_type in ELEMENTWISE for name in operator.inputs} - made
    return all(alike) and not any(varies_along_fixed(opened, reduction, name) for name in factors)


def _is_read_along(operator: Operator) -> bool:
    """Whether a reduction over all places may compute the elements of an operator where it reads them."""
    return operator.op_type in _BEFORE_REDUCTIONS or is_byte_lookup(operator)


def _one_grid(known: GridOperators, operators: Sequence[Operator], head: Operator | None) -> bool:
    """Whether all tensors of a group have the same extents along each size, but for what its head looks at."""
    opened = known.opened
    made = {name for operator in operators for name in operator.outputs}
    looked = "" if head is None else head.inputs[0]
    if looked in made:
        return False
    others = {
        name
        for operator in operators
        for place, name in enumerate((*operator.inputs, *operator.outputs))
        if opened.has(name) and not (operator is head and place == 0)
    }
    if looked in others:
        return False
    grids = [opened.grid(name) for name in others]
    along = {size: {grid[size] for grid in grids if size in grid} for grid in grids for size in grid}
    full = all(grid.keys() == along.keys() for name, grid in zip(others, grids, strict=True) if name in made)
    return full and all(len(extents) == 1 for extents in along.values())


def check_grid(opened: GridGraph) -> None:
    """InputError that names the first operator that no kernel of ours computes at any size."""
    GridOperators(opened).check()
    for name in opened.graph.outputs:
        if name in opened.graph.constants and opened.has(name):
            raise InputError(f"--sizes: the output {name!r} is a constant that depends on the size")
