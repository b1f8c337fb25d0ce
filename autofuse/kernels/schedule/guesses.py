"""First guesses: schedules worth trying before any search, by rules that `experiments/priors` holds to measurements."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.device.rates import CoreRates
from autofuse.device.target import Target
from autofuse.kernels.families.protocol import Case, Guess, Schedule, Values
from autofuse.kernels.families.registry import families, nests_of
from autofuse.kernels.schedule.knobs import canonical, fits_registers, packed_like
from autofuse.kernels.workload.workload import Workload


def first_packed_like(
    workload: Workload, knobs: Mapping[str, Values], schedule: Schedule, target: Target, threads: int = 1,
    rates: CoreRates | None = None,
) -> Guess | None:  # fmt: skip
    """The first guess that packs constants as `schedule` of another number of rows does; None where there is none."""
    pinned = packed_like(knobs, schedule)
    guesses = [] if pinned is None else first_schedules(workload, pinned, target, threads, rates)
    return next((guess for guess in guesses if fits_registers(guess, target)), None)


def first_schedules(
    workload: Workload, knobs: Mapping[str, Values], target: Target, threads: int = 1, rates: CoreRates | None = None
) -> list[Guess]:
    """Schedules worth trying before any search, best guess first; all within `knobs`. `threads`: those that will run.
    `rates`: of the device, where they were probed.

    Each family adds its guesses to those of the families before it; at first there are the defaults alone.
    """
    case = Case(workload, tuple(nests_of(workload)), target, threads, knobs, rates)
    guesses = [case.default]
    for family in families():
        guesses = family.guesses(case, guesses)
    unique: dict[str, Guess] = {}
    for guess in guesses:
        if all(value in knobs[name] for name, value in guess.items() if name in knobs):
            kept = canonical(guess, knobs)
            unique.setdefault(str(sorted(kept.items())), kept)
    return list(unique.values())
