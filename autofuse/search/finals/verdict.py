"""The verdict at the end of a search: the plan that was chosen, the times of its rivals, what there was no time for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from autofuse.fusion.plan import FusionPlan
from autofuse.measure.networks.bench import OUT_OF_TIME
from autofuse.measure.networks.libraries import NO_TIME
from autofuse.search.progress import PlanTime
from autofuse.values.names import UNTUNED
from autofuse.values.ratios import Decision

LATE = (NO_TIME, OUT_OF_TIME)
"""Why a plan has no time that says nothing against it."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of a search. `times`: of the finalists by name. `name`, `plan`: the choice. `checked`: it was
    built whole and compared with ONNX Runtime; `further`: on inputs that no kernel was checked with, too. `decision`:
    what its race said (None: there was none). `alone`: what the race with ONNX Runtime alone said, or why there was
    none."""

    times: Mapping[str, PlanTime]
    name: str
    plan: FusionPlan
    checked: bool = True
    further: bool = True
    decision: Decision | None = None
    alone: str = ""

    @property
    def trusted(self) -> bool:
        """Whether the choice is decided; of a plan that was measured alone, whether its time is trusted."""
        if self.decision is None or not self.decision.verdict:
            return self.times[self.name].trusted
        return self.decision.trusted

    @property
    def together(self) -> bool:
        """Whether the plan and all its schedules were decided together, against what would be compiled untuned."""
        untuned = self.times.get(UNTUNED)
        raced = untuned is None or untuned.median_us is not None  # where it is missing, nothing is tuned
        return raced and self.decision is not None and self.decision.trusted


def left_out(verdict: Verdict, untimed: int, kernels: int, unnamed: Collection[str] = ()) -> tuple[str, ...]:
    """What a budget left no time for, a sentence each, the gravest first.

    `untimed`: distinct kernels of the chosen plan, of `kernels`, that have no time.
    `unnamed`: rivals that were not even made.
    """
    found = []
    if untimed:
        found.append(
            f"{untimed} of the {kernels} distinct kernels of plan {verdict.name} were not measured and take the rules' "
            f"first schedules"
        )
    if not verdict.checked:
        found.append(
            f"plan {verdict.name} was not built and checked as a whole"
            + ("" if untimed == kernels else f", only its {'measured ' if untimed else ''}kernels one by one")
        )
    elif not verdict.further:
        found.append(f"plan {verdict.name} was checked as a whole on one set of inputs only")
    rivals = [name for name, time in verdict.times.items() if time.problem in LATE and name != verdict.name]
    rivals += sorted(unnamed)
    if rivals:
        found.append(f"{names(rivals)} {'were' if len(rivals) > 1 else 'was'} not measured whole")
    return tuple(found)


def told(sentences: Sequence[str]) -> str:
    """The sentences of `left_out` as one warning; "" when there are none."""
    if not sentences:
        return ""
    return (
        f"the budget left no time for everything: {'; '.join(sentences)}. Run the same command again, which goes on "
        "from here, or give a larger --budget"
    )


def names(plans: Sequence[str]) -> str:
    """Names in a sentence: "plan a, plan b and plan c"."""
    *most, last = [f"plan {name}" for name in plans]
    return f"{', '.join(most)} and {last}" if most else last
