"""All kernel families, and what is asked of them together: which one emits a nest, which operators none of them has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from autofuse.graph.own.names import DOMAIN as OWN_DOMAIN
from autofuse.kernels.families.elementwise import ELEMENTWISE
from autofuse.kernels.families.fused.band import BAND
from autofuse.kernels.families.fused.chain import CHAIN
from autofuse.kernels.families.moves.scatter import SCATTER
from autofuse.kernels.families.narrow.depthwise.family import DEPTHWISE
from autofuse.kernels.families.narrow.float16.family import ANY_CONTRACTION
from autofuse.kernels.families.narrow.products.bfloat16 import BFLOAT16
from autofuse.kernels.families.narrow.products.integer import INTEGER
from autofuse.kernels.families.narrow.weight_only.family import WEIGHT_ONLY
from autofuse.kernels.families.protocol import Family, FusedFamily, Knob, Schedule, Unit
from autofuse.kernels.families.recurrent.family import RECURRENT
from autofuse.kernels.families.reductions.family import REDUCTION
from autofuse.kernels.families.reductions.softmax import INNER_AXIS, LAST_AXIS
from autofuse.kernels.families.windowed.family import WINDOWED
from autofuse.kernels.nest import index, scalar
from autofuse.kernels.nest.nest import Nest, cut
from autofuse.kernels.workload.workload import Workload, WorkloadOperator

FAMILIES: tuple[Family, ...] = (
    ELEMENTWISE, REDUCTION, LAST_AXIS, INNER_AXIS, WINDOWED, ANY_CONTRACTION, INTEGER, DEPTHWISE, BFLOAT16, WEIGHT_ONLY,
    RECURRENT, SCATTER, CHAIN, BAND,
)  # fmt: skip
"""The families of the package. The first that takes a unit emits it; each adds its guesses to those before it."""

_installed: list[Family] = []


def families() -> tuple[Family, ...]:
    """Every family there is: what `installed` adds, then `FAMILIES`."""
    return (*_installed, *FAMILIES)


@contextmanager
def installed(*more: Family) -> Iterator[None]:
    """Adds families of one's own, which take operators before those of the package, to this process for a while.

    Processes that are started meanwhile (`tune` and `compile` build in such) do not have them.
    """
    before = list(_installed)
    _installed[:0] = more
    try:
        yield
    finally:
        _installed[:] = before


def fused_families() -> tuple[FusedFamily, ...]:
    """Those that compute several nests together."""
    return tuple(family for family in families() if isinstance(family, FusedFamily))


def knobs() -> dict[str, Mapping[str, Knob]]:
    """Family -> its knobs; families without any are absent."""
    return {family.name: family.knobs for family in families() if family.knobs}


def anchor_types() -> frozenset[str]:
    """Operators that own a loop nest."""
    return frozenset().union(*(family.anchors for family in families()))


def closed_types() -> frozenset[str]:
    """Those of them that have no epilogue."""
    return frozenset().union(*(family.anchors for family in families() if family.closed))


def family_of(workload: Workload, unit: Unit) -> Family:
    """The family that emits a unit."""
    return next(family for family in families() if family.takes(workload, unit))


def kind_of(workload: Workload, nest: Nest) -> str:
    """Which kind of nest of its family a nest is."""
    return family_of(workload, nest).kind(nest)


def nests_of(workload: Workload) -> list[Nest]:
    """The loop nests of a workload's kernel; none when TVM's importer emits it."""
    return cut(workload, anchor_types(), frozenset(scalar.SCALAR), closed_types()) if is_own(workload) else []


def units_of(workload: Workload, nests: Sequence[Nest], schedule: Schedule) -> Sequence[Unit]:
    """What is emitted in turn: nests, or runs of them that a family computes together under a schedule."""
    units: Sequence[Unit] = nests
    for family in fused_families():
        units = family.joined(workload, units) if family.is_on(schedule) else units
    return units


def refusal(workload: Workload, operator: WorkloadOperator) -> str | None:
    """Why no family emits this operator (None: one does)."""
    if operator.domain not in ("", "ai.onnx", OWN_DOMAIN):
        return f"{operator.op_type}: domain {operator.domain} has no definition here"
    if operator.op_type in scalar.SCALAR:
        return scalar.supported(operator, workload)
    if operator.op_type == "Concat":
        return None
    if operator.op_type in index.READ:
        return index.supported(operator, workload)
    able = [family for family in families() if operator.op_type in family.anchors]
    if not able:
        return f"{operator.op_type} has no definition here"
    several = len([v for v in operator.outputs if v >= 0]) > 1
    if several and not any(family.closed for family in able):
        return f"{operator.op_type} with several outputs has no definition here"
    values = [workload.values[v] for v in (*operator.inputs[:1], *operator.outputs) if v >= 0]
    if any(value.dtype not in family.element_types for value in values for family in able):
        return f"{operator.op_type} on {values[0].dtype} has no definition here"
    reasons = [family.refusal(workload, operator) for family in able]
    return None if None in reasons else reasons[0]


def is_own(workload: Workload) -> bool:
    """Whether every operator of a workload has a definition of ours."""
    return all(refusal(workload, operator) is None for operator in workload.operators)
