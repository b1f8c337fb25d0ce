"""The precisions that a user may name."""

from __future__ import annotations

from collections.abc import Iterable

from autofuse.errors import InputError
from autofuse.graph.transform.quantize.sites import BF16, INT8

FLOAT = "float32"


def check_precisions(text: str | Iterable[str]) -> tuple[str, ...]:
    """The precisions besides float32, which is always allowed, in "float32,int8,bf16" (or a list), without repeats."""
    given = tuple(name.strip() for name in (text.split(",") if isinstance(text, str) else text))
    names = dict.fromkeys(BF16 if name == "bfloat16" else name for name in given)
    for name in names:
        if name not in (FLOAT, INT8, BF16):
            reason = _NO_PRECISION.get(name, "it is unknown")
            raise InputError(f"--precision: got {name!r:.60}, allowed: float32, int8, bf16 ({reason})")
    found = tuple(name for name in names if name != FLOAT)
    if not found:
        raise InputError("--precision: got float32 only, which the model is already; allowed: int8, bf16")
    return found


_NO_PRECISION = {
    **dict.fromkeys(("fp16", "float16"), "a float16 model is exported as one; float32 is not converted"),
    **dict.fromkeys(("int4", "uint4", "weight-only", "w8", "w4"), "weights alone are not quantised yet"),
    **dict.fromkeys(("uint8", "int16"), "activations are unsigned bytes, weights signed ones: that is int8 here"),
}
"""Precisions that users may name, and why they are not offered."""
