"""The time budget of one model's search: what part each phase, each batch and the finalists get."""

from __future__ import annotations

import math

from autofuse.fusion.plan import NO_LIMITS, ScheduleLimits
from autofuse.values.names import NO_FUSION, TVM_PARTITION

LITTLE_FUSION = (NO_FUSION, TVM_PARTITION)
"""Fixed plans that are measured whole at the end in any case; their groups alone only when there is time."""
FIXED = ("dnnfusion", "always")
"""Other fixed plans: finalists where they are among the best by the times of their groups, or few groups have none."""
BATCH = 8
FINALS_SHARE = 0.2
PLANS_AT_ONCE, FLIPS_AHEAD = 6, 24
"""Plan trials whose new groups are built and measured in one batch, and of how many these are the most promising."""
COMBINED_AHEAD = 12
"""Plans of several changed decisions that are compared before some of them are tried."""
PLANNING_S = 0.05
"""Seconds of a plan trial beyond its new groups: planning, lowering, recording."""
CLEARLY = 0.95
"""Share of the leader's time at which a plan that fuses little becomes the leader."""
RIVAL_SHARE = 1 / 32
"""Weight of a workload that only a fixed plan has: small, yet no finalist has schedules that nobody searched."""
NAMING_S = 3.0
"""A fixed plan is made only while more seconds than these are left: TVM takes so long to say how it would fuse."""
FIRST_CANDIDATE_S = 2.0
"""Seconds of building and timing a candidate, as long as the search has measured none."""
LEAST_OF_FIRST = 0.5
"""What is asked together with the best question of its kind promises at least this part of it for its seconds."""
PAYING = 0.2
"""Part of the best plan's time that all open changes together are said to save at most, at the end of a search."""
LARGEST_GAIN = 0.05
"""Part of the best plan's time that one changed decision saves at most."""
FIXED_GAIN = 0.002
"""Part of the best plan's time that the groups of a fixed plan (little fusion, or the paper's) save on the average."""
DOUBTED_ERROR = 0.02
"""Part of a kernel's time by which a time that is not trusted is wrong on the average, to the harm of the search."""
LEAST_COMPOSED, COMPOSING_S = 1e-3, 3.0
"""What a composition saves at least, as a part of the best plan's time, and its seconds before the first one."""
CARE = 3
"""Schedules that each kernel which the leading plan replaces has had in the end: by further ones hardly any catches up
with what came for it."""
CARE_SHARE, CARE_FROM = 0.25, 0.005
"""Candidates for that, as a part of those that were measured so far, and the part of the plan's time from which on a
kernel is worth one."""
EARLY_RACE_S = 4.0
"""Seconds of timing whole networks in turn while the search goes on."""
EARLY_SHARE = 0.2
"""Such a race takes at most this part of the time that is left."""
WRONG_SUMS = 0.25
"""Part of what the leading plan's sum promises over the plans that were raced that is not true of the network."""
EARLY_PLANS, NEAR = 4, 1.05
"""Plans of such a race, and how many times the least sum the others may have."""
UNKNOWN_US = 1.0
"""Stands for the time of the best plan while no plan has all its times."""
ASKING_SHARE = 0.1
"""A trained model is asked for at most this part of the time left."""
REST_SHARE = 0.02
"""A device that became slow rests for at most this part of the time left at once."""
FINALS_MIN_S = 25.0
SECONDS_AGAIN = 6.0
"""One distrusted winner is measured again for so many seconds of measuring the finalists."""
FINALISTS = 4
"""Plans that are measured whole, where there is time for so many."""
FINALE_SHARE = 0.5
"""Part of a budget that building, checking and measuring the finalists whole may be expected to take at most."""
AGAIN = 4
"""Finalists that there has to be time for when they are raced again: what won, the default, the best, the untuned."""
MOST_FOR_ONE = 1.6
"""So many times as much is kept for a single finalist where not even one fits in that part."""
SLACK = 1.1
"""The finalists get so much more time than they are expected to need: 55 % of a budget are kept for them at most, 88 %
for a single one."""
START_S = 2.0
"""Seconds that the processes which build the finalists take to start."""
PROBING_S = 2.5
"""Seconds of probing a machine's rates, where no run of this device and number of threads has them."""
KERNEL_S = 0.8
"""Seconds of building a kernel, as long as the search has not built one."""
LINKED_KERNEL_S = 0.03
"""Seconds of a kernel that the search has compiled: it is emitted again, for its weights, and linked."""
LINK_S = 1.0
"""Seconds of a library beyond its kernels: assembly and link."""
CHECK_S = 1.0
"""Seconds of starting the process that a library runs in, and of its first run."""
RECORD_S = 1.0
"""Seconds of recording the choice with the reasons of each edge."""
COMPOSE_S = 10.0
"""Seconds for composing the best plan of all groups before the finalists are built, at most."""
MOST_RACE = 5.0
"""A race that is not decided goes on for so many times the seconds that it was given, while a budget of time lasts."""
LEAST_RACE_S, LEAST_TURN_S = 6.0, 0.5
"""The shortest race that says anything: less where few finalists, with so many seconds for each, take turns in it."""
QUIET, QUIET_RACE = 0.25, 0.3
"""Where no more than the first part of the times is doubted, a race needs this part of the seconds that are kept for
one in noise: 1.5 to 3 s of six finalists on a core of its own."""
PRESSED = 0.5
"""Part of the race's seconds that is kept where there is not time for all finalists: one more of them is worth more."""
ALONE_S = 2.0
"""Seconds for timing a finalist that has no rival."""
ALONE_RACE_S, ALONE_RACE_SHARE = 5.0, 0.02
"""Seconds of the race of the chosen plan against ONNX Runtime alone at most, and the part of a budget kept for it."""
FINALS_UNBOUNDED_S = 40.0
"""Seconds for measuring the finalists: at least, and where the job has no budget of time."""
IDLE_TRIALS = 40
"""Plan trials in a row without a better plan after which the plan search rests."""


def finals_seconds(budget_s: float | None) -> float:
    """Seconds kept for measuring the finalists whole (without building them) out of `budget_s`."""
    if budget_s is None:
        return FINALS_UNBOUNDED_S
    return max(min(FINALS_MIN_S, budget_s / 3), budget_s * FINALS_SHARE / 2)


def race_until_decided_s(race_s: float, left_s: float) -> float:
    """Seconds that a race which was given `race_s` may take until it is decided, with `left_s` seconds left.

    Where no budget of time ends it (that of a number of trials), it gets what such a job keeps for its finalists.
    """
    if math.isinf(left_s):
        return max(race_s, FINALS_UNBOUNDED_S)
    return min(MOST_RACE * race_s, max(1.0, left_s))


def alone_race_seconds(budget_s: float | None) -> float:
    """Seconds kept for racing the chosen plan against ONNX Runtime alone out of `budget_s`."""
    return ALONE_RACE_S if budget_s is None else min(ALONE_RACE_S, ALONE_RACE_SHARE * budget_s)


def finale_most_s(budget_s: float | None) -> float:
    """Seconds out of `budget_s` that building and measuring the finalists may be expected to take at most."""
    return float("inf") if budget_s is None else FINALE_SHARE * budget_s


def limited(limits: ScheduleLimits) -> str:
    """What to say of a network that is right only within `limits`; "" where there are none."""
    if limits == NO_LIMITS:
        return ""
    tile = limits.winograd_tile
    taken = f"tiles of {tile}x{tile} at most" if tile else "no such kernel"
    return f"this model magnifies the rounding of Winograd's algorithm: its results are right with {taken}"


def loosely_held(worst: float) -> str:
    """What to say of a network whose error `worst` (part of the range) is allowed: ONNX Runtime's own are as large."""
    return (
        f"this model magnifies rounding: its outputs are off by up to {worst:.0e} of their range, and ONNX Runtime's "
        f"own, without its optimisations or with inputs that differ in the last bit, lie about as far apart"
    )
