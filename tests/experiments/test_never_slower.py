"""What the experiment says of networks in which the search gains nothing."""

from __future__ import annotations

from autofuse.views.report.tables import Left
from experiments.never_slower.run import Row, published, with_left

NOTHING_GAINED = Row("dense", 0, 0, "default", 90, 20, 100.0, 100.0, best="default", ratio=1.0, lo=1.0, hi=1.0)
LEFT = Left(kernels=4, us=200.0, calls_us=1.0, handed_bytes=2.5e6, handed_us=30.0, arithmetic_us=150.0)


def test_what_is_left_to_save_stands_below_the_ratios() -> None:
    known = with_left(NOTHING_GAINED, LEFT)
    assert published([known]).endswith("| dense, 0 | 4, 200 | 0.5% | 2.5 | 15.0% | 75% |\n")
    assert published([known]).startswith(published([NOTHING_GAINED]))


def test_nothing_is_said_of_what_is_left_where_nobody_knows() -> None:
    assert with_left(NOTHING_GAINED, None) == NOTHING_GAINED
    assert "arithmetic" in published([with_left(NOTHING_GAINED, LEFT)])
    assert "arithmetic" not in published([NOTHING_GAINED])
