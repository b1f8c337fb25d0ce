"""Which instructions LLVM may be asked for: an intrinsic that the target lacks ends the process."""

from __future__ import annotations

from functools import cache
from typing import Any

from autofuse.device.target import Target


@cache
def has_feature(target: Target, feature: str) -> bool:
    """Whether the target's CPU, with what its `mattr` adds and removes, has a feature by LLVM's name for it."""
    import tvm
    from tvm.target import codegen

    fields: dict[str, Any] = {"kind": "llvm", "mcpu": target.mcpu}
    if target.mtriple is not None:
        fields["mtriple"] = target.mtriple
    if target.mattr:
        fields["mattr"] = list(target.mattr)
    return bool(codegen.target_has_features(feature, tvm.target.Target(fields)))


def multiplies_and_adds(target: Target) -> bool:
    """Whether the target's vectors have one instruction for a product and its sum, which rounds once."""
    return target.isa == "neon" or has_feature(target, "fma")
