"""First guesses: schedules worth trying before any search, by rules that `experiments/priors` holds to measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    return _distinct(_guessed(workload, knobs, target, threads, rates), knobs)


def narrowed_schedules(
    workload: Workload,
    knobs: Mapping[str, Values],
    target: Target,
    threads: int = 1,
    rates: CoreRates | None = None,
) -> list[Guess]:
    """What a search may try after the first of these: guesses with numbers that the knobs do not have, each with the
    nearest that they do have. A search space may be narrower than what the rules know."""
    guesses = _guessed(workload, knobs, target, threads, rates)
    known = _distinct(guesses, knobs)
    return [one for one in _distinct([_inside(guess, knobs) for guess in guesses], knobs) if one not in known]


def _guessed(
    workload: Workload, knobs: Mapping[str, Values], target: Target, threads: int, rates: CoreRates | None
) -> list[Guess]:
    case = Case(workload, tuple(nests_of(workload)), target, threads, knobs, rates)
    guesses = [case.default]
    for family in families():
        guesses = family.guesses(case, guesses)
    return guesses


def _distinct(guesses: Sequence[Guess], knobs: Mapping[str, Values]) -> list[Guess]:
    """The guesses within the knobs, equal ones once."""
    unique: dict[str, Guess] = {}
    for guess in guesses:
        if all(value in knobs[name] for name, value in guess.items() if name in knobs):
            kept = canonical(guess, knobs)
            unique.setdefault(str(sorted(kept.items())), kept)
    return list(unique.values())


def _inside(guess: Guess, knobs: Mapping[str, Values]) -> Guess:
    """A guess with numbers that the knobs have, the nearest ones."""
    return {name: _nearest(value, knobs.get(name, ())) for name, value in guess.items()}


def _nearest(value: int | str, values: Values) -> int | str:
    numbers = [one for one in values if isinstance(one, int) and one > 0]
    if value in values or not isinstance(value, int) or value <= 0 or not numbers:
        return value
    return min(numbers, key=lambda one: max(one / value, value / one))
