"""What single choices of schedules gained, for other workloads of the same kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autofuse.kernels.workload.workload import Workload

CERTAIN = 4.0
"""So many workloads that took a step say as much of it as the rule does."""
MATTERS = ("kernel_shape", "group")
"""Attributes of an anchor by which workloads are of one kind."""

Step = tuple[str, tuple[tuple[str, object, object], ...]]
"""A kind of workload, and each knob that a schedule has otherwise than another, with both values."""


def step_kind(workload: Workload, anchors: frozenset[str]) -> str:
    """What workloads have in common that are taken for alike: their anchors, or their operators where there is none."""
    found = [
        f"{one.op_type}{[one.attribute(name) for name in MATTERS]}"
        for one in workload.operators
        if one.op_type in anchors
    ]
    return " ".join(found or sorted({one.op_type for one in workload.operators}))


def step_between(kind: str, old: Mapping[str, object], new: Mapping[str, object]) -> Step:
    """The step from one schedule to another, of a workload of this kind."""
    names = sorted(name for name in {**old, **new} if old.get(name) != new.get(name))
    return kind, tuple((name, old.get(name), new.get(name)) for name in names)


@dataclass
class Lessons:
    """What each step came to in the workloads that took it: how many, and the parts of their time that it saved."""

    known: dict[Step, tuple[int, float]] = field(default_factory=dict)

    def enter(self, step: Step, old_us: float, new_us: float) -> None:
        """Takes in what a workload took before and after a step, and what the way back would save."""
        for one, saved in ((step, 1.0 - new_us / old_us), (_back(step), 1.0 - old_us / new_us)):
            count, total = self.known.get(one, (0, 0.0))
            self.known[one] = count + 1, total + max(0.0, saved)

    def expected(self, step: Step, rule: float) -> float:
        """Part of its time that a step is expected to save, where the rule says so much of it."""
        count, total = self.known.get(step, (0, 0.0))
        return (CERTAIN * rule + total) / (CERTAIN + count)


def _back(step: Step) -> Step:
    kind, knobs = step
    return kind, tuple((name, new, old) for name, old, new in knobs)
