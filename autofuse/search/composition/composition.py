"""The best whole plan that measured groups can make, exactly: set partitioning by integer programming.

Every group that some plan had is a column: the operators that it covers, and its cost. A plan is a choice of columns
that covers every operator exactly once and can run. The cheapest choice is found by HiGHS (through scipy's `milp`);
that groups do not wait for one another is added as cuts, only where a solution breaks it. An operator that some
columns hold a copy of need not be covered, unless a chosen column reads its result.

Columns seldom reach far, so the problem falls into regions that no column crosses: at operators that nothing fuses
with, and at articulation points that nobody fused over. Equal regions are solved once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from autofuse.errors import PlanError
from autofuse.fusion.evidence import Identity, Piece
from autofuse.fusion.legality import ordered_groups
from autofuse.fusion.plan import FusionPlan
from autofuse.fusion.skeleton import realise
from autofuse.graph.model import Graph
from autofuse.graph.transform.copies import Copy
from autofuse.measure.measurement import Left, no_end
from autofuse.search.composition.cycles import cycles_among

SOLVER_SECONDS = 60.0
MOST_ROUNDS = 400
"""Solutions that may turn out not to run before a region is given up."""

Cut = frozenset[Identity]
"""Groups that may not all be chosen together."""


@dataclass(frozen=True)
class Region:
    """A region: operators that no column leaves. `us`: cost of its best groups; `same_as`: an equal region before
    it, or -1."""

    operators: tuple[str, ...]
    columns: int
    us: float
    same_as: int


@dataclass(frozen=True)
class Composition:
    """The best plan of the columns. `us`: what it costs; `gap`: proven distance from the optimum (0: exact).

    `cuts`: cycles that had to be forbidden; `solved`: regions that went to the solver.
    """

    plan: FusionPlan
    us: float
    regions: tuple[Region, ...]
    cuts: int
    solved: int
    gap: float
    seconds: float


@dataclass(frozen=True)
class _Column:
    """A group and its cost. `needs`: operators whose results it reads from outside, where these may be left out."""

    piece: Piece
    cost: float
    needs: frozenset[str]


@dataclass(frozen=True)
class _Problem:
    operators: tuple[str, ...]
    columns: tuple[_Column, ...]


@dataclass(frozen=True)
class _Solution:
    chosen: tuple[_Column, ...]
    us: float
    gap: float
    cuts: tuple[Cut, ...]


def compose(
    graph: Graph, pieces: Sequence[Piece], costs: Mapping[Identity, float] | None = None, left: Left = no_end
) -> Composition | None:
    """The plan of least summed time that the timed `pieces` make of `graph`; None when they cover it in no way, and
    when no time is `left` to find it.

    `costs`: what a group costs instead of its time (other objectives, or what is known better).
    """
    started = time.monotonic()
    columns, optional = _columns(graph, pieces, costs or {})
    regions = _components(graph, columns)
    cuts: list[Cut] = []
    solved = 0
    for _ in range(MOST_ROUNDS):
        found = _solve_regions(graph, regions, optional, cuts, left)
        if found is None:
            return None
        solutions, same, count = found
        solved += count
        chosen = [column.piece for solution in solutions for column in solution.chosen]
        cycles = _cycles(graph, chosen)
        if not cycles:
            rows = tuple(
                Region(problem.operators, len(problem.columns), solution.us, twin)
                for problem, solution, twin in zip(regions, solutions, same, strict=True)
            )
            us = sum(solution.us for solution in solutions)
            gap = max((solution.gap for solution in solutions), default=0.0)
            inner = {cut for solution in solutions for cut in solution.cuts}
            plan = _plan(graph, chosen)
            return Composition(plan, us, rows, len(inner | set(cuts)), solved, gap, time.monotonic() - started)
        cuts += cycles
        regions = _joined(regions, cycles)
    raise PlanError(f"no plan that can run was found in {MOST_ROUNDS} rounds of cuts")


def _columns(
    graph: Graph, pieces: Sequence[Piece], costs: Mapping[Identity, float]
) -> tuple[list[_Column], frozenset[str]]:
    """The cheapest group of each kind, and the operators that may be left out because others hold copies of them."""
    best: dict[tuple[frozenset[str], object], tuple[float, Piece]] = {}
    for piece in pieces:
        if piece.span is not None:
            cost = costs.get(piece.identity, piece.span.us)
            kind = piece.covers, piece.copies
            if kind not in best or (cost, piece.folds) < (best[kind][0], best[kind][1].folds):
                best[kind] = cost, piece
    outputs = {graph.producers[name].name for name in graph.outputs if name in graph.producers}
    optional = frozenset(copy.operator for _, piece in best.values() for copy in piece.copies) - outputs
    return [_Column(piece, cost, _needs(graph, piece) & optional) for cost, piece in best.values()], optional


def _needs(graph: Graph, piece: Piece) -> frozenset[str]:
    """Operators of the model whose results a group reads from outside."""
    copies = {copy.name: copy.operator for copy in piece.copies}
    found = set()
    for reader in (*piece.covers, *copies):
        for producer in graph.predecessors(graph.by_name[copies.get(reader, reader)]):
            if producer.name not in piece.covers and Copy(producer.name, reader) not in piece.copies:
                found.add(producer.name)
    return frozenset(found)


def _plan(graph: Graph, chosen: Sequence[Piece]) -> FusionPlan:
    bare = _bare(graph, chosen)
    made = realise(graph, bare)
    groups = [[name for name in piece.operators if name in made.by_name] for piece in chosen]
    return FusionPlan(ordered_groups(made, [group for group in groups if group]), bare.folds, bare.copies)


def _bare(graph: Graph, chosen: Iterable[Piece]) -> FusionPlan:
    """Folds and copies of some groups, without the groups; copies in an order in which they can be made."""
    pieces = tuple(chosen)
    copies = {copy for piece in pieces for copy in piece.copies}
    ordered = sorted(copies, key=lambda copy: (-graph.position[copy.operator], copy))
    return FusionPlan((), tuple(sorted({name for piece in pieces for name in piece.folds})), tuple(ordered))


def _cycles(graph: Graph, chosen: Sequence[Piece]) -> list[Cut]:
    """Cycles among chosen groups, by what they are."""
    made = realise(graph, _bare(graph, chosen))
    groups = [frozenset(name for name in piece.operators if name in made.by_name) for piece in chosen]
    return [frozenset(chosen[index].identity for index in cycle) for cycle in cycles_among(made, groups)]


def _components(graph: Graph, columns: Sequence[_Column]) -> list[_Problem]:
    """Regions of operators that columns link, in topological order."""
    links = []
    for column in columns:
        first, *rest = (*column.piece.covers, *column.needs, *(copy.operator for copy in column.piece.copies))
        links += [(graph.position[first], graph.position[name]) for name in rest]
    count = len(graph.operators)
    ends = np.array(links, dtype=np.int32).reshape(-1, 2).T
    _, region = connected_components(
        coo_array((np.ones(len(links)), tuple(ends)), shape=(count, count)), directed=False
    )
    members: dict[int, list[str]] = {}
    for operator, number in zip(graph.operators, map(int, region), strict=True):
        members.setdefault(number, []).append(operator.name)
    held: dict[int, list[_Column]] = {number: [] for number in members}
    for column in columns:
        held[int(region[graph.position[next(iter(column.piece.covers))]])].append(column)
    return [_Problem(tuple(names), tuple(held[number])) for number, names in members.items()]


def _joined(regions: Sequence[_Problem], cycles: Sequence[Cut]) -> list[_Problem]:
    """Regions that a cycle runs through, as one."""
    result = list(regions)
    for cycle in cycles:
        hit = [region for region in result if any(column.piece.identity in cycle for column in region.columns)]
        if len(hit) > 1:
            operators = tuple(name for region in hit for name in region.operators)
            place = result.index(hit[0])
            result = [region for region in result if region not in hit]
            result.insert(place, _Problem(operators, tuple(c for region in hit for c in region.columns)))
    return result


def _solve_regions(
    graph: Graph, regions: Sequence[_Problem], optional: frozenset[str], cuts: Sequence[Cut], left: Left
) -> tuple[list[_Solution], list[int], int] | None:
    """A solution of each region, the equal region that it was copied from, and how many were solved."""
    known: dict[object, tuple[int, tuple[int, ...], _Solution]] = {}
    solutions, same = [], []
    for number, region in enumerate(regions):
        inside = [cut for cut in cuts if cut <= {column.piece.identity for column in region.columns}]
        signature, order = _signature(graph, region, inside)
        if signature in known:
            twin, theirs, solution = known[signature]
            mine = dict(zip(theirs, order, strict=True))
            places = {id(column): index for index, column in enumerate(regions[twin].columns)}
            chosen = tuple(region.columns[mine[places[id(column)]]] for column in solution.chosen)
            solutions.append(_Solution(chosen, solution.us, solution.gap, solution.cuts))
            same.append(twin)
            continue
        found = _solve(graph, region, optional, inside, left)
        if found is None:
            return None
        known[signature] = number, order, found
        solutions.append(found)
        same.append(-1)
    return solutions, same, len(known)


def _signature(graph: Graph, region: _Problem, cuts: Sequence[Cut]) -> tuple[object, tuple[int, ...]]:
    """Equal for regions whose columns, costs and wiring are equal but for names; and the columns in that order."""
    place = {name: index for index, name in enumerate(region.operators)}
    named = {copy.name: copy for column in region.columns for copy in column.piece.copies}

    def spot(name: str) -> tuple[int, ...]:
        return (place[named[name].operator], *spot(named[name].reader)) if name in named else (place[name],)

    def text(column: _Column) -> tuple[object, ...]:
        covers = tuple(sorted(place[name] for name in column.piece.covers))
        copies = tuple((place[copy.operator], spot(copy.reader)) for copy in column.piece.copies)
        return covers, copies, tuple(sorted(place[name] for name in column.needs)), round(column.cost, 6)

    wires = tuple(
        (place[producer.name], place[name])
        for name in region.operators
        for producer in graph.predecessors(graph.by_name[name])
        if producer.name in place
    )
    texts = [text(column) for column in region.columns]
    order = tuple(sorted(range(len(texts)), key=lambda index: repr(texts[index])))
    spots = {column.piece.identity: texts[index] for index, column in enumerate(region.columns)}
    forbidden = tuple(sorted(repr(sorted(map(repr, (spots[one] for one in cut)))) for cut in cuts))
    return (wires, tuple(texts[index] for index in order), forbidden), order


def _solve(
    graph: Graph, region: _Problem, optional: frozenset[str], cuts: Sequence[Cut], left: Left
) -> _Solution | None:
    """Best exact cover of one region that can run; None when there is none."""
    columns = region.columns
    if len(region.operators) == 1:
        return _Solution(columns[:1], columns[0].cost, 0.0, ()) if columns else None
    number = {column.piece.identity: index for index, column in enumerate(columns)}
    limits = _limits(region, optional)
    if limits is None:
        return None
    added = list(cuts)
    for _ in range(MOST_ROUNDS):
        seconds = min(SOLVER_SECONDS, left())
        if seconds <= 0:
            return None
        answer = milp(
            np.array([column.cost for column in columns]),
            integrality=np.ones(len(columns)),
            bounds=Bounds(0, 1),
            constraints=[*limits, *(_forbid(cut, number) for cut in added)],
            options={"time_limit": seconds},
        )
        if answer.x is None:
            return None
        chosen = tuple(one for one, value in zip(columns, answer.x, strict=True) if value > 0.5)
        cycles = _cycles(graph, [column.piece for column in chosen])
        if not cycles:
            us = float(sum(column.cost for column in chosen))
            return _Solution(chosen, us, float(answer.mip_gap or 0.0), tuple(added))
        added += cycles
    raise PlanError(
        f"a region of {len(region.operators)} operators has no solution that can run in {MOST_ROUNDS} rounds of cuts"
    )


def _limits(region: _Problem, optional: frozenset[str]) -> list[LinearConstraint] | None:
    """Each operator is covered once (one that may be left out: at most once, and once when its result is read)."""
    row = {name: index for index, name in enumerate(region.operators)}
    entries = [(row[name], index) for index, column in enumerate(region.columns) for name in column.piece.covers]
    if {place for place, _ in entries} | {row[name] for name in optional if name in row} != set(row.values()):
        return None
    matrix = _sparse(entries, len(row), len(region.columns))
    limits = [LinearConstraint(matrix, [0 if name in optional else 1 for name in region.operators], 1)]
    links = [(index, name) for index, column in enumerate(region.columns) for name in column.needs]
    if links:
        makers: dict[str, list[int]] = {}
        for index, column in enumerate(region.columns):
            for name in column.piece.covers & optional:
                makers.setdefault(name, []).append(index)
        above = [(line, maker) for line, (_, name) in enumerate(links) for maker in makers.get(name, ())]
        shape = len(links), len(region.columns)
        reads = _sparse([(line, index) for line, (index, _) in enumerate(links)], *shape)
        limits.append(LinearConstraint(_sparse(above, *shape) - reads, 0, np.inf))
    return limits


def _sparse(entries: Sequence[tuple[int, int]], rows: int, columns: int) -> csr_array:
    lines, places = zip(*entries, strict=True) if entries else ((), ())
    return csr_array((np.ones(len(entries)), (np.array(lines, int), np.array(places, int))), shape=(rows, columns))


def _forbid(cut: Cut, number: Mapping[Identity, int]) -> LinearConstraint:
    row = np.zeros((1, len(number)))
    row[0, [number[identity] for identity in cut]] = 1
    return LinearConstraint(row, -np.inf, len(cut) - 1)


def gap_of(us: float, best_us: float) -> float:
    """How much slower `us` is than `best_us`: 0.02 means two per cent."""
    return us / best_us - 1 if best_us > 0 else 0.0
