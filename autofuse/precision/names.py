"""The precisions that a user may name."""

from __future__ import annotations

from collections.abc import Iterable

from autofuse.errors import InputError


def check_precisions(text: str | Iterable[str]) -> tuple[str, ...]:
    """The precisions in "float32,int8" (or a list), with int8 among them; float32 is always allowed."""
    names = tuple(name.strip() for name in (text.split(",") if isinstance(text, str) else text))
    for name in names:
        if name not in ("float32", "int8"):
            reason = _NO_PRECISION.get(name, "it is unknown")
            raise InputError(f"--precision: got {name!r:.60}, allowed: float32, int8 ({reason})")
    if "int8" not in names:
        raise InputError("--precision: got float32 only, which the model is already; allowed: int8")
    return names


_NO_PRECISION = {
    **dict.fromkeys(("bf16", "bfloat16"), "bfloat16 has no kernels yet"),
    **dict.fromkeys(("fp16", "float16"), "a float16 model is exported as one; float32 is not converted"),
    **dict.fromkeys(("int4", "uint4", "weight-only", "w8", "w4"), "weights alone are not quantised yet"),
    **dict.fromkeys(("uint8", "int16"), "activations are unsigned bytes, weights signed ones: that is int8 here"),
}
"""Precisions that users may name, and why they are not offered."""
