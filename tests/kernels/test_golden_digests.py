"""Which kernels a change touches: the code of each sample, for each kind of vectors, as one line of a golden file.

A change that means to alter code is reviewed by the lines that differ: `pytest tests/kernels/test_golden_digests.py
--update-golden`, then `git diff`. A change that means to alter none leaves the files as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.kernels.kernel_sample import SAMPLES, TARGETS, digests

SHOWN = 12
"""Digits of a digest that tell kernels apart for people."""


@pytest.mark.parametrize("isa", TARGETS)
def test_no_kernel_changes_unnoticed(isa: str, golden: Callable[[str, str], None]) -> None:
    found = dict(digests(isa))
    width = max(map(len, found))
    golden(f"kernels-{isa}.txt", "".join(f"{name:<{width}}  {key[:SHOWN]}\n" for name, key in found.items()))
    shared = {key for key, count in Counter(found.values()).items() if count > 1}
    assert [name for name, key in found.items() if key in shared] == [], "two choices make the same code"
    assert len(found) == len(SAMPLES) >= 40
