"""Screens explain their own words."""

from __future__ import annotations

from autofuse.values.ratios import MIN_BLOCKS
from autofuse.views.terms import TERMS, explained, used_in


def test_a_screen_ends_with_the_words_that_it_uses() -> None:
    assert used_in("| tvm-partition | 3 | Trusted | composed |") == ["trusted", "composed", "tvm-partition"]
    assert used_in("Conv 1x8 #ab12") == ["#"]
    assert explained(("trusted",)) == f"trusted: {TERMS['trusted']}"


def test_the_number_of_blocks_that_a_ratio_needs_is_stated() -> None:
    assert f"below {MIN_BLOCKS} good blocks" in TERMS["ratio"]
