"""What a schedule may choose: which knobs of the families a workload has, and which choices come to the same.

A schedule is a flat mapping `family.knob -> value`. Search spaces (TOML) give the values that are tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.device.target import Target
from autofuse.kernels.families import registry
from autofuse.kernels.families.protocol import Case, Family, FusedFamily, Schedule, Unit, Values
from autofuse.kernels.families.registry import family_of, fused_families, nests_of
from autofuse.kernels.workload.workload import Workload

Space = Mapping[str, Mapping[str, Sequence[int | str]]]
"""Family -> knob -> the values tried; what is absent has the values that the family declares."""


def declared_names() -> dict[str, frozenset[str]]:
    """Family -> names of its knobs."""
    return {family: frozenset(knobs) for family, knobs in registry.knobs().items()}


def tile_knobs() -> list[tuple[str, ...]]:
    """For each family that has such: its knobs that say how many results of a tile are written out in the code."""
    tiles = (
        tuple(family.full(knob) for knob, declared in family.knobs.items() if declared.tile)
        for family in registry.families()
    )
    return [tile for tile in tiles if tile]


def packing(schedule: Schedule) -> dict[str, int | str]:
    """The knobs that say how constants are packed, with their values in `schedule`.

    Of workloads that differ in their number of rows alone, schedules with the same ones pack the same weights alike.
    """
    return {
        f"{family}.{name}": schedule.get(f"{family}.{name}", knob.values[0])
        for family, own in registry.knobs().items()
        for name, knob in own.items()
        if knob.packs
    }


def packed_like(knobs: Mapping[str, Values], schedule: Schedule) -> dict[str, Values] | None:
    """`knobs` of a workload without the values that pack its constants otherwise than `schedule`, which may be that of
    another number of rows; None where a knob lacks the value."""
    wanted = packing(schedule)
    if any(value not in knobs.get(name, (value,)) for name, value in wanted.items()):
        return None
    return {name: (wanted[name],) if name in wanted else values for name, values in knobs.items()}


def open_knobs(workload: Workload, target: Target, space: Space) -> dict[str, Values]:
    """Every knob that makes a difference for `workload` -> the values to try, the first being the default."""
    case = Case(workload, tuple(nests_of(workload)), target)
    found: dict[str, Values] = {}
    for nest in case.nests:
        _add_open(found, case, family_of(workload, nest), nest, space)
    for family in fused_families():
        for unit in family.joined(workload, case.nests):
            if family.takes(workload, unit):
                _add_open(found, case, family, unit, space)
    return {name: values for name, values in found.items() if len(values) > 1}


def _add_open(found: dict[str, Values], case: Case, family: Family, unit: Unit, space: Space) -> None:
    """Adds to `found` what a unit makes of its family's knobs; of several units, the longest list of values counts."""
    for knob, declared in family.knobs.items():
        values = tuple(space.get(family.name, {}).get(knob, declared.values))
        useful = tuple(family.useful(case, unit, knob, values))
        name = family.full(knob)
        if len(useful) > len(found.get(name, ())):
            found[name] = useful


def canonical(schedule: Schedule, knobs: Mapping[str, Values]) -> dict[str, int | str]:
    """`schedule` without knobs that the workload lacks or that its other choices make idle."""
    kept = {name: value for name, value in sorted(schedule.items()) if name in knobs}
    for family in reversed(registry.families()):  # those that compute several nests come first, and may have the say
        kept = family.canonical(kept, knobs)
        if isinstance(family, FusedFamily) and family.rules(kept):
            break
    return kept


def fits_registers(schedule: Schedule, target: Target) -> bool:
    """Whether what a schedule holds in registers fits them."""
    return all(family.fits(schedule, target) for family in registry.families())
