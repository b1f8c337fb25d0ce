"""How the search of one model divides its time: phases, batches, what is kept for the finalists."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.fusion.plan import LARGEST_TILE
from autofuse.values.names import NO_FUSION, TVM_PARTITION

LITTLE_FUSION = (NO_FUSION, TVM_PARTITION)
"""Fixed plans that are measured whole at the end in any case; their groups alone only when there is time."""
PAPER = "dnnfusion"
BATCH = 8
FIRST_SHARE, PLANS_SHARE, LITTLE_SHARE, FINALS_SHARE = 0.35, 0.3, 0.4, 0.2
PLANS_AT_ONCE = 6
"""Plan trials whose new groups are built and measured in one batch."""
CLEARLY = 0.95
"""Share of the leader's time at which a plan that fuses little becomes the leader."""
RIVAL_SHARE = 1 / 8
"""Weight of a workload that only a fixed plan has: small, yet no finalist has schedules that nobody searched."""
REST_SHARE = 0.02
"""Of the time left: the longest that a device which became slow rests at once."""
FINALS_MIN_S = 25.0
SECONDS_AGAIN = 6.0
"""One distrusted winner is measured again for so many seconds of measuring the finalists."""
START_S = 5.0
"""Seconds that the processes which build the finalists take to start and to load the model."""
FINALS_UNBOUNDED_S = 40.0
"""Seconds for measuring the finalists: at least, and where the job has no budget of time."""
IDLE_TRIALS = 40
"""Plan trials in a row without a better plan after which the plan search rests."""


def finals_seconds(budget_s: float | None) -> float:
    """Seconds kept for measuring the finalists whole (without building them) out of `budget_s`."""
    if budget_s is None:
        return FINALS_UNBOUNDED_S
    return max(min(FINALS_MIN_S, budget_s / 3), budget_s * FINALS_SHARE / 2)


def uncompared(absent: Sequence[str]) -> str:
    """What to say of an answer that a short budget left without these rivals; "" when none is absent."""
    if not absent:
        return ""
    return (
        f"the budget ended before plan {' and plan '.join(absent)} had a time, so the answer is not compared with "
        f"{'them' if len(absent) > 1 else 'it'}: run the same command again, or with a larger --budget"
    )


def limited(winograd: int) -> str:
    """What to say of a network that is right only with tiles of Winograd's algorithm up to `winograd`; "" for all."""
    if winograd == LARGEST_TILE:
        return ""
    taken = f"tiles of {winograd}x{winograd} at most" if winograd else "no such kernel"
    return f"this model magnifies the rounding of Winograd's algorithm: it gets {taken}, and is right so"


def loosely_held(worst: float) -> str:
    """What to say of a network whose error `worst` (part of the range) is allowed: ONNX Runtime's own are as large."""
    return (
        f"this model magnifies rounding: its outputs are off by up to {worst:.0e} of their range, and ONNX Runtime's "
        f"own, without its optimisations or with inputs that differ in the last bit, lie about as far apart"
    )
