"""The fastest precisions under a bound on noise, exactly: a small integer program, solved by HiGHS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from autofuse.errors import PlanError

SOLVER_SECONDS = 20.0


@dataclass(frozen=True)
class Choice:
    """A contraction that may multiply integers. `saved_us`: what that takes off; `noise`: what it adds to the outputs.

    `reads`: tensors that have to be bytes then.
    """

    name: str
    saved_us: float
    noise: float
    reads: tuple[str, ...]


@dataclass(frozen=True)
class Cast:
    """A tensor that has to be made bytes, which takes `us` unless the contraction `maker` makes them anyhow."""

    tensor: str
    us: float
    maker: str = ""


def fastest_precisions(choices: Sequence[Choice], casts: Sequence[Cast], most_noise: float) -> frozenset[str]:
    """Names of the contractions that multiply integers in the fastest set whose noises sum to `most_noise` at most.

    max sum(saved * x) - sum(us * y)   with   y(t) >= x(c) - x(maker of t) for each c that reads t.
    """
    if not choices:
        return frozenset()
    place = {choice.name: number for number, choice in enumerate(choices)}
    costs = [*(-choice.saved_us for choice in choices), *(cast.us for cast in casts)]
    limits = [_noise_limit(choices, len(casts), most_noise), *_links(choices, casts, place)]
    answer = milp(
        np.array(costs),
        integrality=np.array([1] * len(choices) + [0] * len(casts)),
        bounds=Bounds(0, 1),
        constraints=limits,
        options={"time_limit": SOLVER_SECONDS},
    )
    if answer.x is None:
        raise PlanError(f"no set of precisions was found in {SOLVER_SECONDS:g} s")
    return frozenset(choice.name for choice in choices if answer.x[place[choice.name]] > 0.5)


def _noise_limit(choices: Sequence[Choice], casts: int, most_noise: float) -> LinearConstraint:
    """In units of the bound, so that the solver's tolerances mean the same for every model."""
    unit = most_noise if 0 < most_noise < np.inf else 1.0
    row = [min(choice.noise / unit, 1e6) for choice in choices] + [0.0] * casts
    return LinearConstraint(np.array([row]), -np.inf, most_noise / unit)


def _links(choices: Sequence[Choice], casts: Sequence[Cast], place: dict[str, int]) -> list[LinearConstraint]:
    entries: list[tuple[int, int, float]] = []
    line = 0
    for number, cast in enumerate(casts):
        for choice in (one for one in choices if cast.tensor in one.reads):
            entries += [(line, len(choices) + number, 1.0), (line, place[choice.name], -1.0)]
            if cast.maker in place and cast.maker != choice.name:
                entries.append((line, place[cast.maker], 1.0))
            line += 1
    if not line:
        return []
    lines, columns, values = zip(*entries, strict=True)
    matrix = coo_array((values, (lines, columns)), shape=(line, len(choices) + len(casts))).tocsr()
    return [LinearConstraint(matrix, 0.0, np.inf)]
