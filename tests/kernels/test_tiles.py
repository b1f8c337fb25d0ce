"""Tiles cover every output once, and know exactly which of their taps read padding."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from autofuse.kernels.nest.tiles import UNROLLED, Window, divisor_near, runs, spans


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """Any window that has at least one output."""
    size, taps = draw(st.integers(1, 20)), draw(st.integers(1, 7))
    stride, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    begin, end = draw(st.integers(0, 8)), draw(st.integers(0, 8))
    reach = size + begin + end - dilation * (taps - 1) - 1
    assume(reach >= 0)
    return Window(size, taps, stride, dilation, begin, end, reach // stride + 1)


@given(windows(), st.integers(1, 16))
def test_runs_cover_each_output_once_and_in_order(window: Window, width: int) -> None:
    covered = [
        run.start + tile * run.width + r
        for run in runs(window, width)
        for tile in range(run.count)
        for r in range(run.width)
    ]
    assert covered == list(range(window.outputs))


@given(windows(), st.integers(1, 16))
def test_tiles_are_at_most_as_wide_as_asked_and_nearly_equal(window: Window, width: int) -> None:
    found = [run.width for run in runs(window, width)]
    assert max(found) <= width
    assert max(found) - min(found) <= 1


@given(windows(), st.integers(1, 16))
def test_a_clean_run_reads_no_padding_and_an_unclean_one_stands_alone(window: Window, width: int) -> None:
    for run in runs(window, width):
        outputs = range(run.start, run.start + run.width * run.count)
        inside = all(window.inside(output, tap) for output in outputs for tap in range(window.taps))
        assert run.clean == inside
        assert run.clean or run.ragged or run.count == 1


@given(windows(), st.integers(1, 16))
def test_many_taps_at_much_padding_are_found_at_run_time(window: Window, width: int) -> None:
    edges = [run for run in runs(window, width) if not run.clean]
    many = window.taps * sum(run.count for run in edges) > UNROLLED
    assert all(run.ragged == many for run in edges)
    assert len(edges) <= (4 if many else UNROLLED)


@given(windows(), st.integers(1, 16), st.data())
def test_the_taps_of_a_ragged_tile_are_those_of_its_outputs(window: Window, width: int, data: st.DataObject) -> None:
    run = data.draw(st.sampled_from(list(runs(window, width))))
    (low, high), each = run.taps(window, run.start)
    for r, (first, end) in enumerate(each):
        taps = [*range(low, high), *range(first, min(end, low)), *range(max(first, high), end)]
        assert sorted(taps) == [tap for tap in range(window.taps) if window.inside(run.start + r, tap)]


@given(windows())
def test_a_window_is_clean_when_no_output_reads_padding(window: Window) -> None:
    pairs = [(output, tap) for output in range(window.outputs) for tap in range(window.taps)]
    assert window.clean == all(window.inside(*pair) for pair in pairs)


@given(windows())
def test_the_taps_of_an_output_are_those_inside(window: Window) -> None:
    for output in range(window.outputs):
        inside = [tap for tap in range(window.taps) if window.inside(output, tap)]
        low, high = window.tap_range(output)
        assert list(range(low, high)) == inside
        assert low <= high
        assert window.reads(output) == bool(inside)
    read = [window.reads(output) for output in range(window.outputs)]
    assert (window.some_blind, window.all_blind) == (not all(read), not any(read))


@given(windows(), st.integers(0, 5))
def test_only_what_was_rounded_up_reaches_beyond_the_padding(window: Window, more: int) -> None:
    wider = replace(window, outputs=window.outputs + more)
    for output in range(wider.outputs):
        inside = sum(wider.position(output, tap) < wider.size + wider.pad_end for tap in range(wider.taps))
        assert max(0, wider.covered(output)) == inside
        assert inside == wider.taps or output >= window.outputs


@given(st.integers(1, 500), st.integers(-3, 600))
def test_the_nearest_divisor_divides(total: int, wanted: int) -> None:
    found = divisor_near(total, wanted)
    assert total % found == 0
    if wanted <= 0 or wanted >= total:
        assert found == total
    else:
        assert abs(found - wanted) == min(abs(d - wanted) for d in range(1, total + 1) if total % d == 0)


def test_of_two_divisors_equally_near_the_smaller_is_taken() -> None:
    assert divisor_near(12, 5) == 4
    assert divisor_near(7, 4) == 1


def test_the_divisors_of_a_large_number_are_found_at_once() -> None:
    assert divisor_near(2**60, 1000) == 1024
    assert divisor_near(2**31 - 1, 1000) == 1


@given(st.integers(0, 500), st.lists(st.integers(0, 40), max_size=3))
def test_spans_cover_each_element_once_and_in_order(total: int, widths: list[int]) -> None:
    found = list(spans(total, *widths, 1))
    elements = [
        first + step * width + one for first, count, width in found for step in range(count) for one in range(width)
    ]
    assert elements == list(range(total)) and all(count > 0 for _, count, _ in found)
