"""Weights that Winograd makes larger: how much, and schedules that keep them within a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autofuse.compiler.report import RULE
from autofuse.compiler.schedule_ladder import Found, Ladder, legal
from autofuse.database.records import OK
from autofuse.errors import StrictMissError
from autofuse.kernels.schedule.limits import keeps
from autofuse.kernels.schedule.weight_size import held_bytes, model_bytes
from autofuse.kernels.workload.workload import BoundWorkload, Workload


@dataclass(frozen=True)
class WeightSize:
    """Bytes of the weights of all kernels: as the model has them, and as the kernels hold them (without padding)."""

    model: int = 0
    held: int = 0


@dataclass(frozen=True)
class _Sized:
    """A schedule, and the bytes that it makes of its workload's weights."""

    found: Found
    held: int


def weight_size(kernels: Sequence[BoundWorkload], found: Mapping[str, Found], ladder: Ladder) -> WeightSize:
    """Of kernels under the schedules `found`; weights that several kernels share count each time."""
    workloads = _by_key(kernels)
    held = {key: _held(workload, found[key], ladder) for key, workload in workloads.items()}
    return WeightSize(
        sum(model_bytes(bound.workload) for bound in kernels), sum(held[bound.workload.key] for bound in kernels)
    )


def within_growth(
    kernels: Sequence[BoundWorkload], found: Mapping[str, Found], ladder: Ladder, measured_only: bool
) -> dict[str, Found]:
    """`found` with other schedules where the weights would grow beyond the ladder's limit.

    Given up first is what costs least time for a byte, as measured; without times, what saves most. StrictMissError
    when a kernel would need a schedule that was not measured, and `measured_only`.
    """
    limit = ladder.limits.weight_growth
    if limit is None:
        return dict(found)
    workloads, uses = _by_key(kernels), Counter(bound.workload.key for bound in kernels)
    chosen = {key: _Sized(one, _held(workloads[key], one, ladder)) for key, one in found.items()}
    model = sum(count * model_bytes(workloads[key]) for key, count in uses.items())
    smaller = {
        key: list(_smaller(workloads[key], one.held, ladder, measured_only))
        for key, one in chosen.items()
        if one.held > model_bytes(workloads[key])
    }
    while (held := sum(uses[key] * one.held for key, one in chosen.items())) > limit * model:
        steps = [(key, other) for key in smaller for other in smaller[key] if other.held < chosen[key].held]
        if not steps:
            raise StrictMissError(
                f"--weight-growth {limit:g}: the kernels' weights are {held / model:.2f} times the model's, and none "
                "of what was measured makes them smaller: run `autofuse tune`, or compile without --strict"
            )
        key, other = min(steps, key=lambda step: _price(chosen[step[0]], step[1], uses[step[0]]))
        why = f"weights {held / model:.2f} times the model's without this change, allowed {limit:g}"
        chosen[key] = replace(other, found=replace(other.found, source=why))
    return {key: one.found for key, one in chosen.items()}


def _by_key(kernels: Sequence[BoundWorkload]) -> dict[str, Workload]:
    """The workloads of kernels, each once."""
    return {bound.workload.key: bound.workload for bound in kernels}


def _held(workload: Workload, found: Found, ladder: Ladder) -> int:
    return held_bytes(workload, found.schedule, ladder.target)


def _price(now: _Sized, other: _Sized, uses: int) -> tuple[float, int]:
    """What taking `other` costs: microseconds a byte that it saves (0 where a time is unknown), then the bytes."""
    saved = uses * (now.held - other.held)
    if now.found.us is None or other.found.us is None:
        return 0.0, -saved
    return uses * max(0.0, other.found.us - now.found.us) / saved, -saved


def _smaller(workload: Workload, held: int, ladder: Ladder, measured_only: bool) -> Iterator[_Sized]:
    """The best schedule measured here for each size below `held`; for the model's own size else the rules' first."""
    best: dict[int, Found] = {}
    for row in ladder.base.measured_schedules(ladder.environment.setting, workload.key):
        schedule = legal(row.schedule, ladder.target) if row.state == OK else None
        if schedule is None or row.median_us is None or not keeps(ladder.limits, schedule):
            continue
        size = _held(workload, Found(schedule, RULE), ladder)
        known = best.get(size)
        if size >= held or (known is not None and known.us is not None and row.median_us >= known.us):
            continue
        if rung := ladder.rung(workload, schedule, row):
            best[size] = Found(schedule, rung, row.median_us, "", row.trusted)
    if model_bytes(workload) not in best and not measured_only:
        for guess in ladder.guesses(workload):
            found = Found(dict(guess), RULE)
            best.setdefault(_held(workload, found, ladder), found)
    yield from (_Sized(found, size) for size, found in best.items() if size < held)
