"""The precisions that a user may name."""

from __future__ import annotations

from collections.abc import Iterable

from autofuse.errors import InputError
from autofuse.graph.transform.quantize.sites import BF16, INT4_WEIGHTS, INT8_WEIGHTS, NARROW

FLOAT = "float32"


def check_precisions(text: str | Iterable[str]) -> tuple[str, ...]:
    """The precisions besides float32, which is always allowed, in "float32,int8,bf16" (or a list), without repeats."""
    allowed = ", ".join(NARROW)
    given = tuple(name.strip() for name in (text.split(",") if isinstance(text, str) else text))
    names = dict.fromkeys(_SHORT.get(name, name) for name in given)
    for name in names:
        if name not in (FLOAT, *NARROW):
            reason = _NO_PRECISION.get(name, "it is unknown")
            raise InputError(f"--precision: got {name!r:.60}, allowed: {FLOAT}, {allowed} ({reason})")
    found = tuple(name for name in names if name != FLOAT)
    if not found:
        raise InputError(f"--precision: got float32 only, which the model is already; allowed: {allowed}")
    return found


_SHORT = {"bfloat16": BF16, "w8": INT8_WEIGHTS, "w4": INT4_WEIGHTS}
"""Other names of some of them."""
_NO_PRECISION = {
    **dict.fromkeys(("fp16", "float16"), "a float16 model is exported as one; float32 is not converted"),
    **dict.fromkeys(("int4", "uint4"), f"only weights may have four bits: that is {INT4_WEIGHTS}"),
    "weight-only": f"say of how many bits: {INT8_WEIGHTS} or {INT4_WEIGHTS}",
    **dict.fromkeys(("uint8", "int16"), "activations are unsigned bytes, weights signed ones: that is int8 here"),
}
"""Precisions that users may name, and why they are not offered."""
