"""Screens explain their own words."""

from __future__ import annotations

import pytest

from autofuse.fusion.evidence import LAUNCH_US
from autofuse.values.ratios import MIN_BLOCKS
from autofuse.views.terms import TERMS, explained, used_in


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("| tvm-partition | 3 | Trusted | composed |", ["trusted", "composed", "tvm-partition"]),
        ("Conv 1x8 #ab12", ["#"]),
        ("operations, boundaries and gaps", ["gap"]),
        ("search    29  2.5 ms", ["search"]),
        ("| **default** (chosen) | 2,699.6 µs |", ["default"]),
        ("none  64  3 ms\nkernels of the default plan  29\nmodel  mobilenet", ["no fusion"]),
        ("expected of no fusion", ["no fusion", "expected of no fusion"]),
        ("1.20x of ONNX Runtime", ["ratio"]),
        ("if fused  if apart", ["if fused, if apart"]),
    ],
)
def test_a_screen_ends_with_the_words_that_it_uses(text: str, words: list[str]) -> None:
    assert used_in(text) == words


def test_a_word_is_explained_in_one_line() -> None:
    assert explained(("trusted", "tier")).splitlines() == [f"trusted: {TERMS['trusted']}", f"tier: {TERMS['tier']}"]


def test_the_number_of_blocks_that_a_ratio_needs_is_stated() -> None:
    assert f"below {MIN_BLOCKS} good blocks" in TERMS["ratio"]


def test_the_call_of_a_kernel_is_counted_where_kernels_are_summed_up() -> None:
    assert (
        f"{LAUNCH_US:g} µs for calling each" in TERMS["composed"] and f"{LAUNCH_US:g} µs" in TERMS["if fused, if apart"]
    )
