"""A cut has parts that can run one after another, whatever the graph is."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse.segments.legality import Part, cut


@dataclass(frozen=True)
class Item:
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def chain(*reads: tuple[str, ...]) -> list[Item]:
    """Item n writes "n"."""
    return [Item(names, (str(place),)) for place, names in enumerate(reads)]


def carried(items: list[Item], *without: str) -> set[str]:
    return {name for item in items for name in item.writes} - set(without)


def sides(parts: tuple[Part, ...]) -> list[tuple[bool, tuple[int, ...]]]:
    return [(part.own, part.members) for part in parts]


def test_a_refused_item_in_the_middle_makes_three_parts() -> None:
    items = chain((), ("0",), ("1",), ("2",))
    assert sides(cut(items, {0, 1, 3}, carried(items))) == [(True, (0, 1)), (False, (2,)), (True, (3,))]


def test_a_way_around_a_refused_item_does_not_join_what_stands_before_and_behind_it() -> None:
    items = chain((), ("0",), ("0", "1"))
    assert sides(cut(items, {0, 2}, carried(items))) == [(True, (0,)), (False, (1,)), (True, (2,))]


def test_independent_branches_share_their_parts() -> None:
    items = chain((), (), ("0",), ("1",))
    assert sides(cut(items, {0, 1}, carried(items))) == [(True, (0, 1)), (False, (2, 3))]


def test_a_value_that_is_not_carried_keeps_its_writer_and_readers_in_one_part_of_the_other_side() -> None:
    items = chain((), ("0",), ("1",))
    assert sides(cut(items, {0, 1, 2}, carried(items, "1"))) == [(True, (0,)), (False, (1, 2))]


def test_what_stands_between_two_ends_of_such_a_value_is_on_the_other_side_too() -> None:
    items = chain((), ("0",), ("0", "1"))  # 1 stands on a way from 0 to 2
    items[0] = Item((), ("0", "text"))
    items[2] = Item(("1", "text"), ("2",))
    assert sides(cut(items, {1}, carried(items, "text"))) == [(False, (0, 1, 2))]


def test_two_such_values_that_cross_are_one_part() -> None:
    items = [Item((), ("a", "x")), Item((), ("b", "y")), Item(("y",), ("c",)), Item(("x",), ("d",))]
    crossing = [items[0], items[1], Item(("a", "y"), ("c",)), Item(("b", "x"), ("d",))]
    (part,) = cut(crossing, set(), {"a", "b", "c", "d"})
    assert part == Part(False, (0, 1, 2, 3))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Item], set[int], set[str]]:
    count = draw(st.integers(1, 14))
    items = []
    for place in range(count):
        reads = draw(st.lists(st.integers(0, place - 1), max_size=3, unique=True)) if place else []
        items.append(Item(tuple(map(str, reads)), (str(place),)))
    own = draw(st.sets(st.integers(0, count - 1)))
    lost = draw(st.sets(st.integers(0, count - 1), max_size=2))
    return items, own, carried(items, *map(str, lost))


@settings(max_examples=400, deadline=None)
@given(graphs())
def test_every_cut_is_legal(drawn: tuple[list[Item], set[int], set[str]]) -> None:
    items, own, may_pass = drawn
    parts = cut(items, own, may_pass)
    home = {place: number for number, part in enumerate(parts) for place in part.members}
    assert sorted(home) == list(range(len(items))), "each item is in one part"
    assert all(place in own for part in parts if part.own for place in part.members)
    for reader, item in enumerate(items):
        for name in item.reads:
            assert home[int(name)] <= home[reader], "no part needs a later one"
            assert home[int(name)] == home[reader] or name in may_pass
