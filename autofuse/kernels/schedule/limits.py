"""Schedules whose tiles of Winograd's algorithm are no larger than a plan allows (see `FusionPlan.winograd`)."""

from __future__ import annotations

import json
from collections.abc import Mapping

from autofuse.kernels.families.contraction.winograd import ALGORITHMS as WINOGRAD
from autofuse.kernels.families.protocol import Values

ALGORITHM = "contraction.algorithm"


def winograd_tile(schedule: Mapping[str, int | str]) -> int:
    """Side of the tiles that a schedule takes; 0 where it takes another algorithm."""
    return WINOGRAD.get(str(schedule.get(ALGORITHM)), 0)


def larger(most: int) -> tuple[str, ...]:
    """What stands in the text of a stored schedule whose tiles are larger than `most`."""
    return tuple(json.dumps(name) for name, tile in WINOGRAD.items() if tile > most)


def knobs_within(knobs: Mapping[str, Values], most: int) -> dict[str, Values]:
    """`knobs` without algorithms whose tiles are larger than `most`."""
    fitting = {
        name: tuple(value for value in values if winograd_tile({name: value}) <= most) for name, values in knobs.items()
    }
    return {name: values for name, values in fitting.items() if values}
