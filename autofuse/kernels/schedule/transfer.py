"""Carrying a schedule from one workload to another of the same structure, or from another device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import log2

from autofuse.device.target import Target
from autofuse.kernels.families.protocol import Schedule, Values
from autofuse.kernels.families.registry import families
from autofuse.kernels.schedule.knobs import canonical, declared_names, fits_registers
from autofuse.kernels.workload.workload import Workload

SHAPED_ATTRIBUTES = frozenset({"group", "output_shape", "shape", "split"})
"""Attributes that change with the shapes."""


def structure(workload: Workload) -> str:
    """Text that equals another workload's when the two differ in sizes alone.

    Operators with their attributes and wiring; of the values their kind, type, rank and layout. Literals count by
    kind only, since most are shapes; a group count only by whether there is more than one.
    """
    values = [[value.kind, value.dtype, len(value.shape), value.layout] for value in workload.values]
    operators = []
    for op in workload.operators:
        attributes = {name: str(value) for name, value in op.attributes if name not in SHAPED_ATTRIBUTES}
        grouped = any(name == "group" and value != 1 for name, value in op.attributes)
        operators.append([op.domain, op.op_type, op.inputs, op.outputs, attributes, grouped])
    return json.dumps([values, operators], sort_keys=True)


def distance(one: Workload, other: Workload) -> float:
    """Powers of two between two workloads of one structure: the sum over all sizes of all boundary values."""
    total = 0.0
    for mine, theirs in zip(one.values, other.values, strict=True):
        if mine.kind in ("input", "output", "constant"):
            for a, b in zip(mine.shape, theirs.shape, strict=True):
                total += abs(log2(max(a, 1) / max(b, 1)))
    return total


def adapted(schedule: Schedule, knobs: Mapping[str, Values], target: Target) -> dict[str, int | str] | None:
    """`schedule` within `knobs`: values that a knob lacks take its default; None when that does not fit `target`."""
    default = {name: values[0] for name, values in knobs.items()}
    fitting = {name: value for name, value in schedule.items() if value in knobs.get(name, ())}
    kept = canonical({**default, **fitting}, knobs)
    return kept if fits_registers(kept, target) else None


def schedule_fault(schedule: object, target: Target) -> str | None:
    """Why something stored is no schedule that could be built for `target`; None when it is one."""
    if not isinstance(schedule, dict):
        return "it is no object"
    known = declared_names()
    for name, value in schedule.items():
        family, _, knob = str(name).partition(".")
        if knob not in known.get(family, ()):
            return f"{name!r} is no knob"
        if isinstance(value, bool) or not isinstance(value, int | str):
            return f"{name!r} is neither an integer nor a text"
    faults = (family.fault(schedule, target) for family in families())
    lacking = next((fault for fault in faults if fault is not None), None)
    return lacking or (None if fits_registers(schedule, target) else "its tile does not fit the registers")
