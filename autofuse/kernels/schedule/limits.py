"""Which schedules keep to a network's `ScheduleLimits`."""

from __future__ import annotations

import json
from collections.abc import Mapping

from autofuse.fusion.plan import ScheduleLimits
from autofuse.kernels.families.contraction.winograd import ALGORITHMS as WINOGRAD
from autofuse.kernels.families.protocol import Values
from autofuse.kernels.workload.levels import IN_FLOAT16, rounds_to_bytes

ALGORITHM = "contraction.algorithm"


def winograd_tile(schedule: Mapping[str, int | str]) -> int:
    """Side of the tiles that a schedule takes; 0 where it takes another algorithm."""
    return WINOGRAD.get(str(schedule.get(ALGORITHM)), 0)


def keeps(limits: ScheduleLimits, schedule: Mapping[str, int | str]) -> bool:
    """Whether a schedule's tiles of Winograd's algorithm are no larger than allowed; exact ones round to no float16 and
    no bytes."""
    rounds = schedule.get(ALGORITHM) in IN_FLOAT16 or rounds_to_bytes(schedule)
    return winograd_tile(schedule) <= limits.winograd_tile and not (limits.exact and rounds)


def keeps_text(limits: ScheduleLimits, text: str) -> bool:
    """The same of a stored schedule (JSON); one that cannot be read keeps to anything, since nothing is built of it."""
    try:
        schedule = json.loads(text)
    except ValueError:
        return True
    return not isinstance(schedule, dict) or keeps(limits, schedule)


def knobs_within(knobs: Mapping[str, Values], limits: ScheduleLimits) -> dict[str, Values]:
    """`knobs` without the values that no schedule within the limits has."""
    fitting = {name: tuple(value for value in values if keeps(limits, {name: value})) for name, values in knobs.items()}
    return {name: values for name, values in fitting.items() if values}
