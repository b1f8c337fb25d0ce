"""Which tiles compute how many rows: by made-up times, and by the rules; each row at least once, none beyond."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import tirx
from tvm.sym.analyzer import Analyzer

from autofuse.kernels.open_sizes.images.grid_tiles import Split, splits_text, timed_splits
from autofuse.kernels.open_sizes.open_rows import tile_counts
from autofuse.kernels.open_sizes.products.tiles import product_counts
from autofuse.kernels.schedule.covers import Cover, looked_up

LENGTHS = (16, 4, 1)
MOST = 70


def computed(cover: Cover, rows: int) -> set[int]:
    """The rows that the tiles of a kernel compute, the last ones of them moved back."""
    found, begin = set[int](), 0
    for length, count in zip(cover.lengths, cover.counts(rows), strict=True):
        for step in range(count):
            first = min(begin + step * length, rows - length)
            found.update(range(first, first + length))
        begin += count * length
    return found


def check(cover: Cover) -> None:
    for rows in range(1, MOST):
        assert computed(cover, rows) == set(range(rows))


@pytest.mark.parametrize("lengths", [(16, 4, 1), (4, 1), (1,)])
def test_tiles_by_the_rule_compute_each_row_and_none_beyond(lengths: tuple[int, ...]) -> None:
    cover = Cover.ruled(lengths, partial(tile_counts, lengths))
    check(cover)
    assert all(cover.counts(rows) == tile_counts(lengths, rows) for rows in range(1, MOST))


@pytest.mark.parametrize(
    "lengths",
    [(16, 4, 1), (12, 8, 7, 6, 5, 4, 2, 1), (8, 7, 6, 5, 4, 2, 1), (6, 5, 4, 2, 1), (4, 3, 2, 1), (3, 2, 1), (1,)],
)
def test_tiles_of_products_compute_each_row_and_none_beyond(lengths: tuple[int, ...]) -> None:
    cover = Cover.ruled(lengths, partial(product_counts, lengths))
    check(cover)
    assert all(cover.counts(rows) == product_counts(lengths, rows) for rows in range(1, MOST))


def test_what_is_left_of_a_product_is_two_tiles_as_alike_as_they_can_be() -> None:
    """So each panel is read once for up to 8 rows, twice for up to 16."""
    lengths = (8, 7, 6, 5, 4, 2, 1)
    wanted = {5: [5], 9: [5, 4], 10: [5, 5], 13: [7, 6], 16: [8, 8], 17: [8, 5, 4], 31: [8, 8, 8, 7]}
    assert {rows: product_counts(lengths, rows) for rows in wanted} == {
        rows: [tiles.count(length) for length in lengths] for rows, tiles in wanted.items()
    }
    cover = Cover.ruled(lengths, partial(product_counts, lengths))
    assert cover.text == "tiles of 8 rows, the last ones of 7, 6, 5, 4, 2, 1, by rule"
    assert [cover.lengths[number] for number in range(7) if cover.uses(number, 4)] == [8, 7, 6, 5, 4]


@given(
    st.sampled_from([(16, 4, 1), (8, 7, 6, 5, 4, 2, 1), (6, 5, 4, 2, 1), (4, 1)]),
    st.lists(st.floats(0.1, 1000), min_size=3, max_size=3),
)
def test_tiles_by_any_times_compute_each_row_and_none_beyond(lengths: tuple[int, ...], us: list[float]) -> None:
    times = dict(zip(LENGTHS, us, strict=True))
    check(Cover.measured(lengths, times))


@pytest.mark.parametrize(
    ("times", "text", "counts"),
    [
        (
            {16: 100.0, 4: 30.0, 1: 10.0},
            "tiles of 16 for 13 or more, 4 for 3 or more, 1 rows, as measured",
            {3: [0, 0, 3], 6: [0, 1, 2], 12: [0, 3, 0], 13: [0, 3, 1], 18: [1, 0, 2], 28: [1, 3, 0], 29: [2, 0, 0]},
        ),
        (
            {16: 100.0, 4: 95.0, 1: 90.0},
            "tiles of 16 for 5 or more, 4 for 2 or more, 1 rows, as measured",
            {3: [0, 0, 3], 5: [0, 1, 1], 6: [0, 2, 0], 17: [1, 0, 1], 18: [1, 1, 0], 21: [2, 0, 0]},
        ),
        (
            {16: 100.0, 4: 20.0, 1: 4.0},
            "tiles of 1 rows, as measured",
            {3: [0, 0, 3], 40: [0, 0, 40]},
        ),
        (
            {16: 100.0, 4: 20.0, 1: 19.0},
            "tiles of 4 for 2 or more, 1 rows, as measured",
            {3: [0, 0, 3], 5: [0, 1, 1], 6: [0, 2, 0], 40: [0, 10, 0]},
        ),
    ],
    ids=["single rows are cheap", "a tile costs as much as a row", "rows alone", "tiles of four are the cheapest"],
)
def test_what_takes_least_time_is_taken(times: Mapping[int, float], text: str, counts: Mapping[int, list[int]]) -> None:
    cover = Cover.measured(LENGTHS, times)
    assert {rows: cover.counts(rows) for rows in counts} == counts
    assert cover.text == text


def test_times_of_other_tiles_lie_between_those_of_the_next_ones() -> None:
    """8 rows take 20 + 40 / 3, 2 rows 10."""
    cover = Cover.measured((8, 4, 2, 1), {16: 60.0, 4: 20.0, 1: 5.0})
    counts = {rows: cover.counts(rows) for rows in (9, 10, 12, 14, 15)}
    assert counts == {9: [1, 0, 0, 1], 10: [1, 0, 1, 0], 12: [1, 1, 0, 0], 14: [1, 1, 1, 0], 15: [2, 0, 0, 0]}


@pytest.mark.parametrize("values", [[0, 1, 2, 15] * 4, [15] * 15 + [14], [3], [0, 9], [16, 0, 3], [1, 2] * 9])
def test_a_table_in_one_integer_is_what_it_was_made_of(values: list[int]) -> None:
    analyzer = Analyzer()
    found = [analyzer.simplify(looked_up(values, tirx.const(place, "int32"))) for place in range(len(values))]
    assert [int(value) for value in found] == values


def test_places_of_images_are_shared_out_by_times_too() -> None:
    """By the rule 9 to 16 places that are left are one tile of 16; where that takes three times one of 8, two of 8."""
    splits = (Split((16, 8), 10), Split((32,)))
    times = {(16, 32): 90.0, (8, 32): 30.0}
    timed = timed_splits(splits, times)
    assert [split.costs for split in timed] == [(90.0, 30.0), (90.0,)]
    assert [splits[0].counts(extent) for extent in (24, 28)] == [(1, 1), (2, 0)]
    assert [timed[0].counts(extent) for extent in (24, 28)] == [(1, 1), (1, 2)]
    assert splits_text(splits) == "tiles of 16 for 9 or more, 8 by 32 places, by rule"
    assert splits_text(timed) == "tiles of 16 for 16 or more, 8 by 32 places, as measured"
    assert splits_text((Split((16,)), Split((32,)))) == ""
