"""How much memory the tensors between a plan's kernels need at once."""

from __future__ import annotations

from math import prod

import numpy as np

from autofuse.kernels.lowering.lower import Lowered
from autofuse.kernels.workload.free_reshape import is_free_reshape


def peak_bytes(lowered: Lowered) -> int:
    """Most bytes of tensors that are alive at the same time while the kernels run one after another.

    Counted: every tensor that a kernel writes, from that kernel to the last one that reads it (the model's outputs to
    the end). Not counted: the model's inputs and weights, which the caller holds anyhow, and what a kernel allocates
    inside itself. A view shares the memory of what it views.
    """
    owner: dict[str, str] = {}
    sizes: dict[str, int] = {}
    last: dict[str, int] = {}
    for step, bound in enumerate(lowered.groups):
        for name in bound.inputs:
            last[owner.get(name, name)] = step
        if is_free_reshape(bound.workload):
            source = owner.get(bound.inputs[0], bound.inputs[0])
            owner.update(dict.fromkeys(bound.outputs, source))
            continue
        values = [bound.workload.values[index] for index in bound.workload.of_kind("output")]
        for name, value in zip(bound.outputs, values, strict=True):
            sizes[name] = prod(value.shape) * np.dtype(value.stored_dtype).itemsize
            last.setdefault(name, step)
    for name in lowered.graph.outputs:
        last[owner.get(name, name)] = len(lowered.groups)
    peak = alive = 0
    ending: dict[int, list[str]] = {}
    for name, step in last.items():
        ending.setdefault(step, []).append(name)
    for step, bound in enumerate(lowered.groups):
        if not is_free_reshape(bound.workload):
            alive += sum(sizes[name] for name in bound.outputs)
        peak = max(peak, alive)
        alive -= sum(sizes.get(name, 0) for name in ending.get(step, ()))
    return peak
