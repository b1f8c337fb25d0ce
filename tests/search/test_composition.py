"""Exact composition: against every plan there is, on graphs where groups can wait for one another."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from autofuse.fusion.evidence import GroupTime, Piece, can_run
from autofuse.fusion.legality import Legality, check_plan
from autofuse.graph.model import Graph, Operator, Tensor
from autofuse.graph.transform.copies import Copy
from autofuse.search.composition.composition import compose, gap_of
from autofuse.search.composition.cycles import cycles_among


def random_graph(chance: random.Random, size: int) -> Graph:
    """Pointwise operators that read one or two of the three tensors before them."""
    tensors = {"t0": Tensor("t0", (8,), "float32")}
    operators: list[Operator] = []
    for index in range(size):
        near = list(tensors)[-3:]
        reads = tuple(chance.sample(near, min(len(near), chance.choice((1, 1, 2)))))
        tensors[f"t{index + 1}"] = Tensor(f"t{index + 1}", (8,), "float32")
        operators.append(Operator(f"op{index}", "Add" if len(reads) > 1 else "Relu", reads, (f"t{index + 1}",)))
    read = {name for operator in operators for name in operator.inputs}
    ends = tuple(name for name in tensors if name not in read)
    return Graph("random", ("t0",), ends, tuple(operators), tensors, {}, 18)


def piece(names: Any, us: float, folds: tuple[str, ...] = ()) -> Piece:
    operators = tuple(names)
    return Piece(operators, frozenset(operators) | set(folds), folds, GroupTime(us, us, us))


def least(graph: Graph, left: frozenset[str], pieces: list[Piece], taken: tuple[Piece, ...] = ()) -> float:
    """Time of the best partition, by trying all."""
    if not left:
        return sum(p.span.us for p in taken if p.span) if can_run(graph, [p.covers for p in taken]) else float("inf")
    first = min(left, key=graph.position.__getitem__)
    fitting = (p for p in pieces if first in p.covers and p.covers <= left)
    return min((least(graph, left - p.covers, pieces, (*taken, p)) for p in fitting), default=float("inf"))


@pytest.mark.parametrize("world", range(25))
def test_it_is_the_best_of_all_partitions_that_can_run(world: int) -> None:
    chance = random.Random(world)
    graph = random_graph(chance, 8)
    names = [operator.name for operator in graph.operators]
    legality = Legality(graph)
    groups = [names[i : i + 1] for i in range(len(names))]
    groups += [g for size in (2, 3, 4) for g in combinations(names, size) if not legality.refusal(g)]
    pieces = [piece(g, len(g) ** 0.4 * chance.uniform(1, 2)) for g in groups if len(g) == 1 or chance.random() < 0.6]
    found = compose(graph, pieces)
    assert found is not None
    assert found.us == pytest.approx(least(graph, frozenset(names), pieces))
    assert found.gap == 0
    check_plan(graph, found.plan)
    assert sorted(name for region in found.regions for name in region.operators) == sorted(names)
    assert sum(region.us for region in found.regions) == pytest.approx(found.us)


@pytest.fixture
def crossing() -> Graph:
    """a1 -> b2 and b1 -> a2; a1, a2 feed a3 and b1, b2 feed b3: {a*} and {b*} wait for one another."""
    wires = {"a1": "x", "b1": "x", "a2": "b1", "b2": "a1", "a3": "a1 a2", "b3": "b1 b2"}
    tensors = {name: Tensor(name, (4,), "float32") for name in ("x", *wires)}
    operators = tuple(Operator(n, "Add" if " " in r else "Relu", tuple(r.split()), (n,)) for n, r in wires.items())
    return Graph("crossing", ("x",), ("a3", "b3"), operators, tensors, {}, 18)


def test_groups_that_wait_for_one_another_are_cut_off_though_they_stand_in_two_regions(crossing: Graph) -> None:
    singles = [piece([name], 5.0) for name in crossing.by_name]
    waiting = [piece(["a1", "a2", "a3"], 1.0), piece(["b1", "b2", "b3"], 1.0)]
    assert [sorted(loop) for loop in cycles_among(crossing, [p.covers for p in waiting])] == [[0, 1]]
    found = compose(crossing, [*singles, *waiting])
    assert found is not None
    assert (found.us, found.cuts) == (pytest.approx(16), 1)
    check_plan(crossing, found.plan)


def test_no_cover_is_no_plan(crossing: Graph) -> None:
    assert compose(crossing, [piece(["a1"], 1.0)]) is None
    assert compose(crossing, [piece(["a1", "a2", "a3"], 1.0), piece(["b1", "b2", "b3"], 1.0)]) is None


def chain(copies: int) -> Graph:
    """`copies` equal blocks of three operators, each followed by one that nothing fuses with."""
    tensors, operators, last = {"x": Tensor("x", (4,), "float32")}, [], "x"
    for copy in range(copies):
        for kind, name in (("Relu", "a"), ("Exp", "b"), ("Neg", "c"), ("TopK", "wall")):
            tensors[f"{name}{copy}"] = Tensor(f"{name}{copy}", (4,), "float32")
            operators.append(Operator(f"{name}{copy}", kind, (last,), (f"{name}{copy}",)))
            last = f"{name}{copy}"
    return Graph("chain", ("x",), (last,), tuple(operators), tensors, {}, 18)


def test_equal_regions_are_solved_once() -> None:
    graph = chain(50)
    pieces = [piece([name], 2.0 if name.startswith("wall") else 1.0) for name in graph.by_name]
    for copy in range(50):
        slower = 0.3 if copy == 7 else 0.0
        pieces.append(piece([f"a{copy}", f"b{copy}"], 1.4 + slower))
        pieces.append(piece([f"b{copy}", f"c{copy}"], 1.5))
    found = compose(graph, pieces)
    assert found is not None
    assert found.us == pytest.approx(50 * 2 + 49 * 2.4 + 2.5)
    assert found.solved == 3, "the block, the block that differs, the wall"
    assert len(found.regions) == 100
    assert sum(region.same_as >= 0 for region in found.regions) == 97


def test_folds_come_with_the_groups_that_fold() -> None:
    shape = (1, 8, 6, 6)
    tensors = {name: Tensor(name, shape, "float32") for name in "xcny"}
    constants = {"w": np.ones((8, 8, 1, 1), np.float32), **{name: np.ones(8, np.float32) for name in "1234"}}
    tensors |= {name: Tensor(name, array.shape, "float32") for name, array in constants.items()}
    operators = (
        Operator("conv", "Conv", ("x", "w"), ("c",), {"kernel_shape": (1, 1)}),
        Operator("bn", "BatchNormalization", ("c", "1", "2", "3", "4"), ("n",), {"epsilon": 1e-5}),
        Operator("relu", "Relu", ("n",), ("y",)),
    )
    graph = Graph("fold", ("x",), ("y",), operators, tensors, constants, 18)
    pieces = [piece(["conv"], 10), piece(["bn"], 2), piece(["relu"], 1), piece(["conv", "bn"], 10.4)]
    apart = compose(graph, pieces)
    assert apart is not None and apart.plan.folds == ()
    folded = compose(graph, [*pieces, piece(["conv"], 10.3, folds=("bn",)), piece(["conv", "relu"], 11, folds=("bn",))])
    assert folded is not None
    assert (folded.plan.folds, folded.us) == (("bn",), pytest.approx(11))
    assert [group.operators for group in folded.plan.groups] == [("conv", "relu")]


def test_an_operator_that_all_its_readers_copy_is_left_out() -> None:
    """t is read by b, c and d: copied to two of them it is still needed by the third."""
    wires = {"t": "x", "b": "t", "c": "t", "d": "t"}
    tensors = {name: Tensor(name, (4,), "float32") for name in ("x", *wires)}
    operators = tuple(Operator(n, "Relu", (r,), (n,)) for n, r in wires.items())
    graph = Graph("copies", ("x",), ("b", "c", "d"), operators, tensors, {}, 18)
    singles = [piece([name], 5.0) for name in "tbcd"]
    held = [Piece((f"t@{r}", r), frozenset(r), (), GroupTime(6, 6, 6), copies=(Copy("t", r),)) for r in "bcd"]
    two = compose(graph, [*singles, *held[:2]])
    assert two is not None
    assert (two.us, two.plan.copies) == (pytest.approx(20), ())
    three = compose(graph, [*singles, *held])
    assert three is not None
    assert (three.us, len(three.plan.copies)) == (pytest.approx(18), 3)
    assert sorted(group.operators for group in three.plan.groups) == [("t@b", "b"), ("t@c", "c"), ("t@d", "d")]
    for found in (two, three):
        check_plan(graph, found.plan)


def test_other_costs_than_times_can_be_minimised(crossing: Graph) -> None:
    pieces = [piece([name], 1.0) for name in crossing.by_name] + [piece(["a1", "a2"], 5.0)]
    joined = compose(crossing, pieces, {pieces[-1].identity: 0.5})
    assert joined is not None and joined.us == pytest.approx(4.5)


def test_a_gap_is_relative() -> None:
    assert gap_of(11.0, 10.0) == pytest.approx(0.1)
    assert np.isfinite(gap_of(1.0, 0.0))
