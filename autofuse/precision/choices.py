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
    """A contraction in a `precision` besides float32. `saved_us`: what that takes off; `noise`: what it adds to the
    outputs.

    `reads`: tensors that have to be bytes then; none but for integers.
    """

    name: str
    saved_us: float
    noise: float
    reads: tuple[str, ...]
    precision: str


@dataclass(frozen=True)
class Cast:
    """A tensor that has to be made bytes, which takes `us` unless the contraction `maker` makes them anyhow: one that
    reads bytes itself."""

    tensor: str
    us: float
    maker: str = ""


def fastest_precisions(choices: Sequence[Choice], casts: Sequence[Cast], most_noise: float) -> dict[str, str]:
    """Precisions of contractions, by name, in the fastest set whose noises sum to `most_noise` at most; the others stay
    in float32.

    max sum(saved * x) - sum(us * y)   with   y(t) >= x(c) - x(maker of t) for each c that reads t,
    and   sum of x(c) <= 1 over the choices c of each contraction.
    """
    if not choices:
        return {}
    costs = [*(-choice.saved_us for choice in choices), *(cast.us for cast in casts)]
    limits = [
        _noise_limit(choices, len(casts), most_noise),
        _one_each(choices, len(casts)),
        *_links(choices, casts),
    ]
    answer = milp(
        np.array(costs),
        integrality=np.array([1] * len(choices) + [0] * len(casts)),
        bounds=Bounds(0, 1),
        constraints=limits,
        options={"time_limit": SOLVER_SECONDS},
    )
    if answer.x is None:
        raise PlanError(f"no set of precisions was found in {SOLVER_SECONDS:g} s")
    taken = zip(choices, answer.x, strict=False)
    return {choice.name: choice.precision for choice, x in taken if x > 0.5}


def _noise_limit(choices: Sequence[Choice], casts: int, most_noise: float) -> LinearConstraint:
    """In units of the bound, so that the solver's tolerances mean the same for every model."""
    unit = most_noise if 0 < most_noise < np.inf else 1.0
    row = [min(choice.noise / unit, 1e6) for choice in choices] + [0.0] * casts
    return LinearConstraint(np.array([row]), -np.inf, most_noise / unit)


def _one_each(choices: Sequence[Choice], casts: int) -> LinearConstraint:
    """At most one precision for each contraction."""
    names = list(dict.fromkeys(choice.name for choice in choices))
    lines = [names.index(choice.name) for choice in choices]
    ones = (np.ones(len(choices)), (lines, range(len(choices))))
    return LinearConstraint(coo_array(ones, shape=(len(names), len(choices) + casts)).tocsr(), 0.0, 1.0)


def _links(choices: Sequence[Choice], casts: Sequence[Cast]) -> list[LinearConstraint]:
    makers = {choice.name: number for number, choice in enumerate(choices) if choice.reads}
    entries: list[tuple[int, int, float]] = []
    line = 0
    for number, cast in enumerate(casts):
        for place, choice in enumerate(choices):
            if cast.tensor not in choice.reads:
                continue
            entries += [(line, len(choices) + number, 1.0), (line, place, -1.0)]
            if cast.maker in makers and cast.maker != choice.name:
                entries.append((line, makers[cast.maker], 1.0))
            line += 1
    if not line:
        return []
    lines, columns, values = zip(*entries, strict=True)
    matrix = coo_array((values, (lines, columns)), shape=(line, len(choices) + len(casts))).tocsr()
    return [LinearConstraint(matrix, 0.0, np.inf)]
